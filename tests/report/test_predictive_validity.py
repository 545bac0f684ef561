"""Tests of the section on predictive validity, its line in the terminal, and the record that `attnlab list tasks` shows."""

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from attnlab.cli import list as list_verb
from attnlab.report import write
from attnlab.report.methods import StudyInfo
from attnlab.report.predictive_validity import TITLE, describe_agreement, format_share, validity_section
from attnlab.report.proxy_validity import main, read_report
from attnlab.report.stored import load
from attnlab.stats.compare import summarize_cells
from attnlab.stats.predictive_validity import summarize_agreement
from attnlab.tasks import proxy_validity
from attnlab.tasks.proxy_validity import ProxyValidity, load_records, save_records, widest_record
from tests.support.levels import made_up_levels
from tests.support.pages import changed_files
from tests.support.paths import ROOT

GAPS = {f"v{i}": [0.02 * i, 0.02 * i, (0.09 if i == 4 else -0.02) * i] for i in range(1, 5)}
CURVES = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])
RECORD = ProxyValidity("pydocs", "levels", "0.8.0", "train.steps", 500, 4500, 5, 5, 10, 9, (0.51, 0.99))


def written(folder: Path, runs: list[dict[str, Any]], spec: Any) -> str:
    frame = pandas.DataFrame([run | {"task": "pydocs length=16"} for run in runs])
    write.write(folder, info=StudyInfo(spec), runs=frame, curves=CURVES)
    return (folder / "README.md").read_text()


def test_the_page_counts_the_verdicts_that_keep_their_sign(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS)
    section = written(tmp_path, runs, spec).partition(f"## {TITLE}")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")]
    agreements = summarize_agreement(summarize_cells(runs, spec), spec)
    for row, agreement in zip(rows[1:], agreements, strict=True):
        assert row[1:5] == [str(n) for n in (agreement.cells, agreement.pairs, agreement.verdicts, agreement.kept)]
        assert row[5] == format_share(agreement)
        assert row[6:] == [str(agreement.confirmed), str(agreement.reversed)]
    assert rows[1][:5] == ["500 to 1,500", "5", "10", "10", "10"] and rows[2][4] == "4"


def test_a_page_with_the_section_is_rendered_again_from_its_stored_tables(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    written(first, *made_up_levels(GAPS))
    write.write(again, **load(first))
    assert changed_files(first, again) == [] and TITLE in (again / "index.html").read_text()


def test_a_page_with_few_cells_has_no_section(tmp_path: Path) -> None:
    runs, spec = made_up_levels({name: GAPS[name] for name in ("v1", "v2", "v3")})
    assert TITLE not in written(tmp_path, runs, spec)


def test_an_agreement_in_one_line() -> None:
    runs, spec = made_up_levels(GAPS)
    first, last, _ = summarize_agreement(summarize_cells(runs, spec), spec)
    line = describe_agreement(last, spec)
    assert line.startswith("500 to 4,500 steps: 4 of 10 verdicts on 10 pairs of 5 cells") and format_share(last) in line
    assert "4 are the same verdict and 6 the opposite one" in line
    assert format_share(first).startswith("1.00 [0.40, 1.00]")  # as of four independent pairs


def test_without_verdicts_there_is_no_share() -> None:
    runs, spec = made_up_levels(GAPS, seeds=1)
    agreements = summarize_agreement(summarize_cells(runs, spec), spec)
    assert "no verdict on any of 10 pairs at 500" in describe_agreement(agreements[0], spec)
    section = validity_section(agreements, spec)
    assert section.table is not None and section.table.rows[0].cells[5] == ""


def test_the_command_records_a_report(tmp_path: Path) -> None:
    runs, spec = made_up_levels(GAPS)
    written(tmp_path / "report", runs, spec)
    out = tmp_path / "records.json"
    other, stale = (ProxyValidity(**{**RECORD.__dict__, "study": study, "kept": 1}) for study in ("other", spec.study))
    save_records([other, stale], out)
    assert main([str(tmp_path / "report"), "--out", str(out)]) == 0
    records = load_records(out)
    assert [record.study for record in records] == ["other", *[spec.study] * 3]
    agreements = summarize_agreement(summarize_cells(runs, spec), spec)
    for record, agreement in zip(records[1:], agreements, strict=True):
        assert (record.task, record.axis, record.seeds, record.cells) == ("pydocs", "train.steps", 5, 5)
        assert (record.lower, record.higher) == (agreement.lower, agreement.higher)
        assert (record.verdicts, record.kept, record.share) == (agreement.verdicts, agreement.kept, agreement.share)
        assert record.interval == pytest.approx(agreement.interval, abs=1e-4)
    widest = widest_record("pydocs", records[1:])
    assert widest is not None and (widest.lower, widest.higher) == (500, 4500)


def test_a_folder_without_verdicts_at_levels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--out", str(tmp_path / "x.json")]) == 2
    runs, spec = made_up_levels({"v1": GAPS["v1"]})
    written(tmp_path / "few", runs, spec)
    assert main([str(tmp_path / "few"), "--out", str(tmp_path / "x.json")]) == 2
    assert "report.json" in (errors := capsys.readouterr().err) and "at least 5 cells" in errors
    assert not (tmp_path / "x.json").exists()


def test_the_committed_record_is_that_of_the_committed_reports() -> None:
    records = load_records()
    assert records, "no study has been recorded"
    for study in dict.fromkeys(record.study for record in records):
        assert read_report(ROOT / "reports" / study) == [record for record in records if record.study == study]


def test_the_list_of_tasks_shows_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = ProxyValidity(**{**RECORD.__dict__, "higher": 1500, "kept": 10})
    monkeypatch.setattr(proxy_validity, "load_records", lambda: [narrow, RECORD])
    list_verb.print_registry("tasks")
    lines = capsys.readouterr().out.splitlines()
    column = lines[0].index("keeps sign")
    pydocs, enwik8 = (next(line for line in lines if line.startswith(f"{name} ")) for name in ("pydocs", "enwik8"))
    assert pydocs[column:].startswith("0.90 [0.51, 0.99], 500 to 4,500 steps") and enwik8[column:].startswith("-")
    assert "study levels, 5 seeds" in lines[-1] and json.dumps(RECORD.verdicts) in lines[-1]

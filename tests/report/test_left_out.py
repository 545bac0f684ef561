"""Tests that finished seeds and cells that a study leaves out are named, and that a page's commands make the page again."""

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml

from attnlab import load_runs
from attnlab.cli import main
from attnlab.cli._results import print_results
from attnlab.report.methods import StudyInfo, load_study_info, needed_calls, reproduction
from attnlab.report.result import judge
from attnlab.report.selection import describe_selection, described_verdicts
from attnlab.report.write import write_report as report
from attnlab.stats.compare import summarize_cells
from attnlab.stats.corrections import alternatives, correct_cells
from attnlab.stats.selection import Selection
from attnlab.stats.sequential import Looks
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.calls import Call
from tests.report.test_summary import ONE
from tests.study.test_study import QUIET, study
from tests.support.empty_store import copy_store
from tests.support.paths import ROOT
from tests.support.specs import changed
from tests.support.synthetic import INFO

STUDY = """\
study: tiny
base:
  task: {name: pydocs, length: 16}
  model: {dim: 8, depth: 1, heads: 2}
  train: {steps: 4, batch_size: 2}
  evaluate: {valid_limit: 200, test_limit: 200}
  machine: {device: cpu}
grid:
  variant: [dense, basic]
seeds: [0, 1, 2]
baseline: {variant: dense}
reference_scores: false
"""


def _go(root: Path, **changes: Any) -> StudyResult:
    return run(study(**changes), root=root, display=QUIET, train="tests.support.study_fakes:settling")


def test_seeds_that_a_later_plan_leaves_out_are_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison = {"baseline": {"variant": "dense"}}
    _go(root, seeds=[0, 1, 2, 3], **comparison)
    assert _left_out(root) == [] and "left out of" not in _readme(root, tmp_path)

    result = _go(root, seeds=[0, 2, 3], **comparison)
    assert {(row["cell"], row["seed"], row["left_out"]) for row in _left_out(root)} == {
        ("dense learned", 1, "seed"),
        ("no_wo learned", 1, "seed"),
    }
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    print_results(result, judge(result))
    for text in (capsys.readouterr().out, _readme(root, tmp_path), (tmp_path / "page" / "index.html").read_text()):
        assert "2 finished runs left out" in text and "no_wo learned (seed 1)" in text
        assert "change no verdict" in text and "p-values are too small" in text

    _go(root, seeds=[0, 1, 2, 3], **comparison)
    assert _left_out(root) == []


def test_only_cells_that_were_trained_alike_are_named(root: Path, tmp_path: Path) -> None:
    _go(root, grid={"variant": ["dense", "no_wo", "narrow"]}, seeds=[0, 1, 2])
    base = study()["base"]
    _go(root, grid={"variant": ["dense", "no_wo"]}, seeds=[0, 1, 2])
    assert {(row["cell"], row["left_out"]) for row in _left_out(root)} == {("narrow", "cell")}
    assert "the cell narrow (seeds 0, 1, 2)" in _readme(root, tmp_path)
    longer = {**base, "train": {**base["train"], "steps": 30}}
    _go(root, grid={"variant": ["dense", "no_wo"]}, base=longer, seeds=[0, 1])
    assert _left_out(root) == []  # another training


def _left_out(root: Path) -> list[Any]:
    return list(load_study_info(load_runs("small", root), root=root).selection.left_out)


def _readme(root: Path, tmp_path: Path) -> str:
    return (report("small", root, tmp_path / "page") / "README.md").read_text()


def test_the_warning_has_the_verdict_with_all_seeds() -> None:
    values = {"dense": [2.0, 2.1, 2.2, 2.05, 2.15], "a": [2.1, 2.21, 2.3, 1.9, 1.95]}
    runs = [
        {"variant": name, "seed": seed, "state": "completed", "bits_per_byte": value}
        for name, scores in values.items()
        for seed, value in enumerate(scores)
    ]
    shown, left_out = [r for r in runs if r["seed"] < 3], [{**r, "left_out": "seed"} for r in runs if r["seed"] >= 3]
    cells = summarize_cells(shown, ONE)
    everything = summarize_cells(runs, ONE)

    def describe(runs: list[Any], cells: list[Any]) -> str:
        selection = Selection(tuple(runs))
        cells = correct_cells(cells, alternatives(shown, ONE, selection), selection)
        return describe_selection(selection, cells, ONE, corrected=described_verdicts(cells, [], None))

    text = describe(left_out, cells)
    assert cells[1].verdict is not None and cells[1].verdict.kind == "worse"
    assert everything[1].verdict is not None and everything[1].verdict.kind == "inconclusive"
    assert everything[1].difference is not None and f"p {everything[1].difference.p_holm:.3f}" in text
    assert "a inconclusive" in text and "instead of worse" in text and "dense (seeds 3, 4)" in text
    assert describe([], cells) == ""
    unconfirmed = summarize_cells([{"variant": "b", "seed": 0, "state": "not confirmed"}], ONE)  # it has no run
    assert describe(left_out, [*cells, *unconfirmed]) == text


def _info(*calls: Call, **changes: Any) -> StudyInfo:
    return replace(INFO, calls=calls, **changes)


RUN = Call("attnlab run a/x.yaml --set seeds=[0,1]", "x.yaml", "study: x\n", time=1_000)
LATER = replace(RUN, command="attnlab run a/x.yaml", time=5_000)
STARTED = [{"started": pandas.Timestamp(seconds, unit="s", tz="UTC")} for seconds in (2, 6)]


def test_the_last_call_suffices_unless_the_page_depends_on_earlier_ones() -> None:
    assert needed_calls(_info(RUN, LATER), STARTED) == [LATER]
    assert needed_calls(_info(RUN, replace(LATER, partial=True)), STARTED)[0] == RUN
    assert needed_calls(_info(RUN, LATER, changes=("margin 1",)), STARTED) == [RUN, LATER]
    assert needed_calls(_info(RUN, LATER, selection=Selection((STARTED[0],))), STARTED[1:]) == [RUN, LATER]
    looks = changed(INFO.spec, looks=Looks(2, 4))
    in_python = replace(RUN, command=f"{RUN.command} --until-conclusive --max-seeds 4")
    assert needed_calls(_info(RUN, LATER, spec=looks), STARTED) == [in_python]
    adaptive = replace(LATER, command=f"{LATER.command} --until-conclusive")
    assert needed_calls(_info(RUN, adaptive, spec=looks), STARTED) == [adaptive]
    assert needed_calls(_info(adaptive, LATER, spec=looks), STARTED) == [adaptive, LATER]
    auto = replace(LATER, text="study: x\nseeds: auto\n")
    assert needed_calls(_info(RUN, auto, spec=looks), STARTED) == [auto]
    assert needed_calls(_info(replace(RUN, time=0), RUN, replace(LATER, partial=True)), STARTED) == [
        RUN,
        replace(LATER, partial=True),
    ]


def test_commands_have_no_path_of_one_machine_and_no_shared_queue() -> None:
    call = replace(RUN, command="attnlab run /home/someone/x.yaml --storage '***' --workers 2 --storage=b")
    made = reproduction(_info(call), [])
    assert list(made.commands) == ["attnlab run x.yaml --workers 2", f"attnlab report {INFO.spec.study}"]
    assert "cat > x.yaml <<" in made.script and "/home" not in made.script
    assert "mkdir -p a\ncat > a/x.yaml" in reproduction(_info(RUN), []).script


def test_several_study_files_are_numbered() -> None:
    made = reproduction(_info(RUN, replace(LATER, text="study: y\n", partial=True)), STARTED)
    assert [text for _, text in made.files] == ["study: x", "study: y"]
    assert [line.partition("#")[2] for line in made.commands] == [" with study file 1", " with study file 2", ""]
    assert made.script.count("cat > a/x.yaml") == 2


def test_the_file_of_a_run_from_a_dictionary_has_its_assignments(root: Path) -> None:
    run(study(), sets={"train.lr": 0.125, "seeds": [7]}, root=root, display=QUIET, train="tests.support.study_fakes:good")
    info = load_study_info(load_runs("small", root), root=root)
    assert "lr: 0.125" in info.yaml and "- 7" in info.yaml and info.calls[0].command == "attnlab run small.yaml"


def test_the_command_line_may_name_the_study(root: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study()))
    named = {"sets": {"study": "other"}, "root": root}
    run(tmp_path / "small.yaml", **named, display=QUIET, train="tests.support.study_fakes:good")
    page = (report("other", root, tmp_path / "page") / "README.md").read_text()
    assert page.startswith("# other\n") and "attnlab report other" in page


def test_the_commands_of_a_page_make_the_page_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    (first / "my studies").mkdir(parents=True)
    copy_store(again / "runs")
    file = first / "my studies" / "tiny.yaml"
    run_file = ["run", str(file.relative_to(first)), "--set", "train.lr=0.01"]
    monkeypatch.chdir(first)
    monkeypatch.delenv("ATTNLAB_RUNS")
    monkeypatch.setattr("sys.argv", ["attnlab", *run_file])  # the page quotes the command
    file.write_text(STUDY)
    assert main.main(run_file) == 0
    file.write_text(STUDY.replace("[0, 1, 2]", "[0, 2]"))
    assert main.main(run_file) == 0

    page = (first / "reports/tiny/README.md").read_text()
    commands = re.search(r"## Reproduction\n\n```\n(.*?)\n```", page, re.DOTALL)
    assert commands is not None
    script = (first / "reports/tiny/reproduce.sh").read_text()
    assert [line.partition("   #")[0] for line in commands[1].splitlines()] == [
        line for line in script.splitlines() if line.startswith("attnlab ")
    ]
    _shell(again, script)
    tables = [_table(folder / "reports/tiny/cells.csv") for folder in (first, again)]
    assert tables[0] == tables[1] and len(tables[0]) == 2 and tables[0][1]["n"] == "2"
    warnings = [
        re.findall(r"\*\*(2 finished runs left out.*)\*\*", (f / "reports/tiny/README.md").read_text()) for f in (first, again)
    ]
    assert warnings[0] == warnings[1] and len(warnings[0]) == 1


def _shell(folder: Path, script: str) -> None:
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir()
    (bin_folder / "attnlab").write_text(f'#!/bin/sh\nexec {sys.executable} -m attnlab "$@"\n')
    (bin_folder / "attnlab").chmod(0o755)
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-c", script], cwd=folder, env=environment, check=True, capture_output=True)


def _table(path: Path) -> list[dict[str, str]]:
    measured = ("tokens_per_s", "host_peak_mib", "gpu_peak_mib", "train_seconds", "seconds")
    return [{k: v for k, v in row.items() if k not in measured} for row in csv.DictReader(path.open(encoding="utf-8"))]

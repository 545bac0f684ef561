"""Tests of the section on other lengths: its scores, its plots, and the cells without a score."""

from typing import Any

import numpy
import pytest

from attnlab.report.analysis import Results
from attnlab.report.figures import cell_colors
from attnlab.report.lengths import LengthsAnalysis
from attnlab.report.section import PageSection, Table
from attnlab.report.wording import format_interval
from attnlab.stats.compare import ComparisonSpec, summarize_cells
from attnlab.stats.compared import compare_cells
from attnlab.stats.sequential import Looks
from tests.support.specs import changed
from tests.support.synthetic import SPEC, made_up

LENGTHS = (64, 128, 256, 512)
REASON = "learned positions: trained up to 128"


def records(**changes: Any) -> list[dict[str, Any]]:
    """Return runs of ten cells trained at 128; learned ones end there, and each doubling or halving adds 0.1 to a score."""
    runs: list[dict[str, Any]] = made_up()[0].to_dict("records")  # type: ignore[assignment]
    for run in runs:
        run["length"] = 128.0
        for doublings, length in enumerate(LENGTHS, start=-1):
            stuck = run["position"] == "learned" and length > 128
            run[f"length.{length}"] = REASON if stuck else float("nan")
            run[f"bits_per_byte_at/{length}"] = float("nan") if stuck else run["bits_per_byte"] + abs(doublings) / 10
            run[f"other_at/{length}"] = 0.0
    return [{**run, **changes} for run in runs]


def section(runs: list[dict[str, Any]], spec: ComparisonSpec = SPEC) -> PageSection | None:
    compared, analysis = compare_cells(runs, spec), LengthsAnalysis()
    results = Results(compared, colors=cell_colors(compared.cells))
    curves = analysis.estimate(results)
    return analysis.section(curves, results) if curves else None


def made(runs: list[dict[str, Any]]) -> PageSection:
    result = section(runs)
    assert result is not None
    return result


def table_of(section: PageSection | None) -> Table:
    assert section is not None and section.table is not None
    return section.table


def test_a_study_without_other_lengths_has_no_such_section() -> None:
    assert section(made_up()[0].to_dict("records")) is None  # type: ignore[arg-type]
    only = [{k: v for k, v in run.items() if "_at/" not in k and "length." not in k} for run in records()]
    assert section(only) is None
    assert section([{**run, "bits_per_byte_at/128": run["bits_per_byte"]} for run in only]) is None, "only the trained one"


def test_cells_all_of_which_go_anywhere_have_the_section_too() -> None:
    anywhere = [run for run in records() if run["position"] == "rotary"]
    assert [line.cells[0] for line in table_of(made(anywhere)).rows][:2] == ["dense rotary", "einsum rotary"]


def test_the_score_at_the_trained_length_is_that_of_the_test() -> None:
    rows = [{k: v for k, v in run.items() if k != "bits_per_byte_at/128"} for run in records()]
    assert made(rows).table == made(records()).table


def test_the_plots_say_what_is_better() -> None:
    rows, spec = records(), changed(SPEC, direction="max")
    higher = section(rows, spec)
    assert higher is not None and all("higher is better" in plot.svg for plot in higher.plots)
    assert all("lower is better" in plot.svg for plot in made(rows).plots)


def test_the_table_has_mean_and_interval_by_length_and_says_who_cannot() -> None:
    table = table_of(made(records()))
    by_length = [f"{what} {length}" for length in LENGTHS for what in ("at", "difference at")]
    assert [column.heading for column in table.columns] == ["cell", "trained at", *by_length]
    lines = {line.cells[0]: [line.cells[1], *line.cells[2::2]] for line in table.rows}
    assert lines["dense learned"][0] == "128" and lines["dense learned"][3:] == ["not evaluated", "not evaluated"]
    figures = [float(cell.split(" ± ")[0]) for cell in lines["dense rotary"][1:]]
    assert [f - figures[1] for f in figures] == pytest.approx([0.1, 0.0, 0.1, 0.2], abs=1.5e-4)
    assert "basic rotary" not in lines, "a refused cell has no model"
    assert len(table.rows) == 9


def test_differences_at_a_length_are_paired_by_seed() -> None:
    rows = records()
    for run in rows:
        run["bits_per_byte_at/512"] += 0.5 + run["seed"] ** 2 / 100 if run["variant"] == "einsum" else 0.0
    lines = {line.cells[0]: line.cells for line in table_of(made(rows)).rows}
    trained, (mean, half) = lines["einsum rotary"][5], lines["einsum rotary"][-1].split(" ± ")
    scores: dict[str, dict[int, float]] = {run["cell"]: {} for run in rows}
    for run in rows:
        scores[run["cell"]][run["seed"]] = run["bits_per_byte_at/512"]
    pairs = [score - scores["dense rotary"][seed] for seed, score in scores["einsum rotary"].items()]
    assert float(mean) == pytest.approx(sum(pairs) / 3, abs=1e-4)
    assert float(half) == pytest.approx(4.3027 * numpy.std(pairs, ddof=1) / 3**0.5, rel=1e-2)
    assert trained != lines["einsum rotary"][-1] and lines["dense rotary"][-1] == "", "the baseline"


def test_reasons_are_told_once_for_the_cells_that_share_them() -> None:
    notes = [note for note in made(records()).notes if note.startswith("Not evaluated")]
    assert len(notes) == 1 and notes[0].startswith("Not evaluated at 256, 512: dense learned, einsum learned, ")
    assert notes[0].endswith(f"({REASON}).")
    rows = records()
    rows[3]["length.512"] = "out of memory: requested 1.2 GiB"
    assert sum(note.startswith("Not evaluated") for note in made(rows).notes) == 2


def test_where_some_seeds_have_a_score_it_says_how_many() -> None:
    rows = [run for run in records() if run["position"] == "rotary" and run["variant"] in ("dense", "no_wo")]
    for run in rows[1:3]:
        run |= {"bits_per_byte_at/512": float("nan"), "length.512": "out of memory: requested 9 GiB"}
    result = made(rows)
    cells = {line.cells[0]: line.cells[-4::2] for line in table_of(result).rows}
    score = rows[0]["bits_per_byte_at/512"]
    assert cells["dense rotary"][1] == f"{score:.4f} (1 of 3)" and "of" not in cells["dense rotary"][0]
    notes = [note for note in result.notes if "evaluated at 512" in note]
    assert notes == ["Only 1 of 3 seeds evaluated at 512: dense rotary (out of memory: requested 9 GiB)."]


def test_intervals_at_a_length_are_corrected_for_the_looks() -> None:
    rows = records()
    looked = changed(SPEC, looks=Looks(3, 12))
    table = summarize_cells(rows, looked)
    corrected = section(rows, looked)
    assert corrected is not None and "corrected for the looks" in corrected.notes[0] and "looks" not in made(rows).notes[0]
    row, line = table[0], table_of(corrected).rows[0]
    assert line.cells[4] == format_interval(row.value), "at the trained length that of the verdicts"
    assert format_interval(row.value) != table_of(made(rows)).rows[0].cells[4]

"""Tests of the effects of a factorial study on its page, in its files and in the terminal."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

from attnlab.cli._results import print_lines
from attnlab.config.design import Factor, FactorialDesign
from attnlab.config.factors import design_cell_name
from attnlab.report.analysis import Results, analyze
from attnlab.report.factorial import describe_effect_verdict, effect_notes, effect_table, summarize_effects
from attnlab.report.stored import load
from attnlab.report.wording import SIMULTANEOUS_MARK
from attnlab.report.write import write
from attnlab.stats.compare import summarize_cells
from attnlab.stats.compared import compare_cells
from attnlab.stats.factorial import estimate_effects
from attnlab.stats.joint import hides_correction, simultaneous_interval
from attnlab.stats.verdict import VerdictKind
from attnlab.study.comparison import StudyInfo
from tests.support.specs import comparison_spec

DESIGN = FactorialDesign(
    "fractional",
    (
        Factor("no_wo", ("off", "on"), ("", "no_wo")),
        Factor("position", ("learned", "rotary"), ("", "rotary")),
        Factor("model.ff_mult", ("4", "2"), ("", "ff_mult=2")),
        Factor("gate", ("off", "on"), ("", "gate")),
    ),
    8,
)
AXES = tuple(factor.name for factor in DESIGN.factors)
ORDER = tuple(design_cell_name(DESIGN, point) for point in DESIGN.points)
SPEC = comparison_spec("parts", AXES, "bits_per_byte", "min", margin=0.05, factorial=DESIGN, order=ORDER)
INFO = StudyInfo(SPEC, "study: parts\n")
STARTED = pandas.Timestamp("2026-01-02 03:04", tz="UTC")
NO_CURVES = pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"])


def runs(*, lost: tuple[tuple[int, int], ...] = (), seeds: int = 6) -> pandas.DataFrame:
    """Return the runs of a study in which rotary helps by 0.3 and half the feed-forward costs 0.2; gate does nothing."""
    random, rows = numpy.random.RandomState(2), []
    shifts = random.normal(0, 0.2, seeds)
    for i, point in enumerate(DESIGN.points):
        labels = {f.name: f.levels[level] for f, level in zip(DESIGN.factors, point, strict=True)}
        cell = design_cell_name(DESIGN, point)
        for seed in range(seeds):
            value = 3 - 0.3 * point[1] + 0.2 * point[2] + shifts[seed] + random.normal(0, 0.01)
            ended: dict[str, Any] = {"state": "completed", "reason": "", "bits_per_byte": value}
            if (i, seed) in lost:
                ended = {"state": "diverged", "reason": "the loss became nan", "bits_per_byte": None}
            common = {"run_id": f"{i}{seed}", "name": f"{cell} s{seed}", "cell": cell, "seed": seed, "sources": {}}
            rows.append({**common, **labels, **ended, "test": "", "folder": "", "started": STARTED, "seconds": 1.0})
    return pandas.DataFrame(rows)


def test_terminal_page_and_files_have_the_same_effects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = write(tmp_path, info=INFO, runs=runs(), curves=NO_CURVES)
    section = next(section for section in page.sections if section.title == "Effects")
    assert section.table is not None
    texts = {row.cells[0]: list(row.cells[1:]) for row in section.table.rows}
    assert texts["rotary instead of learned"][2] == "better" and texts["ff_mult=2 instead of 4"][2] == "worse"
    assert texts["gate"][2] == "equivalent within the margin" and "(equivalence)" in texts["gate"][1]
    assert "no_wo × rotary (+ ff_mult=2 × gate)" in texts, "an interaction is shown with its aliases"

    cells = summarize_cells([{str(k): v for k, v in row.items()} for row in runs().to_dict("records")], SPEC)
    result = estimate_effects(cells, SPEC)
    print_lines(analyze(Results(compare_cells(runs().to_dict("records"), SPEC))))
    printed = capsys.readouterr().out
    with (tmp_path / "effects.csv").open() as file:
        stored = {row["effect"]: row for row in csv.DictReader(file)}
    assert result is not None and len(stored) == len(result.effects) == 7
    for effect, row in zip(result.effects, effect_table(result).rows, strict=True):
        assert list(row.cells[1:]) == texts[row.cells[0]]
        assert row.cells[1] in printed
        assert float(stored[effect.name]["estimate"]) == pytest.approx(effect.difference.interval.mean, rel=1e-5)
        assert float(stored[effect.name]["p_holm"]) == pytest.approx(effect.difference.p_holm, rel=1e-5)


def test_the_page_opens_with_the_effects_and_states_the_design(tmp_path: Path) -> None:
    page = write(tmp_path, info=INFO, runs=runs(), curves=NO_CURVES)
    text = (tmp_path / "README.md").read_text()
    plain = "".join(page.summary.plain)
    assert plain.startswith("Better with `rotary instead of learned`; worse with `ff_mult=2 instead of 4`; within 0.0")
    better, worse, equivalent = (page.summary.text.index(name) for name in ("1 is better", "1 is worse", "2 are equivalent"))
    assert better < page.summary.text.index("rotary instead of learned by 0.") < worse
    assert worse < page.summary.text.index("ff_mult=2 instead of 4 by 0.") < equivalent
    assert "resolution IV: D = ABC" in text and "24 runs against 24" in text and "seeds as blocks" in text
    for plot in ("main-effects.svg", "interactions.svg"):
        assert (tmp_path / plot).is_file() and plot in text
    assert "effects.csv" in text


def test_sums_of_aliased_interactions_are_not_called_interactions() -> None:
    cells = summarize_cells(runs().to_dict("records"), SPEC)  # type: ignore[arg-type]
    result = estimate_effects(cells, SPEC)
    assert result is not None and all(effect.aliases for effect in result.interactions)
    text = summarize_effects(result, SPEC).text
    assert (
        "Of 3 sums of interactions and their aliases, 3 are equivalent" in text
        and "the sum no_wo × rotary + ff_mult=2 × gate" in text
    )
    three = replace(result.interactions[0], aliases=((1.0, "c × d"), (1.0, "e × f"), (-1.0, "g × h")))
    worse = replace(three, verdict=replace(three.verdict, kind=VerdictKind.WORSE))
    changed = replace(result, effects=(*result.main, worse))
    text = summarize_effects(changed, SPEC).text
    assert "of 1 sum of interactions" in text.lower() and "the sum of no_wo × rotary and 3 others" in text
    assert "together" not in text
    assert describe_effect_verdict(worse) == "worse"
    clear = replace(worse, aliases=())
    assert "worse together" in summarize_effects(replace(result, effects=(*result.main, clear)), SPEC).text


def test_an_effect_whose_interval_alone_excludes_zero_has_the_simultaneous_one_beside_it() -> None:
    result = estimate_effects(summarize_cells(runs().to_dict("records"), SPEC), SPEC)  # type: ignore[arg-type]
    assert result is not None
    gate = next(effect for effect in result.effects if effect.name == "gate")
    assert gate.verdict.kind is not VerdictKind.WORSE and not hides_correction(gate.difference)
    interval = replace(gate.difference.interval, mean=0.012, sd=0.01, low=0.0015, high=0.0225)
    hidden = replace(gate, difference=replace(gate.difference, interval=interval, p=0.03, p_table=0.12))
    changed = replace(result, effects=tuple(hidden if effect is gate else effect for effect in result.effects))
    outer = simultaneous_interval(hidden.difference)
    assert outer is not None and hides_correction(hidden.difference)
    rows = [" ".join(row.cells) for row in effect_table(changed).rows]
    assert [f"± {outer.format_half_width()} {SIMULTANEOUS_MARK}" in row for row in rows] == [
        row.startswith("gate") for row in rows
    ]
    (note,) = (note for note in effect_notes(changed, SPEC) if note.startswith(SIMULTANEOUS_MARK))
    assert "gate +0.012 ± 0.011." in note
    assert not any(note.startswith(SIMULTANEOUS_MARK) for note in effect_notes(result, SPEC))


def test_lost_runs_are_stated_on_the_page(tmp_path: Path) -> None:
    lost = tuple((0, seed) for seed in range(6))
    write(tmp_path, info=INFO, runs=runs(lost=lost), curves=NO_CURVES)
    text = (tmp_path / "README.md").read_text()
    assert "6 diverged" in text and "the other 42 runs" in text and "Not estimated, because runs are missing" in text


def test_a_stored_page_renders_again(tmp_path: Path) -> None:
    write(tmp_path / "one", info=INFO, runs=runs(), curves=NO_CURVES)
    stored = load(tmp_path / "one")
    assert stored["info"].spec.factorial == DESIGN
    write(tmp_path / "two", **stored)
    for name in ("README.md", "index.html", "main-effects.svg"):
        assert (tmp_path / "one" / name).read_text() == (tmp_path / "two" / name).read_text()

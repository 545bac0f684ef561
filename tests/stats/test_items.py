"""Tests of the split of a difference's uncertainty into seeds and test items."""

from pathlib import Path

import numpy
import pytest

from attnlab.report.notes import NEW_ITEMS
from attnlab.report.stored import cells_frame
from attnlab.report.verdicts import verdict_table
from attnlab.report.wording import describe_verdict
from attnlab.report.write import write_report as report
from attnlab.stats.items import ItemReader, Scores, UncertaintyParts, judge_items, split_uncertainty, standard_errors
from attnlab.study.run import run
from tests.report.test_summary import ONE, study
from tests.study.test_study import QUIET
from tests.study.test_study import study as small_study
from tests.support.specs import changed


def made_up(
    *, of_seed: float, of_item: float, seeds: int = 40, items: int = 400, count: int = 1
) -> tuple[ItemReader, dict[str, list[float]]]:
    """Return items and values of two cells whose difference has these standard deviations over seeds and over items."""
    rng = numpy.random.default_rng(1)
    by_item = rng.normal(0, of_item, items)
    by_cell: dict[str, dict[int, Scores]] = {"dense": {}, "no_wo": {}}
    values: dict[str, list[float]] = {"dense": [], "no_wo": []}
    for seed in range(seeds):
        shift = rng.normal(0, of_seed)
        for cell, scores in (("dense", numpy.full(items, 2.0)), ("no_wo", 2.0 + by_item + shift)):
            values[cell].append(float(scores.mean()))
            by_cell[cell][seed] = scores, numpy.full(items, count)
    return lambda cell, metric: by_cell[cell], values


@pytest.mark.parametrize(("of_seed", "of_item"), [(0.01, 0.02), (0.001, 0.2)])
def test_the_parts_are_the_standard_errors_over_seeds_and_over_items(of_seed: float, of_item: float) -> None:
    items, values = made_up(of_seed=of_seed, of_item=of_item)
    (part,) = split_uncertainty(items, study(values), ONE)
    assert (part.cell, part.baseline) == ("no_wo", "dense")
    assert part.seeds == pytest.approx(of_seed / 40**0.5, rel=0.25) and part.items == pytest.approx(of_item / 400**0.5, rel=0.1)
    assert part.item_share == pytest.approx(part.items**2 / (part.seeds**2 + part.items**2))


def test_consecutive_segments_of_a_text_are_taken_together() -> None:
    """Twenty files of twenty segments each, all alike within a file."""
    of_file = numpy.random.default_rng(2).normal(0, 0.1, 20).repeat(20)
    differences = numpy.stack([of_file, of_file + 0.01])
    alone, together = (standard_errors(differences, numpy.full(400, count)) for count in (1, 16))
    assert (alone[2], together[2]) == (400, 8)
    assert 2 < together[1] / alone[1] < 7, "sqrt(20) = 4.5, from eight blocks"
    assert standard_errors(differences[:, :5], numpy.full(5, 16))[2] == 5


def test_scatter_of_single_scores_is_no_effect_of_items() -> None:
    """Each seed is wrong on other items: a longer test and more seeds help alike, and the items do not differ."""
    differences = numpy.random.default_rng(3).normal(0, 1, (4, 1_000))
    over_seeds, over_items, _ = standard_errors(differences, numpy.ones(1_000))
    assert over_seeds == pytest.approx(1 / 4_000**0.5, rel=0.6) and over_items < 0.5 * over_seeds


@pytest.mark.parametrize(
    ("scores", "kind", "of_items", "holds"),
    [
        ([4.0, 4.2, 4.1, 3.9], "worse", 0.5, True),
        ([4.0, 4.2, 4.1, 3.9], "worse", 4.0, False),
        ([0.0, 0.1, -0.1, 0.05], "equivalent", 0.1, True),
        ([0.0, 0.1, -0.1, 0.05], "equivalent", 1.0, False),
        ([3.0, -1.0, 0.0, 1.0], "inconclusive", 1.0, False),
    ],
)
def test_a_verdict_may_hold_for_these_items_only(scores: list[float], kind: str, of_items: float, holds: bool) -> None:
    cells = study({"dense": [0.0] * 4, "no_wo": scores}, changed(ONE, margin=1.0))
    (cell,) = [
        c
        for c in judge_items(cells, [UncertaintyParts("no_wo", "dense", 0.05, of_items, 20)], metric=ONE.metric)
        if c.name == "no_wo"
    ]
    assert cell.verdict is not None and cell.verdict.new_items is not None and cell.difference is not None
    assert cell.verdict.kind == kind and cell.verdict.new_items.holds is holds
    assert cell.verdict.new_items.half_width > (cell.difference.interval.half_width or 0)
    text = describe_verdict(cell.verdict)
    assert ("new test items" in text, "these test items" in text) == (holds, not holds and kind != "inconclusive")
    table = verdict_table([cell], ONE)
    assert f"± {float(f'{cell.verdict.new_items.half_width:.2g}')}" in table.rows[0].cells and NEW_ITEMS in [
        c.heading for c in table.columns
    ]
    record = cells_frame([cell], ONE).iloc[0]
    ends = cell.difference.interval.mean - record["new_items_low"], record["new_items_high"] - cell.difference.interval.mean
    assert ends == pytest.approx((cell.verdict.new_items.half_width,) * 2)


def test_items_that_hardly_matter_are_not_named() -> None:
    cells = study({"dense": [0.0] * 4, "no_wo": [4.0, 4.2, 4.1, 3.9]})
    judged = judge_items(cells, [UncertaintyParts("no_wo", "dense", 0.05, 0.016, 20)], metric=ONE.metric)
    assert judged == cells == judge_items(cells, [UncertaintyParts("no_wo", "dense", 0.05, 1.0)], metric=ONE.metric)
    assert NEW_ITEMS not in [c.heading for c in verdict_table(judged, ONE).columns]


def test_the_report_of_a_study_keeps_both_parts(root: Path, tmp_path: Path) -> None:
    base = {**small_study()["base"], "train": {"steps": 2, "batch_size": 2}}
    run({**small_study(), "base": base, "baseline": {"variant": "dense"}}, root=root, display=QUIET)
    page = report("small", root, out=tmp_path / "page")
    from attnlab.report.stored import load

    assert load(page)["info"].uncertainty[0].baseline.startswith("dense")

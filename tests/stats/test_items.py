"""Tests of the split of a difference's uncertainty into seeds and test items."""

from dataclasses import replace
from pathlib import Path

import numpy
import pandas
import pytest

from attnlab.report.interval_notes import item_notes
from attnlab.report.write import write_report as report
from attnlab.stats.items import UncertaintyParts, split_uncertainty
from attnlab.study.run import run
from tests.report.test_summary import ONE, study
from tests.study.test_study import QUIET
from tests.study.test_study import study as small_study


def made_up(
    *, of_seed: float, of_item: float, seeds: int = 40, items: int = 400
) -> tuple[pandas.DataFrame, dict[str, list[float]]]:
    """Return items and values of two cells whose difference has these standard deviations over seeds and over items."""
    rng = numpy.random.default_rng(1)
    by_item = rng.normal(0, of_item, items)
    rows, values = [], {"dense": [], "no_wo": []}
    for seed in range(seeds):
        shift = rng.normal(0, of_seed)
        for cell, scores in (("dense", numpy.full(items, 2.0)), ("no_wo", 2.0 + by_item + shift)):
            values[cell].append(float(scores.mean()))
            rows.append(pandas.DataFrame({"cell": cell, "seed": seed, "metric": "bits_per_byte", "score": scores, "count": 16}))
    return pandas.concat(rows), values


@pytest.mark.parametrize(("of_seed", "of_item", "advice"), [(0.01, 0.02, "more seeds"), (0.001, 0.2, "a longer test")])
def test_the_parts_are_the_standard_errors_over_seeds_and_over_items(of_seed: float, of_item: float, advice: str) -> None:
    items, values = made_up(of_seed=of_seed, of_item=of_item)
    (part,) = split_uncertainty(items, study(values), ONE)
    assert (part.cell, part.baseline) == ("no_wo", "dense")
    assert part.seeds == pytest.approx(of_seed / 40**0.5, rel=0.25) and part.items == pytest.approx(of_item / 400**0.5, rel=0.1)
    assert part.item_share == pytest.approx(part.items**2 / (part.seeds**2 + part.items**2))
    (note,) = item_notes([part])
    assert advice in note and f"{part.item_share:.0%} items" in note


def test_runs_without_common_items_are_left_out() -> None:
    items, values = made_up(of_seed=0.01, of_item=0.02, seeds=3)
    cells = study(values)
    assert split_uncertainty(items.query("seed == 0"), cells, ONE) == (), "one seed"
    assert split_uncertainty(items, cells, replace(ONE, metric="accuracy")) == ()
    other = items.copy()
    other.loc[other["cell"] == "dense", "count"] = 8
    assert split_uncertainty(other, cells, ONE) == (), "other items"
    assert split_uncertainty(items.iloc[:0], cells, ONE) == () and item_notes(()) == []
    assert UncertaintyParts("a", "b", 0.0, 0.0).item_share == 0.0


def test_the_report_of_a_study_says_what_to_buy(root: Path, tmp_path: Path) -> None:
    base = {**small_study()["base"], "train": {"steps": 2, "batch_size": 2}}
    run({**small_study(), "base": base, "baseline": {"variant": "dense"}}, root=root, display=QUIET)
    page = report("small", root, out=tmp_path / "page")
    assert "over seeds and over the items of the test" in (page / "README.md").read_text()
    from attnlab.report.stored import load

    assert load(page)["info"].uncertainty[0].baseline.startswith("dense")

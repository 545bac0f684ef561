"""Tests of costs in a report: their spread, no line through noise, and named bars with arrows if cut off."""

from pathlib import Path
from typing import Any

from attnlab.report import write
from attnlab.report.plots.rows import SeedRow, seed_plot
from attnlab.report.plots.scatter import TradeoffPoint, pareto_front, tradeoff_plot
from attnlab.report.verdicts import cost_table, verdict_table
from attnlab.stats.compare import CellSummary, summarize_cells
from tests.report.test_summary import ONE
from tests.support.synthetic import INFO, made_up

OPTIONS: dict[str, Any] = {"title": "t", "direction": "min", "cost_direction": "min", "axis_labels": ("a", "b")}


def point(cost: float, value: float, cost_range: tuple[float, float] | None = None) -> TradeoffPoint:
    return TradeoffPoint("cell", "#000000", cost, value, cost_range=cost_range)


def costly(**cells: dict[str, float]) -> list[CellSummary]:
    """Return the cell summaries of a study from cell -> costs of its only run."""
    common = {"seed": 0, "state": "completed", "bits_per_byte": 2.0}
    return summarize_cells([{"variant": name, "cell": name, **common, **costs} for name, costs in cells.items()], ONE)


def test_parameters_stand_beside_the_baselines_and_speeds_do_not() -> None:
    table = costly(
        dense={"parameters": 1000.0, "tokens_per_s": 500.0},
        einsum={"parameters": 1000.0, "tokens_per_s": 400.0},
        no_wo={"parameters": 950.0, "tokens_per_s": 500.0},
        wide={"parameters": 2500.0, "tokens_per_s": 250.0},
    )
    for made in (verdict_table(table, ONE), cost_table(table)):
        assert made is not None
        at = {column.heading: i for i, column in enumerate(made.columns)}
        parameters, speeds = ([line.cells[at[name]] for line in made.rows] for name in ("parameters", "tokens/s"))
        assert parameters == ["1,000", "1,000 (same)", "950 (-5.0 %)", "2,500 (+150.0 %)"]
        assert speeds == ["500", "400", "500", "250"]


def test_training_takes_the_arithmetic_of_three_forward_passes() -> None:
    made = cost_table(costly(dense={"flops_per_token": 2e6, "tokens": 5e9}, basic={"flops_per_token": 1e6}))
    assert made is not None and made.columns[-1].heading == "training PFLOP"
    assert [line.cells[-1] for line in made.rows] == ["30", ""], "of what is not known how many tokens it read, nothing"
    assert all(len(line.cells) == len(made.columns) for line in made.rows)


def test_no_line_joins_a_front_of_measured_costs() -> None:
    measured = [point(2, 2.3, (1, 2.5)), point(10, 2.0, (4, 14))]
    assert pareto_front(measured, direction="min") == [0, 1]
    assert pareto_front([point(8, 2.0), point(8, 2.1)], direction="min") == [0], "of one cost the better"
    drawn = tradeoff_plot(measured, title="t", direction="min", cost_direction="max", axis_labels=("a", "b"))
    assert "stroke-dasharray" not in drawn and "stroke-dasharray" in tradeoff_plot([point(1, 5)] * 2 + [point(2, 4)], **OPTIONS)


def test_timings_stand_with_their_spread_and_what_is_counted_without(tmp_path: Path) -> None:
    runs, points = made_up()
    dense = (runs["variant"] == "dense") & (runs["position"] == "learned")
    runs.loc[dense, "tokens_per_s"] = [800.0, 12_600.0, 6_100.0]
    write.write(tmp_path, info=INFO, runs=runs, curves=points)
    text = (tmp_path / "README.md").read_text()
    assert text.count("| 6,500 (800 to 12,600) |") == 2 and "| 21,700 |" in text, "no brackets where all seeds are alike"
    speed, memory = ((tmp_path / f"{name}.svg").read_text() for name in ("tokens_per_s", "saved_mib"))
    assert "95 % interval; level: lowest to highest seed" in speed
    assert "where level bars overlap" in speed and "front of the means" in speed
    assert ">upright bar: 95 % interval<" in memory and "level bars" not in memory


def test_bars_are_named_and_one_that_goes_on_beyond_the_frame_has_an_arrow(tmp_path: Path) -> None:
    wide = SeedRow("wide", "#000000", {0: 1.0, 1: 1.1}, 1.05, 1.0, 42.0)
    assert seed_plot([wide], title="t").count("<polygon") == 1
    far = TradeoffPoint("far", "#000000", 1, 1.05, -40.0, 42.0)
    assert tradeoff_plot([far, point(1, 1.1)], **OPTIONS).count("<polygon") == 2
    near = TradeoffPoint("near", "#000000", 1, 1.05, 1.04, 1.06)
    assert "<polygon" not in tradeoff_plot([near, point(1, 1.1)], **OPTIONS)
    for seeds, has_arrow in ((1, False), (2, True)):
        runs, points = made_up(seeds=seeds)
        write.write(tmp_path, info=INFO, runs=runs, curves=points)
        assert all(
            ("bar: 95 % interval" in (tmp_path / name).read_text()) == has_arrow for name in ("seeds.svg", "saved_mib.svg")
        )

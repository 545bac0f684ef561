"""Tests of the rows, tables and pages of a report, from made-up runs."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from attnlab._util.colors import colors_of
from attnlab._util.cost_metrics import significant
from attnlab.report import figures, methods, write
from attnlab.report.plots.rows import ForestRow, SeedRow, forest_limits, forest_plot, seed_plot
from attnlab.report.plots.scatter import TradeoffPoint, pareto_front
from attnlab.report.wording import format_p_value
from attnlab.stats import compare
from attnlab.stats.paired import Interval
from tests.support.specs import changed
from tests.support.synthetic import INFO, SPEC, YAML, made_up

FILES = {"index.html", "README.md", "cells.csv", "runs.csv"}
FILES |= {"forest.svg", "seeds.svg", "tokens_per_s.svg", "saved_mib.svg", "train-loss-0.svg"}


def table(seeds: int = 3) -> dict[str, compare.CellSummary]:
    runs, _ = made_up(seeds=seeds)
    return {row.name: row for row in compare.summarize_cells(runs.to_dict("records"), SPEC)}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    runs, points = made_up()
    write.write(out, info=INFO, runs=runs, curves=points)
    return out


def test_cells_are_compared_with_the_baseline_of_their_own_axes() -> None:
    cells = table()
    assert len(cells) == 10
    assert cells["no_wo learned"].baseline == "dense learned"
    assert cells["no_wo rotary"].baseline == "dense rotary"
    assert cells["dense learned"].baseline == "" and cells["dense learned"].is_baseline
    verdict = cells["basic learned"].verdict
    assert verdict is not None and verdict.kind == "worse"


def test_what_did_not_complete_is_counted_and_explained() -> None:
    cells = table()
    assert cells["no_wo rotary"].outcome == "2 completed, 1 diverged"
    assert set(cells["no_wo rotary"].values) == {0, 2}
    refused = cells["basic rotary"]
    assert (refused.outcome, refused.value, refused.reasons) == (
        "refused",
        None,
        ("basic has no queries to rotate",),
    )


def test_differences_are_paired_by_seed() -> None:
    runs, _ = made_up()
    done = runs[(runs["variant"] == "no_wo") & (runs["position"] == "learned")].set_index("seed")
    base = runs[(runs["variant"] == "dense") & (runs["position"] == "learned")].set_index("seed")
    expected = (done["bits_per_byte"] - base["bits_per_byte"]).mean()
    difference = table()["no_wo learned"].difference
    assert difference is not None and difference.interval.mean == pytest.approx(expected)
    assert difference.p_table is not None and difference.p_moderated is not None and difference.p is not None
    assert difference.p_table > difference.p_moderated and difference.p_holm == max(2 * difference.p, difference.p_table)


P_VALUES = [(None, ""), (0.0009, "< 0.001"), (0.001, "0.001"), (0.0374, "0.037"), (1.0, "1.000")]


@pytest.mark.parametrize(("p", "written"), P_VALUES)
def test_p_values_are_written_with_three_digits(p: float | None, written: str) -> None:
    assert format_p_value(p) == written
    assert format_p_value(p, equals=True) == (f"= {written}" if written and written[0] != "<" else written)


def test_costs_are_written_with_the_digits_that_count() -> None:
    shown = [significant(value) for value in (71_577.4, 118.54, 99.96, 7.4849, 0.012345, 14.0)]
    assert shown == ["71,577", "119", "100", "7.48", "0.0123", "14"]


def test_one_seed_has_no_interval_and_the_page_says_so(tmp_path: Path) -> None:
    runs, points = made_up(seeds=1)
    write.write(tmp_path, info=INFO, runs=runs, curves=points)
    text = (tmp_path / "README.md").read_text()
    assert "inconclusive: one seed, no interval" in text
    assert "t-interval" not in text and not re.search(r"\d ± \d", text)


def test_every_file_is_written_and_stands_alone(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} >= FILES
    page = (folder / "index.html").read_text()
    assert "viewport" in page and "@media print" in page and "<script " not in page
    # The SVG namespace is a name and is never fetched.
    outside = set(re.findall(r"https?://[^\s\"'<]+", page)) - {"http://www.w3.org/2000/svg"}
    assert not outside and not re.search(r"@import|url\((?!#)|<link|<img", page)
    for link in re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text()):
        assert (folder / link).is_file()


def test_the_pages_hold_cells_reasons_protocol_and_commands(folder: Path) -> None:
    for name in ("index.html", "README.md"):
        text = (folder / name).read_text()
        for expected in (
            "strided_sparse stride=16 rotary",
            "basic has no queries to rotate",
            "the training loss became nan at step 120",
            "What does each part of attention buy?",
            "lower is better",
            "dim 128, depth 2",
            "A Processor of 2 Cores",
            "git checkout 0123456789ab ",
            "attnlab run ablations/made-up.yaml",
            "baseline: {variant: dense}",
        ):
            assert expected in text, (name, expected)


def test_the_tables_have_a_row_a_cell_and_a_row_a_run(folder: Path) -> None:
    cells = list(csv.DictReader((folder / "cells.csv").open()))
    assert len(cells) == 10
    assert float(cells[0]["bits_per_byte"]) == pytest.approx(table()["dense learned"].value.mean)  # type: ignore[union-attr]
    assert len(list(csv.DictReader((folder / "runs.csv").open()))) == 28


def test_markup_of_a_name_is_escaped(tmp_path: Path) -> None:
    runs, points = made_up(seeds=1)
    runs.loc[runs["state"] == "refused", "reason"] = "needs a < b & c | d"
    write.write(tmp_path, info=INFO, runs=runs, curves=points)
    assert "needs a &lt; b &amp; c | d" in (tmp_path / "index.html").read_text()
    assert "needs a < b & c \\| d" in (tmp_path / "README.md").read_text()


def test_nothing_of_a_study_becomes_markup_in_markdown(tmp_path: Path) -> None:
    runs, points = made_up(seeds=1)
    runs["cell"] = runs["cell"].replace("einsum learned", "<img src=x>|y")
    runs.loc[runs["state"] == "refused", "reason"] = "no <script>"
    runs["matched"] = "<i>"
    write.write(tmp_path, info=replace(INFO, yaml=f"{YAML}# ````\n# a fence\n"), runs=runs, curves=points)
    text = (tmp_path / "README.md").read_text()
    assert "| &lt;img src=x>\\|y |" in text and "no &lt;script>" in text and "is matched: &lt;i>" in text
    assert not re.search(r"<(img|script|i)\b", text)
    assert "\n`````yaml\n# ablations" in text and "# a fence\n`````\n" in text


def effect(mean: float) -> ForestRow:
    return ForestRow(f"{mean} away", "#000000", [mean], mean, mean - 0.001, mean + 0.001, f"{mean:+.4f}")


def point(cost: float, value: float) -> TradeoffPoint:
    return TradeoffPoint("cell", "#000000", cost, value)


def test_a_difference_far_from_all_others_is_an_arrow_and_keeps_its_figure() -> None:
    drawn = forest_plot([effect(1e-3), effect(2e-3), effect(-1e-3), effect(5.0)], title="far", direction="min")
    assert drawn.count("<polygon") == 1 and "+5.0000" in drawn
    low, high = forest_limits([effect(1e-3), effect(2e-3), effect(-1e-3), effect(5.0)], None)
    assert -0.01 < low < 0 < high < 0.01


def test_a_row_with_a_verdict_is_never_cut_off() -> None:
    rows = [effect(1e-3), effect(2e-3), effect(-1e-3), replace(effect(5.0), decided=True)]
    assert forest_plot(rows, title="far", direction="min").count("<polygon") == 0 and forest_limits(rows, None)[1] > 5.0


def test_two_digits_of_the_half_width_decide_the_digits_of_a_row() -> None:
    assert Interval(3, -1.9593, 3.0, -3.8161, -0.1025).format(sign=True) == "-2.0 ± 1.9"
    assert Interval(3, 0.12754, 0.01, 0.11494, 0.14014).format(sign=True) == "+0.128 ± 0.013"
    assert Interval(3, 0.01021, 0.01, 0.00011, 0.02031).format() == "0.0102 ± 0.0101", "0.010 ± 0.010 hides zero"
    assert Interval(3, 0.3, 0.01, 0.3, 0.3).format() == "0.3000 ± 0.0000" and Interval(1, 2.5).format() == "2.5000"
    assert Interval(3, 3e-12, 1e-12, 2e-12, 4e-12).format() == "3.0e-12 ± 1.0e-12"
    assert Interval(3, 1234.5, 99.0, 987.5, 1481.5).format() == "1234 ± 247"
    assert Interval(3, -0.1, 1, -0.6, 0.4).format_size() == "0.10 ± 0.50" and Interval(1, -2.5).format_size() == "2.5000"


def test_marks_of_seeds_have_tooltips_and_margins_of_one_row_are_drawn() -> None:
    row = replace(effect(0.01), names=["no_wo s0: +0.01"], margin=0.02)
    drawn = forest_plot([row], title="one", direction="min")
    assert "<title>no_wo s0: +0.01</title>" in drawn and drawn.count('fill-opacity="0.2"') == 1
    assert "<title>a &lt; b s3: 2.5</title>" in seed_plot([SeedRow("a < b", "#000000", {3: 2.5}, 2.5)], title="seeds")


@pytest.mark.parametrize(
    ("direction", "cheap", "expected"),
    [("min", "min", [0, 1]), ("max", "min", [0, 2]), ("max", "max", [2, 3]), ("min", "max", [1, 3])],
)
def test_the_front_holds_what_no_other_cell_beats_in_both(direction: str, cheap: str, expected: list[int]) -> None:
    points = [point(1, 5), point(2, 1), point(3, 9), point(4, 4)]
    assert pareto_front(points, direction=direction, cost_direction=cheap) == expected


def test_higher_is_better_on_every_plot_of_such_a_metric() -> None:
    spec = changed(SPEC, direction="max")
    cells = compare.summarize_cells(made_up()[0].to_dict("records"), spec)  # type: ignore[arg-type]
    colors = figures.cell_colors(cells)
    drawn = [*figures.draw_differences(cells, spec, colors), *figures.draw_tradeoffs(cells, spec, colors)]
    svgs = {figure.file: figure.svg for figure in drawn}
    better = {"seeds.svg": "higher is", "tokens_per_s.svg": "upper right is", "saved_mib.svg": "upper left is"}
    for file, words in better.items():
        assert f"{words} better" in svgs[file] and "lower" not in svgs[file].replace("lowest", "")
        assert "dense learned</text>" in svgs[file]


def test_the_marks_of_a_forest_are_the_differences_of_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, ForestRow] = {}
    monkeypatch.setattr(figures, "forest_plot", lambda effects, **_: drawn.update({row.label: row for row in effects}) or "")
    cells = table()
    figures.draw_differences(list(cells.values()), SPEC, figures.cell_colors(list(cells.values())))
    for name, effect in drawn.items():
        base = cells[cells[name].baseline].values
        assert effect.values == [value - base[seed] for seed, value in cells[name].values.items() if seed in base]
        assert sum(effect.values) / len(effect.values) == pytest.approx(effect.mean)
    assert drawn.keys() == {name for name, row in cells.items() if row.difference}


def test_an_interval_over_seeds_is_a_band_and_an_ended_run_a_thin_line(folder: Path) -> None:
    drawn = (folder / "train-loss-1.svg").read_text()
    assert drawn.count("<polygon") == 4  # rotary: all variants but the refused one
    assert drawn.count('stroke-width="1.9"') == 4


def test_the_lead_is_the_comment_that_opens_the_yaml() -> None:
    paragraphs = methods.introduction("# yaml-language-server: $schema=x\n" + YAML)
    assert len(paragraphs) == 2 and paragraphs[0].startswith("What does each part")
    assert methods.introduction("study: x\n# not the opening\n") == []


@pytest.mark.parametrize("count", [1, 14, 33, 42])
def test_every_variant_of_a_plot_has_a_color_of_its_own(count: int) -> None:
    colors = colors_of(f"cosine_{i}" for i in range(count))
    assert len(set(colors.values())) == count and all(re.fullmatch(r"#[0-9A-F]{6}", color) for color in colors.values())


def test_cells_stand_where_the_grid_has_them_and_what_it_does_not_know_comes_last() -> None:
    source = replace(SPEC, order=("b", "a"))
    assert sorted(["a", "x", "b"], key=source.position) == ["b", "a", "x"]


def test_the_protocol_says_how_long_the_runs_took() -> None:
    record = {"seed": 0, "seconds": 120.0}
    described = dict(methods.describe_methods([record, {"seed": 1, "seconds": 60.0}], axes=[]))["time"]
    assert described == "3.0 minutes over all runs, including evaluation"
    trials = [{"seed": 1, "seconds": 600.0}, {"seed": 1, "seconds": 1_008.0}, {"seed": 1, "seconds": None}]
    described = dict(methods.describe_methods([record], axes=[], trials=trials))
    assert described["time"].endswith("; plus 26.8 minutes of search") and described["seeds"] == "0"

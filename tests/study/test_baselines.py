"""Tests of studies with several baselines: each cell is compared with each of them."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.cli._results import print_results
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.figures import cell_colors, draw_differences
from attnlab.report.page import overview
from attnlab.report.stored import cells_frame
from attnlab.report.summary import summarize
from attnlab.report.verdicts import notes, verdict_table
from attnlab.stats.compare import comparisons, summarize_cells
from attnlab.stats.joint import moderate
from attnlab.stats.paired import correct, difference
from attnlab.study.comparison import load_info
from tests.study.test_study import go, study
from tests.support.compared import recorded
from tests.support.specs import changed, comparison_spec

SPEC = comparison_spec(
    "s", ("variant",), "bits_per_byte", "min", {"variant": "a"}, margin=0.5, further_baselines=({"variant": "b"},)
)
LEVELS = {"a": 3.0, "b": 2.0, "c": 2.5}
NOISE = {name: [0.01 * ((7 * i + k * i * i) % 5) for i in range(6)] for k, name in enumerate(LEVELS)}


def records() -> list[dict[str, Any]]:
    return [
        {
            "run_id": f"{name}{seed}",
            "variant": name,
            "cell": name,
            "seed": seed,
            "state": "completed",
            "bits_per_byte": level + NOISE[name][seed],
        }
        for name, level in LEVELS.items()
        for seed in range(6)
    ]


def test_each_cell_is_compared_with_each_baseline_once() -> None:
    cells = summarize_cells(records(), SPEC)
    assert [(c.name, c.baseline) for c in comparisons(cells)] == [("a", ""), ("b", "a"), ("c", "a"), ("c", "b")]
    assert cells[0].is_baseline and [cell.name for cell in cells] == ["a", "b", "c"]


def test_baselines_on_several_axes_are_compared_with_each_other() -> None:
    names = [(variant, size) for variant in ("a", "b") for size in ("small", "large")]
    runs = [
        {"variant": v, "size": s, "cell": f"{v} {s}", "seed": seed, "state": "completed", "bits_per_byte": 2.0 + 0.1 * seed}
        for v, s in names
        for seed in range(3)
    ]
    spec = comparison_spec("s", ("variant", "size"), "bits_per_byte", "min", {"variant": "a"})
    spec = changed(spec, further_baselines=({"size": "small"},))
    assert [(cell.name, cell.baseline) for cell in comparisons(summarize_cells(runs, spec))] == [
        ("a small", ""),
        ("a large", ""),
        ("a large", "a small"),
        ("b small", "a small"),
        ("b large", "a large"),
        ("b large", "b small"),
    ]


def test_holm_counts_all_comparisons() -> None:
    cells = comparisons(summarize_cells(records(), SPEC))[1:]
    values = {name: {seed: LEVELS[name] + NOISE[name][seed] for seed in range(6)} for name in LEVELS}
    pairs = [difference(values[c.name], values[c.baseline], margin=0.5) for c in cells]
    expected = [corrected.p_holm for corrected in correct(moderate(pairs)) if corrected]
    assert [cell.difference.p_holm for cell in cells if cell.difference] == expected and len(expected) == 3


def test_the_report_shows_every_comparison() -> None:
    cells = summarize_cells(records(), SPEC)
    table = verdict_table(cells, SPEC)
    headings = [column.heading for column in table.columns]
    at = headings.index("compared with")
    assert [(row.cells[0], row.cells[at]) for row in table.rows] == [("a", ""), ("b", "a"), ("c", "a"), ("c", "b")]
    assert all(len(row.cells) == len(headings) for row in table.rows)
    text = summarize(cells, SPEC).text
    assert (
        "`b` and `c` are better than `a`; `c` is worse than `b`" in text.replace("**", "")
        and "c against a" in text
        and "c against b" in text
    )
    assert "variant a or variant b" in overview(cells, SPEC)
    assert any("Holm" in note for note in notes(cells, SPEC))
    assert cells_frame(cells, SPEC)["baseline"].tolist() == ["", "a", "a", "b"]
    forest = next(figure for figure in draw_differences(cells, SPEC, cell_colors(cells)) if figure.file == "forest.svg")
    assert "c against a" in forest.svg and "c against b" in forest.svg


def test_several_baselines_from_the_file_to_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = {"variant": ["dense", "no_wo", "narrow"], "position": ["learned"]}
    result = go(tmp_path, grid=grid, baseline=[{"variant": "dense"}, {"variant": "no_wo"}])
    spec = load_info("small", tmp_path)[0].spec
    assert spec.baselines == ({"variant": "dense"}, {"variant": "no_wo"})
    print_results(*recorded("small", tmp_path))
    out = capsys.readouterr().out
    assert "against dense learned" in out and "against no_wo learned" in out
    again = read_study(result.plan.study.model_dump(mode="json", exclude_defaults=True))
    assert again.baselines == result.plan.study.baselines


def test_costs_are_matched_to_the_first_baseline() -> None:
    grid = {"variant": ["dense", "wide", {"name": "no_wo", "match": "params"}], "position": ["learned"]}
    cells = plan(study(grid=grid, baseline=[{"variant": "dense"}, {"variant": "wide"}])).cells
    assert cells[2].matched.endswith("against 'dense learned'")


@pytest.mark.parametrize(
    ("baseline", "place", "words"),
    [
        ([], "baseline", "at least one value in the list"),
        ([{}], "baseline", "at least one axis"),
        (["dense"], "baseline", "a mapping of keys, such as {variant: dense}, or a list of them"),
        ("dense", "baseline", "a mapping of keys"),
        ([{"variant": "dense"}, {"varant": "no_wo"}], "baseline[1].varant", "is not an axis of the grid"),
        ([{"variant": "dense"}, {"variant": "no_w"}], "baseline[1].variant", "did you mean 'no_wo'?"),
        ([{"variant": "dense"}, {"variant": {"name": "dense"}}], "baseline[1]", "expected each cell once"),
    ],
)
def test_a_mistake_in_a_list_of_baselines(baseline: Any, place: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read_study(study(baseline=baseline))
    assert caught.value.where == place and words in caught.value.message

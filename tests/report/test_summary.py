"""Tests of the two sentences at the top of a report: their text for each verdict, and numbers equal to the table's."""

import re
from dataclasses import replace
from typing import Any

import pytest

from attnlab.report.page import overview
from attnlab.report.render import emphasize
from attnlab.report.summary import Strong, Summary, summarize
from attnlab.report.verdicts import notes, verdict_table
from attnlab.report.wording import describe_verdict, format_p_value
from attnlab.stats.compare import CellSummary, ComparisonSpec, summarize_cells
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason
from tests.support.specs import changed, comparison_spec
from tests.support.synthetic import SPEC, made_up

ONE = comparison_spec("s", ("variant",), "bits_per_byte", "min", {"variant": "dense"}, margin=0.02)
LACKS = "its baseline has no bits_per_byte"
STEADY = [2.0, 2.1, 2.05, 1.98, 2.02]


def first(summary: Summary) -> str:
    """Return the sentence on conclusive results."""
    return "".join(summary.conclusive)


def second(summary: Summary) -> str:
    """Return the sentence on inconclusive comparisons."""
    return "".join(summary.open)


def study(cells: dict[str, list[float]], spec: ComparisonSpec = ONE, **states: str) -> list[CellSummary]:
    """Return the cell summaries of a study from cell -> values by seed, and cell -> state of a run without a value."""
    records: list[dict[str, Any]] = []
    for name, values in cells.items():
        records += [
            {"variant": name, "cell": name, "seed": i, "state": "completed", spec.metric: v} for i, v in enumerate(values)
        ]
    for name, state in states.items():
        records.append({"variant": name, "cell": name, "seed": 0, "state": state, "reason": "a reason"})
    return summarize_cells(records, spec)


def shifted(by: float, wobble: float = 0.001) -> list[float]:
    return [v + by + wobble * (-1) ** i for i, v in enumerate(STEADY)]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"no_wo": shifted(0.1)}, "no_wo is worse than dense by 0.1002 ± 0.0014 (p < 0.001, 5 seeds)."),
        ({"no_wo": shifted(-0.1)}, "no_wo is better than dense by 0.0998 ± 0.0014 (p < 0.001, 5 seeds)."),
        ({"no_wo": shifted(0, 0.003)}, "no_wo is equivalent to dense within ±0.02 (+0.0006 ± 0.0041, 5 seeds)."),
        ({"no_wo": STEADY}, "no_wo and dense are identical in all 5 seeds."),
        ({"no_wo": shifted(0.01, 0.04)}, "the comparison of no_wo with dense is inconclusive (+0.0180 ± 0.0544, 5 seeds)."),
        ({"no_wo": [2.3]}, "the comparison of no_wo with dense is inconclusive (+0.3000, 1 seed)."),
    ],
)
def test_one_comparison_is_one_plain_sentence(cells: dict[str, list[float]], expected: str) -> None:
    summary = summarize(study({"dense": STEADY, **cells}), ONE)
    assert first(summary) == f"In bits per byte (lower is better), {expected}"


def test_one_open_comparison_is_named_once() -> None:
    summary = summarize(study({"dense": STEADY, "no_wo": shifted(0.01, 0.04)}), ONE)
    assert summary.text.count("no_wo") == 1 and re.match(r"With \d+ seeds 80 % ", second(summary))


def test_several_comparisons_are_counted_by_verdict_and_the_largest_are_named() -> None:
    cells = {f"v{i}": shifted(0.1 * i) for i in range(1, 6)}
    summary = summarize(study({"dense": STEADY, **cells, "einsum": STEADY, "open": shifted(0.01, 0.04)}), ONE)
    assert "of 7 cells compared with dense, none is shown to be better, 5 are worse (v5 by 0.5002 ± 0.0014" in first(summary)
    assert "; v3 by " in first(summary) and "; and 2 more)" in first(summary) and "v1" not in first(summary)
    assert "and 1 is identical in every seed (einsum)" in first(summary)
    outlook = r"with \d+ seeds 80 % conclusive"
    assert re.fullmatch(rf"Inconclusive: open \(\+0\.0180 ± 0\.0544, {outlook}\)\.", second(summary))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (shifted(0.01, 0.04), "predicted from the seeds so far"),
        (shifted(0.1, 0), "no scatter that a test could use"),
        (shifted(0.01, 0.04)[:3], "are predicted from 4 seeds on"),
    ],
)
def test_what_a_verdict_rests_on_is_a_note_where_it_is_so(values: list[float], words: str) -> None:
    table = study({"dense": STEADY, "no_wo": values})
    assert table[1].is_inconclusive
    assert words in " ".join(notes(table, ONE))
    assert words not in " ".join(notes(study({"dense": STEADY, "no_wo": shifted(0.1)}), ONE))


def test_the_direction_of_the_metric_counts() -> None:
    spec = changed(ONE, metric="accuracy", direction="max")
    summary = summarize(study({"dense": STEADY, "no_wo": shifted(0.1)}, spec), spec)
    assert first(summary).startswith("In accuracy (higher is better), no_wo is better than dense by")


def test_what_the_table_says_of_lost_pairs_the_answer_says_too() -> None:
    rows = study({"dense": STEADY, "no_wo": shifted(0.1), "narrow": shifted(0.2), "wide": shifted(0, 0.003)})
    lost = "on the completed pairs (1 diverged)"
    rows = [replace(r, verdict=replace(r.verdict, lost=((1, "diverged"),))) if r.difference and r.verdict else r for r in rows]
    for chosen in (rows[:2], [rows[0], rows[3]], rows):
        assert first(summarize(chosen, ONE)).count(f", {lost}") == len(chosen) - 1


@pytest.mark.parametrize("values", [[2.3], shifted(0.01, 0.04)])
def test_what_is_open_is_never_called_equal(values: list[float]) -> None:
    summary = summarize(study({"dense": STEADY, "a": values, "b": [v + 0.001 for v in values]}), ONE)
    assert "none of 2 cells compared with dense is shown to be better, worse or equivalent" in first(summary)
    assert second(summary).startswith("Inconclusive: ")
    assert not re.search(r"no (significant )?difference|the same|is equivalent|are equivalent|are equal", summary.text)


def test_what_stands_between_two_commas_has_both() -> None:
    values = shifted(0.01, 0.04)
    table = study({"dense": STEADY, "a": values, "b": [v + 0.001 for v in values]})
    several = [table[0], table[1], replace(table[2], baseline="dense rotary")]
    with_steps = replace(ONE, axes=("variant", "train.steps"))
    assert "2 cells compared with dense at the same steps, is shown" in first(summarize(several, with_steps))
    assert "2 cells compared with dense is shown" in first(summarize(several, ONE))


def test_an_interval_that_leaves_the_margin_may_be_equivalent_and_why_is_said() -> None:
    table = study({"dense": STEADY, "a": shifted(0.0, 0.003)})
    assert "does not decide this" in " ".join(notes(table, changed(ONE, margin=0.02)))
    assert "90 %" not in " ".join(notes(table, changed(ONE, margin=None)))


def test_what_could_not_be_compared_is_named_with_its_state() -> None:
    summary = summarize(study({"dense": STEADY, "a": shifted(0.1)}, basic="refused", wide="diverged"), ONE)
    assert second(summary) == "Not compared: basic (refused); wide (diverged)."
    assert first(summarize(study({}, dense="diverged"), ONE)) == "No run has completed, so there is no result yet."
    assert first(summarize(study({}, dense="completed"), ONE)) == "No run has bits_per_byte, so there is no result yet."
    unnamed = changed(ONE, baseline={})
    summary = summarize(study({"a": STEADY, "b": shifted(0.1)}, unnamed), unnamed)
    assert "the best mean is that of a: 2.0300 ± 0.0582 (5 seeds)" in first(summary) and "may be due to chance" in second(
        summary
    )


@pytest.mark.parametrize(("direction", "best"), [("min", "b"), ("max", "c")])
def test_the_best_mean_is_the_lowest_or_the_highest_as_the_metric_has_it(direction: str, best: str) -> None:
    spec = changed(ONE, baseline={}, direction=direction)
    values = {"a": [2.0], "b": [1.9], "c": [2.1], "d": [2.05]}
    sentence = first(summarize(study(values, spec), spec))
    assert f"the best mean is that of {best}: {values[best][0]:.4f} (1 seed)" in sentence


def test_a_single_cell_is_not_the_best_of_others() -> None:
    spec = changed(ONE, baseline={})
    summary = summarize(study({"a": [2.0]}, spec), spec)
    assert "the mean of a is 2.0000 (1 seed)" in first(summary) and "one cell" in second(summary)


def test_cells_with_the_same_best_value_are_all_named() -> None:
    spec = changed(ONE, baseline={})
    sentence = first(summarize(study({"a": [2.0, 2.1], "b": [1.9, 1.9], "c": [1.9, 1.9]}, spec), spec))
    assert "2 cells share the best mean" in sentence and sentence.endswith(": b, c.")


def test_several_baselines_are_named_by_what_they_have_in_common() -> None:
    table = summarize_cells(made_up()[0].to_dict("records"), SPEC)  # type: ignore[arg-type]
    assert {row.baseline for row in table} == {"", "dense learned", "dense rotary"}
    assert " cells compared with dense at the same position, " in first(summarize(table, SPEC))


def test_only_axes_are_called_the_same() -> None:
    """Cells of one comparison may differ in parameters, learning rates and positions."""
    table = summarize_cells(made_up()[0].to_dict("records"), SPEC)  # type: ignore[arg-type]
    texts = [first(summarize(table, SPEC)), overview(table, SPEC)]
    assert all("at the same position" in text for text in texts)
    assert not any(re.search("all else|otherwise|other cells", text) for text in texts)


def test_a_baseline_that_never_completed_leaves_nothing_open() -> None:
    row = study({"no_wo": STEADY}, dense="diverged")[0]
    assert row.baseline == "dense" and describe_verdict(row.verdict) == f"{LACKS} (diverged)" and not row.is_inconclusive


@pytest.mark.parametrize(
    ("cells", "states", "why", "left"),
    [
        ({"a": STEADY}, {"dense": "refused"}, "no cell shares a seed with its baseline", f"a ({LACKS} (refused))"),
        ({"a": STEADY}, {"dense": "out_of_memory"}, "no cell shares a seed with its baseline", f"a ({LACKS} (out_of_memory))"),
        ({"dense": STEADY}, {"a": "failed"}, "no cell shares a seed with its baseline", "Not compared: a (failed)."),
        ({"dense": STEADY}, {}, "the baseline is the only cell", "The baseline has variant dense."),
        ({"a": STEADY, "b": STEADY}, {}, "none of these cells is the baseline", "The baseline has variant dense."),
    ],
)
def test_why_nothing_is_compared_is_taken_from_what_is_there(
    cells: dict[str, list[float]], states: dict[str, Any], why: str, left: str
) -> None:
    table = study(cells, **states)
    summary = summarize(table, ONE)
    assert first(summary) == f"In bits per byte (lower is better), nothing can be compared: {why}." and left in second(summary)
    assert "compared with dense" not in overview(table, ONE)


def test_seeds_that_are_not_the_baseline_s_are_no_pairs() -> None:
    runs = [{"variant": name, "seed": i, "state": "completed", "bits_per_byte": 2.0} for i, name in enumerate(("dense", "a"))]
    table = summarize_cells(runs, ONE)
    assert describe_verdict(table[1].verdict) == "no seed in common with the baseline"
    assert second(summarize(table, ONE)) == "Not compared: a (no seed in common with the baseline)."
    runs += [run | {"seed": 1 - i, "state": "diverged", "bits_per_byte": None} for i, run in enumerate(runs)]
    verdict = summarize_cells(runs, ONE)[1].verdict
    assert verdict is not None and verdict.reason is Reason.NO_SHARED_SEED
    assert verdict.lost == verdict.baseline_lost == ((1, "diverged"),)


def test_a_difference_of_fewer_pairs_than_the_cell_has_seeds_says_so() -> None:
    table = study({"dense": STEADY[:3], "no_wo": shifted(0.01, 0.04), "same": STEADY[:3]})
    printed = {line.cells[0]: line.cells for line in verdict_table(table, ONE).rows}
    assert printed["no_wo"][3].endswith(" (3 of 5 seeds)") and "of" not in printed["same"][3]
    assert table[1].is_inconclusive and table[1].verdict is not None
    assert (table[1].verdict.pairs, table[1].verdict.seeds) == (3, 5)
    prefix = "“3 of 8 seeds”: "
    assert any(note.startswith(prefix) for note in notes(table, ONE))
    assert not any(note.startswith(prefix) for note in notes([table[0], table[2]], ONE))


def test_an_infinite_value_counts_as_diverged() -> None:
    inf = float("inf")
    table = study({"dense": [*STEADY, inf], "no_wo": [*shifted(0.1), 2.0], "all": [inf, inf]})
    assert table[0].value is not None and table[0].value.n == 5 and table[0].outcome == "5 completed, 1 diverged"
    assert table[0].reasons == ("bits_per_byte is inf",) and table[2].outcome == "diverged"
    verdict = table[1].verdict
    assert verdict is not None and (verdict.reason, verdict.lost, verdict.baseline_lost) == (
        Reason.LOSSES,
        (),
        ((1, "diverged"),),
    )


@pytest.mark.parametrize(("looks", "errors"), [(None, "12.7"), (Looks(2, 12), "72.3")])
def test_how_wide_two_seeds_are_is_worked_out(looks: Looks | None, errors: str) -> None:
    spec = changed(ONE, looks=looks)
    matching = [note for note in notes(study({"dense": STEADY, "a": [2.3, 2.5]}, spec), spec) if "standard errors" in note]
    assert len(matching) == 1 and f"half width is {errors}" in matching[0]


def test_three_seeds_are_not_warned_of_as_two_are() -> None:
    for values, warned in (([2.3, 2.5], True), ([2.3, 2.5, 2.4], False)):
        table = study({"dense": STEADY[: len(values)], "a": values})
        assert any("standard errors: run more" in note for note in notes(table, ONE)) is warned


def test_the_p_value_of_an_equivalent_cell_is_that_of_its_equivalence() -> None:
    table = study({"dense": STEADY, "near": shifted(0, 0.003), "far": shifted(0.1)})
    printed = {line.cells[0]: line.cells for line in verdict_table(table, ONE).rows}
    near = table[1].difference
    assert near is not None and near.p_equivalent_holm is not None and near.p_holm is not None
    assert near.p_equivalent_holm < 0.05 < near.p_holm
    assert printed["near"][4] == f"{format_p_value(near.p_equivalent_holm)} (equivalence)" and printed["far"][4] == "< 0.001"
    assert any("the p-value of such a verdict is that of these tests" in note for note in notes(table, ONE))


def test_a_share_that_is_not_the_same_is_not_zero() -> None:
    records: list[dict[str, Any]] = [
        {"variant": name, "seed": 0, "state": "completed", "bits_per_byte": 2.0, "parameters": parameters}
        for name, parameters in (("dense", 100_000.0), ("a", 100_040.0), ("b", 100_000.0), ("c", 99_900.0))
    ]
    printed = [line.cells[-1] for line in verdict_table(summarize_cells(records, ONE), ONE).rows]
    assert printed == ["100,000", "100,040 (+0.04 %)", "100,000 (same)", "99,900 (-0.1 %)"]


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_every_number_of_the_answer_is_one_of_the_table(seeds: int) -> None:
    runs, _ = made_up(seeds=seeds)
    table = summarize_cells(runs.to_dict("records"), SPEC)  # type: ignore[arg-type]
    printed = " ".join(cell for line in verdict_table(table, SPEC).rows for cell in line.cells)
    counts = {str(n) for n in range(1, len(table))}
    numbers = re.findall(r"\d+(?:\.\d+)?", summarize(table, SPEC).text)
    known = set(re.findall(r"\d+(?:\.\d+)?", printed)) | counts | {f"{SPEC.margin:g}"}
    assert len(numbers) > 5 and set(numbers) <= known


def test_verdicts_are_bold_and_markup_is_escaped() -> None:
    sentence = ["In a < b (lower is better), ", Strong("2 are <i>worse"), " (x & y)."]
    html = emphasize(sentence, html=True)
    assert html == "In a &lt; b (lower is better), <strong>2 are &lt;i&gt;worse</strong> (x &amp; y)."
    assert emphasize(sentence, html=False) == "In a < b (lower is better), **2 are &lt;i>worse** (x & y)."


def test_the_verdicts_of_a_summary_are_bold() -> None:
    cells = {"dense": STEADY, "worse": shifted(0.1), "near": shifted(0, 0.003), "open": shifted(0.01, 0.02)}
    summary = summarize(study(cells, wide="diverged"), ONE)
    strong = [str(part) for part in (*summary.conclusive, *summary.open) if isinstance(part, Strong)]
    expected = ["none is shown to be better", "1 is worse", "1 is equivalent within ±0.02", "Inconclusive", "not compared"]
    assert strong == expected

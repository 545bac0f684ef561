"""Tests of the two sentences at the top of a report: their text for each verdict, and numbers equal to the table's."""

import re
from dataclasses import replace
from typing import Any

import pytest

from attnlab._util.cost_metrics import COST_METRICS
from attnlab.report.page import overview
from attnlab.report.render import emphasize
from attnlab.report.summary import COST_WORDS, Strong, Summary, summarize
from attnlab.report.verdicts import verdict_table
from attnlab.report.wording import describe_verdict, format_p_value
from attnlab.stats.compare import CellSummary, ComparisonSpec, summarize_cells
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
    ("cells", "plain", "numbers"),
    [
        ({"no_wo": shifted(0.1)}, "`no_wo` is worse than `dense`.", "no_wo +0.1002 ± 0.0014 (p < 0.001, 5 seeds)"),
        ({"no_wo": shifted(-0.1)}, "`no_wo` is better than `dense`.", "no_wo -0.0998 ± 0.0014 (p < 0.001, 5 seeds)"),
        ({"no_wo": shifted(0.01)}, "`no_wo` is worse than `dense`, but by less than the margin.", "by less than the margin"),
        ({"no_wo": shifted(0, 0.003)}, "`no_wo` is as good as `dense`, within 0.02 bits per byte.", "no_wo +0.0006 ± 0.0041"),
        ({"no_wo": STEADY}, "`no_wo` has the same scores as `dense`.", "no_wo 0.0000 (5 seeds)"),
        ({"no_wo": shifted(0.01, 0.04)}, "5 seeds cannot tell `no_wo` from `dense`.", "no_wo (+0.018 ± 0.054, 42 seeds"),
        ({"no_wo": [2.3]}, "1 seed cannot tell `no_wo` from `dense`.", "no_wo (+0.3000): one seed, no interval"),
    ],
)
def test_the_result_is_a_plain_sentence_and_then_numbers(cells: dict[str, list[float]], plain: str, numbers: str) -> None:
    summary = summarize(study({"dense": STEADY, **cells}), ONE)
    assert "".join(summary.plain) == plain and summary.text.startswith(
        f"{plain} Differences in bits per byte (lower is better)"
    )
    assert numbers in summary.text


@pytest.mark.parametrize(("unit", "margin", "words"), [(0.01, 0.005, "0.5 percentage points"), (1.0, 0.5, "0.5 accuracy")])
def test_a_margin_of_an_accuracy_in_per_cent_is_no_share(unit: float, margin: float, words: str) -> None:
    spec = changed(ONE, metric="accuracy", direction="max", margin=margin)
    scores = [93.2, 93.4, 93.1, 93.3, 93.25]
    values = {"dense": scores, "no_wo": [score + 0.01 * (-1) ** i for i, score in enumerate(scores)]}
    summary = summarize(study({name: [unit * score for score in of] for name, of in values.items()}, spec), spec)
    assert f"`no_wo` is as good as `dense`, within {words}" in summary.text


def test_clauses_group_cells_by_verdict_and_name_the_largest() -> None:
    cells = {f"v{i}": shifted(0.1 * i) for i in range(1, 6)}
    summary = summarize(study({"dense": STEADY, **cells, "einsum": STEADY, "open": shifted(0.01, 0.04)}), ONE)
    assert "".join(summary.plain) == (
        "`v5`, `v4`, `v3` and 2 others are worse than `dense`; `einsum` has the same scores; "
        "5 seeds cannot tell `open` from `dense`."
    )
    assert "v5 +0.5002 ± 0.0014 (p < 0.001, 5 seeds); v4" in first(summary)
    outlook = r"\d+ seeds would decide \(80 %\)"
    assert re.fullmatch(rf"Inconclusive: open \(\+0\.018 ± 0\.054, {outlook}\)\.", second(summary))


def test_a_control_that_loses_did_its_job_and_is_no_loser() -> None:
    spec = changed(ONE, control={"variant": "none"})
    cells = {"dense": STEADY, "a": shifted(0.1), "none": shifted(0.3)}
    plain = "".join(summarize(study(cells, spec), spec).plain)
    assert plain.startswith("`a` is worse than `dense`.") and "control `none` is worse, as it should be" in plain
    plain = "".join(summarize(study({**cells, "none": shifted(0.01, 0.04)}, spec), spec).plain)
    assert "control `none` was not found worse" in plain and "cannot tell" not in plain


def test_levels_with_the_same_verdict_are_one_clause() -> None:
    spec = changed(ONE, axes=("variant", "train.steps"), over="train.steps")
    gaps = {200: -0.1, 600: -0.05, 1800: 0.0}
    records = [
        {"variant": name, "train.steps": str(steps), "cell": f"{name} {steps}", "seed": i, "state": "completed"}
        | {"bits_per_byte": value + (name == "no_wo") * (gap + 0.003 * (-1) ** i)}
        for name in ("dense", "no_wo")
        for steps, gap in gaps.items()
        for i, value in enumerate(STEADY)
    ]
    assert "".join(summarize(summarize_cells(records, spec), spec).plain) == (
        "After 200 and 600 steps, `no_wo` is better than `dense`; "
        "after 1,800 steps, `no_wo` is as good, within 0.02 bits per byte."
    )


def test_what_the_question_names_comes_first() -> None:
    cells = {"dense": STEADY, "wide": shifted(-0.1), "no_wo": shifted(0.01, 0.04), "open": shifted(0.02, 0.05)}
    spec = changed(ONE, question="Can Wo be removed?")
    plain = "".join(summarize(study(cells, spec), spec).plain)
    assert plain == "5 seeds cannot tell `no_wo` and `open` from `dense`; `wide` is better."
    assert "".join(summarize(study(cells), ONE).plain).startswith("`wide` is better")


def test_the_direction_of_the_metric_counts() -> None:
    spec = changed(ONE, metric="accuracy", direction="max")
    summary = summarize(study({"dense": STEADY, "no_wo": shifted(0.1)}, spec), spec)
    assert "".join(summary.plain) == "`no_wo` is better than `dense`." and "accuracy (higher is better)" in first(summary)


def test_what_the_table_says_of_lost_pairs_the_answer_says_too() -> None:
    rows = study({"dense": STEADY, "no_wo": shifted(0.1), "narrow": shifted(0.2), "wide": shifted(0, 0.003)})
    lost = "on the completed pairs (1 diverged)"
    rows = [replace(r, verdict=replace(r.verdict, lost=((1, "diverged"),))) if r.difference and r.verdict else r for r in rows]
    for chosen in (rows[:2], [rows[0], rows[3]], rows):
        assert first(summarize(chosen, ONE)).count(f", {lost}") == len(chosen) - 1
        assert "under the conditions below" in "".join(summarize(chosen, ONE).plain)


@pytest.mark.parametrize("values", [[2.3], shifted(0.01, 0.04)])
def test_what_is_open_is_never_called_equal(values: list[float]) -> None:
    summary = summarize(study({"dense": STEADY, "a": values, "b": [v + 0.001 for v in values]}), ONE)
    assert "cannot tell `a` and `b` from `dense`" in summary.text or "cannot tell `b` and `a`" in summary.text
    assert ", inconclusive: " in second(summary)
    assert not re.search(r"no (significant )?difference|the same|is equivalent|are equivalent|are equal", summary.text)


def test_what_could_not_be_compared_is_named_with_its_state() -> None:
    summary = summarize(study({"dense": STEADY, "a": shifted(0.1)}, basic="refused", wide="diverged"), ONE)
    assert second(summary) == "Not compared: basic (refused); wide (diverged)."
    assert summarize(study({}, dense="diverged"), ONE).plain == ["No run has completed, so there is no result yet."]
    assert summarize(study({}, dense="completed"), ONE).plain == ["No run has bits_per_byte, so there is no result yet."]
    unnamed = changed(ONE, baseline={})
    summary = summarize(study({"a": STEADY, "b": shifted(0.1)}, unnamed), unnamed)
    assert "a has the best mean: 2.030 ± 0.058 (5 seeds)" in first(summary)
    assert "may be due to chance" in "".join(summary.plain)


@pytest.mark.parametrize(("direction", "best"), [("min", "b"), ("max", "c")])
def test_the_best_mean_is_the_lowest_or_the_highest_as_the_metric_has_it(direction: str, best: str) -> None:
    spec = changed(ONE, baseline={}, direction=direction)
    values = {"a": [2.0], "b": [1.9], "c": [2.1], "d": [2.05]}
    sentence = first(summarize(study(values, spec), spec))
    assert f"{best} has the best mean: {values[best][0]:.4f} (1 seed)" in sentence


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
    assert summary.plain == [f"Nothing can be compared: {why}."] and left in second(summary)
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


def test_the_p_value_of_an_equivalent_cell_is_that_of_its_equivalence() -> None:
    table = study({"dense": STEADY, "near": shifted(0, 0.003), "far": shifted(0.1)})
    printed = {line.cells[0]: line.cells for line in verdict_table(table, ONE).rows}
    near = table[1].difference
    assert near is not None and near.p_equivalent_holm is not None and near.p_holm is not None
    assert near.p_equivalent_holm < 0.05 < near.p_holm
    assert printed["near"][4] == f"{format_p_value(near.p_equivalent_holm)} (equivalence)" and printed["far"][4] == "< 0.001"


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
    strong = [str(part) for part in summary.paragraph if isinstance(part, Strong)]
    expected = ["is worse", "is as good", "cannot tell", "Inconclusive", "not compared"]
    assert strong == expected


@pytest.mark.parametrize(("gap", "named"), [(0.0, True), (-0.1, False)])
def test_the_cheapest_cell_is_named_when_none_is_better(gap: float, named: bool) -> None:
    values = {"dense": STEADY, "no_wo": shifted(0, 0.003), "narrow": shifted(0.1), "wide": shifted(gap, 0.003)}
    parameters = {"dense": 1000.0, "no_wo": 900.0, "narrow": 500.0, "wide": 1000.0}
    records = [
        {"variant": name, "cell": name, "seed": i, "state": "completed", "bits_per_byte": v, "parameters": parameters[name]}
        for name, of_cell in values.items()
        for i, v in enumerate(of_cell)
    ]
    sentence = "".join(summarize(summarize_cells(records, ONE), ONE).plain)
    cheapest = "The cheapest cell that is not shown to be worse is `no_wo`: 10 % fewer parameters."
    assert (cheapest in sentence) == named, sentence


def test_the_subject_comes_before_the_control_in_every_sentence() -> None:
    cells = {"dense": STEADY, "none": shifted(0.9), "no_wo": shifted(0.1)}
    summary = summarize(study(cells), changed(ONE, control={"variant": "none"}))
    for sentence in ("".join(summary.plain), "".join(summary.conclusive)):
        assert sentence.index("no_wo") < sentence.index("none"), sentence


def test_sentences_state_counted_costs_only() -> None:
    """Measured costs, such as speed, scatter from run to run, and have no test."""
    counted = {metric.name for metric in COST_METRICS if not metric.measured}
    assert COST_WORDS.keys() <= counted
    costs = {"dense": {"saved_mib": 10.0, "tokens_per_s": 100.0}, "no_wo": {"saved_mib": 8.0, "tokens_per_s": 50.0}}
    records = [
        {"variant": name, "cell": name, "seed": i, "state": "completed", "bits_per_byte": v, **costs[name]}
        for name, of_cell in {"dense": STEADY, "no_wo": shifted(-0.1)}.items()
        for i, v in enumerate(of_cell)
    ]
    text = summarize(summarize_cells(records, ONE), ONE).text
    assert "20 % less activation memory" in text
    assert not re.search("slower|faster|tokens|seconds", text)

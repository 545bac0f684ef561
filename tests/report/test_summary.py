"""The two sentences at the top of a report: what they say of each verdict, and that their numbers are the table's."""

import re
from dataclasses import replace
from typing import Any

import pytest

from attnlab.report.page import _opening
from attnlab.report.render import stressed
from attnlab.report.summary import answer
from attnlab.report.verdicts import notes, verdict_table
from attnlab.stats.compare import Question, Row, p_value, rows
from attnlab.stats.sequential import Looks
from tests.support.synthetic import QUESTION, made_up

ONE = Question("s", ("variant",), "bits_per_byte", "min", {"variant": "dense"}, margin=0.02)
LACKS = "its baseline has no bits_per_byte"
STEADY = [2.0, 2.1, 2.05, 1.98, 2.02]


def study(cells: dict[str, list[float]], question: Question = ONE, **states: str) -> list[Row]:
    """Rows of a study from cell -> values by seed, and cell -> state of a run that has no value."""
    records: list[dict[str, Any]] = []
    for name, values in cells.items():
        records += [
            {"variant": name, "cell": name, "seed": i, "state": "completed", question.metric: v} for i, v in enumerate(values)
        ]
    for name, state in states.items():
        records.append({"variant": name, "cell": name, "seed": 0, "state": state, "reason": "a reason"})
    return rows(records, question)


def shifted(by: float, wobble: float = 0.001) -> list[float]:
    return [v + by + wobble * (-1) ** i for i, v in enumerate(STEADY)]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"no_wo": shifted(0.1)}, "no_wo is worse than dense by 0.1002 ± 0.0014 (p < 0.001, 5 seeds)."),
        ({"no_wo": shifted(-0.1)}, "no_wo is better than dense by 0.0998 ± 0.0014 (p < 0.001, 5 seeds)."),
        ({"no_wo": shifted(0, 0.003)}, "no_wo is equivalent to dense within ±0.02 (+0.0006 ± 0.0041, 5 seeds)."),
        ({"no_wo": STEADY}, "no_wo and dense give the same value in each of 5 seeds."),
        ({"no_wo": shifted(0.01, 0.04)}, "it is not settled how no_wo compares with dense (+0.0180 ± 0.0544, 5 seeds)."),
        ({"no_wo": [2.3]}, "it is not settled how no_wo compares with dense (+0.3000, 1 seed)."),
    ],
)
def test_one_comparison_is_one_plain_sentence(cells: dict[str, list[float]], expected: str) -> None:
    found = answer(study({"dense": STEADY, **cells}), ONE)
    assert found.settled == f"In bits per byte (lower is better), {expected}"


def test_one_open_comparison_is_named_once() -> None:
    found = answer(study({"dense": STEADY, "no_wo": shifted(0.01, 0.04)}), ONE)
    assert found.text.count("no_wo") == 1 and re.fullmatch(r"About \d+ more seeds would settle it\.", found.open)


def test_several_comparisons_are_counted_by_verdict_and_the_largest_are_named() -> None:
    cells = {f"v{i}": shifted(0.1 * i) for i in range(1, 6)}
    found = answer(study({"dense": STEADY, **cells, "einsum": STEADY, "open": shifted(0.01, 0.04)}), ONE)
    assert "of 7 cells compared with dense, none is shown to be better, 5 are worse (v5 by 0.5002 ± 0.0014" in found.settled
    assert "; v3 by " in found.settled and "; and 2 more)" in found.settled and "v1" not in found.settled
    assert "and 1 is the same to the last digit in each seed (einsum)" in found.settled
    assert re.fullmatch(r"Not settled: open \(\+0\.0180 ± 0\.0544\): about \d+ more seeds would settle it\.", found.open)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (shifted(0.01, 0.04), "4 times in 5, if mean and spread stay"),
        (shifted(0.1, 0), "by its sign alone"),
        (shifted(0.01, 0.04)[:3], "is said from 4 on"),
    ],
)
def test_what_a_verdict_rests_on_is_a_note_where_it_is_so(values: list[float], said: str) -> None:
    table = study({"dense": STEADY, "no_wo": values})
    assert table[1].verdict.startswith("not settled")
    assert said in " ".join(notes(table, ONE))
    assert said not in " ".join(notes(study({"dense": STEADY, "no_wo": shifted(0.1)}), ONE))


def test_the_direction_of_the_metric_counts() -> None:
    question = replace(ONE, metric="accuracy", direction="max")
    found = answer(study({"dense": STEADY, "no_wo": shifted(0.1)}, question), question)
    assert found.settled.startswith("In accuracy (higher is better), no_wo is better than dense by")


def test_what_the_table_says_of_lost_pairs_the_answer_says_too() -> None:
    rows = study({"dense": STEADY, "no_wo": shifted(0.1), "narrow": shifted(0.2), "wide": shifted(0, 0.003)})
    lost = "where both completed (1 diverged)"
    rows = [replace(row, verdict=f"{row.verdict} {lost}") if row.difference else row for row in rows]
    for chosen in (rows[:2], [rows[0], rows[3]], rows):
        assert answer(chosen, ONE).settled.count(f", {lost}") == len(chosen) - 1


@pytest.mark.parametrize("values", [[2.3], shifted(0.01, 0.04)])
def test_what_is_open_is_never_called_equal(values: list[float]) -> None:
    found = answer(study({"dense": STEADY, "a": values, "b": [v + 0.001 for v in values]}), ONE)
    assert "none of 2 cells compared with dense is shown to be better, worse or equivalent" in found.settled
    assert found.open.startswith("Not settled: ")
    assert not re.search(r"no (significant )?difference|the same|is equivalent|are equivalent|are equal", found.text)


def test_what_stands_between_two_commas_has_both() -> None:
    values = shifted(0.01, 0.04)
    table = study({"dense": STEADY, "a": values, "b": [v + 0.001 for v in values]})
    several = [table[0], table[1], replace(table[2], baseline="dense rotary")]
    assert "2 cells compared with dense, all else being the same, is shown" in answer(several, ONE).settled


def test_an_interval_that_leaves_the_margin_may_be_equivalent_and_why_is_said() -> None:
    table = study({"dense": STEADY, "a": shifted(0.0, 0.003)})
    assert "At 5 % they ask that the 90 % interval stays within the margin" in " ".join(notes(table, replace(ONE, margin=0.02)))
    assert "90 %" not in " ".join(notes(table, replace(ONE, margin=None)))


def test_what_could_not_be_compared_is_named_with_its_state() -> None:
    found = answer(study({"dense": STEADY, "a": shifted(0.1)}, basic="refused", wide="diverged"), ONE)
    assert found.open == "Not compared: basic (refused); wide (diverged)."
    assert answer(study({}, dense="diverged"), ONE).settled == "No run has completed, so there is no answer yet."
    assert answer(study({}, dense="completed"), ONE).settled == "No run has bits_per_byte, so there is no answer yet."
    unnamed = replace(ONE, baseline={})
    found = answer(study({"a": STEADY, "b": shifted(0.1)}, unnamed), unnamed)
    assert "the best mean is that of a: 2.0300 ± 0.0582 (5 seeds)" in found.settled and "is not known" in found.open


@pytest.mark.parametrize(("direction", "best"), [("min", "b"), ("max", "c")])
def test_the_best_mean_is_the_lowest_or_the_highest_as_the_metric_has_it(direction: str, best: str) -> None:
    question = replace(ONE, baseline={}, direction=direction)
    values = {"a": [2.0], "b": [1.9], "c": [2.1], "d": [2.05]}
    said = answer(study(values, question), question).settled
    assert f"the best mean is that of {best}: {values[best][0]:.4f} (1 seed)" in said


def test_several_baselines_are_named_by_what_they_have_in_common() -> None:
    table = rows(made_up()[0].to_dict("records"), QUESTION)  # type: ignore[arg-type]
    assert {row.baseline for row in table} == {"", "dense learned", "dense rotary"}
    assert " cells compared with dense, all else being the same, " in answer(table, QUESTION).settled


def test_a_baseline_that_never_completed_leaves_nothing_open() -> None:
    row = study({"no_wo": STEADY}, dense="diverged")[0]
    assert row.baseline == "dense" and row.verdict == f"{LACKS}: diverged" and not row.open


@pytest.mark.parametrize(
    ("cells", "states", "why", "left"),
    [
        ({"a": STEADY}, {"dense": "refused"}, "no cell shares a seed with its baseline", f"a ({LACKS}: refused)"),
        ({"a": STEADY}, {"dense": "out_of_memory"}, "no cell shares a seed with its baseline", f"a ({LACKS}: out_of_memory)"),
        ({"dense": STEADY}, {"a": "failed"}, "no cell shares a seed with its baseline", "Not compared: a (failed)."),
        ({"dense": STEADY}, {}, "no cell stands beside the baseline", "The baseline has variant dense."),
        ({"a": STEADY, "b": STEADY}, {}, "none of these cells is the baseline", "The baseline has variant dense."),
    ],
)
def test_why_nothing_is_compared_is_taken_from_what_is_there(
    cells: dict[str, list[float]], states: dict[str, Any], why: str, left: str
) -> None:
    table = study(cells, **states)
    found = answer(table, ONE)
    assert found.settled == f"In bits per byte (lower is better), nothing can be compared: {why}." and left in found.open
    assert "compared with dense" not in _opening(table, ONE)


def test_seeds_that_are_not_the_baseline_s_are_no_pairs() -> None:
    runs = [{"variant": name, "seed": i, "state": "completed", "bits_per_byte": 2.0} for i, name in enumerate(("dense", "a"))]
    table = rows(runs, ONE)
    assert table[1].verdict == "no seed in common with the baseline"
    assert answer(table, ONE).open == "Not compared: a (no seed in common with the baseline)."
    runs += [run | {"seed": 1 - i, "state": "diverged", "bits_per_byte": None} for i, run in enumerate(runs)]
    assert rows(runs, ONE)[1].verdict == "no seed in common with the baseline (1 diverged, 1 of its baseline diverged)"


def test_a_difference_of_fewer_pairs_than_the_cell_has_seeds_says_so() -> None:
    table = study({"dense": STEADY[:3], "no_wo": shifted(0.01, 0.04), "same": STEADY[:3]})
    printed = {line.cells[0]: line.cells for line in verdict_table(table, ONE).lines}
    assert printed["no_wo"][3].endswith(" (3 of 5 seeds)") and "of" not in printed["same"][3]
    assert table[1].verdict.startswith("not settled: ") and table[1].verdict.endswith("; the baseline lacks 2 of its 5 seeds")
    told = "“3 of 8 seeds”: of the cell's seeds"
    assert any(note.startswith(told) for note in notes(table, ONE))
    assert not any(note.startswith(told) for note in notes([table[0], table[2]], ONE))


def test_an_infinite_value_counts_as_diverged() -> None:
    inf = float("inf")
    table = study({"dense": [*STEADY, inf], "no_wo": [*shifted(0.1), 2.0], "all": [inf, inf]})
    assert table[0].value is not None and table[0].value.n == 5 and table[0].outcome == "5 completed, 1 diverged"
    assert table[0].reasons == ("bits_per_byte is inf",) and table[2].outcome == "diverged"
    assert table[1].verdict == "worse where both completed (1 of its baseline diverged)"


@pytest.mark.parametrize(("looks", "errors"), [(None, "12.7"), (Looks(2, 12), "72.3")])
def test_how_wide_two_seeds_are_is_worked_out(looks: Looks | None, errors: str) -> None:
    question = replace(ONE, looks=looks)
    said = [note for note in notes(study({"dense": STEADY, "a": [2.3, 2.5]}, question), question) if "standard errors" in note]
    assert len(said) == 1 and f"interval is {errors}" in said[0]


def test_three_seeds_are_not_warned_of_as_two_are() -> None:
    for values, warned in (([2.3, 2.5], True), ([2.3, 2.5, 2.4], False)):
        table = study({"dense": STEADY[: len(values)], "a": values})
        assert any("standard errors to either side: run more" in note for note in notes(table, ONE)) is warned


def test_the_p_value_of_an_equivalent_cell_is_that_of_its_equivalence() -> None:
    table = study({"dense": STEADY, "near": shifted(0, 0.003), "far": shifted(0.1)})
    printed = {line.cells[0]: line.cells for line in verdict_table(table, ONE).lines}
    near = table[1].difference
    assert near is not None and near.p_equivalent_holm is not None and near.p_holm is not None
    assert near.p_equivalent_holm < 0.05 < near.p_holm
    assert printed["near"][4] == f"{p_value(near.p_equivalent_holm)} (equivalence)" and printed["far"][4] == "< 0.001"
    assert any("the p-value beside such a verdict is theirs" in note for note in notes(table, ONE))


def test_a_share_that_is_not_the_same_is_not_zero() -> None:
    records: list[dict[str, Any]] = [
        {"variant": name, "seed": 0, "state": "completed", "bits_per_byte": 2.0, "parameters": parameters}
        for name, parameters in (("dense", 100_000.0), ("a", 100_040.0), ("b", 100_000.0), ("c", 99_900.0))
    ]
    printed = [line.cells[-1] for line in verdict_table(rows(records, ONE), ONE).lines]
    assert printed == ["100,000", "100,040 (+0.04 %)", "100,000 (same)", "99,900 (-0.1 %)"]


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_every_number_of_the_answer_is_one_of_the_table(seeds: int) -> None:
    runs, _ = made_up(seeds=seeds)
    table = rows(runs.to_dict("records"), QUESTION)  # type: ignore[arg-type]
    printed = " ".join(cell for line in verdict_table(table, QUESTION).lines for cell in line.cells)
    counts = {str(n) for n in range(1, len(table))}
    numbers = re.findall(r"\d+(?:\.\d+)?", answer(table, QUESTION).text)
    known = set(re.findall(r"\d+(?:\.\d+)?", printed)) | counts | {f"{QUESTION.margin:g}"}
    assert len(numbers) > 5 and set(numbers) <= known


def test_verdicts_stand_out_and_markup_is_escaped() -> None:
    text = "In a < b (lower is better), 2 are worse (x & y)."
    assert stressed(text, "<b>", "</b>", html=True) == "In a &lt; b (lower is better), <b>2 are worse</b> (x &amp; y)."
    assert stressed(text, "**", "**", html=False) == "In a < b (lower is better), **2 are worse** (x & y)."
    small = "3 are equivalent within ±1e-05 (<b>a</b>)."
    assert stressed(small, "**", "**", html=False) == "**3 are equivalent within ±1e-05** (&lt;b>a&lt;/b>)."

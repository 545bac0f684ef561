"""The result of a study in two sentences, made from the same cell summaries as its table.

The first sentence states which comparisons are conclusive, the second which are not, and what more seeds would show. An
inconclusive comparison is never reported as "no difference".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab._util.run_state import RunState
from attnlab.config.comparability import is_program_test
from attnlab.report.wording import (
    better,
    count,
    describe_conditions,
    describe_reason,
    describe_verdict,
    format_both,
    format_p_value,
    shared_axes,
)
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.records import comparison_name
from attnlab.stats.verdict import Reason, Sensitivity, Verdict, VerdictKind

NO_CONTROL, TOO_WIDE = "but without a control that was found worse", "but the margin is too wide"
NEAR = (VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL)  # outcomes that a control has to support
MAX_NAMED = 3  # cells named in one group; the table has all of them


class Strong(str):
    """A part of a sentence that a page prints in bold."""


Sentence = Sequence[str]  # its parts, some of them `Strong`


@dataclass(frozen=True)
class Summary:
    """The paragraph at the top of a report: conclusive results, inconclusive comparisons, and the choice of records."""

    conclusive: Sentence
    open: Sentence
    records: Sentence = ()

    @property
    def text(self) -> str:
        """The sentences as plain text."""
        return " ".join(text for text in ("".join(self.conclusive), "".join(self.open), "".join(self.records)) if text)


def summarize(cells: Sequence[CellSummary], spec: ComparisonSpec, *, is_part: bool = False) -> Summary:
    """Summarize the comparisons of a study's cells.

    Args:
        cells: Summaries of the table.
        spec: The comparison that the study makes.
        is_part: The study plans cells or seeds that were not run.
    """
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    rest = [cell for cell in cells if cell.difference is None and not cell.is_baseline]
    inconclusive = [cell for cell in compared if cell.is_inconclusive]
    opening = f"In {spec.estimator.words.measure} ({better(spec.estimator.value_direction)})"
    if not compared:
        return _without_comparisons(cells, spec, opening)
    if len(compared) == 1:
        return Summary(
            [f"{opening}, ", *_one_comparison(compared[0], spec), "."], _open(inconclusive, rest, named=True, is_part=is_part)
        )
    if any(cell.further for cell in cells):
        compared = [replace(cell, name=comparison_name(cell.name, cell.baseline)) for cell in compared]
        inconclusive = [cell for cell in compared if cell.is_inconclusive]
    baselines = {cell.baseline for cell in compared}
    if len(baselines) == 1:
        baseline, comma = baselines.pop(), ""
    else:
        same = shared_axes(spec)
        values = _values(spec.baseline)
        baseline, comma = (f"{values} at the same {same}", ",") if same else (values, "")
    number = f"{len(compared)} cells compared with {baseline}"
    if any(cell.further for cell in cells):
        number, comma = f"{len(compared)} comparisons with {' and '.join(map(_values, spec.baselines))}", ","
    if len(inconclusive) == len(compared):
        none = Strong("is shown to be better, worse or equivalent")
        return Summary([f"{opening}, ", Strong("none"), f" of {number}{comma} ", none, "."], _open(inconclusive, rest))
    return Summary([f"{opening}, of {number}, ", *_groups(compared, spec), "."], _open(inconclusive, rest, is_part=is_part))


def _groups(compared: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return the number of cells by verdict, with the cells that differ most."""
    phrases = {
        VerdictKind.BETTER: "better",
        VerdictKind.WORSE: "worse",
        VerdictKind.EQUIVALENT: f"equivalent within ±{spec.margin or 0:g}",
        VerdictKind.IDENTICAL: "identical in every seed",
    }
    groups: list[list[str]] = []
    alternatives = [(kind, phrase, "") for kind, phrase in phrases.items()]
    alternatives += [(kind, f"{phrases[kind]}, {reason}", reason) for reason in (NO_CONTROL, TOO_WIDE) for kind in NEAR]
    for kind, phrase, reason in alternatives:
        verdicts = [(cell, cell.verdict) for cell in compared if cell.verdict is not None]
        cells = [cell for cell, verdict in verdicts if verdict.kind is kind and _unsupported(verdict) == reason]
        if cells:
            number = Strong(f"{len(cells)} {'is' if len(cells) == 1 else 'are'} {phrase}")
            groups.append([number, f" ({_list_largest(cells, [_result(cell) for cell in cells])})"])
        elif kind is VerdictKind.BETTER:
            groups.append([Strong("none is shown to be better")])
    parts = list(groups[0])
    for i, group in enumerate(groups[1:], start=2):
        parts += [" and " if i == len(groups) else ", ", *group]
    return parts


def _unsupported(verdict: Verdict) -> str:
    """Return the reason why an outcome of equivalent or identical is not supported, in few words, or ""."""
    wide = verdict.sensitivity is Sensitivity.WIDE_MARGIN
    return "" if not verdict.is_unsupported else TOO_WIDE if wide else NO_CONTROL


def _list_largest(cells: Sequence[CellSummary], texts: Sequence[str]) -> str:
    """Join the texts of the cells that differ most, and state how many more cells there are."""
    size = [abs(cell.difference.interval.mean - cell.difference.null) if cell.difference else 0.0 for cell in cells]
    order = sorted(range(len(cells)), key=lambda i: -size[i])
    more = len(cells) - MAX_NAMED
    return "; ".join(texts[i] for i in order[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _result(cell: CellSummary) -> str:
    """Return a cell's conclusive result as in "no_wo by 0.0120 ± 0.0030, p = 0.004"."""
    assert cell.difference is not None and cell.verdict is not None
    if cell.verdict.kind in (VerdictKind.BETTER, VerdictKind.WORSE):
        text = f"{cell.name}{cell.difference.format_size()}, p {format_p_value(cell.difference.p_holm, equals=True)}"
    elif cell.verdict.kind is VerdictKind.EQUIVALENT and cell.difference.interval.mean:
        text = f"{cell.name}, {format_both(cell.difference)}"
    else:
        text = cell.name
    return ", ".join([text, *describe_conditions(cell.verdict)])


def _one_comparison(cell: CellSummary, spec: ComparisonSpec) -> list[str]:
    """Return the clause on the only comparison of a study."""
    assert cell.difference is not None and cell.verdict is not None
    name, baseline, kind = cell.name, cell.baseline, cell.verdict.kind
    seeds = count(cell.difference.interval.n, "seed")
    conditions = "".join(f", {condition}" for condition in describe_conditions(cell.verdict))
    if kind in (VerdictKind.BETTER, VerdictKind.WORSE):
        p = format_p_value(cell.difference.p_holm, equals=True)
        size = f" {baseline}{cell.difference.format_size()} (p {p}, {seeds}){conditions}"
        return [f"{name} ", Strong(f"is {kind} than"), size]
    difference = f"({format_both(cell.difference)}, {seeds})"
    if kind is VerdictKind.EQUIVALENT:
        return [f"{name} ", Strong("is equivalent to"), f" {baseline} within ±{spec.margin:g} {difference}{conditions}"]
    if kind is VerdictKind.IDENTICAL:
        return [f"{name} and {baseline} are ", Strong(f"identical in all {seeds}"), conditions]
    return [f"the comparison of {name} with {baseline} is ", Strong("inconclusive"), f" {difference}{conditions}"]


def _open(
    inconclusive: Sequence[CellSummary], rest: Sequence[CellSummary], *, named: bool = False, is_part: bool = False
) -> list[str]:
    """Return the second sentence: the inconclusive comparisons, grouped by what they need, and the missing ones.

    Args:
        inconclusive: Cells with an inconclusive verdict.
        rest: Cells that could not be compared.
        named: The first sentence has already named the only inconclusive cell.
        is_part: There are planned comparisons that were not made.
    """
    by_need: dict[str, list[CellSummary]] = {}  # a prediction is that of one cell, other needs are common to several
    for cell in inconclusive:
        assert cell.verdict is not None
        by_need.setdefault("" if cell.verdict.prediction else describe_reason(cell.verdict), []).append(cell)
    parts: list[str] = []
    if named:
        parts += [_capitalize(describe_reason(cell.verdict)) for cell in inconclusive if cell.verdict]
    elif by_need:
        groups = [
            f"{_list_largest(cells, [_inconclusive(cell, need) for cell in cells])}{f': {need}' if need else ''}"
            for need, cells in sorted(by_need.items(), key=lambda item: -len(item[1]))
        ]
        parts += [Strong("Inconclusive"), f": {'; '.join(groups)}"]
    if rest:
        texts = [f"{cell.name} ({describe_verdict(cell.verdict) or cell.outcome})" for cell in rest]
        label = Strong("not compared" if parts else "Not compared")
        parts += [*(["; "] if parts else []), label, f": {_list_largest(rest, texts)}"]
    all_conclusive = "All of these comparisons are conclusive"
    return [*(parts or ["Other comparisons or seeds are missing" if is_part else all_conclusive]), "."]


def _inconclusive(cell: CellSummary, need: str) -> str:
    """Return an inconclusive cell with its difference, and with its own need unless that of its group is stated."""
    assert cell.verdict is not None
    return f"{cell.name} ({format_both(cell.difference)}{'' if need else f', {describe_reason(cell.verdict)}'})"


def _without_comparisons(cells: Sequence[CellSummary], spec: ComparisonSpec, opening: str) -> Summary:
    """Return the two sentences of a study in which nothing is compared."""
    completed = [cell for cell in cells if cell.has_result]
    if not completed:
        missing = f"has {spec.metric}" if any(RunState.COMPLETED in cell.states for cell in cells) else "has completed"
        states = "; ".join(f"{cell.name}: {cell.outcome}" for cell in cells[:MAX_NAMED])
        more = "; ..." if len(cells) > MAX_NAMED else ""
        return Summary([f"No run {missing}, so there is no result yet."], [f"{states}{more}."])
    if spec.baseline:
        return _without_baseline_pairs(cells, spec, opening)
    if len({cell.test for cell in completed}) > 1:
        reason = "they are not all tested on the same data in the same way"
        reason = "they do not read the same files" if is_program_test(completed[0].test) else reason
        first = f"{opening}, the cells cannot be ranked: {reason}."
        return Summary([first], ["The study has no baseline, so cells are not compared."])
    estimator = spec.estimator
    sign = 1 if estimator.value_direction == "min" else -1
    scores = [_rank(sign * (cell.estimate or cell.value or paired.Interval(0, 0.0)).mean) for cell in completed]
    best = [cell for cell, score in zip(completed, scores, strict=True) if score == min(scores)]
    seeds, name = count(best[0].seeds, "seed"), estimator.words.noun
    if len(cells) == 1:
        first = f"{opening}, the {name} of {best[0].name} is {estimator.format(best[0])} ({seeds})."
        return Summary([first], ["The study has one cell, so nothing is compared."])
    first = f"{opening}, the best {name} is that of {best[0].name}: {estimator.format(best[0])} ({seeds})."
    if len(best) > 1:
        names = ", ".join(cell.name for cell in best[:MAX_NAMED]) + (
            f" and {len(best) - MAX_NAMED} more" * (len(best) > MAX_NAMED)
        )
        first = f"{opening}, {len(best)} cells share the best {name}, {estimator.format(best[0])}: {names}."
    second = f"The study has no baseline, so cells are not compared, and the order of the {name}s may be due to chance."
    return Summary([first], [second])


def _rank(value: float) -> float:
    """Return a value to sort by; a median between infinities comes last."""
    return value if value == value else math.inf


def _without_baseline_pairs(cells: Sequence[CellSummary], spec: ComparisonSpec, opening: str) -> Summary:
    """Return the two sentences of a study with a baseline that no cell can be compared with."""
    rest = [cell for cell in cells if not cell.is_baseline]
    if len(rest) == len(cells):
        reason = "none of these cells is the baseline"
    elif rest:
        reasons = {cell.verdict.reason for cell in rest if cell.verdict}
        other_test = reasons == {Reason.OTHER_TEST}
        reason = "no cell has the same test as its baseline" if other_test else "no cell shares a seed with its baseline"
    else:
        reason = "the baseline is the only cell"
    first = [f"{opening}, nothing can be compared: {reason}."]
    if 0 < len(rest) < len(cells):
        return Summary(first, _open([], rest))
    where = ", ".join(f"{axis} {value}" for axis, value in spec.baseline.items())
    return Summary(first, [f"The baseline has {where}."])


def _values(baseline: Mapping[str, Any]) -> str:
    """Return the values of a baseline; null, which says nothing alone, follows the name of its axis."""
    return " ".join(f"{axis}=null" if value == "null" else str(value) for axis, value in baseline.items())


def _capitalize(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"

"""The result of a study in sentences, made from the same cell summaries as its table.

The first states the verdicts in plain words (`attnlab.report.plain`), the second the numbers of the conclusive comparisons, the
third the others, and what more seeds would show. An inconclusive comparison is never reported as "no difference".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from attnlab._util.run_state import RunState
from attnlab.config.comparability import is_program_test
from attnlab.report.plain import MAX_NAMED, plain_sentence
from attnlab.report.section import Name, Sentence, Strong
from attnlab.report.wording import (
    better,
    count,
    describe_conditions,
    describe_reason,
    describe_verdict,
    format_both,
    format_p_value,
)
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.records import comparison_name
from attnlab.stats.verdict import Reason, VerdictKind, p_of_verdict

MAX_LISTED = 6  # cells with numbers; the table has all of them


@dataclass(frozen=True)
class Summary:
    """The paragraph at the top of a report: plain words, conclusive results, inconclusive ones, and the choice of records."""

    conclusive: Sentence
    open: Sentence
    records: Sentence = ()
    plain: Sentence = ()

    @property
    def text(self) -> str:
        """The sentences as plain text."""
        return "".join(self.paragraph)

    @property
    def paragraph(self) -> Sentence:
        """The sentences as one paragraph."""
        return _one_after_another(self.plain, self.numbers, self.records)

    @property
    def numbers(self) -> Sentence:
        """The sentences with numbers."""
        return _one_after_another(self.conclusive, self.open)


def _one_after_another(*sentences: Sentence) -> Sentence:
    spaced = [[" ", *sentence] for sentence in sentences if sentence]
    return [part for sentence in spaced for part in sentence][1:]


def summarize(cells: Sequence[CellSummary], spec: ComparisonSpec) -> Summary:
    """Summarize the comparisons of a study's cells.

    Args:
        cells: Summaries of the table.
        spec: The comparison that the study makes.
    """
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    rest = [cell for cell in cells if cell.difference is None and not cell.is_baseline]
    measure = f"{spec.estimator.words.measure} ({better(spec.estimator.value_direction)})"
    if not compared:
        return _without_comparisons(cells, spec, f"In {measure}")
    plain = plain_sentence(compared, cells, spec)
    if any(cell.further for cell in cells):
        compared = [replace(cell, name=comparison_name(cell.name, cell.baseline)) for cell in compared]
    inconclusive = [cell for cell in compared if cell.is_inconclusive and not spec.is_control(cell.axes)]
    others = [cell for cell in compared if cell not in inconclusive]
    numbers = _list_largest(others, [_result(cell) for cell in others], MAX_LISTED)
    open_ = _open(inconclusive, rest, opening="" if numbers else f"Differences in {measure}, ")
    return Summary([f"Differences in {measure}: {numbers}."] if numbers else [], open_, plain=plain)


def _list_largest(cells: Sequence[CellSummary], texts: Sequence[str], most: int = MAX_NAMED) -> str:
    """Join the texts of the cells that differ most, and state how many more cells there are."""
    size = [abs(cell.difference.interval.mean - cell.difference.null) if cell.difference else 0.0 for cell in cells]
    order = sorted(range(len(cells)), key=lambda i: -size[i])
    more = len(cells) - most
    return "; ".join(texts[i] for i in order[:most]) + (f"; and {more} more" if more > 0 else "")


def _result(cell: CellSummary) -> str:
    """Return a cell with its difference, p-value, seeds and conditions, as in "no_wo +0.0120 ± 0.0030 (p = 0.004, 5 seeds)"."""
    assert cell.difference is not None and cell.verdict is not None
    p = format_p_value(p_of_verdict(cell.difference), equals=True)
    of_what = " for equivalence" if cell.verdict.kind is VerdictKind.EQUIVALENT else ""
    p = f"p {p}{of_what}, " if p and cell.verdict.kind is not VerdictKind.IDENTICAL else ""
    numbers = f"{format_both(cell.difference)} ({p}{count(cell.difference.interval.n, 'seed')})"
    return ", ".join([f"{cell.name} {numbers}", *describe_conditions(cell.verdict)])


def _open(inconclusive: Sequence[CellSummary], rest: Sequence[CellSummary], *, opening: str = "") -> list[str]:
    """Return the second sentence: the inconclusive comparisons, grouped by what they need, and the missing ones.

    Args:
        inconclusive: Cells with an inconclusive verdict.
        rest: Cells that could not be compared.
        opening: The beginning of the sentence.
    """
    by_need: dict[str, list[CellSummary]] = {}  # a prediction is that of one cell, other needs are common to several
    for cell in inconclusive:
        assert cell.verdict is not None
        by_need.setdefault("" if cell.verdict.prediction else describe_reason(cell.verdict), []).append(cell)
    parts: list[str] = []
    if by_need:
        groups = [
            f"{_list_largest(cells, [_inconclusive(cell, need) for cell in cells])}{f': {need}' if need else ''}"
            for need, cells in sorted(by_need.items(), key=lambda item: -len(item[1]))
        ]
        parts += [
            *([opening] if opening else []),
            Strong("inconclusive" if opening else "Inconclusive"),
            f": {'; '.join(groups)}",
        ]
    if rest:
        texts = [f"{cell.name} ({describe_verdict(cell.verdict) or cell.outcome})" for cell in rest]
        label = Strong("not compared" if parts else "Not compared")
        parts += [*(["; "] if parts else []), label, f": {_list_largest(rest, texts)}"]
    return [*parts, "."] if parts else []


def _inconclusive(cell: CellSummary, need: str) -> str:
    """Return an inconclusive cell with its difference, and with its own need unless that of its group is stated."""
    assert cell.verdict is not None
    return f"{cell.name} ({format_both(cell.difference)}{'' if need else f', {describe_reason(cell.verdict)}'})"


def _without_comparisons(cells: Sequence[CellSummary], spec: ComparisonSpec, opening: str) -> Summary:
    """Return the sentences of a study in which nothing is compared."""
    completed = [cell for cell in cells if cell.has_result]
    if not completed:
        missing = f"has {spec.metric}" if any(RunState.COMPLETED in cell.states for cell in cells) else "has completed"
        states = "; ".join(f"{cell.name}: {cell.outcome}" for cell in cells[:MAX_NAMED])
        more = "; ..." if len(cells) > MAX_NAMED else ""
        return Summary([], [f"{states}{more}."], plain=[f"No run {missing}, so there is no result yet."])
    if spec.baseline:
        return _without_baseline_pairs(cells, spec)
    if len({cell.test for cell in completed}) > 1:
        reason = "they are not all tested on the same data in the same way"
        reason = "they do not read the same files" if is_program_test(completed[0].test) else reason
        plain = f"The study has no baseline, so cells are not compared, and they cannot be ranked: {reason}."
        return Summary([], [], plain=[plain])
    estimator = spec.estimator
    sign = 1 if estimator.value_direction == "min" else -1
    scores = [_rank(sign * (cell.estimate or cell.value or paired.Interval(0, 0.0)).mean) for cell in completed]
    best = [cell for cell, score in zip(completed, scores, strict=True) if score == min(scores)]
    seeds, name = count(best[0].seeds, "seed"), estimator.words.noun
    if len(cells) == 1:
        first = f"{opening}, the {name} of {best[0].name} is {estimator.format(best[0])} ({seeds})."
        return Summary([first], [], plain=["The study has one cell, ", Name(best[0].name), ", so nothing is compared."])
    first = f"{opening}, the best {name} is that of {best[0].name}: {estimator.format(best[0])} ({seeds})."
    if len(best) > 1:
        names = ", ".join(cell.name for cell in best[:MAX_NAMED]) + (
            f" and {len(best) - MAX_NAMED} more" * (len(best) > MAX_NAMED)
        )
        first = f"{opening}, {len(best)} cells share the best {name}, {estimator.format(best[0])}: {names}."
    plain = f"The study has no baseline, so cells are not compared, and the order of the {name}s may be due to chance."
    return Summary([first], [], plain=[plain])


def _rank(value: float) -> float:
    """Return a value to sort by; a median between infinities comes last."""
    return value if value == value else math.inf


def _without_baseline_pairs(cells: Sequence[CellSummary], spec: ComparisonSpec) -> Summary:
    """Return the sentences of a study with a baseline that no cell can be compared with."""
    rest = [cell for cell in cells if not cell.is_baseline]
    if len(rest) == len(cells):
        reason = "none of these cells is the baseline"
    elif rest:
        reasons = {cell.verdict.reason for cell in rest if cell.verdict}
        other_test = reasons == {Reason.OTHER_TEST}
        reason = "no cell has the same test as its baseline" if other_test else "no cell shares a seed with its baseline"
    else:
        reason = "the baseline is the only cell"
    where = ", ".join(f"{axis} {value}" for axis, value in spec.baseline.items())
    further = _open([], rest) if 0 < len(rest) < len(cells) else [f"The baseline has {where}."]
    return Summary([], further, plain=[f"Nothing can be compared: {reason}."])

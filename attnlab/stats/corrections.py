"""The verdicts of a study without a choice of its records, beside the study's verdicts.

A verdict is valid if its runs, its seeds and its question were chosen before their results were known. Where they were not, or
where that is not known (`attnlab.stats.selection`), all that the study shows is computed again from all results, from the
question that was asked first, or from both. Whoever chooses the results of a table has looked at all of them: the verdicts from
all results are corrected for a look at each number of seeds that was known when a table was judged, however few that table had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.compare import summarize_cells, summarize_questions
from attnlab.stats.contrasts import Contrast, JointResult, PooledEffect, StudyTable, mean_kind, with_tables
from attnlab.stats.factorial import Effect, FactorialResult, estimate_effects
from attnlab.stats.question import with_question
from attnlab.stats.records import RunRecord, comparison_name
from attnlab.stats.selection import Selection, everything
from attnlab.stats.sequential import Looks, merge_looks
from attnlab.stats.training_share import CellShare, summarize_shares
from attnlab.stats.trend import Trend, summarize_trends
from attnlab.stats.verdict import Correction, Verdict, VerdictKind, p_of_verdict

if TYPE_CHECKING:
    import pandas

Outcome = tuple[StrEnum, float | None, str]  # kind, p-value, and the baseline if it is another one
FLIPPED = {VerdictKind.BETTER: VerdictKind.WORSE, VerdictKind.WORSE: VerdictKind.BETTER}


class Choice(StrEnum):
    """The choice that a corrected verdict does without."""

    RUNS = "with the results that are left out"
    QUESTION = "as first asked"
    BOTH = "as first asked, with the results that are left out"
    TRIES = "after the earlier configurations"
    ALL = "with all of these corrections"
    LOST = "with the results that are not at hand"


@dataclass(frozen=True)
class Alternative:
    """The study without a choice of its records.

    Attributes:
        choice: That choice.
        spec: The comparison that the study would make; None when its runs cannot answer the first question.
        cells: The summaries of its cells.
        records: Its runs.
        trends: The trends of the whole study.
        further: The cells by the metrics of the further questions.
    """

    choice: Choice
    spec: ComparisonSpec | None
    cells: Sequence[CellSummary] = ()
    records: Sequence[RunRecord] = ()
    trends: Sequence[Trend] = ()
    further: Sequence[Sequence[CellSummary]] = ()

    def for_question(self, asked: ComparisonSpec) -> Alternative:
        """Return this alternative for a further question; without cells when the question was not asked then."""
        every = zip(self.spec.questions[1:] if self.spec else [], self.further, strict=True)
        cells = next((cells for spec, cells in every if spec.goal == asked.goal), ())
        return replace(self, cells=cells, trends=(), further=())

    def for_task(self, part: ComparisonSpec) -> Alternative:
        """Return this alternative for the task that a specification is about."""
        if self.spec is None or not part.task:
            return self
        own = self.spec.for_task(part.task) if part.task in self.spec.tasks.goals else self.spec
        cells = [cell for cell in self.cells if part.includes(cell.axes)]
        trends = [trend for trend in self.trends if part.includes(trend.comparisons[0].axes)]
        return replace(self, spec=own, cells=cells, records=[run for run in self.records if part.includes(run)], trends=trends)


def alternatives(records: Sequence[RunRecord], spec: ComparisonSpec, selection: Selection) -> list[Alternative]:
    """Return the study without each choice of its records; [] if they were not chosen.

    Args:
        records: The runs of its table, without the trials of a search.
        spec: The comparison that the study makes, of all of its tasks.
        selection: The choice of its records.
    """
    if not spec.is_judged:
        return []
    every, found = list(records), []
    if selection.left_out:
        every = everything(records, selection.left_out, spec)
        found.append(_alternative(Choice.RUNS, every, spec, selection))
    if selection.first_question is not None:
        choice = Choice.BOTH if selection.left_out else Choice.QUESTION
        before = with_question(spec, selection.first_question, every)
        found.append(Alternative(choice, None) if before is None else _alternative(choice, every, before, selection))
        spec = spec if before is None else before
    if selection.retried:
        choice = Choice.ALL if found else Choice.TRIES
        found.append(_alternative(choice, every, spec, selection, retried=selection.retried))
    return found


def for_choice(choice: Choice, tables: Mapping[Choice, StudyTable], default: StudyTable) -> StudyTable:
    """Return the table of a study without a choice and all before it, since the choices of one study add up."""
    order = [*Choice]
    known = [table for other, table in tables.items() if order.index(other) <= order.index(choice)]
    return known[-1] if known else default


def _alternative(
    choice: Choice,
    records: Sequence[RunRecord],
    spec: ComparisonSpec,
    selection: Selection,
    *,
    retried: Sequence[tuple[str, str, int]] = (),
) -> Alternative:
    cells = summarize_cells(records, spec)
    looked = _with_tries(with_all_looks(spec, cells, selection.known), cells, retried)
    cells, *further = summarize_questions(records, looked)
    return Alternative(choice, looked, cells, records, summarize_trends(cells, looked), further)


def with_all_looks(
    spec: ComparisonSpec, cells: Sequence[CellSummary], known: Sequence[Mapping[str, Sequence[int]]]
) -> ComparisonSpec:
    """Return a specification with a look at each number of these results that was known when a table was judged.

    Args:
        cells: Summaries of all results.
        known: Name of a cell -> the seeds that tables had shown, at the time of each table.
    """
    seeds = {cell.name: cell.values.keys() | cell.scores.keys() for cell in cells}
    at = [{cell: {*of_cell} & seeds[cell] for cell, of_cell in table.items() if cell in seeds} for table in known]
    own = dict(spec.judged.own)
    for cell in comparisons(cells):
        if cell.baseline:
            name = comparison_name(cell.name, cell.baseline)
            numbers = [len(table.get(cell.name, set()) & table.get(cell.baseline, set())) for table in at]
            if (looks := _with_numbers(own.get(name, spec.looks), numbers)) is not None:
                own[name] = looks
    numbers = [max(map(len, table.values())) for table in at if len(table) > 1] if spec.factorial else []
    return replace(spec, judged=replace(spec.judged, own=own, looks=_with_numbers(spec.looks, numbers)))


def _with_tries(spec: ComparisonSpec, cells: Sequence[CellSummary], retried: Sequence[tuple[str, str, int]]) -> ComparisonSpec:
    """Return a specification that corrects comparisons for earlier configurations of their cells."""
    numbers = {frozenset((cell, baseline)): number for cell, baseline, number in retried}
    own = dict(spec.judged.own)
    for cell in comparisons(cells):
        number = numbers.get(frozenset((cell.name, cell.baseline)))
        if number and cell.difference is not None:
            name = comparison_name(cell.name, cell.baseline)
            own[name] = _tried(own.get(name, spec.looks), cell.difference.interval.n, number)
    looks = spec.looks
    if spec.factorial and numbers:
        looks = _tried(looks, max((cell.seeds for cell in cells), default=0), max(numbers.values()))
    return replace(spec, judged=replace(spec.judged, own=own, looks=looks))


def _tried(looks: Looks | None, n: int, number: int) -> Looks:
    """Return looks after tries; without looks, as after one at ``n`` seeds."""
    return replace(looks or Looks(max(2, n), max(2, n)), tries=number)


def _with_numbers(looks: Looks | None, numbers: Iterable[int]) -> Looks | None:
    return merge_looks([looks, *(Looks(n, n) for n in numbers if n > 1)])


# ---------------------------------------------------------------- cells


def correct_cells(cells: Sequence[CellSummary], others: Sequence[Alternative], selection: Selection) -> list[CellSummary]:
    """Return the cells of a study with the verdicts that they would have without a choice of its records.

    A comparison of which results are known to be missing has one that is not known.
    """
    corrections: dict[tuple[str, str], list[Correction]] = {}
    for other in others:
        for key, correction in _of_cells(cells, other).items():
            corrections.setdefault(key, []).append(correction)
    lost = {cell for cell, _, _ in selection.lost}
    for cell in comparisons(cells):
        if cell.difference is not None and {cell.name, cell.baseline} & lost:
            corrections.setdefault((cell.name, cell.baseline), []).append(Correction(Choice.LOST))
    return _with_corrections(cells, corrections)


def _of_cells(cells: Sequence[CellSummary], other: Alternative) -> dict[tuple[str, str], Correction]:
    """Return the verdicts of another table that differ from the verdicts of the cells, by (cell, baseline)."""
    after = {(cell.name, cell.baseline): cell for cell in comparisons(other.cells) if cell.difference is not None}
    first = {cell.name: cell for cell in reversed(list(after.values()))}
    after = {(cell.name, cell.baseline): cell for cell in map(_mirrored, after.values())} | after
    corrections = {}
    for cell in comparisons(cells):
        if cell.verdict is None or cell.difference is None:
            continue
        found = after.get((cell.name, cell.baseline)) or (first.get(cell.name) if other.choice is not Choice.RUNS else None)
        outcome = None
        if found is not None and found.verdict is not None:
            against = found.baseline if found.baseline != cell.baseline else ""
            outcome = (found.verdict.kind, p_of_verdict(found.difference), against)
        if correction := _correction((cell.verdict.kind, p_of_verdict(cell.difference), ""), outcome, other.choice):
            corrections[cell.name, cell.baseline] = correction
    return corrections


def _correction(own: Outcome, other: Outcome | None, choice: Choice) -> Correction | None:
    """Return a verdict without a choice; None when a table shows the same kind and p-value as with it."""
    if other is None:
        return Correction(choice)
    same = other[0] == own[0] and other[2] == own[2] and _text(other[1]) == _text(own[1])
    return None if same else Correction(choice, *other)


def _text(p: float | None) -> str:
    return "" if p is None else f"{p:.3f}"


def _mirrored(cell: CellSummary) -> CellSummary:
    """Return the comparison of a baseline with its cell."""
    verdict = cell.verdict and replace(cell.verdict, kind=FLIPPED.get(cell.verdict.kind, cell.verdict.kind))
    return replace(cell, name=cell.baseline, baseline=cell.name, verdict=verdict, further=())


def _with_corrections(
    cells: Iterable[CellSummary], corrections: Mapping[tuple[str, str], Sequence[Correction]]
) -> list[CellSummary]:
    def corrected(cell: CellSummary) -> CellSummary:
        verdict: Verdict | None = cell.verdict
        if verdict is not None and (own := corrections.get((cell.name, cell.baseline))):
            verdict = replace(verdict, corrections=tuple(own))
        return replace(cell, verdict=verdict, further=tuple(map(corrected, cell.further)))

    return [corrected(cell) for cell in cells]


# ---------------------------------------------------------------- trends, effects, shares of training


def correct_trends(trends: Sequence[Trend], others: Sequence[Alternative], selection: Selection) -> list[Trend]:
    """Return the trends of a study with the outcomes that they would have without a choice of its records."""
    lost = {cell for cell, _, _ in selection.lost}
    return [_corrected_trend(trend, others, lost) for trend in trends]


def _corrected_trend(trend: Trend, others: Sequence[Alternative], lost: set[str]) -> Trend:
    corrections = [_of_trend(trend, other.trends, other.choice) for other in others]
    if any({cell.name, cell.baseline} & lost for cell in trend.comparisons):
        corrections.append(Correction(Choice.LOST))
    return replace(trend, corrections=tuple(correction for correction in corrections if correction))


def _of_trend(trend: Trend, others: Sequence[Trend], choice: Choice) -> Correction | None:
    """Return the outcome of a trend among others, which may be against another baseline."""
    same = [other for other in others if other.name == trend.name]
    found = next((other for other in same if other.baseline == trend.baseline), None)
    found = found or (same[0] if same and choice is not Choice.RUNS else None)
    outcome = None
    if found is not None:
        outcome = (found.kind, found.p_value, found.baseline if found.baseline != trend.baseline else "")
    return _correction((trend.kind, trend.p_value, ""), outcome, choice)


def correct_effects(
    result: FactorialResult | None, others: Sequence[Alternative], selection: Selection
) -> FactorialResult | None:
    """Return the effects of a factorial study with the verdicts that they would have without a choice of its records.

    Cells that the study no longer has are outside its design: no effect is known with them.

    Args:
        result: None for a study without factors.
        others: Of the task that the effects are about.
        selection: The choice of its records.
    """
    if result is None:
        return None
    outside = any(run.get("left_out") == "cell" for run in selection.left_out)
    found = [
        (other.choice, estimate_effects(other.cells, other.spec) if other.spec and not outside else None) for other in others
    ]
    tables = [(choice, {effect.name: effect for effect in other.effects} if other else {}) for choice, other in found]

    def corrected(effect: Effect) -> Effect:
        own = (effect.verdict.kind, p_of_verdict(effect.difference), "")
        corrections = []
        for choice, of_choice in tables:
            other = of_choice.get(effect.name)
            outcome = (other.verdict.kind, p_of_verdict(other.difference), "") if other else None
            corrections.append(_correction(own, outcome, choice))
        corrections += [Correction(Choice.LOST)] if selection.lost else []
        return replace(effect, verdict=replace(effect.verdict, corrections=tuple(filter(None, corrections))))

    return replace(result, effects=tuple(map(corrected, result.effects)))


def correct_shares(
    shares: Sequence[CellShare], others: Sequence[Alternative], curves: pandas.DataFrame
) -> tuple[list[CellShare], dict[Choice, list[CellShare]]]:
    """Return the shares of training with those that they would be without a choice of records, and these by choice.

    Args:
        others: Of the task that the shares are about.
        curves: As `attnlab.load_curves` returns them, with the curves of the runs that the study leaves out.
    """
    tables: dict[Choice, list[CellShare]] = {}
    for other in others:
        arguments = (other.cells, other.records, curves)
        tables[other.choice] = summarize_shares(*arguments, spec=other.spec, trends=other.trends) if other.spec else []

    def corrected(share: CellShare) -> CellShare:
        found = []
        for choice, of_choice in tables.items():
            same = (s.share for s in of_choice if (s.name, s.baseline, s.source) == (share.name, share.baseline, share.source))
            if (other := next(same, None)) != share.share:
                found.append((choice.value, other))
        return replace(share, others=tuple(found))

    return list(map(corrected, shares)), tables


# ---------------------------------------------------------------- several studies


def correct_joint(result: JointResult, others: Mapping[Choice, JointResult], before: Sequence[StudyTable]) -> JointResult:
    """Return the results of several studies with the verdicts that they would have without a choice of records.

    Args:
        others: The results without each choice, which have the same studies.
        before: The studies with their verdicts and the corrections of these.
    """
    tables = []
    for i, table in enumerate(result.tables):
        corrections = {
            (cell.name, cell.baseline): _of_lost_results(cell.verdict.corrections if cell.verdict else ())
            for cell in comparisons(before[i].cells)
        }
        for choice, other in others.items():
            for key, correction in _of_cells(table.cells, Alternative(choice, None, other.tables[i].cells)).items():
                corrections.setdefault(key, []).append(correction)
        trends = []
        for trend in table.trends:
            own = [_of_trend(trend, other.tables[i].trends, choice) for choice, other in others.items()]
            own += _of_lost_results(trend.corrections)  # which a trend keeps when it is corrected over several studies
            trends.append(replace(trend, corrections=tuple(filter(None, own))))
        tables.append(replace(table, cells=_with_corrections(table.cells, corrections), trends=tuple(trends)))
    judged = with_tables(result, tables, result.contrasts)
    return replace(judged, contrasts=tuple(_corrected_mean(contrast, others) for contrast in judged.contrasts))


def _of_lost_results(corrections: Iterable[Correction]) -> list[Correction]:
    return [correction for correction in corrections if correction.choice == Choice.LOST]


def _corrected_mean(contrast: Contrast, others: Mapping[Choice, JointResult]) -> Contrast:
    verdicts = [cell.verdict for study in contrast.studies for cell in study.comparisons if cell.verdict]
    lost = [correction for verdict in verdicts for correction in _of_lost_results(verdict.corrections)]
    corrections: list[Correction | None] = [*lost[:1]] if contrast.pooled else []
    shares: list[tuple[str, PooledEffect | None]] = []
    for choice, other in others.items():
        found = next((c for c in other.contrasts if c.label == contrast.label), None)
        if contrast.pooled is not None:
            mean = found.pooled.mean if found and found.pooled else None
            own = (mean_kind(contrast.pooled.mean), contrast.pooled.mean.p_holm, "")
            corrections.append(_correction(own, (mean_kind(mean), mean.p_holm, "") if mean else None, choice))
        share = found.pooled_share if found else None
        if contrast.pooled_share is not None and share != contrast.pooled_share:
            shares.append((choice.value, share))
    return replace(contrast, corrections=tuple(filter(None, corrections)), other_shares=tuple(shares))

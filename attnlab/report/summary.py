"""The result of a study in sentences, made from the same cell summaries as its table.

The first states the verdicts in words that need no statistics, the second the numbers of the conclusive comparisons, the third
the others, and what more seeds would show. An inconclusive comparison is never reported as "no difference": the seeds "cannot
tell" two cells apart. Names of cells are marked as code, so that a cell named `none` is not read as a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from attnlab._util.metrics import in_words, is_share
from attnlab._util.run_state import RunState
from attnlab.config.grid import cell_name
from attnlab.report.section import Name, Sentence, Strong
from attnlab.report.wording import (
    better,
    count,
    describe_conditions,
    describe_reason,
    describe_seeds,
    describe_verdict,
    format_both,
    format_p_value,
    shared_axes,
)
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.records import comparison_name
from attnlab.stats.verdict import Reason, Sensitivity, Verdict, VerdictKind, p_of_verdict, sensitivity

MAX_NAMED = 3  # cells named in one clause; the table has all of them
MAX_CLAUSES = 5
COMMON = {"a", "all", "and", "at", "in", "is", "it", "no", "not", "of", "on", "one", "or", "than", "the", "to", "with"}
COST_WORDS = {  # counted cost -> words for a larger and a smaller value; measured ones scatter, and have no test
    "parameters": ("more parameters", "fewer parameters"),
    "saved_mib": ("more activation memory", "less activation memory"),
}
PREFERABLE = (VerdictKind.BETTER, VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL)
NOTABLE = 0.05  # smallest relative difference of a cost that is stated

MAX_LISTED = 6  # cells with numbers; the table has all of them


@dataclass(frozen=True)
class Clause:
    """One statement on cells that have the same verdict against the same baseline at the same places."""

    baseline: str
    kind: VerdictKind
    remark: str = ""
    where: tuple[tuple[str, str], ...] = ()


def plain_sentence(compared: Sequence[CellSummary], cells: Sequence[CellSummary], spec: ComparisonSpec) -> Sentence:
    """Return the plain sentence on comparisons, and those on the control and on costs that differ.

    Args:
        compared: The comparisons that have a difference.
        cells: All cells of the table.
        spec: The comparison that the study makes; clauses on cells that its question names come first.
    """
    by_name = {cell.name: cell for cell in cells}
    judged = [cell for cell in compared if not spec.is_control(cell.axes)]
    shared = shared_axes(spec) if len({cell.baseline for cell in judged}) > len(spec.baselines) else []
    hidden = [*shared, *([spec.task_axis] if spec.task else [])]
    named = {id(cell): (_short(cell, hidden), _short(by_name[cell.baseline], hidden)) for cell in judged}
    judged.sort(key=lambda cell: (not _is_asked(*named[id(cell)], spec.question), -_size(cell)))
    grouped = _clauses(judged, named, shared, spec)
    parts: list[str] = []
    before = ""
    for clause, of_clause in grouped[:MAX_CLAUSES]:
        every = len(grouped) == 1 and len({named[id(cell)][0] for cell in judged}) > MAX_NAMED
        text = describe_clause(
            clause, of_clause, [named[id(cell)][0] for cell in of_clause], before=before, every=every, spec=spec
        )
        parts += [*(["; "] if parts else []), *text]
        before = clause.baseline
    parts += ["; the table has the others"] if len(grouped) > MAX_CLAUSES else []
    parts = as_sentence(parts)
    for control in (cell for cell in compared if spec.is_control(cell.axes)):
        parts += [*([" "] if parts else []), *_control(control, spec)]
    return [*parts, *(_cheapest(judged, named, by_name) or _costs(judged, named, by_name))]


def describe_clause(
    clause: Clause,
    cells: Sequence[CellSummary],
    names: Sequence[str],
    *,
    spec: ComparisonSpec,
    before: str = "",
    every: bool = False,
) -> Sentence:
    """Return a clause, as in "after 200 steps, `a` and `b` are better than `dense`".

    Args:
        clause: The statement.
        cells: Its comparisons.
        names: Of the cells, each as often as it occurs.
        spec: The comparison that the study makes.
        before: Name of the baseline of the clause before, which is not repeated.
        every: No other cell is compared.
    """
    names, kind = list(dict.fromkeys(names)), clause.kind
    listed = ["any of ", f"{len(names)} cells"] if every and kind is VerdictKind.INCONCLUSIVE else list_names(names)
    where = _describe_where(clause.where, spec)
    if kind is VerdictKind.INCONCLUSIVE:
        seeds = describe_seeds([cell.difference.interval.n for cell in cells if cell.difference])
        return [*where, f"{seeds} ", Strong("cannot tell"), " ", *listed, " from ", Name(clause.baseline)]
    one = len(names) == 1
    verb = {
        VerdictKind.BETTER: ("is better" if one else "are better", " than "),
        VerdictKind.WORSE: ("is worse" if one else "are worse", " than "),
        VerdictKind.EQUIVALENT: ("is as good" if one else "are as good", " as "),
        VerdictKind.IDENTICAL: ("has the same scores" if one else "have the same scores", " as "),
    }[kind]
    against = [] if before == clause.baseline else [verb[1], Name(clause.baseline)]
    return [*where, *listed, " ", Strong(verb[0]), *against, clause.remark]


def remark_of(cell: CellSummary, verdict: Verdict, spec: ComparisonSpec) -> str:
    """Return the condition of a verdict in plain words: its size next to the margin, and that there are further conditions."""
    kind = verdict.kind
    text = ", but by less than the margin" if verdict.within_margin else ""
    if kind is VerdictKind.EQUIVALENT:
        wide = verdict.sensitivity is Sensitivity.WIDE_MARGIN
        scores = [*cell.values.values()] if spec.estimator.in_unit else []
        text = f", within {describe_margin(spec, scores)}{', a margin that is too wide' if wide else ''}"
    others = verdict.lost or verdict.baseline_lost or verdict.fragile
    return f"{text}, under the conditions below" if others and kind is not VerdictKind.INCONCLUSIVE else text


def describe_margin(spec: ComparisonSpec, scores: Sequence[float] = ()) -> str:
    """Return the margin with its unit: "0.02 bits per byte", "1 percentage point".

    Args:
        spec: The comparison that the study makes.
        scores: A program may print an accuracy in per cent, of which the margin is no share.
    """
    margin = spec.margin or 0
    if is_share(spec.metric) and margin < 1 and all(abs(score) <= 1 for score in scores):
        return f"{100 * margin:.3g} percentage point{'' if margin == 0.01 else 's'}"
    return f"{margin:.3g} {in_words(spec.metric)}"


def list_names(names: Sequence[str]) -> Sentence:
    """Return the first names as code, and the number of the others: "`a`, `b` and 4 others"."""
    more = len(names) - MAX_NAMED
    last = f"{more} other{'' if more == 1 else 's'}" if more > 0 else ""
    shown: list[str] = [*map(Name, names[:MAX_NAMED]), *([last] if last else [])]
    return join(shown)


def join(texts: Iterable[str]) -> Sentence:
    """Return texts as "a, b and c"."""
    texts = list(texts)
    gaps = [*[", "] * (len(texts) - 2), " and "]
    return [part for i, text in enumerate(texts) for part in ([gaps[i - 1]] if i else []) + [text]]


def _clauses(
    judged: Sequence[CellSummary], named: Mapping[int, tuple[str, str]], shared: Sequence[str], spec: ComparisonSpec
) -> list[tuple[Clause, list[CellSummary]]]:
    """Return the clauses on comparisons, with the cells of each, in the order in which they are written."""
    of_name: dict[tuple[str, Clause], list[CellSummary]] = {}
    for cell in judged:
        if cell.verdict is not None:
            name, baseline = named[id(cell)]
            of_name.setdefault((name, Clause(baseline, cell.verdict.kind, remark_of(cell, cell.verdict, spec))), []).append(
                cell
            )
    groups: dict[Clause, list[CellSummary]] = {}
    for (_, clause), cells in of_name.items():
        where = sorted({_where(cell, shared, spec) for cell in cells}, key=lambda place: (place[1], float(place[0] or 0)))
        clause = Clause(clause.baseline, clause.kind, clause.remark, tuple(where) if shared else ())
        groups.setdefault(clause, []).extend(cells)
    kinds = list(VerdictKind)

    def order(item: tuple[Clause, list[CellSummary]]) -> tuple[int, bool, int]:
        clause, cells = item
        asked = any(_is_asked(*named[id(cell)], spec.question) for cell in cells)
        baseline = min(i for i, cell in enumerate(judged) if named[id(cell)][1] == clause.baseline)
        return baseline, not asked, kinds.index(clause.kind)

    return sorted(groups.items(), key=order)


def _size(cell: CellSummary) -> float:
    return abs(cell.difference.interval.mean) if cell.difference else 0.0


def _short(cell: CellSummary, hidden: Sequence[str]) -> str:
    """Return the name of a cell without some of its axes."""
    return (cell_name({axis: value for axis, value in cell.axes.items() if axis not in hidden}) if hidden else "") or cell.name


def _where(cell: CellSummary, shared: Sequence[str], spec: ComparisonSpec) -> tuple[str, str]:
    """Return the level of a cell and its other values on the axes that it shares with its baseline."""
    others = cell_name({axis: cell.axes[axis] for axis in shared if axis != spec.over})
    return (cell.axes[spec.over] if spec.over in shared else ""), others


def _describe_where(where: Sequence[tuple[str, str]], spec: ComparisonSpec) -> Sentence:
    """Return the beginning of a clause, as in "after 150 and 450 steps, " or "with `pairs=4` and `pairs=8`, "."""
    levels, others = list(dict.fromkeys(level for level, _ in where)), list(dict.fromkeys(other for _, other in where))
    if len(where) < len(levels) * len(others):
        return ["in some places, "]
    noun, numbers = spec.over.rpartition(".")[2], join([f"{float(level):,.6g}" for level in levels if level])
    after = ["after ", *numbers, f" {noun}, "] if noun in ("steps", "epochs") else [f"at {noun} ", *numbers, ", "]
    about = ["with ", *join([Name(other) for other in others]), ", "] if any(others) else []
    return [*about, *(after if numbers else [])]


def _is_asked(name: str, baseline: str, question: str) -> bool:
    """Return True when a question names what a cell has and its baseline has not."""
    asked, own, other = ({*re.findall(r"[a-z0-9]+", text.lower().replace("_", " "))} for text in (question, name, baseline))
    return any(word in asked - COMMON and not word.isdigit() for word in own - other)


def _control(cell: CellSummary, spec: ComparisonSpec) -> Sentence:
    """Return the sentence on a control."""
    if sensitivity(cell.verdict, cell.difference, margin=spec.margin) is Sensitivity.SHOWN:
        return ["The control ", Name(cell.name), " is worse, as it should be."]
    within = cell.verdict is not None and cell.verdict.kind is VerdictKind.WORSE
    text = " is worse by less than the margin" if within else " was not found worse"
    return ["The control ", Name(cell.name), Strong(text), ", so this study shows little about cells that look alike."]


def _costs(judged: Sequence[CellSummary], named: Mapping[int, tuple[str, str]], by_name: Mapping[str, CellSummary]) -> Sentence:
    """Return the sentence on costs that differ notably, of the cells that may be preferred; of one comparison, of any."""
    texts: dict[str, str] = {}
    for cell in judged:
        kind, near = (cell.verdict.kind, cell.verdict.within_margin) if cell.verdict else (None, False)
        if kind in PREFERABLE or near or (len(judged) == 1 and kind is VerdictKind.WORSE):
            texts[named[id(cell)][0]] = ", ".join(_cost_differences(cell, by_name[cell.baseline]))
    shown = [(name, text) for name, text in texts.items() if text][:MAX_NAMED]
    parts = [part for name, text in shown for part in ("; ", Name(name), f" {text}")][1:]
    return [" Costs: ", *parts, "."] if parts else []


def _cheapest(
    judged: Sequence[CellSummary], named: Mapping[int, tuple[str, str]], by_name: Mapping[str, CellSummary]
) -> Sentence:
    """Return the sentence on the smallest cell that is not shown to be worse; empty when one is better, or none is smaller."""
    kinds = {cell.verdict.kind for cell in judged if cell.verdict}
    bases = {cell.baseline for cell in judged}
    if VerdictKind.BETTER in kinds or len(bases) != 1 or len(judged) < 2:
        return []
    sizes = {id(c): c.costs["parameters"].mean for c in (*judged, by_name[bases.pop()]) if "parameters" in c.costs}
    kept = [c for c in judged if c.verdict and c.verdict.kind is not VerdictKind.WORSE and id(c) in sizes]
    cell = min(kept, key=lambda c: sizes[id(c)], default=None)
    costs = _cost_differences(cell, by_name[cell.baseline]) if cell else []
    if cell is None or sizes[id(cell)] > (1 - NOTABLE) * by_name[cell.baseline].costs["parameters"].mean:
        return []
    return [" The cheapest cell that is not shown to be worse is ", Name(named[id(cell)][0]), f": {', '.join(costs)}."]


def _cost_differences(cell: CellSummary, baseline: CellSummary) -> list[str]:
    """Return the counted costs that differ by more than 5 %."""
    costs = ((cell.costs.get(name), baseline.costs.get(name), words) for name, words in COST_WORDS.items())
    changes = [(ours.mean / theirs.mean - 1, words) for ours, theirs, words in costs if ours and theirs and theirs.mean]
    return [f"{100 * abs(change):.0f} % {words[change < 0]}" for change, words in changes if abs(change) > NOTABLE]


def as_sentence(parts: Sequence[str]) -> list[str]:
    """Return parts as a sentence, which begins with a capital letter unless it begins with a name, and ends with a stop."""
    parts = [part for part in parts if part]
    if not parts:
        return []
    first = parts[0] if isinstance(parts[0], Name) else f"{parts[0][:1].upper()}{parts[0][1:]}"
    return [first, *parts[1:], "."]


@dataclass(frozen=True)
class Summary:
    """The paragraph at the top of a report: plain words, conclusive results, and inconclusive ones."""

    conclusive: Sentence
    open: Sentence
    plain: Sentence = ()

    @property
    def text(self) -> str:
        """The sentences as plain text."""
        return "".join(self.paragraph)

    @property
    def paragraph(self) -> Sentence:
        """The sentences as one paragraph."""
        return _one_after_another(self.plain, self.numbers)

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
    subjects, controls = ([c for c in others if spec.is_control(c.axes) is state] for state in (False, True))
    listed = [_list_largest(part, [_result(cell) for cell in part], MAX_LISTED) for part in (subjects, controls) if part]
    numbers = "; ".join(listed)
    open_ = _open(inconclusive, rest, opening="" if numbers else f"Differences in {measure}, ")
    return Summary([f"Differences in {measure}: {numbers}."] if numbers else [], open_, plain=plain)


def _list_largest(cells: Sequence[CellSummary], texts: Sequence[str], most: int = MAX_NAMED) -> str:
    """Join the texts of the cells that differ most, and state how many more cells there are."""
    size = [abs(cell.difference.interval.mean) if cell.difference else 0.0 for cell in cells]
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
    by_need: dict[str, list[CellSummary]] = {}  # a prediction belongs to one cell, other needs are common to several
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
    """Return an inconclusive cell with its difference, and with its own need unless the need of its group is stated."""
    assert cell.verdict is not None
    return f"{cell.name} ({format_both(cell.difference)}{'' if need else f', {describe_reason(cell.verdict)}'})"


def _without_comparisons(cells: Sequence[CellSummary], spec: ComparisonSpec, opening: str) -> Summary:
    """Return the sentences of a study in which nothing is compared."""
    completed = [cell for cell in cells if cell.has_result]
    if not completed:
        missing = f"has {spec.metric}" if any(RunState.COMPLETED in cell.states for cell in cells) else "has completed"
        states = "; ".join(f"{cell.name}: {cell.outcome}" for cell in cells[:MAX_NAMED])
        more = "; ..." if len(cells) > MAX_NAMED else ""
        return Summary([], [f"{states}{more}."] if cells else [], plain=[f"No run {missing}, so there is no result yet."])
    if spec.baseline:
        return _without_baseline_pairs(cells, spec)
    if len({cell.test for cell in completed}) > 1:
        reason = "they are not all tested on the same data in the same way"
        plain = f"The study has no baseline, so cells are not compared, and they cannot be ranked: {reason}."
        return Summary([], [], plain=[plain])
    estimator = spec.estimator
    sign = 1 if estimator.value_direction == "min" else -1
    scores = [sign * (cell.estimate or cell.value or paired.Interval(0, 0.0)).mean for cell in completed]
    best = [cell for cell, score in zip(completed, scores, strict=True) if score == min(scores)]
    seeds, name = count(best[0].seeds, "seed"), estimator.words.noun
    if len(cells) == 1:
        first = f"{opening}, the {name} of {best[0].name} is {estimator.format(best[0])} ({seeds})."
        return Summary([first], [], plain=["The study has one cell, ", Name(best[0].name), ", so nothing is compared."])
    first = f"{opening}, {best[0].name} has the best {name}: {estimator.format(best[0])} ({seeds})."
    if len(best) > 1:
        names = ", ".join(cell.name for cell in best[:MAX_NAMED]) + (
            f" and {len(best) - MAX_NAMED} more" * (len(best) > MAX_NAMED)
        )
        first = f"{opening}, {len(best)} cells share the best {name}, {estimator.format(best[0])}: {names}."
    plain = f"The study has no baseline, so cells are not compared, and the order of the {name}s may be due to chance."
    return Summary([first], [], plain=[plain])


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

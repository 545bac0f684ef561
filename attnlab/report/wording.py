"""Numbers and verdicts as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from attnlab._util.metrics import format_metric, in_words
from attnlab._util.text import count
from attnlab.config.comparability import is_program_test
from attnlab.stats.cells import CellSummary, ComparisonSpec
from attnlab.stats.joint import hides_correction, simultaneous_interval
from attnlab.stats.paired import LEVEL, Difference, Interval
from attnlab.stats.predict import MAX_SEEDS, POWER
from attnlab.stats.sequential import Looks
from attnlab.stats.verdict import Reason, Sensitivity, Verdict, VerdictKind

DIRECTED = (VerdictKind.BETTER, VerdictKind.WORSE)

SENSITIVITY = {
    Sensitivity.NOT_SHOWN: "but the control was not found worse: this study could not have seen a difference",
    Sensitivity.WITHIN_MARGIN: "but the control differs by less than the margin, too: the margin is too wide",
    Sensitivity.NO_RESULT: "but the control has no result that shows that this study can see a difference",
    Sensitivity.WIDE_MARGIN: "but the margin is too wide: nearly every cell would be equivalent",
}

SIMULTANEOUS_MARK = "‡"  # of the interval that is shown where only that agrees with the verdict
CHOSEN_MARK = "†"  # of a difference that is called better or worse for its size, which biases it away from zero


def format_change(first: float, last: float) -> str:
    """Format a change as in "-0.0455 to -0.0127", with as many decimals as tell unequal values apart."""
    texts = [""]
    for digits in (4, 6, 9, 12):
        texts = [f"{'+' if value > 0 else ''}{format_metric(value, digits)}" for value in (first, last)]
        if len(set(texts)) > 1 or first == last:
            break
    return " to ".join(texts)


def format_interval(interval: Interval | None, *, sign: bool = False) -> str:
    """Format an interval as `Interval.format` does; "" for None."""
    return "" if interval is None else interval.format(sign=sign)


def format_difference(cell: CellSummary, *, in_plot: bool = False) -> str:
    """Format a cell's difference as in "+0.0100 ± 0.0020 †", with " (3 of 8 seeds)" if not all of its seeds have a pair.

    Args:
        cell: The compared cell.
        in_plot: Leave the simultaneous interval to the plot. It is else shown, with its mark, where only that agrees with the
            verdict.
    """
    if cell.difference is None:
        return ""
    interval, seeds = cell.difference.interval, cell.seeds
    text = cell.difference.format() if in_plot else format_consistent(cell.difference)
    text += f" {CHOSEN_MARK}" if is_chosen(cell) else ""
    return text + (f" ({interval.n} of {seeds} seeds)" if interval.n < seeds else "")


def format_consistent(difference: Difference) -> str:
    """Format a difference with the interval that agrees with its verdict, as in "+0.0100 ± 0.0213 ‡" for a simultaneous one."""
    shown = consistent(difference)
    return shown.format() + ("" if shown is difference else f" {SIMULTANEOUS_MARK}")


def consistent(difference: Difference) -> Difference:
    """Return a difference with the interval that agrees with its verdict: itself, or with the simultaneous interval."""
    outer = simultaneous_interval(difference) if hides_correction(difference) else None
    return difference if outer is None else replace(difference, interval=outer)


def describe_mark(differences: Mapping[str, Difference], *, of: str) -> list[str]:
    """Return the note on the mark of simultaneous intervals; an empty list if no difference has it.

    Args:
        differences: Name -> difference, of one table.
        of: The differences of the table in prose, for example "differences".
    """
    alone = [f"{name} {difference.format()}" for name, difference in differences.items() if hides_correction(difference)]
    if not alone:
        return []
    return [
        f"{SIMULTANEOUS_MARK}: the interval that holds together with those of all other {of}. The 95 % interval by itself "
        f"excludes zero: {'; '.join(alone)}."
    ]


def format_both(difference: Difference | None, *, after: str = ", {}") -> str:
    """Format a difference, also with the simultaneous interval where only that agrees with the verdict; "" for None."""
    if difference is None:
        return ""
    outer = simultaneous_interval(difference) if hides_correction(difference) else None
    ends = "" if outer is None else difference.format_ends(outer)
    return difference.format() + (after.format(f"simultaneous {ends}") if ends else "")


def is_chosen(cell: CellSummary) -> bool:
    """Return True when a cell is called better or worse: its estimated difference was chosen for being far from zero."""
    return cell.verdict is not None and cell.verdict.kind in (VerdictKind.BETTER, VerdictKind.WORSE)


def format_p_value(p: float | None, *, equals: bool = False) -> str:
    """Format a p-value with three decimals: "0.004", "< 0.001", "" for None; with `equals` "= 0.004"."""
    if p is None:
        return ""
    digits = next((n for n in (3, 4, 5) if (round(p, n) < LEVEL) == (p < LEVEL)), 6)  # 0.0497 is no 0.050
    return "< 0.001" if p < 0.001 else f"{'= ' if equals else ''}{p:.{digits}f}"


def better(direction: str) -> str:
    """Return "lower is better" for the direction "min", else "higher is better"."""
    return "lower is better" if direction == "min" else "higher is better"


def shared_axes(spec: ComparisonSpec) -> list[str]:
    """Return the axes on which a cell and its baseline have the same value."""
    replaced = {axis for baseline in spec.baselines for axis in baseline} | ({spec.task_axis} if spec.task else set())
    return [axis for axis in spec.axes if axis not in replaced]


def describe_baselines(spec: ComparisonSpec) -> str:
    """Return the baseline of a cell in a study with several, as in "the cell with variant dense at the same steps".

    Only the axes are claimed to be the same: parameters, learning rates or positions may differ between the cells.
    """
    wheres = [", ".join(f"{axis} {value}" for axis, value in baseline.items()) for baseline in spec.baselines]
    same = " and ".join(axis.rpartition(".")[2] for axis in shared_axes(spec))
    which = "the cell with" if len(wheres) == 1 else "each of the cells with"
    return f"{which} {' or '.join(wheres)}{f' at the same {same}' if same else ''}"


def describe_test(cells: Iterable[CellSummary]) -> str:
    """Return the data of the metric: "on the test split", or "as the program prints it"."""
    return "as the program prints it" if any(is_program_test(cell.test) for cell in cells) else "on the test split"


def describe_verdict(verdict: Verdict | None) -> str:
    """Return the short text of a verdict, for a table; "" for None."""
    if verdict is None or verdict.kind is VerdictKind.BASELINE:
        return verdict.kind.value if verdict else ""
    if verdict.kind is VerdictKind.NO_COMPARISON:
        lost = describe_lost_runs(verdict)
        return describe_reason(verdict) + (f" ({lost})" if lost else "")
    if verdict.kind is VerdictKind.INCONCLUSIVE:
        reason = describe_reason(verdict)
        text = f"inconclusive{f': {reason}' if reason else ''}"
    elif verdict.kind is VerdictKind.EQUIVALENT:
        text = "equivalent within the margin"
    elif verdict.kind is VerdictKind.IDENTICAL:
        text = f"identical in all {verdict.pairs} seeds"
    else:
        text = verdict.kind.value
    return ", ".join([text, *describe_conditions(verdict)])


def describe_conditions(verdict: Verdict) -> list[str]:
    """Return the conditions of a verdict: skewed differences, a small size, test items, lost runs, no support by a control."""
    fragile = ["fragile"] if verdict.fragile else []
    small = ["by less than the margin"] if verdict.within_margin else []
    lost = describe_lost_runs(verdict)
    unsupported = [SENSITIVITY[verdict.sensitivity]] if verdict.sensitivity and verdict.is_unsupported else []
    items = verdict.new_items if verdict.kind in (VerdictKind.BETTER, VerdictKind.WORSE, VerdictKind.EQUIVALENT) else None
    about = [("also for new test items" if items.holds else "for these test items")] if items else []
    return [*fragile, *small, *about, *([f"on the completed pairs ({lost})"] if lost else []), *unsupported]


def describe_lost_runs(verdict: Verdict) -> str:
    """Return the runs without a result as in "1 diverged; baseline: 2 failed", or ""."""
    lost = ", ".join(f"{n} {state}" for n, state in verdict.lost)
    baseline = ", ".join(f"{n} {state}" for n, state in verdict.baseline_lost)
    return "; ".join(part for part in (lost, baseline and f"baseline: {baseline}") if part)


def describe_reason(verdict: Verdict) -> str:
    """Return the reason for an inconclusive verdict, or for a missing comparison."""
    match verdict.reason:
        case Reason.ONE_SEED:
            text = "one seed, no interval"
        case Reason.BEFORE_FIRST_LOOK:
            text = f"{count(verdict.pairs, 'pair')} of seeds, the first look is at {verdict.first_look}"
        case Reason.FEW_SEEDS:
            text = f"{verdict.pairs} seeds are too few"
        case Reason.CONSTANT:
            text = f"the same difference in all {verdict.pairs} seeds"
        case Reason.LOSSES:
            text = "different numbers of seeds were lost"
        case Reason.CHOICE:
            text = verdict.reason.value
        case Reason.MORE_SEEDS:
            text = _describe_outlook(verdict)
        case Reason.EXACT_TEST:
            text = "the exact test is not significant"
        case Reason.NO_SIGNIFICANT_RESULT:
            text = f"{count(verdict.pairs, 'seed')} cannot decide"
            text += f", {verdict.needed} or more can" if verdict.needed is not None else ""
        case Reason.NO_SHARED_SEED:
            return "no seed in common with the baseline"
        case Reason.BASELINE_MISSING:
            return "its baseline is not in the table"
        case Reason.OTHER_TEST:
            return f"not the same test ({verdict.detail})"
        case Reason.NO_BEST:
            return f"no verdict: {verdict.detail}"
        case Reason.BASELINE_WITHOUT_VALUE:
            return f"its baseline has {verdict.detail}"
        case None:
            return ""
    constant = f"the same value in all {verdict.pairs} seeds; " if verdict.constant == "value" else ""
    unpaired = f"; the baseline lacks {verdict.seeds - verdict.pairs} of its {verdict.seeds} seeds"
    return f"{constant}{text}{unpaired if verdict.seeds > verdict.pairs else ''}"


def _describe_outlook(verdict: Verdict) -> str:
    """Return the prediction as in "with 1 more seed 61 % differs, 20 % equivalent; 9 seeds would decide (80 %)".

    The first half is left out where a verdict with one more seed has a probability below 1 %. The outlook of a futile
    comparison is as in "stopped for futility: 12 seeds would decide (4 %)".
    """
    if verdict.futility is not None:
        probability = format_probability(verdict.futility.probability)
        return f"stopped for futility: {verdict.futility.seeds} seeds would decide ({probability})"
    needed = verdict.needed  # in total, as in the plan
    if verdict.prediction is None:  # all pairs have the same value
        return f"{count(needed or 0, 'seed')} would decide if it stays the same"
    texts = []
    if verdict.prediction.conclusive >= 0.01:
        texts.append(f"with 1 more seed {format_probability(verdict.prediction.differs)} differs")
        if verdict.prediction.equivalent is not None:
            texts[0] += f", {format_probability(verdict.prediction.equivalent)} equivalent"
    if needed is None:
        texts.append(f"only more than {MAX_SEEDS:,} seeds would decide ({format_probability(POWER)})")
    elif needed > verdict.pairs + 1 or not texts:
        texts.append(f"{needed:,} seeds would decide ({format_probability(POWER)})")
    return "; ".join(texts)


def format_probability(probability: float) -> str:
    """Format a probability in percent: "61 %", "< 1 %", "> 99 %"."""
    if 0 < probability < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < probability < 1 else f"{100 * probability:.0f} %"


def describe_looks(looks: Looks) -> str:
    """Return a note on repeated looks, for the reader of a report."""
    announced = f"each number of seeds from {looks.first} to {looks.last}" if looks.announced else f"{looks.last}"
    *first, last = [announced, *map(str, looks.further)]
    numbers = f"{', '.join(first)} and {last}" if first else last
    return (
        f"The study is judged at {numbers} seeds. Intervals, p-values and verdicts are corrected for {looks.count} looks: "
        "docs/studies/seeds.md#adding-seeds."
    )


def level_noun(spec: ComparisonSpec) -> str:
    """Return the name of the levels: "steps" for `train.steps`."""
    return spec.over.rpartition(".")[2]


def metric_name(spec: ComparisonSpec) -> str:
    """Return the metric's name as words."""
    return in_words(spec.metric)


def describe_seeds(numbers: Sequence[int]) -> str:
    """Return numbers of seeds as in "3 seeds" or "2 to 5 seeds"."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return count(low, "seed") if low == high else f"{low} to {high} seeds"

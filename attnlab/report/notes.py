"""Notes on verdicts: on the margin, the control, and the intervals and tests behind them, and on runs of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab._util.metrics import is_share
from attnlab.config.axes import text
from attnlab.config.comparability import OTHER_FILES, describe_other_files, is_program_test
from attnlab.report.wording import CHOSEN_MARK, count, describe_mark, format_metric, is_chosen
from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.items import BLOCKS, MIN_SHARE, UncertaintyParts
from attnlab.stats.paired import MIN_SEEDS_FOR_ESTIMATE, SKEWNESS_SEEDS, Difference, NoTest, is_constant
from attnlab.stats.question import has_wide_margin
from attnlab.stats.records import comparison_name, is_present
from attnlab.stats.variance_prior import VariancePrior
from attnlab.stats.verdict import Reason, Sensitivity, Verdict

MARKS = {
    Sensitivity.NOT_SHOWN: "control not worse",
    Sensitivity.WITHIN_MARGIN: "control within the margin",
    Sensitivity.NO_RESULT: "control without a result",
    Sensitivity.WIDE_MARGIN: "margin too wide",
}

TWO_TESTS = (
    "A verdict needs two t-tests below 5 %, and p is the larger of their p-values: the test of the difference alone, with the "
    "interval behind ±, and the test of the table with Holm's correction."
)
NEW_ITEMS = "± for new test items"
MAX_NAMED = 6  # comparisons with their standard errors; the largest come first

SHOWN_DIGITS = 12  # of a digest
SMALL_SPREAD = 5e-5  # relative; the seeds of trainings at contest scale differ by a few 1e-4
PER_CENT = 100
MOST_ITEMS = 2000  # of a test, whose shares have few values


def margin_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on a margin that is too wide for the scores, and one on the value of a margin in per cent of steps."""
    return [*_on_width(cells, spec), *_on_share(spec)]


def _on_width(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    if spec.margin is None or not has_wide_margin(cells, spec):
        return []
    scores = [score for cell in cells for score in cell.values.values()]
    points = (
        f" A margin of {spec.margin:g} percentage points would be {spec.margin / 100:g}."
        if is_share(spec.metric) and max(map(abs, scores)) <= 1
        else ""
    )
    return [
        f"The margin of {spec.margin:g} is too wide: the scores in {spec.metric} are between {min(scores):.4g} and "
        f"{max(scores):.4g}, so nearly every cell would be equivalent.{points}"
    ]


def _on_share(spec: ComparisonSpec) -> list[str]:
    if spec.goal.margin_share is None:
        return []
    name = f"the margin of {100 * spec.goal.margin_share:g} % of steps"
    if spec.margin is None:
        return [
            f"{name[0].upper()}{name[1:]} has no value: no run of the baseline has a validation curve that improves in the "
            "second half of training. Without it, no cell can be equivalent."
        ]
    start = f"{name[0].upper()}{name[1:]} is {spec.margin:.3g} in {spec.metric}"
    return [
        f"{start}: the slope of the baseline's validation curve over the logarithm of the steps, in the second half of "
        f"training (the mean over its seeds), times the logarithm of {1 + spec.goal.margin_share:g}. The tests count its error."
        " Caution: trainings of different lengths can differ by more than the slope within one training suggests. The margin "
        "is then narrow, and verdicts of equivalent are rarer."
    ]


def plot_label(cell: CellSummary, spec: ComparisonSpec) -> str:
    """Return the name of a cell with a mark if it is a control, or if its control does not support its verdict."""
    if spec.is_control(cell.axes):
        return f"{cell.name} (control)"
    mark = MARKS.get(cell.verdict.sensitivity) if cell.verdict and cell.verdict.sensitivity else None
    return f"{cell.name} ({mark})" if mark else cell.name


def control_notes(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[str]:
    """Return a note on the study's control, if it has one."""
    if not spec.control:
        return []
    names = ", ".join(cell.name for cell in cells if spec.is_control(cell.axes)) or "not in the table"
    limit = "" if spec.margin is None else f" by at least the margin of {spec.margin:g}"
    return [
        f"Control: {names}. It must be found worse than its baseline{limit}; otherwise a verdict of equivalent or identical "
        "does not show that the cells agree, because the study might see no difference at all. The control takes part in "
        "Holm's correction of the tests for a difference, and is not tested for equivalence."
    ]


def notes_on_intervals(cells: Sequence[CellSummary]) -> list[str]:
    """Return notes on moderated t-tests, simultaneous intervals, marks, new items and fragile verdicts, if there are any."""
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    texts = []
    priors = [cell.difference.interval.prior for cell in compared if cell.difference and cell.difference.interval.prior]
    if priors:
        texts.append(
            f"{TWO_TESTS} In the test of the table, differences borrow from {_describe_lenders(priors)} (moderated t-test, "
            "Smyth 2004): the variance of each is averaged with the mean of all, which has the weight of "
            f"{count(priors[0].degrees_of_freedom, 'degree')} of freedom."
        )
    texts += describe_mark(
        {_comparison(cell, cells): cell.difference for cell in compared if cell.difference}, of="differences"
    )
    if any(is_chosen(cell) for cell in compared):
        texts.append(
            f"{CHOSEN_MARK}: called better or worse because the estimate lies far from zero. Estimates chosen in this way are "
            "too large on average, most of all with few seeds and small true differences."
        )
    if any(cell.verdict and cell.verdict.new_items for cell in compared):
        texts.append(
            f"“{NEW_ITEMS}”: half the width of the 95 % interval for other items like those of the test, where these are more "
            f"than {100 * MIN_SHARE:g} % of the variance; the squares of the half widths over seeds and over items are added. "
            "“For these test items”: the verdict is not shown for others; “also for new test items”: it is, at the table's "
            "level."
        )
    if any(cell.verdict and cell.verdict.fragile for cell in compared):
        texts.append(
            "“Fragile”: the differences scatter asymmetrically, and a t-test corrected for that (Hall 1992, after Johnson "
            f"1978; from {SKEWNESS_SEEDS} seeds on) does not share the verdict at the same level. With few seeds, sound "
            "verdicts of small differences are called fragile, too; more seeds decide."
        )
    return texts


def _comparison(cell: CellSummary, cells: Sequence[CellSummary]) -> str:
    """Return the name of a compared cell, with its baseline if a cell is compared with several."""
    return comparison_name(cell.name, cell.baseline) if any(other.further for other in cells) else cell.name


def _describe_lenders(priors: Sequence[VariancePrior]) -> str:
    """Return the comparisons that share an averaged variance as text."""
    if priors[0].groups == 1:
        return f"the table's {priors[0].comparisons} comparisons"
    numbers = sorted({prior.comparisons for prior in priors})
    return f"the {' or '.join(map(str, numbers))} comparisons at the same level, on the same test"


def note_on_thin_lines(cells: Sequence[CellSummary]) -> list[str]:
    """Return the note on the outer intervals of the plot of differences, if the table has more than one comparison."""
    if not any(cell.difference and cell.difference.comparisons > 1 for cell in comparisons(cells)):
        return []
    return [
        "Thin lines in the plot of differences are simultaneous intervals: in 95 of 100 tables, Bonferroni's intervals all "
        "contain the true differences. They exclude zero exactly where the verdict is better or worse; where Holm's method "
        "shows a difference that Bonferroni's leaves open, they end at zero."
    ]


def notes_on_predictions(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a note on predicted verdicts if there are any, and one on verdicts with too few seeds for a prediction."""
    texts = []
    if any(verdict.prediction for verdict in verdicts):
        texts.append(
            "“With 1 more seed 61 % differs, 20 % equivalent”: the probabilities of these verdicts, predicted from the seeds "
            "so far by the t-distribution, at the levels that the corrections leave. “With 9 seeds 80 % conclusive”: the total "
            "number of seeds with which one of the two verdicts has probability 80 %. Before the seeds were seen, every true "
            "difference counts as equally likely. Where most cells truly do not differ, “differs” is less likely than "
            "predicted."
        )
    if any(verdict.futility for verdict in verdicts):
        texts.append(
            "“Stopped for futility”: the study adds seeds until its verdicts are conclusive, and added no more to this "
            "comparison, because its verdict would most likely have remained inconclusive. This makes no verdict of a "
            "difference or of equivalence more likely, so the error rates hold with or without it."
        )
    if any(verdict.reason is Reason.FEW_SEEDS for verdict in verdicts):
        texts.append(
            f"Verdicts with more seeds are predicted from {MIN_SEEDS_FOR_ESTIMATE} seeds on; with fewer, their spread is too "
            "uncertain."
        )
    return texts


def item_notes(parts: Sequence[UncertaintyParts]) -> list[str]:
    """Return notes on seeds and items; none if no run has kept the scores of its items."""
    if not parts:
        return []
    largest = sorted(parts, key=lambda part: -(part.seeds**2 + part.items**2))[:MAX_NAMED]
    texts = [
        f"{part.cell} {format_metric(part.seeds)} and {format_metric(part.items)} ({part.item_share:.0%} items: "
        f"{'a longer test' if part.item_share > 0.5 else 'more seeds'})"
        for part in largest
    ]
    notes = [
        "Standard errors of a difference over seeds and over the items of the test, the share of the items in both together, "
        f"and what reduces the larger part: {'; '.join(texts)}. Intervals and verdicts are over seeds, for these test items."
    ]
    if any(part.groups == BLOCKS for part in parts):
        notes.append(f"Consecutive segments of a text are alike, and are taken together in {BLOCKS} blocks.")
    return notes


def is_of_program(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for the runs of a program."""
    return any(is_program_test(record.get("test")) for record in records)


def describe_command(records: Sequence[Mapping[str, Any]], *, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, text) rows on the command of a study: its values, variables and files.

    Args:
        records: The compared runs.
        axes: Names of the grid's axes; their values are left out.
    """
    commands = dict.fromkeys(str(record["command"]) for record in records if is_present(record.get("command")))
    parts = {
        "values": {name: value for name, value in _fields(records, "values.").items() if name not in axes},
        "environment": _fields(records, "env."),
        "files": {name: digest[:SHOWN_DIGITS] for name, digest in _fields(records, "files.").items()},
    }
    rows = [("command", " or ".join(commands))]
    return rows + [(name, ", ".join(f"{field} {value}" for field, value in fields.items())) for name, fields in parts.items()]


def _fields(records: Sequence[Mapping[str, Any]], prefix: str) -> dict[str, str]:
    """Return the fields with a prefix that have one value in all runs."""
    names = dict.fromkeys(name for record in records for name in record if name.startswith(prefix))
    values = {name: {text(record.get(name)) for record in records if is_present(record.get(name))} for name in names}
    return {name.removeprefix(prefix): next(iter(found)) for name, found in values.items() if len(found) == 1}


def notes_on_files(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on cells that read other data files than their baseline."""
    tests = {cell.name: cell.test for cell in cells}
    compared = [cell for cell in comparisons(cells) if cell.difference is not None]
    other = {cell.name: describe_other_files(cell.test, tests[cell.baseline]) for cell in compared}
    listed = [f"{name} ({files})" for name, files in other.items() if files]
    return [f"Not on the same files as their baseline: {', '.join(listed)}. {OTHER_FILES}"] if listed else []


def notes_on_equal_results(cells: Sequence[CellSummary]) -> list[str]:
    """Return notes on what makes no difference: seeds with one result, and axes that leave the baseline's results unchanged.

    Results are equal to within the noise of a GPU (`attnlab.stats.paired.NOISE`). Scores of attnlab's runs can be equal
    because a task is solved, so that only a difference between equal seeds, or equality with scores that scatter, is noted.
    """
    return [
        *_equal_seeds(cells),
        *_repeated_seeds(cells),
        *_nearly_equal_seeds(cells),
        *_equal_cells(cells),
        *_rounded(cells),
        *_other_units(cells),
    ]


def _equal_seeds(cells: Sequence[CellSummary]) -> list[str]:
    programs = [c.name for c in cells if is_program_test(c.test) and is_constant([*c.values.values()])]
    constant = [c for c in comparisons(cells) if c.difference and c.difference.no_test is NoTest.CONSTANT]
    others = [c.name for c in constant if not is_program_test(c.test) or not {c.name, c.baseline} <= set(programs)]
    texts = []
    if programs:
        texts.append(
            f"All seeds give the same result, to a relative 1e-6: {', '.join(programs)}. Either nothing in the program is "
            "random, or it does not use {seed}: then its runs are one run repeated, and say nothing about the scatter of "
            "others."
        )
    if others:
        reason = (
            "the program may not use {seed} as it should"
            if is_program_test(constant[0].test)
            else "the seed does not change it"
        )
        texts.append(
            f"All seeds have the same difference from the baseline, to a relative 1e-6: {', '.join(others)}; {reason}."
        )
    return texts


def _repeated_seeds(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on a program with seeds that give few different results in a cell and its baseline, as seed % 2 does."""
    by_name, found = {cell.name: cell for cell in cells}, {}
    for cell in comparisons(cells):
        base = by_name.get(cell.baseline)
        if base is None or not is_program_test(cell.test):
            continue
        seeds = sorted(cell.values.keys() & base.values.keys())
        pairs = [(f"{cell.values[seed]:.6g}", f"{base.values[seed]:.6g}") for seed in seeds]
        distinct = len({*pairs})
        if 1 < distinct <= len(pairs) / 2 and not _is_of_items([of.values[seed] for of in (cell, base) for seed in seeds]):
            found.setdefault((distinct, len(pairs)), []).append(cell.name)
    return [
        f"Only {distinct} of {n} seeds give different results, in the baseline too: {', '.join(names)}. The program may use a "
        f"part of {{seed}} alone; the verdict counts {n} seeds."
        for (distinct, n), names in found.items()
    ]


def _is_of_items(values: Sequence[float]) -> bool:
    """Return True for scores that may be shares of up to `MOST_ITEMS` items, which agree by chance."""
    return any(all(abs(v * n - round(v * n)) < 1e-6 for v in values) for n in range(1, MOST_ITEMS + 1))


def _nearly_equal_seeds(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note when the seeds of no cell of a program differ by more than some noise of repeating one run."""
    several = [cell for cell in cells if is_program_test(cell.test) and len(cell.values) > 1]
    spreads = [max(values) - min(values) for cell in several if (values := [*cell.values.values()])]
    sizes = [max(abs(value) for value in cell.values.values()) for cell in several]
    if not any(spreads) or not all(spread < SMALL_SPREAD * size for spread, size in zip(spreads, sizes, strict=True)):
        return []
    if all(is_constant([*cell.values.values()]) for cell in several):
        return []
    return [
        f"The seeds of each cell differ by less than a relative {SMALL_SPREAD:.0e}, which may be the noise of one run: if the "
        "program does not use {seed}, the verdicts say nothing about other seeds."
    ]


def _rounded(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on a program's cells with verdicts on scores that hardly vary beyond their last printed decimal."""
    by_name, found = {cell.name: cell for cell in cells}, {}
    for cell in comparisons(cells):
        base = by_name.get(cell.baseline)
        if base is None or cell.difference is None or cell.difference.conclusion is None or not is_program_test(cell.test):
            continue
        pairs = [[*of.values.values()] for of in (cell, base)]
        step = _printed_step([*pairs[0], *pairs[1]])
        if all(max(values) - min(values) < 1.5 * step for values in pairs) and abs(cell.difference.interval.mean) < 2.5 * step:
            found.setdefault(step, []).append(cell.name)
    return [
        f"Scores of {', '.join(names)} and of the baseline are multiples of {step:g}, and hardly vary beyond it: if the "
        "program rounds what it prints, the verdict is about the rounding. Print more decimals."
        for step, names in found.items()
    ]


def _printed_step(values: Sequence[float]) -> float:
    """Return the largest power of ten from 1 to 1e-4 that divides all values; 0 when none does."""
    steps = (10.0**-k for k in range(5))
    return next((step for step in steps if all(abs(v / step - round(v / step)) < 1e-6 for v in values)), 0.0)


def _other_units(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note on a program's cells whose scores are shares while the baseline's are per cent, or the reverse."""
    by_name = {cell.name: cell for cell in cells}
    found = []
    for cell in comparisons(cells):
        if (base := by_name.get(cell.baseline)) is None:
            continue
        values, others = (sorted(of.values.values()) for of in (cell, base))
        if not (is_program_test(cell.test) and values and others):
            continue
        low, high = (values, others) if values[-1] < others[-1] else (others, values)
        ratio = high[len(high) // 2] / low[len(low) // 2] if low[0] > 0 else 0
        if low[-1] <= 1 < high[0] and high[-1] <= 100 and PER_CENT / 2 < ratio < PER_CENT * 2:
            found.append(cell.name)
    if not found:
        return []
    return [f"Scores of {', '.join(found)} differ from the baseline by a factor of about 100: a share, and per cent?"]


def _equal_cells(cells: Sequence[CellSummary]) -> list[str]:
    by_name = {cell.name: cell for cell in cells}
    texts: dict[str, list[str]] = {}  # axes -> cells that they do not change
    for cell in comparisons(cells):
        if not _is_equal(cell.difference) or _is_saturated(cell):
            continue
        base = by_name[cell.baseline].axes
        axes = " and ".join(f"{{{axis}}}" for axis, value in cell.axes.items() if value != base[axis])
        if axes:
            texts.setdefault(axes, []).append(cell.name)
    is_program = any(is_program_test(cell.test) for cell in cells)
    why = "the program may not use {axes}" if is_program else "{axes} may have no effect"
    return [
        f"The same results as the baseline in every seed, to a relative 1e-6: {', '.join(names)}; {why.format(axes=axes)}."
        for axes, names in texts.items()
    ]


def _is_equal(difference: Difference | None) -> bool:
    """Return True when a cell and its baseline have the same score in each of several seeds."""
    return difference is not None and difference.interval.n > 1 and difference.has_equal_scores


def _is_saturated(cell: CellSummary) -> bool:
    """Return True for scores that two different cells can share: a solved task, or for attnlab's runs any constant."""
    values = [*cell.values.values()]
    return is_constant(values) and (not is_program_test(cell.test) or all(value in (0.0, 1.0, 100.0) for value in values))

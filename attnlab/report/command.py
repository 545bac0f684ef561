"""The parts of a report that only a study of a program has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.config.axes import text
from attnlab.config.comparability import OTHER_FILES, describe_other_files, is_program_test
from attnlab.stats.compare import CellSummary, comparisons
from attnlab.stats.paired import Difference, NoTest, is_constant
from attnlab.stats.records import is_present

SHOWN_DIGITS = 12  # of a digest
SMALL_SPREAD = 5e-5  # relative; the seeds of trainings at contest scale differ by a few 1e-4
PER_CENT = 100
MOST_ITEMS = 2000  # of a test, whose shares have few values


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
    """Return a note on a program whose seeds give few different results in a cell and its baseline, as with seed modulo 2."""
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
    """Return a note on a program's cells whose scores are shares while those of the baseline are per cent, or the reverse."""
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

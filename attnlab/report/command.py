"""The parts of a report that only a study of a program has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.config.axes import text
from attnlab.config.comparability import OTHER_FILES, describe_other_files, is_program_test
from attnlab.stats.compare import CellSummary, comparisons
from attnlab.stats.records import is_present

SHOWN_DIGITS = 12  # of a digest


def is_of_program(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return True for the runs of a program."""
    return any(is_program_test(record.get("test")) for record in records)


def describe_command(records: Sequence[Mapping[str, Any]], *, axes: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, text) rows on the command of a study: its values, variables and files.

    Args:
        records: The compared runs.
        axes: Names of the grid's axes, whose values are left out.
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


def notes_on_equal_seeds(cells: Sequence[CellSummary]) -> list[str]:
    """Return a note if a program gives the same result for all seeds of a cell: it may not use the seed."""
    equal = [c.name for c in cells if is_program_test(c.test) and len(c.values) > 1 and len(set(c.values.values())) == 1]
    if not equal:
        return []
    return [
        f"All seeds give the same result, to the last bit: {', '.join(equal)}. Either nothing in the program is random, or it "
        "does not use {seed}: then its runs are one run repeated, and say nothing about the scatter of others."
    ]

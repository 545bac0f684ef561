"""A table of a report, before it is HTML or Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A heading, and whether the column holds words (which wrap and stand left) or figures.

    A `minor` column is left out on a phone, where another table has it.
    """

    heading: str
    words: bool = False
    minor: bool = False


@dataclass(frozen=True)
class Line:
    """One line of a table: its cells as text, the colour of its swatch, and "", "baseline" or "missing"."""

    cells: Sequence[str]
    color: str = ""
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """What both templates print."""

    columns: Sequence[Column]
    lines: Sequence[Line]


def untagged(text: str) -> str:
    """Text for Markdown in which nothing is an HTML tag: names and reasons are somebody else's words."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def markdown(table: Table) -> str:
    """Return a table as Markdown; figures stand right."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(untagged(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + "|".join("---" if column.words else "---:" for column in table.columns) + "|"
    return "\n".join([line(c.heading for c in table.columns), rule, *(line(each.cells) for each in table.lines)])

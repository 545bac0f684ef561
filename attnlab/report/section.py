"""The sections of a page, their plots and tables, and the parts of sentences, before they are HTML or Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heading: Text of the heading.
        is_text: The column holds text, which wraps and is aligned to the left, rather than numbers.
        hide_on_phone: Leave the column out on narrow screens, because another table has it.
    """

    heading: str
    is_text: bool = False
    hide_on_phone: bool = False


@dataclass(frozen=True)
class TableRow:
    """A row of a table.

    Attributes:
        cells: As text.
        color: Of its swatch.
        kind: "", "baseline", "missing" or "reference"; HTML pages style rows by it.
        anchor: ID of the row in an HTML page.
        link: Anchor that the first cell links to.
    """

    cells: Sequence[str]
    color: str = ""
    kind: str = ""
    anchor: str = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows, each row with one cell per column."""

    columns: Sequence[Column]
    rows: Sequence[TableRow]

    @property
    def has_headings(self) -> bool:
        """False for a table of names and values."""
        return any(column.heading for column in self.columns)


def two_columns(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values without headings."""
    return Table([Column("", is_text=True), Column("", is_text=True)], [TableRow(list(pair)) for pair in pairs])


def escape_tags(text: str) -> str:
    """Escape HTML tags, links and images in text for Markdown: names and reasons may come from the user's code."""
    return re.sub(r"\](?=[(\[:])", r"\]", re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text))


def to_markdown(table: Table) -> str:
    """Return a table as Markdown, with numbers aligned to the right."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(escape_tags(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    rule = "|" + "|".join("---" if column.is_text else "---:" for column in table.columns) + "|"
    return "\n".join([line(column.heading for column in table.columns), rule, *(line(row.cells) for row in table.rows)])


class Strong(str):
    """A part of a sentence that a page prints in bold."""


class Name(str):
    """The name of a cell in a sentence, between backticks, which a page prints as code."""

    def __new__(cls, name: str) -> Name:
        return super().__new__(cls, "`" + name.replace("`", "'") + "`")


Sentence = Sequence[str]  # its parts, some of them `Strong` or `Name`


@dataclass(frozen=True)
class Figure:
    """A plot: its file name, its title and the SVG."""

    file: str
    title: str
    svg: str


@dataclass(frozen=True)
class PageSection:
    """A section of the page. One that `leads` has the verdicts of the study, and stands before the table of the cells."""

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    leads: bool = False

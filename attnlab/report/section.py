"""The sections of a page, their plots, and the parts of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.table import Table


class Strong(str):
    """A part of a sentence that a page prints in bold."""


class Name(str):
    """The name of a cell in a sentence, between backticks, which a page prints as code."""

    def __new__(cls, name: str) -> Name:
        return super().__new__(cls, "`" + name.replace("`", "'") + "`")


Sentence = Sequence[str]  # its parts, some of them `Strong` or `Name`


@dataclass(frozen=True)
class Figure:
    """A plot: its file name, its title and the SVG. One with a caption is also in the paper; equal captions share a figure."""

    file: str
    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True)
class PageSection:
    """A section of the page; empty parts are left out. A table with a caption is among the main tables of the paper.

    One that `leads` has the verdicts of the study, and stands before the table of the cells.
    """

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    caption: str = ""
    leads: bool = False

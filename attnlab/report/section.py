"""The sections of a page, and the plots in them. The module of each part of the page returns its own `PageSection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.table import Table


@dataclass(frozen=True)
class Figure:
    """A plot: its file name, its title and the SVG. One with a caption is also in the paper; equal captions share a figure."""

    file: str
    title: str
    svg: str
    caption: str = ""


@dataclass(frozen=True)
class PageSection:
    """A section of the page; empty parts are left out. A table with a caption is among the main tables of the paper."""

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()
    caption: str = ""

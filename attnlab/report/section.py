"""The sections of a page, and the plots in them. The module of each part of the page returns its own `PageSection`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.report.table import Table


@dataclass(frozen=True)
class Figure:
    """A plot: its file name, its title and the SVG."""

    file: str
    title: str
    svg: str


@dataclass(frozen=True)
class PageSection:
    """A section of the page; empty parts are left out."""

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()

"""Reports: the pages, tables and plots of finished studies.

The names for writing your own analysis are exported here and public. The modules of this package are internal.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnlab.report.analysis import Analysis, Results
    from attnlab.report.section import Column, Figure, PageSection, Table, TableRow
    from attnlab.report.summary import Summary

_LAZY = {
    "Analysis": "analysis",
    "Column": "section",
    "Figure": "section",
    "PageSection": "section",
    "Results": "analysis",
    "Summary": "summary",
    "Table": "section",
    "TableRow": "section",
}
__all__ = ["Analysis", "Column", "Figure", "PageSection", "Results", "Summary", "Table", "TableRow"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})

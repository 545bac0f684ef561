"""Tables as HTML, which notebooks show instead of the text of an object."""

from collections.abc import Sequence
from html import escape


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """Return an HTML table; columns without a value are left out, and markup in the texts is shown as it is."""
    columns = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    lines = [_row("th", [headings[i] for i in columns]), *(_row("td", [row[i] for i in columns]) for row in rows)]
    return f"<table><caption>{escape(caption)}</caption>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"

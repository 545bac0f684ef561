"""Rendering of the templates in `templates/`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.colors import on_dark
from attnlab._util.text import escape_controls
from attnlab.report.section import Name, Strong, escape_tags, to_markdown

if TYPE_CHECKING:
    import jinja2


def emphasize(sentence: Sequence[str], *, html: bool) -> str:
    """Return a sentence with its `Strong` parts in bold and its names as code, and everything else escaped."""
    from markupsafe import Markup, escape

    begin, end = ("<strong>", "</strong>") if html else ("**", "**")
    parts = []
    for part in sentence:
        if isinstance(part, Name):
            parts.append(mark_code(part) if html else str(part))
            continue
        text = str(escape(part)) if html else escape_tags(str(part))
        parts.append(f"{begin}{text}{end}" if isinstance(part, Strong) else text)
    return Markup("".join(parts)) if html else "".join(parts)


def mark_code(text: str) -> str:
    """Return a paragraph of a study file as HTML, with text between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def small_parentheses(text: str) -> str:
    """Return a cell of a table as HTML, with a remark in parentheses at its end in small print."""
    from markupsafe import Markup, escape

    figure, space, remark = text.partition(" (")
    return Markup(f"{escape(figure)} <small>({escape(remark)}</small>") if space and text.endswith(")") else escape(text)


def fold_notes(notes: Sequence[str]) -> str:
    """Return notes as a list in Markdown that GitHub shows folded; "" for none."""
    if not notes:
        return ""
    items = "\n".join(f"- {escape_tags(note)}" for note in notes)
    return f"<details><summary>How to read this</summary>\n\n{items}\n\n</details>"


def fence(text: str, language: str = "") -> str:
    """Return a Markdown code block, with a fence longer than any in the text."""
    marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks}{language}\n{text}\n{marks}"


def _without_controls(value: Any) -> Any:
    """Escape control characters of a field; it may be Markup, which stays what it is."""
    return type(value)(escape_controls(value, keep="\n\t\r")) if isinstance(value, str) else value


def render(template: str, fields: Mapping[str, Any]) -> str:
    """Render one of the templates in `templates/`; those for HTML escape their fields."""
    return _environment(html=template.endswith(".html.j2")).get_template(template).render(fields).strip() + "\n"


@cache
def _environment(*, html: bool) -> jinja2.Environment:
    """Return the templates of one kind, each of which is compiled once."""
    import jinja2

    from attnlab._version import __version__

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=html,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_controls,
    )
    environment.globals |= {"to_markdown": to_markdown, "fold_notes": fold_notes, "version": __version__}
    environment.filters["emphasize"] = lambda sentence: emphasize(sentence, html=html)
    environment.filters |= {
        "small_parentheses": small_parentheses,
        "on_dark": on_dark,
        "mark_code": mark_code,
        "escape_tags": escape_tags,
        "fence": fence,
    }
    return environment

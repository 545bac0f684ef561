"""The templates beside this file, filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.report.table import markdown, untagged

VERDICTS = re.compile(
    r"none[^,]* is shown to be better(, worse or equivalent)?"
    r"|\d+ (is|are) (better|worse|equivalent within ±\d[\d.]*(e[+-]?\d+)?|the same)"
    r"|is (better than|worse than|equivalent to)|not settled|not compared",
    re.IGNORECASE,
)


def stressed(text: str, begin: str, end: str, *, html: bool) -> str:
    """A sentence of the answer with its verdicts between marks: what a reader's eye should find first."""
    from markupsafe import Markup, escape

    plain = str(escape(text)) if html else untagged(text)
    found = VERDICTS.sub(lambda match: f"{begin}{match[0]}{end}", plain)
    return Markup(found) if html else found


def coded(text: str) -> str:
    """A paragraph of a study file in HTML: what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def fenced(text: str, language: str = "") -> str:
    """A block of code in Markdown; what the text itself fences ends it no sooner."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def render(template: str, fields: Mapping[str, Any]) -> str:
    """Fill in one of the templates beside this file."""
    import jinja2

    from attnlab._version import __version__

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "templates")
    escape = template.endswith(".html.j2")
    environment = jinja2.Environment(loader=loader, autoescape=escape, trim_blocks=True, lstrip_blocks=True)
    environment.globals |= {"markdown": markdown, "version": __version__}
    environment.filters["stressed"] = lambda text, begin, end: stressed(text, begin, end, html=escape)
    environment.filters |= {"coded": coded, "untagged": untagged, "fenced": fenced}
    return environment.get_template(template).render(fields).strip() + "\n"

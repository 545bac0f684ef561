"""The page of the committed studies: question, answer and plot of each, with a link to its report."""

import re
from pathlib import Path

from docgen.links import ROOT

PLOTS = ("effect-0.svg", "forest.svg", "effects.svg", "main-effects.svg")


def overview() -> str:
    """Return the Markdown of the page."""
    articles = [article(path) for path in sorted((ROOT / "reports").glob("*/README.md"))]
    return (
        "# Committed studies\n\n"
        "The repository holds the reports of these studies. Each has its question, its answer, and a page with every verdict, "
        "seed, curve and cost, the methods and the commands that make it again.\n\n" + "\n".join(filter(None, articles))
    )


def article(path: Path) -> str:
    """Return the section of one report; empty if the file has no question."""
    text = path.read_text(encoding="utf-8")
    question, answer = (
        re.search(rf"^\*\*{word}\.\*\* .+$", text, flags=re.MULTILINE) for word in ("Question", "(?:Answer|Result)")
    )
    if answer is None:
        return ""
    name = path.parent.name
    folder = f"../../reports/{name}"
    plot = next((file for file in PLOTS if (path.parent / file).exists()), None)
    shown = [f"## {name}", question[0] if question else "", answer[0]]
    shown += [f"![Plot of the differences of {name}]({folder}/{plot})"] if plot else []
    return "\n\n".join(filter(None, [*shown, f"[The report]({folder}/README.md)"])) + "\n"

"""The page of results: the court, the profiles and the validity of verdicts, then question, answer and plot of each study."""

import re
from pathlib import Path

from docgen.links import ROOT

PLOTS = ("effect-0.svg", "forest.svg", "effects.svg", "main-effects.svg")
FIRST = (  # pages that are no study: folder, heading, what the page answers
    ("claims", "The court of claims", "Published claims about attention, each judged by a study that you can rerun."),
    ("profile", "Profiles of all variants", "Which variants recall, copy and keep a state, and at which difficulty they stop."),
    ("validity", "How often verdicts are wrong", "Error rates and power of the verdicts, in simulations with a known truth."),
)
# Studies by what people ask most. The others follow by name; a test of two equal cells is last.
BY_INTEREST = (
    "positions-cpu",
    "wo-gpu-enwik8",
    "wo-cpu",
    "recipe-cpu",
    "components-cpu",
    "critical-components-cpu",
    "critical-components-imdb-cpu",
    "enwik8-cpu",
    "imdb-cpu",
    "multi30k-cpu",
    "one-vector-cpu",
    "bert-cpu",
    "gpt2-cpu",
    "recall-cpu",
    "state-tracking-cpu",
    "state-recall-cpu",
    "mad-cpu",
    "length-cpu",
    "quickstart",
)
LAST = ("aa",)


def overview() -> str:
    """Return the Markdown of the page."""
    pages = [f"## {title}\n\n{text}\n\n[The page](../../reports/{name}/README.md)\n" for name, title, text in FIRST]
    paths = (path for path in (ROOT / "reports").glob("*/README.md") if path.parent.name not in {name for name, *_ in FIRST})
    articles = [article(path) for path in sorted(paths, key=lambda path: _rank(path.parent.name))]
    return (
        "# Results\n\n"
        "Every report has its question, its answer, and a page with every verdict, seed, curve and cost, the methods and the "
        "commands that make it again.\n\n" + "\n".join([*pages, *filter(None, articles)])
    )


def _rank(name: str) -> tuple[int, str]:
    """Return the sorting key of a study."""
    if name in LAST:
        return len(BY_INTEREST) + 1, name
    return BY_INTEREST.index(name) if name in BY_INTEREST else len(BY_INTEREST), name


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

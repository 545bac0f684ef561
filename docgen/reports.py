"""The committed reports with their HTML pages, which the repository does not hold: they are rendered from stored results."""

import os
import shutil
from functools import cache
from pathlib import Path

from attnlab._util.user_code import load_file
from attnlab.extras.claims import court
from attnlab.extras.claims.page import write_page
from attnlab.extras.rerender import reports_in, rerender

ROOT = Path(__file__).resolve().parent.parent


def write(folder: Path) -> None:
    """Write a copy of `reports/`, in which HTML pages take the place of Markdown."""
    shutil.copytree(ROOT / "reports", folder, ignore=shutil.ignore_patterns("*.zip"))
    load_file(ROOT / "examples" / "my_analysis" / "validity.py")
    for report in reports_in(folder):
        rerender(report)
    cases = [court.judge(claim, folder / "claims") for claim in court.read_claims(ROOT / court.STUDIES)]
    write_page(folder / "claims", cases)
    for path in folder.rglob("*.md"):
        path.unlink()
    for page in folder.rglob("index.html"):
        _lead_back(page, site=folder.parent)


def _lead_back(page: Path, *, site: Path) -> None:
    """Put links to the home page and to the list of results at the top of a report, which is otherwise no page of the site."""
    up = os.path.relpath(site, page.parent)
    links = f'<p><a href="{up}/index.html">attnlab</a> / <a href="{up}/reports/index.html">Results</a></p>'
    page.write_text(page.read_text(encoding="utf-8").replace("<h1>", f"{links}\n<h1>", 1), encoding="utf-8")


def unrendered() -> list[str]:
    """Return the Markdown files of reports that have no HTML page, as paths in the repository."""
    paths = (path.relative_to(ROOT) for path in sorted((ROOT / "reports").rglob("*.md")))
    return [path.as_posix() for path in paths if path.with_name("index.html").as_posix() not in rendered()]


@cache
def rendered() -> frozenset[str]:
    """Return the paths of the HTML pages."""
    folders = [ROOT / court.REPORTS, *reports_in(ROOT / "reports")]
    pages = {path.parent for folder in folders for path in folder.rglob("README.md")}
    return frozenset(f"{folder.relative_to(ROOT).as_posix()}/index.html" for folder in pages)

"""The committed reports with their HTML pages, which the repository does not hold: they are rendered from stored results."""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from attnlab.extras.claims import court
from attnlab.extras.claims.page import write_page
from attnlab.extras.rerender import reports_in, rerender

ROOT = Path(__file__).resolve().parent.parent
_FOLDER = TemporaryDirectory(prefix="attnlab-docs-")  # until the build ends


@cache
def files() -> dict[str, Path]:
    """Return the files of all reports: path in the site -> file, of a copy of `reports/` in which all pages are rendered."""
    copy = Path(_FOLDER.name) / "reports"
    shutil.copytree(ROOT / "reports", copy, ignore=shutil.ignore_patterns("*.zip"))
    for report in reports_in(copy):
        rerender(report)
    cases = [court.judge(claim, copy / "claims") for claim in court.read_claims(ROOT / court.STUDIES)]
    write_page(copy / "claims", cases)
    return {path.relative_to(copy.parent).as_posix(): path for path in sorted(copy.rglob("*")) if path.is_file()}


@cache
def rendered() -> frozenset[str]:
    """Return the paths of the HTML pages."""
    folders = [ROOT / court.REPORTS, *reports_in(ROOT / "reports")]
    pages = {path.parent for folder in folders for path in folder.rglob("README.md")}
    return frozenset(f"{folder.relative_to(ROOT).as_posix()}/index.html" for folder in pages)

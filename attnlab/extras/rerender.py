"""Render reports from what is stored of them: ``python -m attnlab.extras.rerender reports/quickstart``.

``--imports FILE`` imports a file with analyses of yours, as ``attnlab report`` does.

A repository need not keep what can be rendered: `index.html` and `runs.csv`. Of a folder of reports, all of this version are
rendered. Nothing is trained.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attnlab._util.user_code import load_file
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.extras.profile.page import write_profile
from attnlab.extras.profile.results import FILE as PROFILE
from attnlab.extras.profile.results import load_profile
from attnlab.report.page import Page
from attnlab.report.stored import FILE, load, read_object, stored_version
from attnlab.report.write import FILE as INDEX
from attnlab.report.write import load_index, write, write_index


def rerender(folder: Path) -> Page | None:
    """Write the page in `folder` again, and the pages of its studies if it is one on several.

    Returns:
        The page of a study; None for a page on several, or a profile.

    Raises:
        UserError: The folder has no report of this version; make one of another version again by its commands.
    """
    if index := load_index(folder):
        folders, options = index
        pages = [page for name in folders if (page := rerender(folder / name)) is not None]
        write_index(folder, pages, **options)
        return None
    if (folder / PROFILE).is_file():
        version, profile = load_profile(folder)
        _require_version(folder, version)
        write_profile(folder, profile)
        return None
    version = stored_version(folder)
    _require_version(folder, version)
    return write(folder, **load(folder))


def reports_in(folder: Path) -> list[Path]:
    """Return the folders of reports of this version, of which `folder` may be one; a page on several stands for its reports."""
    stored = [folder / name for name in (INDEX, FILE, PROFILE) if (folder / name).is_file()]
    if stored:
        return [folder] if read_object(stored[0]).get("version") == __version__ else []
    return [report for path in sorted(folder.glob("*/")) for report in reports_in(path)]


def _require_version(folder: Path, version: str) -> None:
    """Raise `UserError` unless a report is of this version of attnlab; "" for a folder without a report."""
    if version != __version__:
        made_by = f"one of attnlab {version}" if version else f"none ({FILE} is missing)"
        raise UserError(f"expected a report of attnlab {__version__}, got {made_by}", str(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    """Render the reports in some folders, by default those on the command line, again; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--imports", action="append", default=[], type=Path)
    options = parser.parse_args(arguments)
    try:
        for file in options.imports:
            load_file(file)
        for folder in options.folders:
            for report in reports_in(folder) or [folder]:
                rerender(report)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

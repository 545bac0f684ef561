"""Write the page of a profile, and the inputs that it is rendered from.

The page on the profiles of several variants has the levels that each solves, with a link to its page.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

from attnlab._version import __version__
from attnlab.extras.profile.page import ProfilePage, count_levels, make_page
from attnlab.extras.profile.results import Profile
from attnlab.report.render import render
from attnlab.report.section import Column, Table, TableRow
from attnlab.report.stored import in_lines, read_object
from attnlab.stats.exact_estimators import SolveRate

FILE = "profile.json"
RUN_COLUMNS = ("task", "level", "variant", "position", "lr", "seed", "score", "solved", "threshold", "chance", "max_steps")


def write_profile(folder: Path, profile: Profile) -> ProfilePage:
    """Write `index.html`, `README.md`, `runs.csv` and `profile.json` into `folder`; return the page."""
    from pydantic import TypeAdapter

    page = make_page(profile)
    folder.mkdir(parents=True, exist_ok=True)
    for template, name in (("profile.html.j2", "index.html"), ("profile.md.j2", "README.md")):
        (folder / name).write_text(render(template, {"page": page}), encoding="utf-8")
    _write_runs(folder / "runs.csv", profile)
    content = {"version": __version__, "profile": TypeAdapter(Profile).dump_python(profile, mode="json")}
    (folder / FILE).write_text(in_lines(content) + "\n", encoding="utf-8")
    return page


def load_profile(folder: Path) -> tuple[str, Profile]:
    """Return the version of attnlab that wrote a profile, and the profile."""
    from pydantic import TypeAdapter

    content = read_object(folder / FILE)
    return content["version"], TypeAdapter(Profile).validate_json(json.dumps(content["profile"]))


def _write_runs(path: Path, profile: Profile) -> None:
    """Write a row for each run with a score."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(RUN_COLUMNS)
        for ability in profile.abilities:
            rate = SolveRate(ability.task, ability.direction, ability.threshold)
            for variant, position in profile.positions.items():
                for level, best in zip(ability.levels, ability.results[variant], strict=False):
                    shared = (ability.threshold, f"{level.chance:.6g}", level.steps)
                    for result in (best, *best.others):
                        for seed, score in result.scores.items():
                            own = (ability.task, level.name, variant, position, f"{result.lr:g}", seed)
                            writer.writerow([*own, f"{score:.6g}", int(rate.solves(score)), *shared])


def stored_profiles(folder: Path) -> list[Profile]:
    """Return the profiles in the folders below a folder, sorted by name."""
    return [load_profile(path.parent)[1] for path in sorted(folder.glob(f"*/{FILE}"))]


def write_index(folder: Path) -> None:
    """Write `index.html` and `README.md` on all profiles below a folder."""
    profiles = stored_profiles(folder)
    fields = {"profiles": profiles, "table": _table(profiles)}
    for template, name in (("profiles.html.j2", "index.html"), ("profiles.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8")


def _table(profiles: list[Profile]) -> Table:
    """Return a row for each variant and a column for each diagnostic; a diagnostic that a profile lacks is left empty."""
    tasks = list(dict.fromkeys(ability.task for profile in profiles for ability in profile.abilities))
    rows = []
    for profile in profiles:
        solved = {ability.task: count_levels(ability, profile.variant) for ability in profile.abilities}
        cells = [profile.variant, profile.positions[profile.variant], *(solved.get(task, "") for task in tasks)]
        rows.append(TableRow(cells))
    return Table([Column(heading, is_text=True) for heading in ("variant", "position", *tasks)], rows)

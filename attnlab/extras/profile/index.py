"""The page on the profiles of several variants: the levels that each solves, with a link to its own page."""

from __future__ import annotations

from pathlib import Path

from attnlab.extras.profile.results import Profile
from attnlab.extras.profile.words import count_levels
from attnlab.extras.profile.write import FILE, load_profile
from attnlab.report.render import render
from attnlab.report.table import Column, Table, TableRow


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

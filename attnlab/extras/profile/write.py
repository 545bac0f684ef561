"""Write the page of a profile, and the inputs that it is rendered from."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from attnlab._version import __version__
from attnlab.extras.profile.page import ProfilePage, make_page
from attnlab.extras.profile.results import Profile
from attnlab.report.render import render
from attnlab.report.stored import read_object
from attnlab.stats.exact_estimators import SolveRate

FILE = "profile.json"
RUN_COLUMNS = ("task", "level", "variant", "position", "seed", "score", "solved", "threshold", "chance", "max_steps")


def write_profile(folder: Path, profile: Profile) -> ProfilePage:
    """Write `index.html`, `README.md`, the plots, `runs.csv` and `profile.json` into `folder`; return the page."""
    from pydantic import TypeAdapter

    page = make_page(profile)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    for section in page.sections:
        (folder / section.plot.file).write_text(section.plot.svg, encoding="utf-8")
    for template, name in (("profile.html.j2", "index.html"), ("profile.md.j2", "README.md")):
        (folder / name).write_text(render(template, {"page": page}), encoding="utf-8")
    _write_runs(folder / "runs.csv", profile)
    content = {"version": __version__, "profile": TypeAdapter(Profile).dump_python(profile, mode="json")}
    (folder / FILE).write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
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
                for level, result in zip(ability.levels, ability.results[variant], strict=False):
                    shared = (ability.threshold, f"{level.chance:.6g}", level.steps)
                    for seed, score in result.scores.items():
                        own = (
                            ability.task,
                            level.name,
                            variant,
                            position,
                            seed,
                            f"{score:.6g}",
                            int(rate.solves(score)),
                        )
                        writer.writerow([*own, *shared])

"""The page of a profile: a map of the levels that each variant solves, then every number of each variant, and the costs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from attnlab._util.cost_metrics import COST_METRICS
from attnlab._util.run_state import RunState
from attnlab.extras.profile.results import COSTS, Level, LevelResult, Profile, save_profile
from attnlab.report.render import render
from attnlab.report.section import Column, Table, TableRow, two_columns
from attnlab.report.wording import count

GROUPS = {"recall": "recall", "copy": "copying", "state": "state tracking", "": "others"}
HOW_TO_READ = "What is trained, and what the numbers mean: docs/how-to/profile.md."


@dataclass(frozen=True)
class HeatCell:
    """The levels of a diagnostic that a variant solves: of how many, and at how many others seeds disagree."""

    solved: int
    opened: int
    levels: int

    @property
    def words(self) -> str:
        """As in "1 of 3, 1 open"."""
        return f"{self.solved} of {self.levels}" + (f", {self.opened} open" if self.opened else "")


def write_profile(folder: Path, profile: Profile) -> None:
    """Write `index.html`, `README.md` and `profile.json` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_profile(folder, profile)
    fields = page_fields(profile)
    for template, name in (("profile.html.j2", "index.html"), ("profile.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8")


def page_fields(profile: Profile) -> dict[str, object]:
    """Return the fields of the templates of the page."""
    groups = groupby(profile.abilities, key=lambda ability: GROUPS[ability.group])
    alone = len(profile.variants) == 1
    return {
        "profile": profile,
        "title": f"Profile of {profile.variants[0]}" if alone else "Profiles of the built-in variants",
        "groups": [(name, len(list(abilities))) for name, abilities in groups],
        "heat": [(name, position, heat_row(profile, name)) for name, position in profile.positions.items()],
        "sections": [(name, level_table(profile, name)) for name in profile.positions],
        "costs": cost_table(profile),
        "costs_note": _costs_note(profile),
        "methods": two_columns(profile.methods.items()),
        "notes": (HOW_TO_READ,),
    }


def heat_row(profile: Profile, name: str) -> list[HeatCell | None]:
    """Return a cell for each diagnostic; None without a result."""
    return [
        HeatCell(ability.solved(name), ability.opened(name), len(ability.levels)) if ability.results[name][0].judged else None
        for ability in profile.abilities
    ]


def overview_table(profile: Profile) -> Table:
    """Return the levels that each variant solves: a row for each diagnostic, a column for each variant."""
    columns = [Column("diagnostic", is_text=True), *(Column(name, is_text=True) for name in profile.positions)]
    rows = zip(*(heat_row(profile, name) for name in profile.positions), strict=True)
    pairs = zip(profile.abilities, rows, strict=True)
    return Table(columns, [TableRow([a.task, *(cell.words if cell else "no result" for cell in row)]) for a, row in pairs])


def level_table(profile: Profile, name: str) -> Table:
    """Return every number of one variant: a row for each level at which it was trained."""
    headings = (
        "diagnostic",
        "level",
        "solved by",
        "steps of each seed",
        "lr",
        "score of each seed",
        "chance",
        "other learning rates",
    )
    rows = []
    for ability in profile.abilities:
        for level, result in zip(ability.levels, ability.results[name], strict=False):
            scores = ", ".join(f"{score:.3f}" for score in result.scores.values())
            others = "; ".join(f"{o.solved} of {count(o.judged, 'seed')} at {o.lr:g}" for o in result.others if o.judged)
            steps = describe_steps(result, level)
            cells = [ability.task, level.name, describe_rate(result), steps, f"{result.lr:g}", scores, f"{level.chance:.2f}"]
            rows.append(TableRow([*cells, others]))
    return Table([Column(heading, is_text=True) for heading in headings], rows)


def describe_rate(result: LevelResult) -> str:
    """Return the solve rate of a level as in "3 of 3 seeds [0.20, 1.00]", with the runs that have no score."""
    parts = [f"{n} {state}" for state, n in result.states.items() if state != RunState.COMPLETED]
    if result.judged:
        low, high = result.interval()
        parts.insert(0, f"{result.solved} of {count(result.judged, 'seed')} [{low:.2f}, {high:.2f}]")
    return "; ".join([", ".join(parts), *result.reasons])


def describe_steps(result: LevelResult, level: Level) -> str:
    """Return the steps after which each seed had solved the level, as in "150, 200, > 700"."""
    steps = result.steps or {0: result.costs.get("steps", level.steps)}  # of an older profile: the mean
    return ", ".join(f"{taken:,.0f}" if taken < level.steps else f"> {level.steps:,}" for taken in steps.values())


def cost_table(profile: Profile) -> Table:
    """Return the costs of each variant at the easiest level of the diagnostic with the longest rows."""
    metrics = [metric for metric in COST_METRICS if metric.name in COSTS and metric.name != "steps"]
    ability = max(profile.abilities, key=lambda ability: ability.levels[0].length)
    columns = [Column("variant", is_text=True), *(Column(metric.heading) for metric in metrics)]
    costs = {name: ability.results[name][0].costs for name in profile.positions}
    rows = [
        TableRow([name, *(metric.format(of[metric.name]) if metric.name in of else "" for metric in metrics)])
        for name, of in costs.items()
    ]
    return Table(columns, rows)


def _costs_note(profile: Profile) -> str:
    ability = max(profile.abilities, key=lambda ability: ability.levels[0].length)
    return (
        f"Measured on {ability.task} in rows of {ability.levels[0].length} tokens. Cache and state: bytes that decoding keeps "
        "of one row, of all layers. Tokens/s: of training; several runs may have shared the processor."
    )

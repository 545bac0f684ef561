"""The page of a profile: statements from the numbers of its seeds, a dot plot and a table of each ability, and the costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from attnlab._util.colors import color_of
from attnlab._util.cost_metrics import COST_METRICS, CostMetric
from attnlab._util.run_state import RunState
from attnlab.extras.profile.results import COSTS, LR, RATES, Ability, AbilityResult, Level, LevelResult, Outcome, Profile
from attnlab.report.plots.rows import LevelRow, LevelRows, level_plot
from attnlab.report.section import Column, Table, TableRow, two_columns
from attnlab.report.summary import Sentence, Strong
from attnlab.report.wording import count
from attnlab.stats.exact import clopper_pearson
from attnlab.stats.paired import LEVEL

OUTCOMES_NOTE = (
    "A variant “solves” a level, or “fails”, if all of its seeds do and the interval of its solve rate lies above or below one "
    "half, which takes 7 seeds. With fewer, the words are about the seeds: “with all seeds” and “with no seed” "
    "happen to a variant that solves a level in half of all trainings, too. The next level is trained if most seeds solve the "
    "level before it."
)
SETTINGS_NOTE = (
    "All variants have the same model, learning rates and maximum number of steps. A level that not all seeds solve is trained "
    "with the first seed at a quarter and at four times the learning rate, and with all seeds where the first one solves it; "
    "the rate with which most seeds solve the level is reported. A longer training or a larger model may solve a level that is "
    "failed here."
)
NO_RANK_NOTE = "There is no mean over the diagnostics and no rank: they test different abilities."
PLOT_NOTE = (
    "Dots are seeds, bars reach from the lowest to the highest. Solid line: the threshold; dashed line: chance. On the right, "
    "the seeds that reach the threshold, and the interval of the solve rate."
)


@dataclass(frozen=True)
class AbilitySection:
    """The part of the page on one diagnostic."""

    ability: AbilityResult
    statement: Sentence
    others: Sequence[tuple[str, Sentence]]
    plot: str
    table: Table


@dataclass(frozen=True)
class ProfilePage:
    """The contents of the page."""

    profile: Profile
    summary: Sequence[Sentence]
    overview: Table
    sections: Sequence[AbilitySection]
    costs: Table
    costs_note: str
    methods: Table
    notes: Sequence[str]
    plot_note: str

    @property
    def title(self) -> str:
        """The heading of the page."""
        return f"Profile of {self.profile.variant}"


def make_page(profile: Profile) -> ProfilePage:
    """Compute the contents of a profile's page."""
    costs, note = cost_table(profile)
    return ProfilePage(
        profile=profile,
        summary=describe_profile(profile),
        overview=overview_table(profile),
        sections=[_section(profile, ability) for ability in profile.abilities],
        costs=costs,
        costs_note=note,
        methods=two_columns(_methods(profile)),
        notes=(OUTCOMES_NOTE, _interval_note(profile.seeds), SETTINGS_NOTE, NO_RANK_NOTE),
        plot_note=PLOT_NOTE,
    )


def _interval_note(seeds: int) -> str:
    """Return what a level that all seeds solve, or none, says about its solve rate."""
    least, _ = clopper_pearson(seeds, seeds, LEVEL / 2 / RATES)
    return (
        "Brackets are intervals of the solve rate (Clopper and Pearson 1934); the intervals of the three learning rates, of "
        f"which the best is reported, hold together with 95 %. With {seeds} seeds, {seeds} of {seeds} are "
        f"compatible with every rate from {least:.2f}, and 0 of {seeds} with every rate up to {1 - least:.2f}. A level that "
        f"half of all seeds would solve is solved by all seeds with probability 1/{2**seeds}, and by none with the same."
    )


def overview_table(profile: Profile) -> Table:
    """Return the levels that each variant solves: a row for each ability, a column for each variant."""
    columns = [Column("ability", is_text=True), *(Column(variant, is_text=True) for variant in profile.positions)]
    rows = [
        TableRow([ability.task, *(describe_reach(ability, variant) for variant in profile.positions)])
        for ability in profile.abilities
    ]
    return Table(columns, rows)


def _section(profile: Profile, ability: AbilityResult) -> AbilitySection:
    return AbilitySection(
        ability,
        [f"{profile.variant} ", *describe_ability(ability, profile.variant), "."],
        [(variant, describe_ability(ability, variant)) for variant in profile.positions if variant != profile.variant],
        draw_ability(profile, ability),
        level_table(profile, ability),
    )


def _trained(profile: Profile, ability: AbilityResult, level: int) -> list[tuple[str, LevelResult]]:
    """Return the variants that were trained at a level, with their results."""
    return [(name, ability.results[name][level]) for name in profile.positions if level < len(ability.results[name])]


def draw_ability(profile: Profile, ability: AbilityResult) -> str:
    """Draw the scores of all variants at each level."""
    levels = [
        LevelRows(
            level.name,
            level.chance,
            [
                LevelRow(name, color_of(name), [*result.scores.values()], short_rate(result))
                for name, result in _trained(profile, ability, i)
            ],
        )
        for i, level in enumerate(ability.levels)
    ]
    title, note = f"{ability.task}: {ability.metric} by level", f"solved at {ability.threshold:g}"
    return level_plot([level for level in levels if level.rows], title=title, note=note, threshold=ability.threshold)


def level_table(profile: Profile, ability: AbilityResult) -> Table:
    """Return every number of one diagnostic: a row for each level and variant."""
    headings = ("lr", "solved", f"{ability.metric} of each seed", "range", "steps")
    columns = [Column("level", is_text=True), Column("variant", is_text=True), *(Column(h, is_text=True) for h in headings)]
    rows = []
    for i, level in enumerate(ability.levels):
        for name, result in _trained(profile, ability, i):
            scores = ", ".join(f"{score:.3f}" for score in result.scores.values())
            rate, steps = f"{result.lr:g}", _steps(result, level)
            solved = "; ".join([describe_rate(result), *_other_rates(result)])
            cells = [level.name, name, rate, solved, scores, describe_scores(result), steps]
            rows.append(TableRow(cells, color_of(name)))
    return Table(columns, rows)


def _steps(result: LevelResult, level: Level) -> str:
    """Return the mean number of steps after which the runs ended, as in "150 of 700"."""
    taken = result.costs.get("steps", level.steps)
    return f"{taken:,.0f} of {level.steps:,}" if taken < level.steps else f"{level.steps:,}"


def cost_table(profile: Profile) -> tuple[Table, str]:
    """Return the costs of each variant at the longest level at which all variants were trained, and a note on it."""
    ability, index = _common_level(profile)
    level = ability.levels[index]
    metrics = [metric for metric in COST_METRICS if metric.name in COSTS and metric.name != "steps"]
    columns = [Column("variant", is_text=True), Column("position", is_text=True)]
    columns += [Column(metric.heading) for metric in metrics]
    rows = []
    for name, position in profile.positions.items():
        result = ability.results[name][index]
        rows.append(TableRow([name, position, *(_cost(result, metric) for metric in metrics)], color_of(name)))
    note = (
        f"Measured on {ability.task} at {level.name}, rows of {level.length} tokens. Cache and state: bytes that decoding "
        "keeps of one row, of all layers; empty for a variant without a cache. Tokens/s: of training, with the range over "
        "seeds; several runs may have shared the processor."
    )
    return Table(columns, rows), note


def _common_level(profile: Profile) -> tuple[AbilityResult, int]:
    """Return the diagnostic and the index of the level with the longest rows at which every variant completed a run."""
    pairs = [
        (ability, i)
        for ability in profile.abilities
        for i in range(min(len(ability.results[name]) for name in profile.positions))
    ]
    complete = [(ability, i) for ability, i in pairs if all(ability.results[name][i].scores for name in profile.positions)]
    return max(complete or pairs, key=lambda pair: pair[0].levels[pair[1]].length)


def _cost(result: LevelResult, metric: CostMetric) -> str:
    """Return the mean of a cost, with the range over seeds if it is measured; "" without a value."""
    if metric.name not in result.costs:
        return ""
    mean = metric.format(result.costs[metric.name])
    return f"{mean} {metric.format_range(result.ranges.get(metric.name, ()))}".rstrip()


def _unique(groups: Iterable[Sequence[str]]) -> str:
    return "; ".join(dict.fromkeys(text for group in groups for text in group if text))


def _methods(profile: Profile) -> list[tuple[str, str]]:
    """Return what all runs of a profile share."""
    positions = ", ".join(f"{name} {position}" for name, position in profile.positions.items())
    pairs = [
        ("model", profile.model),
        ("training", profile.train),
        ("positions", positions),
        ("seeds", f"{profile.seeds} of each level"),
        ("device", _unique(ability.devices for ability in profile.abilities)),
        ("versions", _unique(ability.versions for ability in profile.abilities)),
    ]
    return [(name, text) for name, text in pairs if text]


def describe_rate(result: LevelResult) -> str:
    """Return the solve rate of a level as in "3 of 3 seeds [0.29, 1.00]", with the runs that have no score."""
    return ", ".join([*_rate(result, f"of {count(len(result.scores), 'seed')}"), *_without_score(result)])


def short_rate(result: LevelResult) -> str:
    """Return the solve rate of a level for a plot: "3/3 [0.29, 1.00]", or "2/2, 1 diverged"."""
    others = _without_score(result)
    rate = _rate(result, f"/ {len(result.scores)}")
    return ", ".join([*(text.partition(" [")[0] if others else text for text in rate), *others]).replace(" / ", "/")


def _rate(result: LevelResult, of: str) -> list[str]:
    if result.low is None or result.high is None:
        return []
    return [f"{result.solved} {of} [{result.low:.2f}, {result.high:.2f}]"]


def _without_score(result: LevelResult) -> list[str]:
    """Return the number of runs in each state but completed."""
    return [f"{n} {state}" for state, n in result.states.items() if state != RunState.COMPLETED]


def _with_rate(result: LevelResult) -> str:
    """Return the solve rate of a level, with the learning rate if it is another than the first."""
    return describe_rate(result) + ("" if result.lr == LR else f" at learning rate {result.lr:g}")


def _other_rates(result: LevelResult) -> list[str]:
    """Return the seeds that solve a level at the other learning rates, as in "0 of 1 seed at learning rate 0.012"."""
    judged = [other for other in result.others if other.judged]
    return [f"{other.solved} of {count(other.judged, 'seed')} at learning rate {other.lr:g}" for other in judged]


def describe_scores(result: LevelResult) -> str:
    """Return the range of the scores over seeds: "0.420 to 0.970", or "0.420" if they do not differ."""
    scores = [f"{score:.3f}" for score in (min(result.scores.values()), max(result.scores.values()))] if result.scores else []
    return " to ".join(dict.fromkeys(scores))


def describe_ability(ability: AbilityResult, variant: str) -> Sentence:
    """Return the levels that a variant or its seeds solve, in one sentence without its subject.

    Examples: "solves it up to pairs 16 (8 of 8 seeds [0.63, 1.00]); fails at pairs 32 in 700 steps (0 of 8 seeds [0.00, 0.37],
    accuracy 0.310 to 0.420, chance 0.03)". With fewer seeds, which show no ability: "solves it with all seeds up to pairs 16
    (3 of 3 seeds [0.29, 1.00]); with no seed at pairs 32 in 700 steps (...)".
    """
    results = ability.results[variant]
    parts: list[str] = []
    for outcome, group in groupby(zip(ability.levels, results, strict=False), key=lambda pair: pair[1].outcome):
        pairs = list(group)
        if parts:
            parts.append("; ")
        parts += _describe_levels(ability, outcome, pairs, begins=len(parts) == 0)
    if all(result.outcome is Outcome.SOLVED for result in results) and len(results) == len(ability.levels):
        parts.append(", the hardest level tested")
    return parts


def _describe_levels(
    ability: AbilityResult, outcome: Outcome, pairs: Sequence[tuple[Level, LevelResult]], *, begins: bool
) -> Iterator[str]:
    """Yield the words for consecutive levels with the same outcome."""
    level, result = pairs[-1]
    if outcome is Outcome.SOLVED:
        seeds = "" if result.ability is Ability.CAN else " with all seeds"
        yield Strong(f"solves it{'' if begins else ' again'}{seeds}")
        yield f" {'up to' if begins and len(pairs) > 1 else 'at'} {level.name}"
        yield f" ({_with_rate(result)})"
    elif outcome is Outcome.NOT_SOLVED:
        chance = f", {ability.metric} {describe_scores(result)}, chance {level.chance:.2f}" if result.scores else ""
        chance += "".join(f"; {other}" for other in _other_rates(result))
        yield Strong("fails" if result.ability is Ability.CANNOT else "solves it with no seed")
        yield f" at {level.name} in {level.steps:,} steps ({describe_rate(result)}{chance})"
    elif outcome is Outcome.OPEN:
        yield "is "
        yield Strong("not shown")
        yield f" to solve it at {' and '.join(f'{level.name} ({_with_rate(result)})' for level, result in pairs)}"
    else:
        yield "has " if begins else ""
        yield Strong("no result")
        yield f" at {level.name}: {'; '.join(result.reasons) or describe_rate(result)}"


def describe_reach(ability: AbilityResult, variant: str) -> str:
    """Return a short text for a table: "up to pairs 16", "no level", with the levels on which the seeds disagree."""
    results, last = ability.results[variant], ability.last_solved(variant)
    if results[0].outcome is Outcome.NO_RESULT:
        return "no result"
    text = "no level" if last is None else "all levels" if last is ability.levels[-1] else f"up to {last.name}"
    opened = [
        f"{level.name}: {result.solved} of {result.seeds}"
        for level, result in zip(ability.levels, results, strict=False)
        if result.outcome is Outcome.OPEN
    ]
    return f"{text} ({'; '.join(opened)})" if opened else text


def count_levels(ability: AbilityResult, variant: str) -> str:
    """Return how many levels a variant solves, for a wide table: "2 of 3", "1 of 3, 1 open" or "no result"."""
    results, last = ability.results[variant], ability.last_solved(variant)
    if results[0].outcome is Outcome.NO_RESULT:
        return "no result"
    solved = 0 if last is None else ability.levels.index(last) + 1
    opened = sum(result.outcome is Outcome.OPEN for result in results)
    return f"{solved} of {len(ability.levels)}" + (f", {opened} open" if opened else "")


def describe_profile(profile: Profile) -> list[Sentence]:
    """Return the abilities of a profile's variant in groups: what its seeds solve, solve in part, do not, and what is open."""
    groups: dict[str, list[str]] = {"all": [], "part": [], "none": [], "open": [], "missing": []}
    for ability in profile.abilities:
        results, last = ability.results[profile.variant], ability.last_solved(profile.variant)
        if last is not None:
            groups["all" if last is ability.levels[-1] else "part"].append(f"{ability.task} (up to {last.name})")
        else:
            outcome = {Outcome.NOT_SOLVED: "none", Outcome.OPEN: "open"}.get(results[0].outcome, "missing")
            groups[outcome].append(ability.task)
    openings = {
        "all": f"All seeds of {profile.variant} solve every level of ",
        "part": f"All seeds of {profile.variant} solve a part of the levels of ",
        "none": f"No seed of {profile.variant} solves the easiest level of ",
        "open": "Not shown, because seeds disagree at the easiest level: ",
        "missing": "Without a result: ",
    }
    return [[openings[name], Strong(", ".join(names)), "."] for name, names in groups.items() if names]

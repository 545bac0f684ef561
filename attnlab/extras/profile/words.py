"""A profile in words, from the numbers of its seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from attnlab._util.run_state import RunState
from attnlab.extras.profile.results import Ability, AbilityResult, Level, LevelResult, Outcome, Profile
from attnlab.report.summary import Sentence, Strong
from attnlab.report.wording import count


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


def describe_scores(result: LevelResult) -> str:
    """Return the range of the scores over seeds: "0.420 to 0.970", or "0.420" if they do not differ."""
    scores = [f"{score:.3f}" for score in (min(result.scores.values()), max(result.scores.values()))] if result.scores else []
    return " to ".join(dict.fromkeys(scores))


def describe_ability(ability: AbilityResult, variant: str) -> Sentence:
    """Return the levels that a variant or its seeds solve, in one sentence without its subject.

    Examples: "solves it up to pairs 16 (8 of 8 seeds [0.63, 1.00]); fails at pairs 32 (0 of 8 seeds [0.00, 0.37], accuracy
    0.310 to 0.420, chance 0.03)". With fewer seeds, which show no ability: "solves it with all seeds up to pairs 16 (3 of 3
    seeds [0.29, 1.00]); with no seed at pairs 32 (...)".
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
        yield f" ({describe_rate(result)})"
    elif outcome is Outcome.NOT_SOLVED:
        chance = f", {ability.metric} {describe_scores(result)}, chance {level.chance:.2f}" if result.scores else ""
        yield Strong("fails" if result.ability is Ability.CANNOT else "solves it with no seed")
        yield f" at {level.name} ({describe_rate(result)}{chance})"
    elif outcome is Outcome.OPEN:
        yield "is "
        yield Strong("not shown")
        yield f" to solve it at {' and '.join(f'{level.name} ({describe_rate(result)})' for level, result in pairs)}"
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

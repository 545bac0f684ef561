"""``reports/validity/README.md``, generated from the simulated lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab.stats.paired import LEVEL
from attnlab.stats.sequential import EXTRA
from benchmarks import factorial, trends
from benchmarks.intervals_page import interval_sections
from benchmarks.predictions import DECILES, EVERY_SIZE
from benchmarks.simulate import CELLS, DISTRIBUTIONS, Line
from benchmarks.tables import table_of_cases, table_of_quantities

MAX_ERRORS = 3  # Monte-Carlo standard errors; larger deviations are reported


def worst(lines: Sequence[Line], *, least: bool = False) -> str:
    line = (min if least else max)(lines, key=lambda line: line.value)
    return f"{line.value:.1%} ± {line.error or 0:.1%} ({line.noise}, {line.case})"


def violations(lines: Sequence[Line], bound: float, *, least: bool = False) -> str:
    """Describe the settings that break a bound by more than the error of the simulation."""
    sign = -1 if least else 1
    broken = [line for line in lines if sign * (line.value - bound) > MAX_ERRORS * (line.error or 0)]
    if not broken:
        return "no setting breaks it by more than the error of the simulation"
    names = dict.fromkeys(line.noise for line in broken)
    by_noise = {name: [line for line in broken if line.noise == name] for name in names}
    return "broken by " + " and by ".join(f"{name} ({_range(some)})" for name, some in by_noise.items())


def _range(lines: Sequence[Line]) -> str:
    """Return the range of values as text: "7.1% to 9.3% in 10 settings"."""
    low, high = min(line.value for line in lines), max(line.value for line in lines)
    return f"{low:.1%} at {lines[0].case}" if len(lines) == 1 else f"{low:.1%} to {high:.1%} in {len(lines)} settings"


RATES = """\

## The choice of the learning rate

Two cells with the same lowest loss, at optima that are equal or 0.2 decades apart; any verdict of better or worse is false.
Curvature is the loss one decade from the optimum, spread the standard deviation of a run; only their ratio matters.
“Search 4 + confirm 5” chooses the best of four trials of one seed in each cell (the trials of Optuna's QMCSampler, over two
decades) and compares 5 other seeds at the chosen rates. “Sweep 3 x 5” trains 3 rates, half a decade apart, with 5 seeds,
extends the grid while the best rate of a cell is at its edge, and compares the fitted optima.

Where the curves are parabolas, at most {sweep_worst} of the sweep's verdicts are false; where they are lopsided (at “lopsided
1”, the loss a decade above the optimum is twice that a decade below), at most {sweep_lopsided} with five rates.
**Not promised:** three rates with lopsided curves whose optima lie apart, {sweep_three}. With `search`, {search_least} to
{search_most} are false, the more the more seeds there are, because the luck of the search is the same in all of them. Share
of false verdicts:

{rates_table}

Share of the sweeps without a verdict, because the curve is rejected by the test for lack of fit (at 5 %), or no extension
encloses the optimum:

{rates_open}
"""


FACTORIAL = """
## Effects of factorial studies

Factors without an effect: three in all combinations, eight in a fraction of 16 cells, and four that are left out one at a time
({studies} studies per setting). Each effect is tested by its scatter over the seeds. The noise of a run has variance 1:

{noises}

Share of studies with a false verdict on a main effect: {false_broken}.

{false_table}

Tested with the residual of the linear model, pooled over all effects, as is usual for factorial designs, the same studies have
more false verdicts as soon as a factor changes the runs of a seed more than others do; attnlab does not use that test:

{pooled_table}

Share with a false verdict on an interaction: {interactions_broken}; at most {interactions}. Coverage of the 95 % interval of a
main effect: {covered_broken}; at least {covered}. A true main effect of one standard deviation of a run is found in:

{power_table}
"""

TRENDS = """
## Trends over levels

{cells} cells and a baseline at three levels, by the number of seeds ({studies} tables per setting). The spread of a run falls
to a third from the lowest level to the highest. In `mild_gap` the baseline has no noise.

Share of tables with a trend where the differences are the same at every level: {false_broken}.

{false_table}

Share of tables called steady where the difference changes by the margin over the range, {margin:g} standard deviations of a
run: {steady_broken}.

{steady_table}

Share of tables with “shrinks” or “grows” where the difference changes sign and keeps its size: {word_broken}.

{word_table}

A difference that shrinks by {shift:g} standard deviations of a run is found in:

{found_table}
"""

BY_HAND = """
## Seeds added by hand

A person runs a few seeds, reads the table, adds a seed to every cell, and so on up to 12; nothing is announced. The first look
is a test at 5 %, and all further looks together may add {extra}. "False" is such a verdict at any look: at most {hand} of the
tables have one where each look is corrected for those before it, and {hand_careless} if each is judged as if it were the only
one. "Covered" counts the intervals that cover the true difference at all looks.

{hand_table}

Announced looks (above) cost less: 5 % is then shared by all of them, and none is a test at the full level.
"""

PAGE = """\
# Validity of the verdicts

Studies with a known truth are simulated and judged by the functions that judge every report (`attnlab.stats`): tables of
{cells} cells against one baseline, differences paired by seed, Holm correction over the table, {studies} tables per setting.
The Monte-Carlo standard error of a share in the first three tables is at most {error}. All numbers with their errors are in
[validity.csv](validity.csv), written by `{command}`.

**Summary** for differences that are not skewed. At most {false} of the tables have a verdict of better or worse where nothing
differs; 5 % are allowed: {false_broken}. At most {near} have a verdict of equivalent where the difference equals the margin.
Coverage of the 95 % intervals is at least {covered}. If seeds are added until the verdicts are conclusive, at most {added} of
the tables have a false verdict; if each look is judged as if it were the only one, {careless} do.
Power: with the computed number of seeds, at least {power} of the studies are conclusive if mean and spread are known, where
80 % are promised. Share of studies in which a verdict predicted with 70 to 80 % comes about, where true differences of all
sizes occur: {calibration}.
**What breaks:** skewed differences. With a skewness of 1, false verdicts rise to {mild_false}, with added seeds to
{mild_added}, false equivalence rises to {mild_near}, and coverage falls to {mild_covered}. With a skewness of 6 they rise to
{strong_false}, {strong_added} and {strong_near}, and coverage falls to {strong_covered}.

Distributions of the seeds, in units of their standard deviation:

{noises}

## Better or worse where nothing differs

Share of tables with at least one such verdict, by the number of seeds. At most 5 % is allowed: {every_false_broken}.

{false_table}

## Coverage of the 95 % interval

By the number of seeds: {covered_broken}.

{covered_table}

Symmetric heavy tails make t-intervals too wide: they cover more than promised, and fewer verdicts are conclusive. Skew that is
the same in both cells cancels in the pairs. Skew in the difference does not cancel, and a dozen seeds do not remove its
effect. Reports therefore state that their t-tests assume differences that scatter symmetrically: where one or two seeds lie
far to one side of the others, or where seeds diverged, the verdicts are more certain than they should be.

## Equivalent where the difference is the margin

Share of tables with at least one such verdict; the margin is 2 standard deviations of a run, and the true difference of all
cells equals it: {equivalence_broken}.

{equivalence_table}

## Number of seeds for a conclusive verdict

Mean and spread known: {power_broken}.

{power_table}

{intervals}
## Seeds added until conclusive

`attnlab run --until-conclusive --max-seeds 12`: a look at each number of seeds, one more seed for each open cell, each t-test
at {level} with 3 to 12 seeds (Pocock 1977, calibrated for t-statistics). "False" is a verdict of better or worse where nothing
differs, or of equivalence at the margin, at any look; "covered" counts the intervals at the last look.

{looks_table}

## Choice of the rule

One comparison, normal pairs, looks at 3 to 12 (`benchmarks/rules.py` names the sources). Columns: the true difference in
standard deviations of the pairs, and the margin if there is one. Mean number of seeds:

{rules_seeds}

Share of conclusive studies within 12 seeds (for difference 0 without a margin, this is the error rate):

{rules_conclusive}

The same level at every look needs the fewest seeds, except for differences that 12 seeds can barely detect. Rising levels
detect more of the small differences and need more seeds for the large ones. The always-valid rule, which needs no maximum
number of seeds, needs the most.

## A/A test with attnlab

`ablations/aa.yaml` trains dense attention under five names: [reports/aa](../aa/README.md).
"""


def page(lines: Sequence[Line], *, command: str, level: float) -> str:
    """Return the report; ``command`` made the lines, and ``level`` is the level of each look when seeds are added."""
    part = {name: [line for line in lines if line.part == name] for name in dict.fromkeys(line.part for line in lines)}
    noises = "\n".join(f"- `{name}`: {text}." for name, text in DISTRIBUTIONS.items())
    figures = _in_short(part) | _fixed(part["fixed"]) | _added(part)
    text = PAGE.format(cells=CELLS, command=command, level=f"{level:.2%}", noises=noises, **figures)
    text += _factorial_section(part.get("factorial", ())) + _trends_section(part.get("trend", ()))
    text += _rates_section(part.get("rates", ()))
    return text + _by_hand_section(part.get("by hand", ()))


def _trends_section(lines: Sequence[Line]) -> str:
    """Return the section on trends; "" if they are not simulated."""
    if not lines:
        return ""
    figures: dict[str, str] = {}
    for name, quantity in (("false", "false trend"), ("steady", "false steady"), ("word", "false word"), ("found", "found")):
        figures[f"{name}_broken"] = violations([line for line in lines if line.quantity == quantity], 0.05)
        figures[f"{name}_table"] = table_of_cases(lines, quantity)
    studies = f"{lines[0].studies:,}"
    return TRENDS.format(cells=CELLS, studies=studies, margin=trends.MARGIN, shift=trends.SHIFT, **figures)


def _by_hand_section(lines: Sequence[Line]) -> str:
    """Return the section on seeds added by hand; "" if they are not simulated."""
    if not lines:
        return ""
    false = [line for line in lines if line.quantity == "false"]
    heads = ["noise", "true difference", "false", "covered"]
    return BY_HAND.format(
        extra=f"{EXTRA * LEVEL:.1%}",
        hand=worst([line for line in false if "NOT" not in line.case]),
        hand_careless=worst([line for line in false if "NOT" in line.case]),
        hand_table=table_of_quantities(lines, ["false", "covered"], heads=heads),
    )


def _factorial_section(lines: Sequence[Line]) -> str:
    """Return the section on factorial studies; "" if they are not simulated."""
    if not lines:
        return ""
    of = {name: [line for line in lines if line.quantity == name] for name in factorial.QUANTITIES}
    return FACTORIAL.format(
        studies=f"{lines[0].studies:,}",
        noises="\n".join(f"- `{name}`: {text}." for name, text in factorial.NOISE_TEXTS.items()),
        false_broken=violations(of["false"], 0.05),
        false_table=table_of_cases(lines, "false"),
        pooled_table=table_of_cases(lines, "false if pooled"),
        interactions_broken=violations(of["false interactions"], 0.05),
        interactions=worst(of["false interactions"]),
        covered_broken=violations(of["covered"], 0.95, least=True),
        covered=worst(of["covered"], least=True),
        power_table=table_of_cases(lines, "power"),
    )


def _rates_section(lines: Sequence[Line]) -> str:
    """Return the section on learning rates that are searched or swept; "" if they are not simulated."""
    if not lines:
        return ""
    false = [line for line in lines if line.quantity == "false"]
    sweeps, searches = ([line for line in false if line.case.startswith(name)] for name in ("sweep", "search"))
    parabolas, lopsided = ([line for line in sweeps if ("lopsided" in line.noise) is kind] for kind in (False, True))
    unanswered = [line for line in lines if line.quantity == "no verdict" and line.case.startswith("sweep")]
    return RATES.format(
        sweep_worst=worst(parabolas),
        sweep_lopsided=worst([line for line in lopsided if line.case.startswith("sweep 5")]),
        sweep_three=worst([line for line in lopsided if line.case.startswith("sweep 3")]),
        search_least=f"{min(line.value for line in searches):.1%}",
        search_most=f"{max(line.value for line in searches):.1%}",
        rates_table=table_of_cases(false, "false", over="curves"),
        rates_open=table_of_cases(unanswered, "no verdict", over="curves"),
    )


def _in_short(part: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """Return the figures of the summary: the worst settings that hold a bound, and those that break it."""
    false, covered = ([line for line in part["fixed"] if line.quantity == name] for name in ("false", "covered"))
    plain, plain_covered = ([line for line in of if not line.noise.endswith("_gap")] for of in (false, covered))
    near = [line for line in part["fixed"] if line.quantity == "false equivalence"]
    looks = [line for line in part["looks"] if line.quantity == "false"]
    added = [line for line in looks if "NOT" not in line.case]
    figures = {
        "false": worst(plain),
        "false_broken": violations(plain, 0.05),
        "covered": worst(plain_covered, least=True),
        "near": worst([line for line in near if not line.noise.endswith("_gap")]),
        "added": worst([line for line in added if not line.noise.endswith("_gap")]),
        "careless": worst([line for line in looks if "NOT" in line.case]),
        "power": f"{min(line.value for line in part['power']):.1%}",
        "calibration": _range(
            [line for line in part["prediction"] if line.noise == EVERY_SIZE and line.quantity == DECILES[7]]
        ),
    }
    for name, noise in (("mild", "mild_gap"), ("strong", "skewed_gap")):
        figures[f"{name}_false"] = worst([line for line in false if line.noise == noise])
        figures[f"{name}_added"] = worst([line for line in added if line.noise == noise])
        figures[f"{name}_near"] = worst([line for line in near if line.noise == noise])
        figures[f"{name}_covered"] = worst([line for line in covered if line.noise == noise], least=True)
    return figures


def _fixed(lines: Sequence[Line]) -> dict[str, str]:
    """Return the figures for fixed numbers of seeds: verdicts, intervals, equivalence."""
    of = {name: [line for line in lines if line.quantity == name] for name in ("false", "covered", "false equivalence")}
    return {
        "studies": f"{lines[0].studies:,}",
        "error": f"{max(line.error or 0 for line in lines):.1%}",
        "every_false_broken": violations(of["false"], 0.05),
        "false_table": table_of_cases(lines, "false"),
        "covered_broken": violations(of["covered"], 0.95, least=True),
        "covered_table": table_of_cases(lines, "covered"),
        "equivalence_broken": violations(of["false equivalence"], 0.05),
        "equivalence_table": table_of_cases(lines, "false equivalence"),
    }


def _added(part: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """Return the figures for numbers of seeds, intervals, added seeds, and the rules for repeated looks."""
    power = ["noise", "true difference, in standard deviations of the pairs", "conclusive"]
    looks = ["noise", "true difference", "false", "covered", "seeds per cell"]
    return {
        "power_broken": violations(part["power"], 0.8, least=True),
        "power_table": table_of_quantities(part["power"], ["conclusive"], heads=power),
        "intervals": interval_sections(part),
        "looks_table": table_of_quantities(part["looks"], ["false", "covered", "seeds"], heads=looks),
        "rules_seeds": table_of_cases(part["rules"], "seeds", over="rule"),
        "rules_conclusive": table_of_cases(part["rules"], "conclusive", over="rule"),
    }

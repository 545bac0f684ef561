"""``reports/validity/README.md``, from the lines that were simulated: no number on it is typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attnlab.stats.paired import FEW
from benchmarks.simulate import ABOUT, CELLS, MOST

if TYPE_CHECKING:
    from benchmarks.validity import Line

SURE = 3  # Monte-Carlo standard errors beyond which a deviation is one


def table(lines: Sequence[Line], quantity: str, *, over: str = "noise") -> str:
    """A Markdown table: a row for each noise (or rule), a column for each case."""
    chosen = [line for line in lines if line.quantity == quantity]
    cases = list(dict.fromkeys(line.case for line in chosen))
    by = {(line.noise, line.case): shown(line) for line in chosen}
    rows = [[name, *(by.get((name, case), "") for case in cases)] for name in dict.fromkeys(line.noise for line in chosen)]
    return markdown([over, *cases], rows)


def listed(lines: Sequence[Line], quantities: Sequence[str], *, heads: Sequence[str]) -> str:
    """A Markdown table: a row for each noise and case, a column for each quantity."""
    by = {(line.noise, line.case, line.quantity): shown(line) for line in lines}
    places = dict.fromkeys((line.noise, line.case) for line in lines)
    return markdown(heads, [[*place, *(by.get((*place, name), "") for name in quantities)] for place in places])


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(line: Line) -> str:
    return f"{line.value:.2f}" if line.error is None else f"{line.value:.1%}"


def worst(lines: Sequence[Line], *, least: bool = False) -> str:
    line = (min if least else max)(lines, key=lambda line: line.value)
    return f"{line.value:.1%} ± {line.error or 0:.1%} ({line.noise}, {line.case})"


def breaks(lines: Sequence[Line], bound: float, *, least: bool = False) -> str:
    """Which settings break a bound by more than the simulation's own error."""
    sign = -1 if least else 1
    found = [line for line in lines if sign * (line.value - bound) > SURE * (line.error or 0)]
    if not found:
        return "no setting breaks it by more than the simulation's own error"
    shown = {noise: [line for line in found if line.noise == noise] for noise in dict.fromkeys(line.noise for line in found)}
    return "broken by " + " and by ".join(f"{noise} ({_range(broken)})" for noise, broken in shown.items())


def _range(lines: Sequence[Line]) -> str:
    """ "7.1% to 9.3% in 10 settings"."""
    low, high = min(line.value for line in lines), max(line.value for line in lines)
    return f"{low:.1%} at {lines[0].case}" if len(lines) == 1 else f"{low:.1%} to {high:.1%} in {len(lines)} settings"


PAGE = """\
# Are the verdicts worth what they say?

Simulated studies with a known truth, judged by the functions that judge every report (`attnlab.stats.paired`): tables of
{cells} cells against one baseline, differences paired by seed, Holm over the table, {studies} tables a setting. The Monte-Carlo
standard error of a share in the first three tables is at most {error}. All numbers, with their errors, are in
[validity.csv](validity.csv); what wrote them: `{command}`.

**In short**, unless the differences are skewed. Better or worse where nothing differs: {false} of the tables at most, 5 %
allowed: {false_broken}. Equivalent where the difference is the margin: {near} at most.
Coverage of the 95 % intervals: at least {covered}. Seeds added until settled: false
verdicts in {added} of the tables at most; judged at each look as if it were the only one, {careless}.
Power: the number of seeds named settles in {power} at least where mean and spread are known, 80 % promised; where they are
guessed from the first seeds, in {guess_least} to {guess_most}.
**What breaks:** differences that are themselves skewed. With a skewness of 1, false verdicts rise to {mild_false},
with seeds added until settled to {mild_added}, false equivalence to {mild_near}, and
coverage falls to {mild_covered}. With a skewness of 6 they rise to {strong_false},
{strong_added} and {strong_near}, and coverage falls to
{strong_covered}.

What the seeds are drawn from, in units of their standard deviation:

{noises}

## Better or worse, where nothing differs

Share of tables with at least one such verdict, by the number of seeds. At most 5 % is allowed: {every_false_broken}.

{false_table}

## Coverage of the 95 % interval

By the number of seeds: {covered_broken}.

{covered_table}

A symmetric heavy tail makes t-intervals too wide, not too narrow: they cover more than they promise, and find less. Skew in
both cells alike cancels in the pairs. Skew in the difference does not, and a dozen seeds do not repair it. So a report says
that its t-tests are for differences that scatter about evenly to both sides: where its dots show one or two seeds far to one
side of the others, or where seeds diverged, its verdicts are surer of themselves than they should be.

## Equivalent, where the difference is the margin

Share of tables with at least one such verdict; the margin is 2 standard deviations of a run, all cells lie exactly on it:
{equivalence_broken}.

{equivalence_table}

## The number of seeds that would settle it

Mean and spread known: {power_broken}.

{power_table}

Mean and spread guessed from the first seeds, in studies that these leave open: {guess_least} to
{guess_most} are settled by the number named; more than {most} seeds are not tried, and count as
not settled. Below {few} pairs a report names none. The true difference is in standard deviations of the pairs.

{guesses}

## Seeds added until it is settled

`attnlab run --until-conclusive --max-seeds 12`: a look at each number of seeds, one more seed for each open cell, each t-test
at {level} with 3 to 12 seeds (Pocock 1977, calibrated for t-statistics). "False" is a verdict of better or worse where nothing
differs, or of equivalence at the margin, at any look; "covered" counts the intervals when the seeds end.

{looks_table}

## Why this rule

One comparison, normal pairs, looks at 3 to 12 (`benchmarks/rules.py` names the sources). Columns: the true difference in
standard deviations of the pairs, and the margin where there is one. Mean number of seeds:

{rules_seeds}

Share of studies settled within 12 seeds (with difference 0 and no margin: the error):

{rules_settled}

One level at every look asks for the fewest seeds, except near the end of what 12 seeds can settle. Rising levels settle more
of the small differences and take longer over the large ones. What needs no largest number of seeds pays for it most.

## And with attnlab itself

`ablations/aa.yaml` trains dense attention under five names: [reports/aa](../aa/README.md).
"""


def page(lines: Sequence[Line], *, command: str, level: float) -> str:
    """The report on what was simulated, by ``command``, with seeds added at ``level`` a look."""
    part = {name: [line for line in lines if line.part == name] for name in dict.fromkeys(line.part for line in lines)}
    noises = "\n".join(f"- `{name}`: {text}." for name, text in ABOUT.items())
    figures = _in_short(part) | _fixed(part["fixed"]) | _added(part)
    return PAGE.format(cells=CELLS, command=command, level=f"{level:.2%}", noises=noises, **figures)


def _in_short(part: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """The worst of what holds, and what breaks."""
    false, covered = ([line for line in part["fixed"] if line.quantity == name] for name in ("false", "covered"))
    plain, plain_covered = ([line for line in of if not line.noise.endswith("_gap")] for of in (false, covered))
    near = [line for line in part["fixed"] if line.quantity == "false equivalence"]
    looks = [line for line in part["looks"] if line.quantity == "false"]
    added = [line for line in looks if "NOT" not in line.case]
    figures = {
        "false": worst(plain),
        "false_broken": breaks(plain, 0.05),
        "covered": worst(plain_covered, least=True),
        "near": worst([line for line in near if not line.noise.endswith("_gap")]),
        "added": worst([line for line in added if not line.noise.endswith("_gap")]),
        "careless": worst([line for line in looks if "NOT" in line.case]),
        "power": f"{min(line.value for line in part['power']):.1%}",
    }
    for name, noise in (("mild", "mild_gap"), ("strong", "skewed_gap")):
        figures[f"{name}_false"] = worst([line for line in false if line.noise == noise])
        figures[f"{name}_added"] = worst([line for line in added if line.noise == noise])
        figures[f"{name}_near"] = worst([line for line in near if line.noise == noise])
        figures[f"{name}_covered"] = worst([line for line in covered if line.noise == noise], least=True)
    return figures


def _fixed(lines: Sequence[Line]) -> dict[str, str]:
    """Numbers of seeds that are fixed beforehand: verdicts, intervals, equivalence."""
    of = {name: [line for line in lines if line.quantity == name] for name in ("false", "covered", "false equivalence")}
    return {
        "studies": f"{lines[0].studies:,}",
        "error": f"{max(line.error or 0 for line in lines):.1%}",
        "every_false_broken": breaks(of["false"], 0.05),
        "false_table": table(lines, "false"),
        "covered_broken": breaks(of["covered"], 0.95, least=True),
        "covered_table": table(lines, "covered"),
        "equivalence_broken": breaks(of["false equivalence"], 0.05),
        "equivalence_table": table(lines, "false equivalence"),
    }


def _added(part: Mapping[str, Sequence[Line]]) -> dict[str, str]:
    """Seeds that are named or added, and the rules for that."""
    power = ["noise", "true difference, in standard deviations of the pairs", "settled"]
    guess = ["noise", "true difference, seeds so far", "open", "median of seeds named", "settled by them"]
    settled = [line for line in part["guess"] if line.quantity == "settled"]
    looks = ["noise", "true difference", "false", "covered", "seeds a cell"]
    return {
        "power_broken": breaks(part["power"], 0.8, least=True),
        "power_table": listed(part["power"], ["settled"], heads=power),
        "guess_least": worst(settled, least=True),
        "guess_most": worst(settled),
        "most": str(MOST),
        "few": str(FEW),
        "guesses": listed(part["guess"], ["open", "seeds named", "settled"], heads=guess),
        "looks_table": listed(part["looks"], ["false", "covered", "seeds"], heads=looks),
        "rules_seeds": table(part["rules"], "seeds", over="rule"),
        "rules_settled": table(part["rules"], "settled", over="rule"),
    }

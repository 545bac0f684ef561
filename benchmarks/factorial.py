"""Simulated factorial studies with known effects, judged by the functions that judge a report (`attnlab.stats.factorial`).

The noise of a run has variance 1. A part of it may be shared by all runs of one seed that have the same level of a factor:
such a factor changes the runs of a seed more than others do, as a variant with other initial values does, and its effect
scatters more over the seeds than the effects of other factors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy

from attnlab.config.design import Factor, FactorialDesign
from attnlab.config.linear_model import design_aliases, model_columns
from attnlab.stats.compare import ComparisonSpec
from attnlab.stats.factorial import judge_family
from benchmarks.simulate import Line, Share

LETTERS = "ABCDEFGHJKLMNOP"
# Name -> share of the noise that runs with the same level of the first, second, ... factor have in common.
NOISES: dict[str, tuple[float, ...]] = {
    "equal": (),
    "one 0.3": (0.3,),
    "one 0.6": (0.6,),
    "three 0.3": (0.3, 0.3, 0.3),
    "spread": (),
}
NOISE_TEXTS = {
    "equal": "independent runs of equal spread, beside a shift of each seed that all runs share",
    "one 0.3": "runs of one seed with the same level of one factor share 30 % of their noise",
    "one 0.6": "the same with 60 %",
    "three 0.3": "the same with 30 % for each of three factors",
    "spread": "runs with one factor on have twice the spread",
}
SPREAD = 2.0  # standard deviation of runs with the first factor on, in the noise "spread"
EFFECT = 1.0  # true size of the effect in the lines on power


class Setting(NamedTuple):
    """A setting that is simulated: the design, the noise and the number of seeds."""

    design: str
    factors: int
    cells: int
    noise: str
    seeds: int


SETTINGS = [
    Setting(*design, noise, seeds)
    for design in (("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6))
    for seeds in (3, 5)
    for noise in NOISES
]
QUANTITIES = ("false", "false interactions", "covered", "power", "false if pooled")


@dataclass(frozen=True)
class Rates:
    """Shares of simulated studies: with a false verdict, with an interval that holds the truth, with the true effect found."""

    false_main: Share
    false_interactions: Share
    covered: Share
    power: Share
    pooled: Share


def design_of(name: str, factors: int, cells: int) -> FactorialDesign:
    """Return a design over on/off factors that are named by letters."""
    return FactorialDesign(name, tuple(Factor(x, ("off", "on"), ("", x)) for x in LETTERS[:factors]), cells)  # type: ignore[arg-type]


def draw(design: FactorialDesign, noise: str, *, seeds: int, studies: int, seed: int) -> numpy.ndarray:
    """Return the runs of studies without effects, shape (studies, cells, seeds)."""
    random = numpy.random.RandomState(seed)
    points, shares = numpy.array(design.points), NOISES.get(noise, ())
    runs = random.standard_normal((studies, len(points), seeds)) * math.sqrt(1 - sum(shares))
    for factor, share in enumerate(shares):
        common = random.standard_normal((studies, 2, seeds)) * math.sqrt(share)
        runs += common[:, points[:, factor]]
    if noise == "spread":
        runs *= numpy.where(points[:, 0] == 1, SPREAD, 1.0)[None, :, None]
    return runs


def simulate(design: FactorialDesign, noise: str, *, seeds: int, studies: int, seed: int) -> Rates:
    """Simulate studies without an effect, and with one of size `EFFECT` of the first factor."""
    terms, estimable = design_aliases(design, design.points)
    columns = model_columns(design, terms, design.points)[:, estimable.kept]
    contrasts = numpy.linalg.pinv(numpy.column_stack([numpy.ones(len(columns)), columns]))[1:]
    runs = draw(design, noise, seeds=seeds, studies=studies, seed=seed)
    effects = numpy.einsum("ep,ips->ies", contrasts, runs)
    is_main = [terms[i].is_main for i in estimable.kept]
    spec = ComparisonSpec("simulated", (), "metric", "min", factorial=design)
    counts = numpy.zeros(4)
    for study in effects:
        main = _judge(study[is_main], spec)
        counts[0] += any(difference.is_significant for difference in main)
        counts[1] += any(difference.is_significant for difference in _judge(study[numpy.logical_not(is_main)], spec))
        interval = main[0].interval
        assert interval.low is not None and interval.high is not None
        counts[2] += interval.low <= 0 <= interval.high
        shifted = study[is_main].copy()
        shifted[0] += EFFECT
        counts[3] += _judge(shifted, spec)[0].is_significant
    pooled = pooled_false_verdicts(runs, contrasts[is_main])
    false, false_interactions, covered, power = (Share(float(count), studies) for count in counts)
    return Rates(false, false_interactions, covered, power, Share(pooled, studies))


def _judge(values: numpy.ndarray, spec: ComparisonSpec) -> Sequence:
    """Return the tested effects of one family, given one row of values over the seeds for each."""
    return judge_family([dict(enumerate(row)) for row in values.tolist()], spec, scale=1.0)


def pooled_false_verdicts(runs: numpy.ndarray, contrasts: numpy.ndarray) -> int:
    """Return the number of studies with a false verdict on a main effect if all effects share the residual's variance.

    This is the usual analysis of a linear model with seeds as blocks, for comparison.
    """
    from scipy.special import stdtr

    _, cells, seeds = runs.shape
    freedom = (cells - 1) * (seeds - 1)
    within = runs - runs.mean(1, keepdims=True)
    variance = ((within - within.mean(2, keepdims=True)) ** 2).sum((1, 2)) / freedom
    means = numpy.einsum("ep,ips->ie", contrasts, runs) / seeds
    errors = numpy.sqrt(variance[:, None] * (contrasts**2).sum(1) / seeds)
    smallest = 2 * stdtr(freedom, -abs(means / errors)).min(1)
    return int((smallest * len(contrasts) < 0.05).sum())


def simulated_lines(setting: Setting, studies: int, seed: int) -> list[Line]:
    """Simulate one setting; return its lines of ``validity.csv``, one for each of `QUANTITIES`."""
    design = design_of(setting.design, setting.factors, setting.cells)
    rates = simulate(design, setting.noise, seeds=setting.seeds, studies=studies, seed=seed)
    case = f"{setting.design}, {setting.factors} factors, {setting.cells} cells, {setting.seeds} seeds"
    shares = (rates.false_main, rates.false_interactions, rates.covered, rates.power, rates.pooled)
    named = zip(QUANTITIES, shares, strict=True)
    return [Line("factorial", setting.noise, case, name, share.value, share.error, share.of) for name, share in named]

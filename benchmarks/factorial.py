"""Simulated factorial studies with known effects, tested as `attnlab.stats.factorial` tests them.

The noise of a run has variance 1. A part of it may be shared by all runs of one seed that have the same level of a factor:
such a factor changes the runs of a seed more than others do, as a variant with other initial values does, and its effect
scatters more over the seeds than the effects of other factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy

from attnlab.config.design import Factor, FactorialDesign
from attnlab.config.linear_model import design_aliases, model_columns
from attnlab.stats.factorial import MAX_PRIOR
from benchmarks.simulation import COVERED, FALSE, POWER, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import TableTests, t_tests

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
DESIGNS = (("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6))


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


def simulate(design: FactorialDesign, noise: str, seeds: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate studies without an effect, and with one of size `EFFECT` of the first factor."""
    terms, estimable = design_aliases(design, design.points)
    columns = model_columns(design, terms, design.points)[:, estimable.kept]
    contrasts = numpy.linalg.pinv(numpy.column_stack([numpy.ones(len(columns)), columns]))[1:]
    runs = draw(design, noise, seeds=seeds, studies=studies, seed=seed)
    effects = numpy.einsum("ep,ips->ies", contrasts, runs)
    is_main = numpy.array([terms[i].is_main for i in estimable.kept])
    shifted = effects[:, is_main]
    shifted[:, 0] += EFFECT
    main, interactions = _test(effects[:, is_main]), _test(effects[:, ~is_main])
    return {
        "false": Share(main.differs.any(1).sum(), studies),
        "false interactions": Share(interactions.differs.any(1).sum(), studies),
        "covered": Share(main.covers(0)[:, 0].sum(), studies),
        "power": Share(_test(shifted).differs[:, 0].sum(), studies),
        "false if pooled": Share(pooled_false_verdicts(runs, contrasts[is_main]), studies),
    }


def _test(effects: numpy.ndarray) -> TableTests:
    """Test one family of effects in many studies, shape (studies, effects, seeds)."""
    return t_tests(effects, moderated=True, most=MAX_PRIOR)


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


FACTORIAL = Simulation(
    "factorial",
    "Effects of factorial studies",
    f"""\
Factors without an effect: three in all combinations, eight in a fraction of 16 cells, and four that are left out one at a
time. Each effect is tested by its scatter over the seeds; a false verdict is one on any main effect. The noise of a run has
variance 1:

{chr(10).join(f"- `{name}`: {text}." for name, text in NOISE_TEXTS.items())}

Coverage is that of the interval of the first main effect; power is that for a main effect of {EFFECT:g} standard deviation of a
run. “Pooled”: the same studies tested with the residual of the linear model, pooled over all effects, as is usual for factorial
designs; attnlab does not use that test.""",
    settings=[
        Setting(f"{name.replace('_', ' ')}, {seeds} seeds", noise, partial(simulate, design_of(name, *size), noise, seeds))
        for name, *size in DESIGNS
        for seeds in (3, 5)
        for noise in NOISES
    ],
    quantities=(
        FALSE,
        Quantity("false interactions", "false verdicts on interactions", level=0.05, limit=0.06),
        COVERED,
        POWER,
        Quantity("false if pooled", "false verdicts of a pooled test"),
    ),
    conclusion="""\
A pooled residual makes more false verdicts as soon as a factor changes the runs of a seed more than others do. The interval of
such an effect covers less than 95 %, because its variance is averaged with those of the other effects.""",
)

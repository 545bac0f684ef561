"""Simulated tables with a fixed number of seeds: false verdicts, coverage, false equivalence, and the power that is planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy

from attnlab.stats import paired, predict
from benchmarks.power import seeds_needed
from benchmarks.simulate import CELLS, DISTRIBUTIONS, SKEWED, tables
from benchmarks.simulation import COVERED, FALSE, POWER, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

SIZES = (3, 4, 5, 6, 8, 12)
MARGIN = 2.0
# True difference and margin in standard deviations of the pairs, and number of inconclusive comparisons in the table.
KNOWN = ((1.0, None, 1), (1.5, None, CELLS), (0.0, 1.0, 1), (0.0, 1.0, CELLS), (0.3, 1.0, 1))


def false_verdicts(noise: str, n: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate tables without a true difference, and tables in which all true differences equal the margin.

    Returns:
        The shares of tables with a verdict of better or worse, of 95 % intervals that contain the truth, and of tables with a
        verdict of equivalent.
    """
    differences = tables(noise, n, studies=studies, seed=seed)
    tests = t_tests(differences)
    at_margin = t_tests(differences + MARGIN, margin=MARGIN)
    return {
        "false": Share(tests.differs.any(1).sum(), studies),
        "covered": Share(tests.covers(0)[:, 0].sum(), studies),  # of one cell, because the others share its baseline
        "false equivalence": Share(at_margin.within_margin.any(1).sum(), studies),
    }


def planned_seeds(mean: float, margin: float | None, comparisons: int) -> int:
    """Return the number of seeds that `benchmarks.power` computes for a known mean and standard deviation (1)."""
    level = paired.LEVEL / comparisons
    known = paired.Difference(paired.Interval(2, mean, 1.0), p=1.0, margin=margin, levels=(level, level))
    n = seeds_needed(known)
    assert n is not None
    return n


def kept_promise(mean: float, margin: float | None, comparisons: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Return the share of studies of one comparison that are conclusive with the computed number of seeds."""
    n, level = planned_seeds(mean, margin, comparisons), paired.LEVEL / comparisons
    tests = t_tests(numpy.random.RandomState(seed).normal(mean, 1, (studies, 1, n)), margin=margin)
    return {"power": Share(((tests.p < level) | (tests.p_equivalent < level)).sum(), studies)}


def _known_setting(mean: float, margin: float | None, comparisons: int) -> Setting:
    limit = "" if margin is None else f", margin {margin:g}"
    several = "" if comparisons == 1 else f", {comparisons} comparisons"
    name = f"difference {mean:g}{limit}{several}: {planned_seeds(mean, margin, comparisons)} seeds"
    return Setting("mean and spread known", name, partial(kept_promise, mean, margin, comparisons))


FIXED_SEEDS = Simulation(
    "fixed-seeds",
    "A fixed number of seeds",
    f"""\
Tables of {CELLS} cells against one baseline. Nothing differs, and a verdict of better or worse is false; or all true
differences equal the margin ({MARGIN:g} standard deviations of a run), and a verdict of equivalent is false. Distributions of
the seeds, in units of their standard deviation:

{chr(10).join(f"- `{name}`: {text}." for name, text in DISTRIBUTIONS.items())}""",
    settings=[
        Setting(noise, f"{n} seeds", partial(false_verdicts, noise, n), SKEWED.get(noise, ""))
        for noise in DISTRIBUTIONS
        for n in SIZES
    ],
    quantities=(
        FALSE,
        replace(FALSE, name="false equivalence", text="false verdicts of equivalent"),
        replace(COVERED, limit=0.94),
    ),
    conclusion="""\
Symmetric heavy tails make t-intervals too wide: they cover more than 95 %, and fewer verdicts are conclusive. Skew that is the
same in both cells cancels in the pairs. Skew in the difference does not cancel, and a dozen seeds do not remove its effect:
where one or two seeds lie far to one side of the others, verdicts are more certain than they should be.""",
)

PLANNED_SEEDS = Simulation(
    "planned-seeds",
    "The number of seeds for a conclusive verdict",
    """\
Studies of one comparison whose true difference and standard deviation are known, in standard deviations of the pairs, with the
number of seeds that a power analysis of the t-test computes for them; 80 % of them are promised to be conclusive.""",
    settings=[_known_setting(*known) for known in KNOWN],
    quantities=(Quantity(POWER.name, "conclusive studies", POWER.kind, level=predict.POWER, limit=predict.POWER),),
)

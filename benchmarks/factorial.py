"""Simulated factorial studies with known effects, tested as `attnlab.stats.factorial` tests them.

The noise of a run has variance 1. A part of it may be shared by all runs of one seed that have the same level of a factor:
such a factor changes the runs of a seed more than others do, as a variant with other initial values does, and its effect
scatters more over the seeds than the effects of other factors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy
from scipy.special import fdtrc, stdtr

from attnlab.config.design import Factor, FactorialDesign, design_aliases, model_columns
from attnlab.stats.factorial import MAX_PRIOR
from attnlab.stats.paired import LEVEL
from benchmarks.simulate import FAR
from benchmarks.simulation import COVERED, FALSE, POWER, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import TableTests, holm, t_tests

LETTERS = "ABCDEFGHJKLMNOP"
# Name -> share of the noise that runs with the same level of the first, second, ... factor have in common.
NOISES: dict[str, tuple[float, ...]] = {
    "equal": (),
    "one 0.3": (0.3,),
    "one 0.6": (0.6,),
    "three 0.3": (0.3, 0.3, 0.3),
    "spread": (),
    "as committed": (0.49, 0.13, 0.13, 0.08, 0.04),
}
NOISE_TEXTS = {
    "equal": "independent runs of equal spread, beside a shift of each seed that all runs share",
    "x2": "runs of one seed with the same level of one factor share noise, so that its effect has twice the variance",
    "x5": "the same with five times the variance",
    "one 0.3": "the same with 30 % of the noise, which is 4.4 times the variance with 16 cells",
    "one 0.6": "the same with 60 %, which is 13 times the variance with 16 cells",
    "three 0.3": "the same with 30 % for each of three factors",
    "spread": "runs with one factor on have twice the spread",
    "as committed": "shares of 49, 13, 13, 8 and 4 % for five of eight factors, as estimated from `reports/components-cpu`",
}
SPREAD = 2.0  # standard deviation of runs with the first factor on, in the noise "spread"
EFFECT = 1.0  # true size of the effect in the lines on power
MARGIN = 4.0  # true size of the effect in the lines on equivalence
DESIGNS = (("full", 3, 8), ("fractional", 8, 16), ("leave_one_out", 4, 6))


def design_of(name: str, factors: int, cells: int) -> FactorialDesign:
    """Return a design over on/off factors that are named by letters."""
    return FactorialDesign(name, tuple(Factor(x, ("off", "on"), ("", x)) for x in LETTERS[:factors]), cells)  # type: ignore[arg-type]


def shares_of(noise: str, cells: int) -> tuple[float, ...]:
    """Return the shares of the noise that runs with the same level of each factor have in common.

    In designs with half of the cells on, a share s increases the variance of an effect by 1 + cells / 2 x s / (1 - s).
    """
    if noise in ("x2", "x5"):
        excess = float(noise[1:]) - 1
        return (excess / (excess + cells / 2),)
    return NOISES[noise]


def draw(design: FactorialDesign, noise: str, *, seeds: int, studies: int, seed: int) -> numpy.ndarray:
    """Return the runs of studies without effects, shape (studies, cells, seeds)."""
    random = numpy.random.RandomState(seed)
    points = numpy.array(design.points)
    shares = shares_of(noise, len(points))
    runs = random.standard_normal((studies, len(points), seeds)) * math.sqrt(1 - sum(shares))
    for factor, share in enumerate(shares):
        common = random.standard_normal((studies, 2, seeds)) * math.sqrt(share)
        runs += common[:, points[:, factor]]
    if noise == "spread":
        runs *= numpy.where(points[:, 0] == 1, SPREAD, 1.0)[None, :, None]
    return runs


@dataclass(frozen=True)
class Families:
    """The effects of a design as weights of its cells.

    Attributes:
        contrasts: Shape (effects, cells).
        is_main: True for main effects, shape (effects,).
        bases: Orthonormal rows that span main effects, interactions, and all other differences of cells.
    """

    contrasts: numpy.ndarray
    is_main: numpy.ndarray
    bases: tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]

    @classmethod
    def of(cls, design: FactorialDesign) -> Families:
        """Return those of a design."""
        terms, estimable = design_aliases(design, design.points)
        columns = model_columns(design, terms, design.points)[:, estimable.kept]
        is_main = numpy.array([terms[i].is_main for i in estimable.kept])
        one = numpy.ones((len(columns), 1))
        ordered = numpy.column_stack([one, columns[:, is_main], columns[:, ~is_main]])
        basis = numpy.linalg.qr(ordered, mode="complete")[0].T
        main, effects = 1 + int(is_main.sum()), 1 + len(is_main)
        contrasts = numpy.linalg.pinv(numpy.column_stack([one, columns]))[1:]
        return cls(contrasts, is_main, (basis[1:main], basis[main:effects], basis[effects:]))

    def test(
        self, runs: numpy.ndarray, *, main: bool, truth: float | numpy.ndarray = 0.0, margin: float | None = None
    ) -> TableTests:
        """Test one family of effects in many studies, each with a true value added.

        Args:
            runs: Shape (studies, cells, seeds).
            main: Test the main effects, not the interactions.
            truth: Of each effect of the family.
            margin: Largest effect that counts as equivalent.
        """
        contrasts = self.contrasts[self.is_main if main else ~self.is_main]
        effects = numpy.einsum("ep,ips->ies", contrasts, runs) + numpy.reshape(truth, (-1, 1))
        alone = t_tests(effects, margin=margin)
        own, factors = runs.shape[2] - 1, (contrasts**2).sum(1)
        error, every, rest, rest_freedom = self._errors(runs, main=main)
        every, variance = every[:, None], effects.var(2, ddof=1)
        prior = numpy.maximum(0, (every * error[:, None] * factors - own * variance) / numpy.maximum(1, every - own))
        scatters = fdtrc(own, rest_freedom, variance / factors / rest[:, None]) < LEVEL if rest_freedom else False
        weight = numpy.minimum(every - own, numpy.where(scatters, MAX_PRIOR, every))
        freedom = weight + own
        errors = numpy.sqrt((weight * prior + own * variance) / freedom / runs.shape[2])
        p = numpy.minimum(1, 2 * stdtr(freedom, -abs(alone.mean / errors)))
        near = numpy.ones_like(p) if margin is None else stdtr(freedom, -(margin - abs(alone.mean)) / errors)
        return replace(alone, table_error=errors, table_degrees_of_freedom=freedom, p_table=p, p_equivalent_table=near)

    def _errors(self, runs: numpy.ndarray, *, main: bool) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray, int]:
        """Return the variance of a run that a family is tested with and its degrees of freedom, and those of the rest."""
        squares, degrees_of_freedom = [], []
        for basis in self.bases[0 if main else 1 :]:
            values = numpy.einsum("kp,ips->iks", basis, runs)
            squares.append(((values - values.mean(2, keepdims=True)) ** 2).sum((1, 2)))
            degrees_of_freedom.append(len(basis) * (runs.shape[2] - 1))
        of_family, residual = squares[0] / degrees_of_freedom[0], sum(squares) / sum(degrees_of_freedom)
        freedom = numpy.where(of_family > residual, degrees_of_freedom[0], sum(degrees_of_freedom))
        rest = sum(squares[1:], numpy.zeros(len(runs))) / max(1, sum(degrees_of_freedom[1:]))
        return numpy.maximum(of_family, residual), freedom, rest, sum(degrees_of_freedom[1:])


def simulate(design: FactorialDesign, noise: str, seeds: int, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate studies without an effect, with all main effects but the first, and with one of size `EFFECT` or `MARGIN`."""
    families = Families.of(design)
    runs = draw(design, noise, seeds=seeds, studies=studies, seed=seed)
    first = numpy.arange(int(families.is_main.sum())) == 0
    main, interactions = families.test(runs, main=True), families.test(runs, main=False)
    others = families.test(runs, main=True, truth=numpy.where(first, 0, FAR))
    at_margin = families.test(runs, main=True, truth=numpy.where(first, MARGIN, 0), margin=MARGIN)
    found = families.test(runs, main=True, truth=numpy.where(first, EFFECT, 0))
    return {
        "false": Share(main.differs.any(1).sum(), studies),
        "false, others differ": Share(others.differs[:, 0].sum(), studies),
        "false equivalence": Share(at_margin.within_margin[:, 0].sum(), studies),
        "false interactions": Share(interactions.differs.any(1).sum(), studies),
        "covered": Share(main.covers(0)[:, 0].sum(), studies),
        "power": Share(found.differs[:, 0].sum(), studies),
        "power alone": Share((holm(found.p) < LEVEL)[:, 0].sum(), studies),
        "false if pooled": Share(others.differs_in_table[:, 0].sum(), studies),
    }


FACTORIAL = Simulation(
    "factorial",
    "Effects of factorial studies",
    f"""\
Factors without an effect: three in all combinations, eight in a fraction of 16 cells, and four that are left out one at a
time. An effect is tested with the residual of its family (with little weight, if it scatters beyond chance), and by itself; a
false verdict is one on any main effect, or where
all others differ by far, on the first. False equivalence: the first main effect is as large as the margin. The noise of a run
has variance 1:

{chr(10).join(f"- `{name}`: {text}." for name, text in NOISE_TEXTS.items())}

Coverage is that of the interval of the first main effect; power is that for a main effect of {EFFECT:g} standard deviation of a
run, compared with the t-test of each effect alone, corrected by Holm's method. “Residual alone”: without the t-test of each
effect alone, where all others differ by far; attnlab does not use that test.""",
    settings=[
        Setting(f"{name.replace('_', ' ')}, {seeds} seeds", noise, partial(simulate, design_of(name, *size), noise, seeds))
        for name, *size in DESIGNS
        for seeds in (3, 5, 8)
        for noise in (NOISE_TEXTS if seeds < 8 else ["as committed"])  # which has 8 seeds
        if not (noise == "as committed" and name != "fractional") and not (noise in ("x2", "x5") and name == "leave_one_out")
    ],
    quantities=(
        FALSE,
        Quantity("false, others differ", "false verdicts where all other main effects are real", level=0.05, limit=0.06),
        Quantity("false equivalence", "false verdicts of equivalent", level=0.05, limit=0.06),
        Quantity("false interactions", "false verdicts on interactions", level=0.05, limit=0.06),
        replace(COVERED, limit=0.94),
        POWER,
        Quantity("power alone", "true effects found by the t-tests of single effects", POWER.kind),
        Quantity("false if pooled", "false verdicts of the residual alone where others are real"),
    ),
    conclusion="""\
The residual alone makes more false verdicts as soon as a factor changes the runs of a seed more than others do.""",
    hard={"factorial designs, one effect scatters, the others are real": ("false, others differ", "x")},
)

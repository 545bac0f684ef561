"""Simulated comparisons of equal cells of which one lost its worst runs, judged as `attnlab.stats.compare` judges them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy

from attnlab.stats.compare import MAX_LOST_SHARE, lose_alike
from benchmarks.simulation import FALSE, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

SCATTERS = {
    "uncorrelated": "the scores of a seed in the two cells are independent",
    "correlation 0.6": "they have a correlation of 0.6",
    "one scatters": "only the cell that loses runs scatters, so that the pairs with the worst differences are lost",
}
BIASED = "the lost run is the worst of its cell"


@dataclass(frozen=True)
class Losses:
    """Runs that are lost in one comparison.

    Attributes:
        seeds: Number of seeds of both cells.
        cell: Number of lost runs of the cell.
        baseline: Number of lost runs of the baseline.
        worst: The worst runs of each are lost; False: random ones.
    """

    seeds: int
    cell: int
    baseline: int = 0
    worst: bool = True

    @property
    def name(self) -> str:
        """The name of the setting."""
        other = f", {self.baseline} of the baseline" if self.baseline else ""
        return f"{self.seeds} seeds, {self.cell} lost{other}{'' if self.worst else ' at random'}"

    @property
    def judged(self) -> bool:
        """True if attnlab tests the comparison."""
        return lose_alike((self.cell, self.baseline), (self.seeds, self.seeds))


def scores(scatter: str, seeds: int, studies: int, seed: int) -> numpy.ndarray:
    """Return normal scores of a cell and its baseline without a true difference, shape (2, studies, seeds)."""
    random = numpy.random.RandomState(seed)
    shared = 0.6 if scatter == "correlation 0.6" else 0.0
    common, own = random.standard_normal((studies, seeds)), random.standard_normal((2, studies, seeds))
    drawn = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
    return drawn * numpy.array([1.0, float(scatter != "one scatters")])[:, None, None]


def lose(drawn: numpy.ndarray, losses: Losses, seed: int) -> numpy.ndarray:
    """Return the scores with NaN for lost runs. Larger scores are better."""
    kept, random = drawn.copy(), numpy.random.RandomState(seed + 1)
    order = (drawn if losses.worst else random.random_sample(drawn.shape)).argsort(2)
    for runs, first, lost in zip(kept, order, (losses.cell, losses.baseline), strict=True):
        numpy.put_along_axis(runs, first[:, :lost], numpy.nan, 1)
    return kept


def false_verdicts(scatter: str, losses: Losses, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate the share of comparisons with a verdict of better or worse, with and without the rule for lost seeds."""
    cell, baseline = lose(scores(scatter, losses.seeds, studies, seed), losses, seed)
    differences = cell - baseline
    counts = numpy.isfinite(differences).sum(1, keepdims=True)
    order = numpy.isnan(differences).argsort(1, kind="stable")  # completed pairs first
    pairs = numpy.nan_to_num(numpy.take_along_axis(differences, order, 1))
    called = int(t_tests(pairs[:, None, :], counts=counts).differs.sum())
    return {"false": Share(called if losses.judged else 0, studies), "without the rule": Share(called, studies)}


def _setting(scatter: str, losses: Losses) -> Setting:
    promised = not (losses.judged and losses.worst)
    return Setting(scatter, losses.name, partial(false_verdicts, scatter, losses), "" if promised else BIASED)


LOST = (
    *(Losses(seeds, 1) for seeds in (20, 40, 100)),
    *(Losses(20, lost, lost) for lost in (1, 5)),
    Losses(20, 1, worst=False),
    *(Losses(seeds, lost) for seeds, lost in ((5, 1), (10, 1), (10, 2), (10, 3), (20, 2))),
)
LOST_SEEDS = Simulation(
    "lost-seeds",
    "Lost seeds",
    f"""\
Comparisons of two cells without a true difference; the worst runs of one cell are lost, for example because they diverged, and
the mean is taken over the pairs that are left. Without the rule, all comparisons are tested; with it, those of cells
that lost numbers of runs that differ by at most one, and by at most {100 * MAX_LOST_SHARE:g} % of the seeds. Scores are normal:

{chr(10).join(f"- `{name}`: {text}." for name, text in SCATTERS.items())}""",
    settings=[_setting(scatter, losses) for scatter in SCATTERS for losses in LOST],
    quantities=(FALSE, Quantity("without the rule", "false verdicts if all comparisons were tested", Kind.FALSE, level=0.05)),
    studies=40_000,
    conclusion="""\
One lost run of 20 or more seeds does not prevent a verdict. Where it is the worst of its cell in every study, the hardest case,
verdicts are false in 7 % of the comparisons if both cells scatter alike, and in 9 % if only one of them does. Equal losses of
the worst runs shift no mean if both cells scatter alike, but the runs that are left scatter too little. Losses at random keep
5 %.""",
)

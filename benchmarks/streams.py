"""Simulated streams of proposals, each kept or discarded by a rule: false keeps, improvements found, and runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy
from numpy import ndarray

from attnlab.stats.paired import LEVEL
from benchmarks.simulation import FALSE, POWER, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import t_tests

PROPOSALS = 200
GAINS = {0.02: 0.03, 0.01: 0.07, 0.0: 0.3}  # gain -> share of the proposals; the others do harm
HARM = (0.002, 0.05)
SD = 0.008  # of the difference between two runs with one seed
MARGIN = 0.01  # the smallest gain that is worth its code
SEEDS = 6


@dataclass
class Streams:
    """Streams at one proposal each, in which a lower score is better.

    Attributes:
        gain: How much lower the expected score of the proposal is than the score of the model that is kept so far.
        sd: Standard deviation of a run.
        best: Recorded scores of the kept model with the seeds that a rule uses again, minus its expected score.
    """

    random: numpy.random.RandomState
    gain: ndarray
    sd: ndarray
    best: ndarray

    def proposal(self, seeds: int) -> ndarray:
        """Return scores of new runs of the proposal, minus the expected score of the kept model."""
        return self.kept(seeds) - self.gain[:, None]

    def kept(self, seeds: int) -> ndarray:
        """Return scores of new runs of the kept model, minus its expected score."""
        return self.random.normal(size=(len(self.gain), seeds)) * self.sd[:, None]


Rule = Callable[[Streams], tuple[ndarray, ndarray | float]]  # returns what is kept, and numbers of runs


def keep_lower(streams: Streams) -> tuple[ndarray, float]:
    score = streams.proposal(1)
    keep = score[:, 0] < streams.best[:, 0]
    streams.best = numpy.where(keep[:, None], score + streams.gain[:, None], streams.best)
    return keep, 1


def both_of_two(streams: Streams) -> tuple[ndarray, float]:
    return streams.proposal(2).max(1) < streams.kept(2).min(1), 4


def verdict(differences: ndarray) -> ndarray:
    """Return which streams have the verdict better."""
    return (t_tests(differences[:, None, :]).p[:, 0] < LEVEL) & (differences.mean(1) < 0)


def five_seeds(streams: Streams) -> tuple[ndarray, float]:
    return verdict(streams.proposal(5) - streams.kept(5)), 10


def look_then_fresh(streams: Streams) -> tuple[ndarray, ndarray]:
    look = (streams.proposal(1) - streams.kept(1))[:, 0] < -MARGIN / 2
    return look & verdict(streams.proposal(SEEDS) - streams.kept(SEEDS)), 2 + 2 * SEEDS * look


def look_then_same(streams: Streams) -> tuple[ndarray, ndarray]:
    scores = streams.proposal(1 + SEEDS)
    look = (scores - streams.best)[:, 0] < -MARGIN / 2
    keep = look & verdict((scores - streams.best)[:, 1:])
    streams.best = numpy.where(keep[:, None], scores + streams.gain[:, None], streams.best)
    return keep, 1 + SEEDS * look


RULES: Mapping[str, Rule] = {
    "keep if lower": keep_lower,
    "keep if both of two seeds beat both": both_of_two,
    "verdict on 5 seeds": five_seeds,
    f"one seed to look, then a verdict on {SEEDS} fresh seeds": look_then_fresh,
    f"one seed to look, then a verdict on the same {SEEDS} seeds each time": look_then_same,
}


def simulate(rule: Rule, gains: Mapping[float, float], spread: float, studies: int, seed: int) -> Mapping[str, Share | float]:
    """Simulate streams under a rule.

    Args:
        gains: Gain -> share of the proposals.
        spread: Standard deviations differ between proposals by up to this power of e, either way.
    """
    random = numpy.random.RandomState(seed)
    noise = numpy.full(studies, SD / 2**0.5)
    streams = Streams(random, numpy.zeros(studies), noise, numpy.zeros((studies, 1 + SEEDS)))
    streams.best = streams.kept(1 + SEEDS)
    kept = false = runs = 0.0
    found, there = dict.fromkeys(GAINS, 0), dict.fromkeys(GAINS, 0)
    for _ in range(PROPOSALS):
        harm = -random.uniform(*HARM, studies)
        kind = random.choice(len(gains) + 1, studies, p=[*gains.values(), 1 - sum(gains.values())])
        streams.gain = numpy.choose(kind, [*(numpy.full(studies, gain) for gain in gains), harm])
        streams.sd = noise * numpy.exp(random.uniform(-spread, spread, studies))
        gain = streams.gain
        keep, number = rule(streams)
        kept, false, runs = kept + keep.sum(), false + (keep & (gain <= 0)).sum(), runs + numpy.sum(number + 0 * gain)
        for size in GAINS:
            found[size] += int((keep & (gain == size)).sum())
            there[size] += int((gain == size).sum())
    return {
        "false": Share(false, int(kept)),
        "found 0.02": Share(found[0.02], there[0.02]),
        "found 0.01": Share(found[0.01], there[0.01]),
        "kept": float(kept / studies),
        "runs": float(runs / studies),
    }


NULL = "nothing helps or harms"
KINDS = {"some help, most harm": (GAINS, 0.0), "noise differs": (GAINS, 0.8), NULL: ({0.0: 1.0}, 0.0)}
SOUND = f"one seed to look, then a verdict on {SEEDS} fresh seeds"


def _not_promised(rule: str, kind: str) -> str:
    return "all that is kept is false" if kind == NULL else "" if rule == SOUND else "other rules of keeping a proposal"


STREAMS = Simulation(
    "streams",
    "A stream of proposals",
    f"""\
{PROPOSALS} proposals, one after another, for a score where lower is better. {100 * GAINS[0.02]:.0f} % of them gain 0.02,
{100 * GAINS[0.01]:.0f} % gain 0.01, {100 * GAINS[0.0]:.0f} % change nothing, and the others lose {HARM[0]:g} to {HARM[1]:g}.
A proposal that is kept is what the next ones are compared with. The difference between two runs with one seed has a standard
deviation of {SD:g}; where the noise differs, it is multiplied by up to e^0.8 or divided by it, proposal by proposal. A look
calls for a verdict when its difference is above half of a margin of {MARGIN:g}. A keep is false when the proposal gains
nothing.""",
    settings=[
        Setting(kind, name, partial(simulate, rule, gains, spread), _not_promised(name, kind))
        for kind, (gains, spread) in KINDS.items()
        for name, rule in RULES.items()
    ],
    quantities=(
        replace(FALSE, text="share of the keeps that are false"),
        replace(POWER, name="found 0.02", text="gains of 0.02 that are kept"),
        replace(POWER, name="found 0.01", text="gains of 0.01 that are kept"),
        Quantity("kept", "keeps in a stream", Kind.NUMBER),
        Quantity("runs", "runs of a stream", Kind.NUMBER),
    ),
    studies=1_000,
    conclusion="""\
A verdict has an error rate for each comparison, not for a stream: when nothing helps, every keep is false, and a look and six
fresh seeds still keep one or two of 200 proposals. Scores that are used again make a rule strict, because the scores of a
proposal that was kept were lucky.""",
)

"""Simulated studies whose claims are about new test items (`attnlab.stats.items`): one comparison, on a test of few items.

The difference of a seed on an item is the sum of an effect of the seed, one of the item, and one of both. The standard error
over seeds is 1 in all settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy

from attnlab.stats.items import BLOCKS
from attnlab.stats.paired import LEVEL, t_quantile
from benchmarks.simulate import DRAWS, Draw
from benchmarks.simulation import FALSE, Kind, Quantity, Setting, Share, Simulation

SINGLE = 0.9  # share of the variance over seeds that is scatter of single scores
RATIOS = (
    (0.5, 0.0),
    (1.0, 0.0),
    (1.0, SINGLE),
    (3.0, 0.0),
    (3.0, SINGLE),
)  # standard error over items, in that over seeds; SINGLE
MAX_DRAWS = 4_000_000  # single scores of a setting


def _files(length: int) -> Draw:
    """Return effects of segments that are equal within files of a random length."""

    def draw(random: numpy.random.RandomState, shape: tuple[int, ...]) -> numpy.ndarray:
        first = random.random_sample(shape) < 1 / length
        file = numpy.take_along_axis(random.standard_normal((shape[0], shape[1] + 1)), first.cumsum(1), 1)
        return file / math.sqrt(2 * length - 1)

    return draw


ITEMS: dict[str, Draw] = {
    **{name: DRAWS[name] for name in ("normal", "t3", "skewed")},
    "files of 5": _files(5),
    "files of 20": _files(20),
}


def false_claims(
    kind: str, seeds: int, items: int, ratio: float, single: float, studies: int, seed: int
) -> Mapping[str, Share | float]:
    """Count the intervals that miss the difference on all items, which is zero.

    Args:
        kind: Key of `ITEMS`; files are segments, which are taken together in blocks.
        seeds, items: Their numbers.
        ratio: Standard error over items, in that over seeds.
        single: Share of the variance over seeds that is scatter of single scores.
        studies: Number of studies.
        seed: Random seed.
    """
    random = numpy.random.RandomState(seed)
    studies = min(studies, MAX_DRAWS // (seeds * items))
    of_seed = random.standard_normal((studies, seeds, 1)) * math.sqrt(seeds * (1 - single))
    of_item = ITEMS[kind](random, (studies, items))[:, None] * math.sqrt(items) * ratio
    differences = of_seed + of_item
    if single:
        differences = differences + random.standard_normal(differences.shape) * math.sqrt(seeds * items * single)
    over_seeds, over_items, groups = parts(differences, segments=kind.startswith("files"))
    mean = numpy.abs(differences.mean((1, 2)))
    of_seeds = t_quantile(1 - LEVEL / 2, seeds - 1) * over_seeds
    half_width = numpy.hypot(of_seeds, t_quantile(1 - LEVEL / 2, groups - 1) * over_items)
    return {
        "false": Share((mean > half_width).sum(), studies),
        "false, seeds alone": Share((mean > of_seeds).sum(), studies),
        "width": float(half_width.mean() / of_seeds.mean()),
    }


def parts(differences: numpy.ndarray, *, segments: bool) -> tuple[numpy.ndarray, numpy.ndarray, int]:
    """Return the two standard errors of many studies and the number of groups, as `standard_errors` does for one.

    Args:
        differences: Shape (studies, seeds, items); all items count alike.
        segments: Take consecutive items together.
    """
    if segments:
        differences = numpy.stack([part.mean(2) for part in numpy.array_split(differences, BLOCKS, axis=2)], axis=2)
    _, seeds, items = differences.shape
    of_seeds, of_items = differences.mean(2), differences.mean(1)
    rest = differences - of_seeds[:, :, None] - of_items[:, None] + of_seeds.mean(1)[:, None, None]
    unexplained = (rest**2).sum((1, 2)) / ((seeds - 1) * (items - 1) * seeds * items)
    variance = numpy.maximum(0, of_items.var(1, ddof=1) / items - unexplained)
    return of_seeds.std(1, ddof=1) / math.sqrt(seeds), numpy.sqrt(variance), items


NOT_PROMISED: dict[str, str] = {"skewed": "skewed items (skewness 6)", "files of 20": "a test of ten files"}


def _setting(kind: str, items: int, seeds: int, ratio: float, single: float) -> Setting:
    run: Callable[[int, int], Mapping[str, Share | float]] = partial(false_claims, kind, seeds, items, ratio, single)
    scatter = ", single scores scatter" if single else ""
    return Setting(f"{kind}, {items} items", f"{seeds} seeds, items x{ratio:g}{scatter}", run, NOT_PROMISED.get(kind, ""))


NEW_ITEMS = Simulation(
    "new-items",
    "Claims about new test items",
    f"""\
One comparison without a difference on all items; the test has some of them, and a claim about new items is false if its
interval excludes zero. Effects of items are normal, have t3 tails or a skewness of 6, or are equal within files of on average 5
or 20 of 200 segments, which are taken together in {BLOCKS} blocks. Their standard error is 0.5, 1 or 3 times that over seeds
(“x0.5”); with “single scores scatter”, {SINGLE:.0%} of the variance over seeds is scatter of the single scores. “Seeds alone”:
the interval over seeds, which is about these items only.""",
    settings=[
        _setting(kind, items, seeds, ratio, single)
        for kind, items in (
            *((kind, items) for kind in ("normal", "t3", "skewed") for items in (10, 30)),
            ("files of 5", 200),
            ("files of 20", 200),
        )
        for seeds in (2, 3, 5)
        for ratio, single in RATIOS
    ],
    quantities=(
        FALSE,
        Quantity("false, seeds alone", "false claims about new items from the interval over seeds alone"),
        Quantity("width", "mean width in that of the interval over seeds", Kind.NUMBER),
    ),
    hard={"claims about new test items, few of them": ("false", "10 items"), "the same, files of a text": ("false", "files")},
)

"""Runs of a study with a sweep, made up from parabolas."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.specs import comparison_spec

PATH = "train.lr"
RATES = (3e-4, 1e-3, 3e-3, 1e-2)
SPEC = comparison_spec("swept", ("variant",), "bits_per_byte", "min", {"variant": "dense"}, sweep=PATH)


def sweep_records(
    cells: Mapping[str, tuple[float, float]],
    *,
    rates: Sequence[float] = RATES,
    seeds: int = 5,
    curvature: float = 0.5,
    noise: float = 0.01,
    random_seed: int = 0,
) -> list[dict[str, Any]]:
    """Return the records of a sweep, as `attnlab.load_runs` has them.

    Args:
        cells: Variant -> (learning rate of its optimum, loss at the optimum).
        rates: Learning rates.
        seeds: Number of seeds.
        curvature: Loss in one decade of the optimum.
        noise: Standard deviation of a run.
        random_seed: Of the noise.
    """
    generator = random.Random(random_seed)
    levels = [generator.gauss(0, 5 * noise) for _ in range(seeds)]
    return [
        sweep_record(variant, rate, seed, loss + levels[seed] + generator.gauss(0, noise) + rise)
        for variant, (optimum, loss) in cells.items()
        for rate in rates
        for rise in [curvature * math.log10(rate / optimum) ** 2]
        for seed in range(seeds)
    ]


def sweep_record(variant: str, rate: float, seed: int, loss: float | None, **fields: Any) -> dict[str, Any]:
    """Return the record of one run; without a loss, of a diverged one."""
    record: dict[str, Any] = {"cell": variant, "variant": variant, "seed": seed, "phase": "sweep", "trial": None}
    record |= {"params": {PATH: rate}, PATH: rate, "state": "completed", "reason": "", "bits_per_byte": loss}
    record |= {"valid_bits_per_byte": None if loss is None else loss + 0.05}
    if loss is None:
        record |= {"state": "diverged", "reason": "the training loss became nan at step 120"}
    return record | fields

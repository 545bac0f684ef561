"""Runs of a made-up study over training steps, without training."""

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.random import RandomState

from attnlab.stats.compare import ComparisonSpec
from tests.support.specs import comparison_spec

LEVELS = (500, 1500, 4500)


def made_up_levels(
    gaps: Mapping[str, Sequence[float]],
    *,
    levels: Sequence[float] = LEVELS,
    seeds: int = 5,
    noise: float = 0.001,
    margin: float | None = None,
) -> tuple[list[dict[str, Any]], ComparisonSpec]:
    """Return runs of ``dense`` and of each variant of ``gaps``, whose differences from ``dense`` by level are given.

    The scores of ``dense`` fall by 0.1 with each level, those of one seed differ from those of another by far more than by
    the noise.
    """
    random = RandomState(2)
    luck = random.normal(0, 0.05, seeds)
    runs: list[dict[str, Any]] = []
    for variant, by_level in {"dense": [0.0] * len(levels), **gaps}.items():
        for number, (level, gap) in enumerate(zip(levels, by_level, strict=True)):
            for seed in range(seeds):
                value = 2.5 - 0.1 * number + luck[seed] + gap + random.normal(0, noise)
                runs.append(_run(variant, level, seed, value))
    spec = comparison_spec(
        "levels",
        ("variant", "train.steps"),
        "bits_per_byte",
        "min",
        {"variant": "dense"},
        margin=margin,
        over="train.steps",
    )
    return runs, spec


def swept(runs: Sequence[dict[str, Any]], *, curvature: float = 0.4) -> list[dict[str, Any]]:
    """Return each run at four learning rates, of which the third is best."""
    return [
        run
        | {"run_id": f"{run['run_id']} {rate}", "phase": "sweep", "params": {"train.lr": rate}, "train.lr": rate}
        | {metric: run["bits_per_byte"] + curvature * distance**2 for metric in ("bits_per_byte", "valid_bits_per_byte")}
        for run in runs
        for rate, distance in ((10**-3.5, -1.0), (1e-3, -0.5), (10**-2.5, 0.0), (1e-2, 0.5))
    ]


def _run(variant: str, level: float, seed: int, value: float) -> dict[str, Any]:
    cell = f"{variant} steps={level}"
    fields = {
        "run_id": f"{cell} {seed}",
        "name": f"{cell} s{seed}",
        "cell": cell,
        "seed": seed,
        "state": "completed",
        "reason": "",
    }
    costs = {"flops_per_token": 1e6, "tokens_per_s": 5_000.0, "tokens": 64.0 * level, "steps": float(level)}
    return {**fields, **costs, "variant": variant, "train.steps": level, "bits_per_byte": value, "device": "a processor"}

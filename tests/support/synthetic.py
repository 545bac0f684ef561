"""A study's runs without training, in the shape in which `attnlab.load_runs` and `load_curves` return them."""

import random
from typing import Any

import pandas

from attnlab.config.search import SearchConfig
from attnlab.study.comparison import StudyInfo
from tests.support.specs import comparison_spec

LEVELS = {"dense": 2.31, "einsum": 2.31, "no_wo": 2.36, "strided_sparse stride=16": 2.52, "basic": 3.40}
YAML = """\
# ablations/made-up.yaml: what does each part of attention buy?
# Numbers of a test, not of training.
#
# A second paragraph.

study: made-up
base: {task: pydocs, train: {steps: 200}}
grid:
  variant: [dense, einsum, no_wo, {name: strided_sparse, stride: 16}, basic]
  position: [learned, rotary]
seeds: [0, 1, 2]
baseline: {variant: dense}
margin: 0.02
"""
SPEC = comparison_spec("made-up", ("variant", "position"), "bits_per_byte", "min", {"variant": "dense"}, margin=0.02)
INFO = StudyInfo(SPEC, YAML, "attnlab run ablations/made-up.yaml")


def made_up(*, seeds: int = 3) -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return runs and curves of ten cells: one is refused, one has a diverged run, the others completed."""
    noise = random.Random(7)
    luck = [noise.gauss(0, 0.03) for _ in range(seeds)]
    runs: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for variant, level in LEVELS.items():
        for position in ("learned", "rotary"):
            refused = (variant, position) == ("basic", "rotary")
            for seed in range(1 if refused else seeds):
                run = _run(variant, position, seed)
                if refused:
                    run |= {"state": "refused", "reason": "basic has no queries to rotate"}
                elif (variant, position, seed) == ("no_wo", "rotary", 1):
                    run |= {"state": "diverged", "reason": "the training loss became nan at step 120"}
                else:
                    value = level - 0.05 * (position == "rotary") + luck[seed] + noise.gauss(0, 0.004)
                    run |= _summary(value, variant)
                    points += _curves(run, value, noise)
                runs.append(run)
    return pandas.DataFrame(runs), pandas.DataFrame(points)


def _run(variant: str, position: str, seed: int) -> dict[str, Any]:
    name = f"{variant} {position} s{seed}"
    return {
        "run_id": f"{abs(hash(name)):032x}"[:32],
        "name": name,
        "cell": f"{variant} {position}",
        "study": "made-up",
        "state": "completed",
        "reason": "",
        "seed": seed,
        "fingerprint": f"{len(name):016x}",
        "task": "pydocs",
        "variant": variant,
        "position": position,
        "backend": "sdpa" if variant == "dense" else "reference",
        "model.dim": 128,
        "model.depth": 2,
        "train.steps": 200,
        "train.epochs": None,
        "train.lr": 3e-4,
        "machine.device": "cpu",
        "sources": {},
        "data": "0123456789abcdef",
        "started": pandas.Timestamp("2026-01-02 03:04", tz="UTC") + pandas.Timedelta(minutes=seed),
        "seconds": 21.5,
        "folder": "/nowhere",
        "device": "A Processor of 2 Cores",
        "versions": "attnlab 0.1.0, python 3.11.7, torch 2.13.0",
        "commit": "0123456789ab+dirty",
    }


def _summary(value: float, variant: str) -> dict[str, float]:
    sparse = variant.startswith("strided")
    return {
        "bits_per_byte": value,
        "valid_bits_per_byte": value + 0.02,
        "tokens_per_s": 14_300.0 if sparse else 21_700.0,
        "saved_mib": 61.25 if sparse else 118.5,
        "parameters": 468_736.0 - 32_768 * (variant == "no_wo"),
        "flops_per_token": 1.2e6,
        "train_seconds": 18.2,
    }


def _curves(run: dict[str, Any], final: float, noise: random.Random) -> list[dict[str, Any]]:
    points = []
    for step in range(10, 201, 10):
        loss = 0.7 * (final + 5.7 * 0.5 ** (step / 18))
        named = {"train/loss": loss + noise.gauss(0, 0.02)}
        if step % 40 == 0:
            named["valid/bits_per_byte"] = loss / 0.7 + 0.02
        points += [
            {"run_id": run["run_id"], "name": run["name"], "metric": metric, "step": step, "value": value}
            for metric, value in named.items()
        ]
    return points


SEARCH = SearchConfig.model_validate(
    {
        "trials": 4,
        "space": {
            "train.lr": {"low": 1e-4, "high": 1e-2, "log": True},
            "model.dropout": {"low": 0.0, "high": 0.4},
            "train.batch_size": {"choices": [16, 32]},
        },
        "sampler": {"name": "TPESampler", "n_startup_trials": 2},
        "pruner": "MedianPruner",
    }
)
TRIALS = {  # cell -> (state, best value on valid, learning rate) of each trial
    "dense": [("completed", 2.6, 3e-4), ("pruned", None, 2e-4), ("completed", 2.4, 1e-3), ("failed", None, 5e-3)],
    "no_wo": [("completed", 2.5, 9.9e-3), ("completed", 2.5, 1e-3), ("interrupted", None, 2e-3)],
    "basic": [("diverged", None, 9e-3), ("diverged", None, 8e-3)],
    "wide": [("completed", 2.2, 4e-3)],
}


def made_up_search() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """Return runs and curves of a searched study: two cells confirmed, one without a completed trial, one in progress."""
    noise = random.Random(11)
    runs: list[dict[str, Any]] = []
    points: list[dict[str, Any]] = []
    for variant, trials in TRIALS.items():
        for number, (state, value, lr) in enumerate(trials):
            chosen = {"train.lr": lr, "model.dropout": 0.0, "train.batch_size": 16}
            name = f"{variant} learned t{number:02d}"
            run = _run(variant, "learned", 0) | {"name": name, "run_id": f"trial-{variant}-{number}"}
            run |= {"phase": "search", "trial": number, "params": chosen, "state": state, "train.lr": lr}
            run |= {"valid_bits_per_byte": value, "bits_per_byte": None}
            points += _curves(run, value or 3.0, noise)
            runs.append(run)
        for seed in (100, 101) if variant in ("dense", "no_wo") else ():
            run = _run(variant, "learned", seed) | {"phase": "confirm", "trial": None, "params": {"train.lr": 1e-3}}
            run |= _summary(LEVELS[variant] + seed / 1e4, variant)
            points += _curves(run, LEVELS[variant], noise)
            runs.append(run)
    return pandas.DataFrame(runs), pandas.DataFrame(points)

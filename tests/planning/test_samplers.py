"""Tests of Optuna's own names: the objects built from them, refusals with their places, and the values of a trial."""

import json
import math
from pathlib import Path
from typing import Any

import optuna
import pytest

from attnlab.config.search import Dimension
from attnlab.config.types import Named
from attnlab.errors import UserError
from attnlab.planning import samplers
from tests.support.studies import SEARCH, misplanned, write

SPACE = {
    "train.lr": Dimension(low=1e-4, high=1e-2, log=True),
    "train.batch_size": Dimension(low=8, high=32, step=8),
    "model.dropout": Dimension(low=0, high=0.3, step=0.1),
    "model.dim": Dimension(low=16, high=256, log=True),
    "model.tie_embeddings": Dimension(choices=[True, False]),
    "train.betas": Dimension(choices=[[0.9, 0.95], [0.9, 0.999]]),
    "train.grad_clip": Dimension(choices=[None, 1.0]),
}
SAMPLER, PRUNER = "{name: TPESampler, n_startup_trials: 3}", "{name: MedianPruner, n_startup_trials: 2}"
# Text of SEARCH to replace, its replacement, the place of the error, and words that the message must contain.
MISTAKES = {
    "an unknown sampler": ("name: TPESampler", "name: TPESample", "16:12", "(did you mean 'TPESampler'"),
    "a sampler for a pruner": ("name: MedianPruner", "name: TPESampler", "17:11", "unknown pruner"),
    "a sampler with a grid": (SAMPLER, "{name: GridSampler, search_space: {}}", "16:12", "write an axis under 'grid'"),
    "an unknown argument": ("n_startup_trials: 3", "n_startup: 3", "16:12", "unexpected keyword argument 'n_startup'"),
    "an argument's type": ("n_startup_trials: 3", "n_startup_trials: '3'", "16:12", "'<' not supported between"),
    "an argument's range": ("n_startup_trials: 2", "n_startup_trials: -2", "17:11", "MedianPruner: Number of startup trials"),
    "an argument too few": (PRUNER, "PercentilePruner", "17:11", "missing 1 required positional argument: 'percentile'"),
    "a seed for the sampler": ("n_startup_trials: 3", "seed: 3", "16:12", "which attnlab derives from search.seed"),
    "a pruner in a pruner": (
        PRUNER,
        "{name: PatientPruner, patience: 1, wrapped_pruner: {name: MedianPruner, n_warmup: 3}}",
        "17:11",
        "unexpected keyword argument 'n_warmup'",
    ),
    "what Optuna sees later": (
        PRUNER,
        "{name: HyperbandPruner, reduction_factor: 1}",
        "17:11",
        "HyperbandPruner: float division by zero",
    ),
    "ends the wrong way round": ("high: 6", "high: 1", "14:23", "search.space.train.batch_size: `low <= high` must hold"),
    "a log with a step": ("log: true", "log: true, step: 1e-3", "13:15", "`step` is not supported when `log` is true"),
    "a step of 0": ("high: 6", "high: 6, step: 0", "14:23", "`step > 0` must hold"),
    "steps that miss the end": ("high: 6}", "high: 6, step: 3}", "14:23", "not divisible by `step`"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISTAKES[kind]
    assert SEARCH.count(old) == 1, f"{old!r} must stand once in the good file"
    text = misplanned(write(tmp_path, SEARCH.replace(old, new)))
    assert text.startswith(f"s.yaml:{place}: "), text
    assert words in text, text


def test_names_become_optuna_s_objects() -> None:
    made = samplers.sampler(Named(name="QMCSampler", options={"independent_sampler": "TPESampler"}), seed=3)
    assert isinstance(made, optuna.samplers.QMCSampler)
    patient = {"wrapped_pruner": {"name": "PercentilePruner", "percentile": 25.0}, "patience": 2}
    assert isinstance(samplers.pruner(Named(name="PatientPruner", options=patient)), optuna.pruners.PatientPruner)
    assert isinstance(samplers.pruner(Named(name="NopPruner")), optuna.pruners.NopPruner)
    with pytest.raises(UserError, match="unknown pruner 'Median' .did you mean 'MedianPruner'"):
        samplers.pruner(Named(name="Median"))


def search(seed: int, name: str = "TPESampler") -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=samplers.sampler(Named(name=name), seed=seed))
    suggestions = []
    for number in range(14):
        trial = study.ask()
        suggestions.append(samplers.suggest(trial, SPACE))
        assert samplers.values(study.trials[number].params, SPACE) == suggestions[-1]  # as read back from Optuna's record
        study.tell(trial, abs(math.log(suggestions[-1]["train.lr"] / 1e-3)))
    return suggestions


def test_a_trial_is_told_values_of_the_space() -> None:
    suggestions = search(5)
    assert all(1e-4 <= params["train.lr"] <= 1e-2 for params in suggestions)
    assert {params["train.batch_size"] for params in suggestions} <= {8, 16, 24, 32}
    assert {round(params["model.dropout"], 9) for params in suggestions} <= {0.0, 0.1, 0.2, 0.3}
    assert all(isinstance(params["model.dim"], int) and 16 <= params["model.dim"] <= 256 for params in suggestions)
    assert {json.dumps(params["train.betas"]) for params in suggestions} == {"[0.9, 0.95]", "[0.9, 0.999]"}
    assert {params["train.grad_clip"] for params in suggestions} == {None, 1.0}
    assert {params["model.tie_embeddings"] for params in suggestions} == {True, False}


def test_the_seed_decides_what_is_suggested() -> None:
    for name in ("TPESampler", "RandomSampler"):
        assert search(5, name) == search(5, name) != search(6, name)

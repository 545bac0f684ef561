"""Published patterns as tests of the testbed: small trainings whose direction is known. A minute each; the seeds are fixed.

A test asserts the direction and a wide distance, not a published number: the models and trainings are much smaller.
"""

from typing import Any

import pytest

from attnlab.planning.plan import plan
from attnlab.training.train import train

pytestmark = pytest.mark.exhaustive


PARITY = {"name": "parity", "length": 16}
RECALL = {"name": "mqar", "pairs": 4, "length": 32}
COPY = {"name": "copy", "length": 16}
ROTARY = {"name": "dense", "position": "rotary"}
SEEDS = range(3)


def scores(
    task: dict[str, Any], variant: dict[str, Any], *, seed: int, steps: int, dim: int, lengths: tuple[int, ...]
) -> list[float]:
    """Train a small model, and return its accuracy on ``test`` at the trained length and at ``lengths``."""
    study = {
        "study": "pattern",
        "base": {
            "task": task,
            "model": {"dim": dim, "depth": 2, "heads": 2},
            "train": {"steps": steps, "batch_size": 64, "lr": 3e-3, "warmup": 0.1, "eval_every": steps, "precision": "fp32"},
            "evaluate": {"lengths": list(lengths), "valid_limit": 200, "test_limit": 500},
            "machine": {"device": "cpu", "threads": 1},
        },
        "grid": {"variant": [variant]},
        "seeds": [seed],
    }
    (run,) = plan(study).runs
    result = train(run.config)
    assert result.state == "completed" and not result.tags, result
    return [result.summary["accuracy"], *(result.summary[f"accuracy_at/{length}"] for length in lengths)]


def parity(variant: dict[str, Any], seed: int) -> list[float]:
    return scores(PARITY, variant, seed=seed, steps=500, dim=32, lengths=(32,))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "variant", [{"name": "lstm"}, {"name": "delta", "negative_eigenvalues": True, "short_conv": 0}], ids=lambda v: v["name"]
)
def test_a_state_that_can_alternate_solves_parity_beyond_the_trained_length(variant: dict[str, Any], seed: int) -> None:
    """Grazzi et al. 2024 (arXiv:2411.12537): LSTM, and DeltaNet with eigenvalues in [-1, 1]."""
    assert min(parity(variant, seed)) > 0.9


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "variant",
    [ROTARY, {"name": "dense", "position": "none"}, {"name": "delta", "short_conv": 0}],
    ids=lambda v: str([*v.values()]),
)
def test_attention_and_eigenvalues_of_one_sign_fail_at_parity(variant: dict[str, Any], seed: int) -> None:
    """Grazzi et al. 2024: DeltaNet with eigenvalues in [0, 1]; Hahn 2020: attention."""
    trained, beyond = parity(variant, seed)
    assert trained < 0.8 and beyond < 0.6


@pytest.mark.parametrize("seed", SEEDS)
def test_attention_recalls_pairs_that_a_recurrence_does_not_in_the_same_training(seed: int) -> None:
    """Arora et al. 2023 (arXiv:2312.04927)."""
    attention, lstm, linear = (
        scores(RECALL, variant, seed=seed, steps=400, dim=64, lengths=())[0]
        for variant in (ROTARY, {"name": "lstm"}, {"name": "linear"})
    )
    assert attention > 0.95 and max(lstm, linear) < 0.5


def test_copies_beyond_the_trained_length_depend_on_the_position_scheme() -> None:
    """Kazemnejad et al. 2023 (arXiv:2305.19466): no scheme and T5's bias go further than rotary positions.

    Seeds differ by much; their means are compared.
    """
    trained, beyond = {}, {}
    for position in ("none", "t5", "rotary"):
        variant = {"name": "dense", "position": position}
        accuracy = [scores(COPY, variant, seed=seed, steps=500, dim=64, lengths=(32,)) for seed in SEEDS]
        trained[position], beyond[position] = (sum(column) / len(SEEDS) for column in zip(*accuracy, strict=True))
    assert min(trained.values()) > 0.85
    assert min(beyond["none"], beyond["t5"]) > beyond["rotary"] + 0.1

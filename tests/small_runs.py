"""Small resolved configurations for tests that train."""

from typing import Any

from attnlab.config import RunConfig


def tiny(**changes: Any) -> RunConfig:
    """A byte language model that trains in a second; dotted paths as keywords with ``__`` for the dot."""
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": 24, "sampling": "contiguous"},
        "variant": "dense",
        "position": "rotary",
        "backend": "reference",
        "model": {"dim": 12, "depth": 2, "heads": 3},
        "train": {"steps": 12, "batch_size": 4, "lr": 3e-3, "log_every": 3, "eval_every": 4},
        "evaluate": {"valid_limit": 300, "test_limit": 300},
        "machine": {"device": "cpu", "threads": 1},
    }
    config = RunConfig.model_validate(base)
    return config.with_({name.replace("__", "."): value for name, value in changes.items()})

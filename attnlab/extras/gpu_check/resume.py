"""A run that was killed and resumed, beside the same run without an interruption, twice: CUDA may add in another order."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attnlab._util.process import fork
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values
from attnlab.training import checkpoint, weights
from attnlab.training.train import train

PRELOAD = "attnlab.training.preload"


def cases(setting: Setting) -> Iterator[Case]:
    for precision in setting.size(("fp32", "bf16", "fp16"), ("fp32",)):
        yield Case(f"killed, {precision}", partial(compare, setting, precision))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    found = []
    for case, row in rows.items():
        again = f"; of two whole runs by {row['difference_of_whole']:.2g}" if "difference_of_whole" in row else ""
        differs = f"bits per byte differ by {row['difference']:.2g}{again}"
        found.append((case, "the same bits" if row["same_bits"] else differs))
    return found


def compare(setting: Setting, precision: str) -> Values:
    """Kill a run after its first checkpoint, resume it, and return how far it and whole runs differ."""
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": setting.size(256, 16)},
        "position": "rotary",
        "model": {"dim": setting.size(256, 16), "depth": setting.size(6, 1), "heads": 2, "dropout": 0.1},
        "train": {
            "steps": setting.size(300, 12),
            "batch_size": setting.size(64, 2),
            "precision": precision,
            "checkpoint_every": setting.size(50, 4),
            "log_every": setting.size(50, 4),
        },
        "evaluate": {"valid_limit": 20_000, "test_limit": 20_000},
    }
    config = setting.resolved(base)
    folder = setting.folder / "resume" / precision
    shutil.rmtree(folder, ignore_errors=True)
    process = fork(_train_slowly, lambda: (config, folder / "killed"), name="attnlab-killed", preload=PRELOAD)
    newest = folder / "killed" / checkpoint.NEWEST
    while not newest.exists() and process.is_alive():
        time.sleep(0.01)
    if not process.is_alive():
        raise UserError("expected a run that is killed while it trains, but it ended by itself")
    process.kill()
    process.join()
    began_at = checkpoint.load(newest)["step"]
    resumed, whole, again = (train(config, folder=folder / kind) for kind in ("killed", "whole", "again"))
    tensors = [weights.load(folder / kind)[1] for kind in ("killed", "whole")]
    metric = "bits_per_byte"
    values = {
        "resumed_at_step": began_at,
        "bits_per_byte": whole.summary[metric],
        "difference": resumed.summary[metric] - whole.summary[metric],
        "difference_of_whole": again.summary[metric] - whole.summary[metric],
        "same_bits": all(torch.equal(tensor, tensors[1][name]) for name, tensor in tensors[0].items()),
    }
    shutil.rmtree(folder)
    return values


def _train_slowly(config: RunConfig, folder: Path) -> None:
    """Train, and wait after the first checkpoint, so that the run is killed before its end."""

    def report(step: int, metrics: dict[str, float]) -> bool:
        if (folder / checkpoint.NEWEST).exists():
            time.sleep(60)
        return False

    train(config, folder=folder, report=report)

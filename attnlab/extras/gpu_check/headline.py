"""The study ``ablations/enwik8-headline.yaml`` in the time that is left, with its curve; a later call continues it."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values
from attnlab.registry import TASKS
from attnlab.training.example_step import time_steps
from attnlab.training.train import train

STEPS = 10_625  # of the study
SHARE = 0.75  # of the time for steps; the rest is for compilation and evaluation
CURVE = "headline.csv"


def cases(setting: Setting) -> Iterator[Case]:
    yield Case("bits per byte", partial(bits_per_byte, setting))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    return [
        (f"{row['task']}, {row['steps']:,} of {row['of_steps']:,} steps", f"{row['bits_per_byte']:.4f} bits per byte")
        for row in rows.values()
        if "bits_per_byte" in row
    ]


def available_task(setting: Setting) -> str:
    """Return ``enwik8`` if its data can be prepared, else ``pydocs``, which needs no download."""
    if setting.rehearse:
        return "pydocs"
    try:
        TASKS.get("enwik8")().prepare()
    except (UserError, OSError):
        return "pydocs"
    return "enwik8"


def configuration(setting: Setting, task: str, steps: int) -> RunConfig:
    """Return the study's configuration with fewer steps."""
    base: dict[str, Any] = {
        "task": {"name": task, "length": setting.size(256, 16)},
        "position": "rotary",
        "model": {"dim": setting.size(256, 16), "depth": setting.size(12, 1), "heads": setting.size(8, 2)},
        "train": {
            "steps": steps,
            "batch_size": setting.size(512, 2),
            "lr": 2e-3,
            "warmup": min(500, steps // 10),
            "final_lr": 0.05,
            "weight_decay": 0.05,
            "precision": setting.size("bf16", "fp32"),
            "compile": not setting.rehearse,
            "eval_every": max(1, steps // 4),
            "checkpoint_every": max(1, steps // 8),
            "log_every": setting.size(25, 2),
        },
        "evaluate": {
            "protocol": "sliding",
            "stride": 16,
            "batch_size": setting.size(512, 16),
            "valid_limit": setting.size(500_000, 500),
            "test_limit": setting.size(None, 500),
        },
        "machine": {"matmul_precision": "high"},
    }
    return setting.resolved(base)


def bits_per_byte(setting: Setting) -> Values:
    """Train and return bits per byte on ``test``, the steps and the seconds."""
    began = time.perf_counter()
    folder, plan_file = setting.folder / "headline", setting.folder / "headline.json"
    if plan_file.exists():
        known = json.loads(plan_file.read_text(encoding="utf-8"))
        task, steps = known["task"], known["steps"]
    else:
        task = available_task(setting)
        taken, seconds, _ = time_steps(configuration(setting, task, STEPS), seconds=setting.size(5.0, 0.1), ready=lambda: None)
        left = setting.seconds - (time.perf_counter() - began)
        steps = setting.size(max(100, min(STEPS, int(SHARE * left * taken / seconds))), 8)
        plan_file.write_text(json.dumps({"task": task, "steps": steps, "seconds_per_step": seconds / taken}), encoding="utf-8")
    config = configuration(setting, task, steps)
    with (setting.folder / CURVE).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "seconds", "metric", "value"])

        def report(step: int, metrics: dict[str, float]) -> bool:
            for name, value in metrics.items():
                rows.writerow([step, f"{time.perf_counter() - began:.1f}", name, value])
            file.flush()
            return False

        result = train(config, report=report, folder=folder)
    kept = ("bits_per_byte", "valid_bits_per_byte", "train_seconds", "evaluation_seconds", "tokens_per_s", "gpu_peak_mib")
    summary = {name: result.summary[name] for name in kept if name in result.summary}
    return {"task": config.task.name, "ended": result.state, "steps": steps, "of_steps": STEPS, **summary}

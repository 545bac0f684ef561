"""The plan's estimate of the memory of a training step, beside what two real steps allocate."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.extras.gpu_check.step import MIB, Case, Rows, Setting, Summary, Values
from attnlab.registry import TASKS
from attnlab.training.cuda_memory import cuda_peak_mib
from attnlab.training.example_step import ExampleStep

DATA = Path(__file__).parents[2] / "examples" / "my_data"
REVIEWS = {"name": "csv", "path": str(DATA / "reviews.csv"), "text": "review", "label": "opinion", "length": 32}
SENTENCES = {"name": "translation", "source": str(DATA / "sentences.de"), "target": str(DATA / "sentences.en"), "length": 48}
# Changes to the base below: a cell of each model, and the settings that change what a step keeps.
CELLS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense, fp32": {"train.precision": "fp32"},
    "dense, logits written out": {"backend": "reference"},
    "no_wo, blocks computed again": {"variant": "no_wo", "train.activation_checkpointing": True},
    "transformer_xl with memory": {
        "variant": "transformer_xl",
        "position": "relative",
        "model.mem_len": 256,
        "task": {"name": "pydocs", "length": 256, "sampling": "contiguous"},
    },
    "strided_sparse": {"variant": "strided_sparse"},
    "delta": {"variant": "delta", "position": "none"},
    "classifier": {"task": REVIEWS | {"vocabulary": 500}, "position": "learned", "train.batch_size": 512},
    "encoder_decoder": {"task": SENTENCES | {"vocabulary": 120}, "position": "learned", "train.batch_size": 512},
    "masked_language_model": {"task": {"name": "masked_text", "length": 256}},
}


def cases(setting: Setting) -> Iterator[Case]:
    yield from (Case(name, partial(compare, setting, changes)) for name, changes in CELLS.items())


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    ratios = sorted((row["ratio"], case) for case, row in rows.items())
    (low, lowest), (high, highest) = ratios[0], ratios[-1]
    return [("estimate / measured", f"{low:.3f} ({lowest}) to {high:.3f} ({highest})")]


def configuration(setting: Setting, changes: dict[str, Any]) -> RunConfig:
    """Return 12 blocks of width 256 with ``changes``, by dotted names."""
    base: dict[str, Any] = {
        "task": changes.get("task", {"name": "pydocs", "length": 256}),
        "position": changes.get("position", "rotary"),
        "model": {"dim": setting.size(256, 32), "depth": setting.size(12, 2), "heads": setting.size(8, 2)},
        "train": {"steps": 2, "batch_size": setting.size(64, 2), "precision": "bf16"},
    }
    if setting.rehearse:
        changes = {name: value for name, value in changes.items() if name != "train.batch_size"}
    for name, value in changes.items():
        if "." in name:
            section, _, field = name.partition(".")
            base[section][field] = value
        elif name == "backend":
            base["backend"] = value
    return setting.resolved(base, variant=changes.get("variant", "dense"))


def compare(setting: Setting, changes: dict[str, Any]) -> Values:
    """Return the estimate and the measured peak in MiB."""
    config = configuration(setting, changes)
    estimate = cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    before = setting.card.allocated()
    step = ExampleStep(config)
    for _ in range(2):  # the first one allocates the state of the optimizer
        step.seconds()
    measured = (setting.card.peak() - before) / MIB
    return {"backend": config.backend, "estimate_mib": estimate, "measured_mib": measured, "ratio": estimate / measured}

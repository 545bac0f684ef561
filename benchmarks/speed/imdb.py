"""Section ``imdb``: an epoch of IMDb at depth 6, width 128, 8 heads, length 512 in bf16, and the evaluation of all of test.

The epoch is not run whole: ``STEPS`` of its batches, spread evenly over it, are timed and scaled by the tokens computed,
padding included. The evaluation is measured whole.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from attnlab.archives import IMDB
from attnlab.evaluate import evaluate
from attnlab.machine import synchronise
from attnlab.tasks.imdb import Imdb
from benchmarks.speed import ours
from benchmarks.speed.case import OURS, Case, Row, Size, check_falling, check_finite

STEPS, WARM = 200, 3


def absent() -> str | None:
    """Why this section cannot run here, or None."""
    folder = os.environ.get("ATTNLAB_DATA")
    if not folder:
        return "imdb is skipped: it needs ATTNLAB_DATA, the folder of the archives"
    there = (Path(folder) / IMDB.file).is_file()
    return None if there else f"imdb is skipped: there is no {IMDB.file} in ATTNLAB_DATA ({folder})"


def cases(device: str) -> Iterator[Case]:
    yield Case("imdb", OURS, "", "bf16", device=device)


def measure(case: Case, size: Size | None = None, *, steps: int = STEPS, limit: int | None = None) -> list[Row]:
    """Seconds and tokens of steps, tokens of the epoch, seconds of the evaluation.

    Args:
        size: of the model; its length and batch count too.
        limit: reviews that are evaluated; None: all.
    """
    size = size or Size(dim=128, depth=6, heads=8, length=512, batch=32)
    changes = {"position": "learned", "train__lr": 7e-4, "train__warmup": 0.1, "evaluate__test_limit": limit}
    run = ours.training(ours.config(case, size, task={"name": "imdb", "length": size.length}, **changes))
    task = run.task
    assert isinstance(task, Imdb)
    epoch = task.steps_per_epoch(size.batch)
    computed = [task.train_batch(i, seed=run.config.seed, batch_size=size.batch).inputs.numel() for i in range(epoch)]
    places = [*[0] * WARM, *np.linspace(0, epoch - 1, min(steps, epoch)).round().astype(int)]
    step, rows, losses = ours.stepper(run), [], []
    for number, place in enumerate(places):
        run.step = int(place)  # decides the batch and the learning rate
        synchronise(run.device)
        began = perf_counter()
        losses.append(step().detach())
        synchronise(run.device)
        if number >= WARM:
            rows.append(Row("step_seconds", str(place), perf_counter() - began))
            rows.append(Row("step_tokens", str(place), computed[place]))
    check_falling(torch.stack(losses).tolist(), case)
    began = perf_counter()
    scores = evaluate(run.model, task, "test", config=run.config, device=run.device)
    rows.append(Row("evaluation_seconds", "", perf_counter() - began))
    check_finite(scores["loss"], case)
    padding = task.padding(batch_size=size.batch, seed=run.config.seed)
    return [*rows, Row("epoch_tokens", "", sum(computed)), Row("padding", "", padding), Row("accuracy", "", scores["accuracy"])]

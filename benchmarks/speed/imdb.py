"""Section ``imdb``: an epoch of IMDb at depth 6, width 128, 8 heads, length 512 in bf16, and the evaluation of all of test.

The epoch is not run whole: ``STEPS`` of its batches, spread evenly over it, are timed and scaled by the tokens computed,
padding included. The evaluation is measured whole. Beside them stands what their longest parts take alone, at this machine's
rates: what no code that computes the same could go below.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from attnlab.archives import IMDB
from attnlab.evaluate import evaluate
from attnlab.machine import synchronise
from attnlab.tasks import Batch
from attnlab.tasks.imdb import Imdb
from benchmarks.speed import floor, ours
from benchmarks.speed.case import OURS, Case, Row, Size, check_falling, check_finite, median_ms

STEPS, WARM = 200, 3
PARTS: tuple[str, ...] = ("linear layers", "attention's products", "softmax")
LINEAR, PRODUCTS, SOFTMAX = PARTS
TYPICAL = 256  # words at which the parts' rates are measured


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
    batches = [task.train_batch(i, seed=run.config.seed, batch_size=size.batch) for i in range(epoch)]
    computed = [batch.inputs.numel() for batch in batches]
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
    tested = task.eval_batches("test", batch_size=size.batch, limit=limit)
    rows += _bounds(size, run.device, epoch=_work(batches), evaluation=_work(tested))
    padding = task.padding(batch_size=size.batch, seed=run.config.seed)
    return [*rows, Row("epoch_tokens", "", sum(computed)), Row("padding", "", padding), Row("accuracy", "", scores["accuracy"])]


def _work(batches: Iterable[Batch]) -> tuple[int, int]:
    """Positions, and pairs of positions, that are computed: padding is, too."""
    shapes = [batch.inputs.shape for batch in batches]
    return sum(b * t for b, t in shapes), sum(b * t * t for b, t in shapes)


def _bounds(size: Size, device: torch.device, *, epoch: tuple[int, int], evaluation: tuple[int, int]) -> list[Row]:
    """Seconds that each of ``PARTS`` takes of an epoch and of an evaluation, each operation at the rate it reaches alone."""
    forward, backward = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)  # seconds a position, or a pair of positions

    def add(part: str, acts: Iterable[Callable[[], object]], share: float) -> None:
        first, *rest = [1e-3 * share * median_ms(act, device) for act in acts]
        forward[part] += first
        backward[part] += sum(rest)

    many, few = (replace(size, length=TYPICAL, batch=batch) for batch in (64, 2))  # the logits of few fit into a cache
    for part, shape, units in ((LINEAR, many, 64 * TYPICAL), (PRODUCTS, few, 2 * TYPICAL**2)):
        for product in floor.products(shape)[:-1]:  # the last is a language model's head
            if (product.batch == 1) == (part == LINEAR):
                add(part, floor.three(product, device, torch.bfloat16).values(), product.count / units)
    logits = torch.randn(2 * size.heads, TYPICAL, TYPICAL, device=device).bfloat16()
    weights, back = logits.softmax(-1), torch.ops.aten._softmax_backward_data
    both = (lambda: logits.softmax(-1), lambda: back(logits, weights, -1, weights.dtype))
    add(SOFTMAX, both, size.depth / (2 * TYPICAL**2))
    rows = []
    for part in PARTS:
        of = 0 if part == LINEAR else 1
        rows.append(Row("epoch_bound_seconds", part, (forward[part] + backward[part]) * epoch[of]))
        rows.append(Row("evaluation_bound_seconds", part, forward[part] * evaluation[of]))
    return rows

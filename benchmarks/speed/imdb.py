"""Section ``imdb``: an epoch of IMDb at depth 6, width 128, 8 heads, length 512 in bf16, and an evaluation of all of test.

The epoch is not run whole: some of its batches, spread evenly over it, are timed and scaled by the tokens computed, padding
included. attnlab's evaluation is measured whole. ``bounds`` adds lower bounds: the time of the longest operations alone.

For comparisons with peers, the evaluation is sampled, too. As shipped, peers read the batches of a plain loop:
batches of 32 in random order (of ``test``: in the order of the files), padded to the longest of them; with equal settings
attnlab's batches of like lengths.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.tasks import Batch
from attnlab.tasks.archives import IMDB
from attnlab.tasks.imdb import Imdb
from attnlab.training import device as machine
from attnlab.training.evaluate import evaluate
from attnlab.training.trainer import Trainer
from benchmarks.speed import attnlab_step, floor
from benchmarks.speed.case import EQUAL, OURS, SHIPPED, Case, Row, Size, check_falling, check_finite, median_ms
from benchmarks.speed.peers import READERS
from benchmarks.speed.step import peer_device, plain_step

T = TypeVar("T")
PARTS: tuple[str, ...] = ("linear layers", "attention's products", "softmax")
LINEAR, PRODUCTS, SOFTMAX = PARTS
TYPICAL = 256  # words at which the rates are measured
SEED = 0  # the seed of ``attnlab_step.config``
WARM, STEPS, SAMPLE = 3, 200, 24  # steps; SAMPLE: steps and evaluation batches in comparisons with peers


def absent() -> str | None:
    """Return the reason why this section cannot run here, or None."""
    folder = os.environ.get("ATTNLAB_DATA")
    if not folder:
        return "imdb is skipped: it needs ATTNLAB_DATA, the folder of the archives"
    prepared = (Path(folder) / IMDB.file).is_file()
    return None if prepared else f"imdb is skipped: there is no {IMDB.file} in ATTNLAB_DATA ({folder})"


def cases(device: str) -> Iterator[Case]:
    """Yield attnlab alone; then attnlab, a peer, attnlab, the next peer, as in ``step``."""
    yield Case("imdb", OURS, "", "bf16", device=device)
    for settings in (SHIPPED, EQUAL):
        for peer in READERS:
            yield from (Case("imdb", name, peer, "bf16", settings, device) for name in (OURS, peer))


def measure(case: Case, size: Size | None = None, *, steps: int | None = None) -> list[Row]:
    """Measure seconds and tokens of steps and of the evaluation (or a sample of its batches), and count all tokens.

    Args:
        size: of the model; its length and batch count too.
        steps: largest number of timed steps, and of batches where the evaluation is a sample.
    """
    size = size or Size(dim=128, depth=6, heads=8, length=512, batch=32, lr=7e-4)
    task = Imdb(length=size.length)
    if not case.part:
        return _whole(case, size, task, steps or STEPS)
    return (_ours_sampled if case.name == OURS else _peer_sampled)(case, size, task, steps or SAMPLE)


def _whole(case: Case, size: Size, task: Imdb, steps: int) -> list[Row]:
    run, (epoch, test) = _run(case, size), _of_like_lengths(task, size)
    rows = _steps(_stepper(run), epoch, case, steps)
    scores, seconds = _timed(lambda: evaluate(run.model, task, "test", config=run.config, device=run.device), run.device)
    check_finite(scores["loss"], case)
    rows.append(Row("evaluation_seconds", "", seconds))
    rows += [Row(f"{name}_tokens", "", _work(test)[0]) for name in ("evaluation", "test")]
    rows += bounds(size, run.device, epoch=_work(epoch), evaluation=_work(test))
    padding = task.padding(batch_size=size.batch, seed=SEED)
    return [*rows, Row("padding", "", padding), Row("accuracy", "", scores["accuracy"])]


def bounds(size: Size, device: torch.device, *, epoch: tuple[int, int], evaluation: tuple[int, int]) -> list[Row]:
    """Return lower bounds: the seconds of each of ``PARTS`` in an epoch and in an evaluation in bf16.

    Args:
        epoch, evaluation: numbers of computed positions, and of pairs of positions within a review.
    """
    forward, backward = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)  # seconds per position, or per pair of positions

    def add(part: str, acts: Iterable[Callable[[], object]], share: float) -> None:
        first, *rest = [1e-3 * share * median_ms(act, device) for act in acts]
        forward[part] += first
        backward[part] += sum(rest)

    # The logits of ``few`` fit into a cache.
    many, few = (replace(size, length=TYPICAL, batch=batch) for batch in (64, 2))
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


def _ours_sampled(case: Case, size: Size, task: Imdb, count: int) -> list[Row]:
    run, (epoch, test) = _run(case, size), _of_like_lengths(task, size)
    rows = _steps(_stepper(run), epoch, case, count)
    run.model.eval()
    return [*rows, *_evaluation(lambda batch: run.model(batch.inputs, batch.mask), test, case, count)]


def _peer_sampled(case: Case, size: Size, task: Imdb, count: int) -> list[Row]:
    device = peer_device(case)
    # PyTorch's fused encoder ignores CPU autocast and computes in float32, three times as slowly as layer by layer.
    torch.backends.mha.set_fastpath_enabled(case.settings != EQUAL)
    torch.manual_seed(SEED)
    model = READERS[case.name](size, task.vocabulary).to(device).train()

    def logits(batch: Batch) -> Tensor:
        mask = torch.ones_like(batch.inputs, dtype=torch.bool) if batch.mask is None else batch.mask
        return model(batch.inputs, mask=mask)

    epoch, test = _of_like_lengths(task, size) if case.settings == EQUAL else _as_they_come(task, size)
    step = plain_step(model, lambda batch: F.cross_entropy(logits(batch), batch.targets), case=case, lr=size.lr)
    rows = _steps(lambda place: step(epoch[place]), epoch, case, count)
    model.eval()
    return [*rows, *_evaluation(logits, test, case, count)]


def _run(case: Case, size: Size) -> Trainer:
    changes = {"position": "learned", "train__lr": size.lr, "train__warmup": 0.1}
    return attnlab_step.training(attnlab_step.config(case, size, task={"name": "imdb", "length": size.length}, **changes))


def _of_like_lengths(task: Imdb, size: Size) -> tuple[list[Batch], list[Batch]]:
    """Return the batches of an epoch and of ``test``, as attnlab reads them."""
    epoch = [task.train_batch(i, seed=SEED, batch_size=size.batch) for i in range(task.steps_per_epoch(size.batch))]
    return epoch, list(task.eval_batches("test", batch_size=size.batch))


def _as_they_come(task: Imdb, size: Size) -> tuple[list[Batch], list[Batch]]:
    """Return the batches of an epoch and of ``test``, as a plain loop reads them."""
    of = {split: np.arange(len(task.split(split).labels)) for split in ("train", "test")}
    of["train"] = np.random.default_rng(SEED).permutation(of["train"])
    train, test = (
        [task.batch(split, rows[i : i + size.batch]) for i in range(0, len(rows), size.batch)] for split, rows in of.items()
    )
    return train, test


def _stepper(run: Trainer) -> Callable[[int], Tensor]:
    """Return a function that takes a step of attnlab's loop with the batch and learning rate of a place in the epoch."""
    step = attnlab_step.stepper(run)

    def at(place: int) -> Tensor:
        run.step = place
        return step()

    return at


def _steps(step: Callable[[int], Tensor], epoch: Sequence[Batch], case: Case, count: int) -> list[Row]:
    """Measure steps spread evenly over an epoch."""
    device = torch.device(case.device)
    losses = [step(place).detach() for place in range(WARM)]
    rows = [Row("epoch_tokens", "", _work(epoch)[0])]
    for place in _spread(range(len(epoch)), count):
        loss, seconds = _timed(lambda place=place: step(place), device)
        losses.append(loss.detach())
        rows += [Row("step_seconds", str(place), seconds), Row("step_tokens", str(place), epoch[place].inputs.numel())]
    check_falling(torch.stack(losses).tolist(), case)
    return rows


def _evaluation(logits: Callable[[Batch], Tensor], test: Sequence[Batch], case: Case, count: int) -> list[Row]:
    """Measure batches spread evenly over ``test``."""
    device = torch.device(case.device)

    def loss(batch: Batch) -> Tensor:
        with torch.inference_mode(), machine.autocast(device, case.precision):
            batch = batch.to(device)
            return F.cross_entropy(logits(batch), batch.targets)

    loss(test[0])  # warms up
    rows = [Row("test_tokens", "", _work(test)[0])]
    for i, batch in enumerate(_spread(test, count)):
        value, seconds = _timed(lambda batch=batch: loss(batch), device)
        check_finite(float(value), case)
        rows += [Row("evaluation_seconds", str(i), seconds), Row("evaluation_tokens", str(i), batch.inputs.numel())]
    return rows


def _timed(act: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Call ``act``; return its result and the seconds that it took."""
    machine.synchronise(device)
    began = perf_counter()
    result = act()
    machine.synchronise(device)
    return result, perf_counter() - began


def _spread(of: Sequence[T], count: int) -> list[T]:
    """Return at most ``count`` items, evenly spaced from the first to the last."""
    return [of[int(i)] for i in np.linspace(0, len(of) - 1, min(count, len(of))).round()]


def _work(batches: Iterable[Batch]) -> tuple[int, int]:
    """Return the numbers of computed positions and pairs of positions, padding included."""
    shapes = [batch.inputs.shape for batch in batches]
    return sum(b * t for b, t in shapes), sum(b * t * t for b, t in shapes)

"""Batches: valid, a pure function of their arguments, with targets of the next token and one token of padding."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import torch

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, SPLITS, Batch, Task
from attnlab.tasks.diagnostics import Diagnostic
from attnlab.tasks.validation import check_definition, describe_mistake
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.task_checks.target import ROWS, TaskTarget, same

BATCH_SIZES = (1, ROWS, 7)
BATCHES = 6  # of each split that are checked
MOST = 0.75  # share of positions with a target, from which a task is no test of memory
COPIED_ROWS = 24  # in which a target equals its input
ALL_NEXT, FEW_NEXT = 0.99, 0.5  # shares of targets that are the next input, of two splits whose targets are not the same


def shapes(target: TaskTarget) -> str:
    """The definition is complete, and every batch has the documented shapes, types and values."""
    task = target.construct()
    try:
        check_definition(task, name=target.cls.__name__)
    except UserError as error:
        raise Failure(error.message, "See attnlab.tasks.Task for the attributes and methods.") from error
    count = 0
    for case, batch, batch_size in _batches(target):
        mistake = describe_mistake(batch, target.task) or _describe_other_mistake(batch, batch_size)
        if mistake:
            raise Failure(f"{case}: {mistake}", "See attnlab.tasks.Batch for shapes, types and values.")
        count += 1
    return f"{count} batches of {', '.join(SPLITS)}"


def _batches(target: TaskTarget) -> Iterator[tuple[str, Batch, int | None]]:
    """Yield training batches of the first epochs and batches of every split, each with its name and largest size."""
    for batch_size in BATCH_SIZES:
        epoch = target.task.steps_per_epoch(batch_size)
        for step in sorted({0, 1, epoch - 1, epoch, 2 * epoch + 1}):
            yield f"train_batch({step}, batch_size={batch_size})", target.train(step, batch_size=batch_size), batch_size
    for split in SPLITS:
        batches = list(islice(target.evaluation(split, rows=BATCHES * ROWS), BATCHES))
        if not batches:
            raise Failure(f"eval_batches({split!r}) yields no batch", "Every split needs at least one batch.")
        for i, batch in enumerate(batches):
            # An evaluation may put more rows into a batch if they are short.
            yield f"batch {i} of eval_batches({split!r}, batch_size={ROWS})", batch, None


def _describe_other_mistake(batch: Batch, batch_size: int | None) -> str:
    """Describe a mistake that ``describe_mistake``, which every run calls, leaves out; "" if there is none."""
    if batch_size is not None and len(batch.inputs) > batch_size:
        return f"expected at most {batch_size} rows, got {len(batch.inputs)}"
    negative = batch.targets[(batch.targets < 0) & (batch.targets != IGNORED)]
    if len(negative):
        return f"expected targets from 0, or {IGNORED} for none, got {int(negative[0])}"
    if not (batch.targets != IGNORED).any():
        return "no position has a target"
    if batch.mask is not None and batch.mask.dtype != torch.bool:
        return f"expected a mask of bool, got {batch.mask.dtype}"
    return ""


def pure(target: TaskTarget) -> str:
    """A training batch is a pure function of step, seed and batch size: in any order, in another object, after other draws."""
    wanted = [(step, seed) for step in (5, 0, 3) for seed in (0, 1)]
    first = {key: _copied(target.train(key[0], seed=key[1])) for key in wanted}
    other = target.construct()
    other.prepare()
    for step, seed in reversed(wanted):
        batches = {"called again, in another order": target.train(step, seed=seed)}
        for draw in (torch.rand, np.random.rand):
            draw(3)
        random.random()
        batches["called after other random draws"] = target.train(step, seed=seed)
        batches["from another object"] = other.train_batch(step, seed=seed, batch_size=ROWS)
        for case, batch in batches.items():
            _require_same(first[step, seed], batch, f"train_batch({step}, seed={seed}): another batch {case}")
        batch.inputs.zero_()
        changed = other.train_batch(step, seed=seed, batch_size=ROWS)
        _require_same(
            first[step, seed], changed, f"train_batch({step}, seed={seed}): another batch after its tensors were changed"
        )
    return f"{len(wanted)} batches: the same in any order, from another object, and after other random draws"


def _require_same(one: Batch, other: Batch, case: str) -> None:
    if not same(one, other):
        raise Failure(
            case,
            "Draw from a generator of the call's own, such as np.random.default_rng([seed, step]), and return new tensors.",
        )


def _copied(batch: Batch) -> Batch:
    return replace(batch, **{name: value.clone() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)})


def no_global_state(target: TaskTarget) -> str:
    """Batches and their preparation leave PyTorch's, NumPy's and Python's generators and defaults as they were."""
    before = _global_state()
    task = target.construct()
    task.prepare()
    task.train_batch(1, seed=2, batch_size=ROWS)
    next(iter(task.eval_batches("valid", batch_size=ROWS, limit=target.limit(ROWS))))
    for name, state in _global_state().items():
        if state != before[name]:
            raise Failure(
                f"prepare(), train_batch() or eval_batches() changes {name}",
                "Use separate generators: the global ones decide initial values and dropout.",
            )
    return "unchanged: " + ", ".join(before)


def _global_state() -> dict[str, object]:
    kind, keys, *rest = np.random.get_state()
    return {
        "torch's random generator": torch.get_rng_state().numpy().tobytes(),
        "numpy's random generator": (kind, np.asarray(keys).tobytes(), *rest),
        "random's generator": random.getstate(),
        "torch's default dtype": torch.get_default_dtype(),
    }


def seeds(target: TaskTarget) -> str:
    """Another seed, and another step, give another batch."""
    epoch = target.task.steps_per_epoch(ROWS)
    steps = range(min(4, max(2, epoch)))
    if all(same(target.train(step, seed=0), target.train(step, seed=1)) for step in steps):
        raise Failure(
            f"seeds 0 and 1 give the same batches in steps 0 to {len(steps) - 1}",
            "Draw the order from the seed: seeds of a study are otherwise no repetitions.",
        )
    if epoch > 1 and all(same(target.train(0), target.train(step)) for step in steps[1:]):
        raise Failure(
            f"steps 0 to {len(steps) - 1} of an epoch of {epoch:,} have the same batch", "Draw another batch in each step."
        )
    return "two seeds and several steps differ"


def targets(target: TaskTarget) -> str:
    """Targets that are tokens are those after each position of the inputs, and no target stands in the inputs before it."""
    if not target.is_language_model:
        return _require_hidden_class(target)
    exact = target.counts_tokens or target.task.kind == "encoder_decoder"
    copied = checked = 0
    following: dict[str, list[int]] = {split: [0, 0] for split in SPLITS}  # targets that are the next input, and all
    batches = [("train", target.train(step)) for step in range(BATCHES)]
    batches += [(split, batch) for split in SPLITS[1:] for batch in islice(target.evaluation(split, rows=2 * ROWS), 2)]
    for split, batch in batches:
        inputs, wanted = batch.inputs, batch.targets
        scored = wanted != IGNORED
        copied, checked = copied + int((scored & (wanted == inputs)).sum()), checked + int(scored.sum())
        here, known = wanted[:, :-1], scored[:, :-1]
        wrong = known & (here != inputs[:, 1:])
        counts = following[split]
        counts[0], counts[1] = counts[0] + int((known & ~wrong).sum()), counts[1] + int(known.sum())
        if batch.mask is not None:
            wrong &= batch.mask[:, 1:]  # the target of the last token has no input
        if exact and wrong.any():
            row, column = (int(i) for i in wrong.nonzero()[0])
            raise Failure(
                f"{split}, row {row}, position {column}: the target is {int(wanted[row, column])}, the next input "
                f"{int(inputs[row, column + 1])}",
                "Targets are the inputs shifted by one: tokens[:, 1:] for inputs tokens[:, :-1].",
            )
    if checked and copied == checked and copied > 1:
        raise Failure(
            f"all {checked} targets equal the input at their own position",
            "Targets are the inputs shifted by one: a model that copies its input would be perfect.",
        )
    shares = {split: next_inputs / known for split, (next_inputs, known) in following.items() if known}
    least, most = min(shares, key=shares.__getitem__, default=""), max(shares, key=shares.__getitem__, default="")
    if shares and shares[most] <= ALL_NEXT and not target.is_masked:
        _require_hidden(target, [batch for _, batch in batches])
    if shares and shares[most] > ALL_NEXT and shares[least] < FEW_NEXT:
        raise Failure(
            f"{100 * shares[most]:.0f} % of the targets of {most} are the next inputs, {100 * shares[least]:.0f} % of the "
            f"targets of {least}",
            "Batches of training and evaluation must have the same targets: shift both by one position.",
        )
    return f"{checked:,} targets: {'the next tokens' if exact else 'not the tokens at their own position'}"


def _require_hidden_class(target: TaskTarget) -> str:
    """Raise ``Failure`` when the class of each row is the number of the token at a fixed position."""
    batches = [target.train(step, batch_size=COPIED_ROWS) for step in range(BATCHES)]
    width = min(batch.inputs.shape[1] for batch in batches)
    inputs, classes = torch.cat([batch.inputs[:, :width] for batch in batches]), torch.cat([b.targets for b in batches])
    for position in (*range(width), -1):
        if len(classes.unique()) > 1 and torch.equal(inputs[:, position], classes):
            raise Failure(
                f"the token at position {position} is the number of the class in all {len(classes)} rows",
                "The inputs must not contain the label.",
            )
    return f"{len(classes)} classes: not the token at a fixed position"


def _require_hidden(target: TaskTarget, batches: Sequence[Batch]) -> None:
    """Raise ``Failure`` when targets that are not the next inputs can be read off a fixed place.

    Targets of a diagnostic may be earlier inputs: then memory is the ability, and ``chance`` states how hard it is.
    """
    width = min(batch.inputs.shape[1] for batch in batches)
    inputs, wanted = (torch.cat([getattr(batch, name)[:, :width] for batch in batches]) for name in ("inputs", "targets"))
    scored = wanted != IGNORED
    if len(inputs) < ROWS or wanted[scored].unique().numel() < 2:
        return
    if scored.double().mean() > MOST and not issubclass(target.cls, Diagnostic):
        for offset in range(1, width // 4):
            here = scored[:, offset:]
            if (wanted[:, offset:] == inputs[:, :-offset])[here].double().mean() > ALL_NEXT:
                raise Failure(
                    f"the targets equal the input {offset} position{'s' * (offset > 1)} before theirs",
                    "Targets are the inputs shifted by one: tokens[:, 1:] for inputs tokens[:, :-1].",
                )
    copied = ((wanted == inputs) | ~scored).all(0) & (scored.sum(0) >= COPIED_ROWS)
    copied &= torch.tensor([len(inputs[:, p].unique()) > 1 for p in range(width)])
    copied[0] = False  # the first state of a row may be its first input
    if copied.sum() > 1:
        raise Failure(
            f"at {int(copied.sum())} positions, the first one {int(copied.double().argmax())}, the target equals the input in "
            "every row",
            "A target must not stand in the inputs up to its position: a model that copies its input would be perfect.",
        )


def padding(target: TaskTarget) -> str:
    """Padding is one token, has no target, and no row consists of padding alone."""
    masked = 0
    pads: set[int] = set()
    batches = [target.train(step, batch_size=7) for step in range(BATCHES)]
    batches += [batch for split in SPLITS[1:] for batch in islice(target.evaluation(split, rows=2 * ROWS), BATCHES)]
    for batch in batches:
        if batch.mask is None:
            continue
        masked += int((~batch.mask).sum())
        pads |= set(batch.inputs[~batch.mask].unique().tolist())
        if not batch.mask.any(1).all():
            raise Failure("a row consists of padding alone", "mask is True at real tokens: every row needs at least one.")
        if target.is_language_model and (batch.targets[~batch.mask] != IGNORED).any():
            raise Failure("padding has a target", f"Set targets at padding to {IGNORED}.")
    if len(pads) > 1:
        raise Failure(
            f"{len(pads)} different tokens stand where the mask is False",
            "mask is True at real tokens and False at padding. Pad with one token.",
        )
    if not masked:
        raise NotDeclared("no batch has padding")
    return f"{masked:,} padded positions, all with token {pads.pop()}"


def before_preparation(target: TaskTarget) -> str:
    """The plan calls ``identity``, ``steps_per_epoch`` and ``eval_tokens`` without ``prepare``; they agree between objects."""
    prepared, fresh = target.task, target.construct()
    for name, one, other in (
        ("identity()", fresh.identity(), prepared.identity()),
        (f"steps_per_epoch({ROWS})", fresh.steps_per_epoch(ROWS), prepared.steps_per_epoch(ROWS)),
        ("eval_tokens('valid')", *(_eval_tokens(task) for task in (fresh, prepared))),
    ):
        if one != other:
            raise Failure(f"{name} is {one!r} before prepare() and {other!r} after it", "Compute it from the options alone.")
    identity, epoch = fresh.identity(), fresh.steps_per_epoch(ROWS)
    if not isinstance(identity, str) or not identity:
        raise Failure(f"identity() returned {identity!r}", "Return a text such as a checksum of the data.")
    if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
        raise Failure(f"steps_per_epoch({ROWS}) returned {epoch!r}", "Return a whole number of at least 1.")
    return f"{identity[:40]}, {epoch:,} steps of {ROWS} rows in an epoch"


def _eval_tokens(task: Task) -> int | None:
    return task.eval_tokens("valid", limit=None, protocol="segment", stride=None)


CHECKS = (
    Check("shapes", shapes),
    Check("pure batches", pure),
    Check("global state", no_global_state),
    Check("seeds", seeds),
    Check("targets", targets),
    Check("padding", padding),
    Check("before preparation", before_preparation),
)

"""Masked language models: the visible part of a row does not tell which token a mask hides."""

from __future__ import annotations

from itertools import islice

import torch
from torch import Tensor

from attnlab.tasks import IGNORED, Batch
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.task_checks.target import TaskTarget

BATCHES = 20  # of training rows
ROWS = 16  # of a batch
KEPT = 0.3  # largest share of predicted tokens that may stand in their own place: BERT keeps 10 %
REVEALED = 0.5  # largest share of predicted tokens that a fixed rule may find in the rest of a row


def hidden_tokens(target: TaskTarget) -> str:
    """A model cannot read a predicted token off its own place, a neighbor, the end of a row, or another field of the batch."""
    if not target.is_masked or target.task.role == "causal":
        raise NotDeclared("no masked language model")
    batches = [target.train(step, batch_size=ROWS) for step in range(BATCHES)]
    batches += list(islice(target.evaluation("valid", rows=4 * ROWS, batch_size=ROWS), 4))
    rules = [_rules(batch) for batch in batches]
    shares = {name: _share([of_batch[name] for of_batch in rules if name in of_batch]) for name in rules[0]}
    kept = shares.pop("its own place")
    if kept > KEPT:
        raise Failure(
            f"{kept:.0%} of the predicted tokens stand unchanged in their own place",
            "Replace most of the predicted tokens: BERT keeps 10 % of them, so that models do not rely on [MASK].",
        )
    for name, share in shares.items():
        if share > REVEALED:
            raise Failure(
                f"{share:.0%} of the predicted tokens can be read off {name}",
                "Build the inputs from the masked tokens alone, and draw masks and replacements without reading the tokens.",
            )
    return (
        f"{kept:.0%} of the predicted tokens are kept, and at most {max(shares.values()):.0%} can be read off the rest of a row"
    )


def _rules(batch: Batch) -> dict[str, Tensor]:
    """Return for each simple rule which of the predicted tokens (n,) it finds: bool."""
    row, column = (batch.targets != IGNORED).nonzero(as_tuple=True)
    wanted, t = batch.targets[row, column], batch.inputs.shape[1]
    here = batch.inputs[row, column]
    rules = {"its own place": here == wanted}
    for offset in range(1 - t, t):
        if offset:
            place = column + offset
            inside = (place >= 0) & (place < t)
            seen = batch.inputs[row, place.clamp(0, t - 1)] == wanted
            rules[f"the token {abs(offset)} {'after' if offset > 0 else 'before'} it"] = seen & inside
    for place in (0, 1, t - 2, t - 1):
        rules[f"position {place} of its row"] = batch.inputs[row, place] == wanted
    random = (here != wanted) & (here != here.mode().values)  # the most frequent replacement is the mask
    difference = (here - wanted)[random]
    rules["a fixed distance to a random token"] = difference == (difference.mode().values if len(difference) else 0)
    for name in ("segments", "items", "labels"):
        field = getattr(batch, name)
        if field is not None:
            rules[name] = (field[row, column] if field.dim() == 2 else field[row]) == wanted
    return rules


def _share(tensors: list[Tensor]) -> float:
    """Return the share of True in boolean tensors together; 0 if they are empty."""
    values = torch.cat(tensors).double()
    return values.mean().item() if len(values) else 0.0


CHECKS = (Check("hidden tokens", hidden_tokens),)

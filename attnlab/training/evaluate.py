"""A model's scores on a split, as exact means.

A memory is empty where a row begins: how many rows a batch has would decide how much of the text is read without one. So with
a memory there are only as many rows as leave each ``FILLED`` times the segments that fill it: at most a sixteenth of the text
is read before it is full, whatever ``evaluate.batch_size``.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnlab._util.metrics import merge
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from attnlab.training.device import autocast

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task

FILLED = 16


def forward(
    model: LanguageModel | Classifier, batch: "Batch", memory: list[Tensor] | None
) -> tuple[Tensor, list[Tensor] | None]:
    """The model's logits for a batch, and the memory for the next one (emptied first where the batch starts afresh)."""
    if isinstance(model, Classifier):
        return model(batch.inputs, batch.mask), None
    return model(batch.inputs, None if batch.fresh else memory)


def evaluate(
    model: LanguageModel | Classifier, task: "Task", split: str, *, config: RunConfig, device: torch.device
) -> dict[str, float]:
    """Every metric of the task on ``valid`` or ``test``, by the configured protocol and limit.

    The model is in train mode afterwards.

    Raises:
        UserError: the task, which may be anyone's, has no batch there, or does not score what it names as its metric.
    """
    how = config.evaluate
    limit = how.test_limit if split == "test" else how.valid_limit
    reading: dict[str, Any] = {"limit": limit, "protocol": how.protocol, "stride": how.stride}
    rows = how.batch_size or config.train.batch_size
    tokens = task.eval_tokens(split, **reading) if config.model.mem_len else None
    if tokens is not None:
        filling = -(-config.model.mem_len // task.length)  # segments
        rows = max(1, min(rows, tokens // task.length // (FILLED * filling)))
    batches = task.eval_batches(split, batch_size=rows, **reading)
    scores = []
    memory: list[Tensor] | None = None
    model.eval()
    with torch.inference_mode(), autocast(device, config.train.precision):
        for batch in batches:
            batch = batch.to(device)
            logits, memory = forward(model, batch, memory)
            scores.append(task.score(logits.float(), batch))
    model.train()
    found = {name: mean.value for name, mean in merge(scores).items()}
    if task.metric not in found:
        what = f"{len(scores)} batches with scores named {', '.join(found)}" if scores else "no batch"
        raise UserError(f"task {config.task.label}: expected a score named {task.metric} on {split}, got {what}")
    return found

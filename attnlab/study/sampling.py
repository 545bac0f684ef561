"""Sampling text from a language model."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from attnlab._util.rng import derive_seed
from attnlab.tasks import IGNORED, Task

if TYPE_CHECKING:
    from attnlab.tasks import Batch

PROMPT_TOKENS = 256
PROMPT_POSITIONS = 64  # positions in the validation split that a seed chooses from


@torch.inference_mode()
def sample(
    model: nn.Module,
    ids: list[int],
    *,
    task: Task,
    device: torch.device,
    temperature: float,
    length: int,
    seed: int,
    has_memory: bool = False,
) -> list[int]:
    """Draw `length` tokens after `ids`.

    A model with memory reads segment by segment, as in training: a full segment leaves the memory of the next one. A
    model without memory sees a sliding window of the last `task.length` tokens.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "sampling"))
    memory: list[torch.Tensor] | None = None
    recent = list(ids)
    drawn: list[int] = []
    while len(drawn) < length:
        while has_memory and len(recent) > task.length:
            segment, recent = recent[: task.length], recent[task.length :]
            _, memory = model(torch.tensor([segment], device=device), memory)
        logits, _ = model(torch.tensor([recent[-task.length :]], device=device), memory)
        token = _draw(logits[0, -1].float().cpu(), temperature, generator)
        recent.append(token)
        drawn.append(token)
    return drawn


def _draw(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))


def validation_prompt(task: Task, *, seed: int) -> tuple[list[int], str]:
    """Return 256 tokens from one of the first positions in the validation split, chosen by `seed`, and their description."""
    needed = -(-PROMPT_TOKENS // task.length)  # rows
    batches = islice(task.eval_batches("valid", batch_size=1), needed + PROMPT_POSITIONS - 1)
    rows = [_real(batch) for batch in batches]
    start = derive_seed(seed, "prompt") % max(1, len(rows) - needed + 1)
    ids = torch.cat(rows[start : start + needed])[:PROMPT_TOKENS].tolist()
    return ids, f"{len(ids)} {task.unit}s of the validation split, from {task.unit} {start * task.length:,}"


def _real(batch: Batch) -> torch.Tensor:
    """Return the tokens (n,) of the batch's only row, without padding."""
    predicted = (batch.targets[0] != IGNORED).nonzero()
    return batch.inputs[0, : int(predicted[-1]) + 2]  # the last token that predicts, and its target where the row has it


def printable(text: str) -> str:
    """Replace control characters, because a model may sample those that control a terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

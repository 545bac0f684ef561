"""Sampling text from a language model."""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING

import torch
from torch import nn

from attnlab._util.rng import derive_seed
from attnlab.models.decoding import key_value_cache, without_cache
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

    Each token of a segment is read once, over a cache, if all variants of the model support one. A window that slides is
    read as a whole: each of its tokens has another position than before.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "sampling"))
    memory: list[torch.Tensor] | None = None
    recent = list(ids)
    drawn: list[int] = []
    with _Segment(model, device) as segment:
        while len(drawn) < length:
            while has_memory and len(recent) > task.length:
                full, recent = recent[: task.length], recent[task.length :]
                segment.end()
                _, memory = model(torch.tensor([full], device=device), memory)
            if len(recent) > task.length:
                segment.end()
            logits = segment.logits(recent[-task.length :], memory)
            token = _draw(logits.float().cpu(), temperature, generator)
            recent.append(token)
            drawn.append(token)
    return drawn


class _Segment:
    """The tokens of a segment that a model has read, which are in its cache if it has one."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model, self._device = model, device
        takes_start = "start" in inspect.signature(model.forward).parameters  # a model of one's own may not
        self._is_cached = takes_start and not without_cache(model)
        self._context = ExitStack()
        self._read = 0

    def __enter__(self) -> _Segment:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Drop the cache: the next tokens belong to another segment."""
        self._context.close()
        self._read = 0

    def logits(self, tokens: list[int], memory: list[torch.Tensor] | None) -> torch.Tensor:
        """Return the logits (vocabulary,) after the tokens of the segment.

        Args:
            tokens: all of them; tokens of an earlier call, since `end`, are in the cache.
            memory: of the segment before.
        """
        new = torch.tensor([tokens[self._read :]], device=self._device)
        if not self._is_cached:
            return self._model(new, memory)[0][0, -1]
        if not self._read:
            self._context.enter_context(key_value_cache(self._model))
        logits, _ = self._model(new, None if self._read else memory, start=self._read)
        self._read = len(tokens)
        return logits[0, -1]


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

"""The networks that a variant is tried in: a causal language model and a classifier, on one backbone of blocks.

Every module is initialised from a random stream of its own, named after its place: cells with the same seed start shared
modules from the same values, whatever the rest of the model consumes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnlab._util.rng import derive_seed
from attnlab.config.run import ModelConfig, RunConfig
from attnlab.nn.layers import FeedForward
from attnlab.positions import Position, PositionConfig
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.variants import AttentionConfig, Variant


class TaskShape(Protocol):
    """What a model must know of its task: see ``attnlab.tasks.Task``."""

    @property
    def kind(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def length(self) -> int: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def classes(self) -> int: ...


@contextmanager
def initialised(seed: int, *names: str | int) -> Iterator[None]:
    """Inside, modules draw their initial values from the stream ``names``; outside nothing has moved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "initialisation", *names))
        yield


class Block(nn.Module):
    """Attention and feed-forward, each with a residual connection and a layer norm before (``pre``) or after (``post``) it."""

    def __init__(self, attention: Variant, feed_forward: FeedForward, *, config: ModelConfig) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.norm_attention = nn.LayerNorm(config.dim)
        self.norm_feed_forward = nn.LayerNorm(config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """x (b, t, dim), memory (b, m, dim) of this block's earlier inputs, mask (b, m + t) -> (b, t, dim)."""
        context = x if memory is None else torch.cat([memory, x], dim=1)
        if self.pre:
            context = self.norm_attention(context)
            here = context if memory is None else context[:, -x.shape[1] :]
            x = x + self.dropout(self.attention(here, context=None if memory is None else context, mask=mask))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))
        x = self.norm_attention(x + self.dropout(self.attention(x, context=None if memory is None else context, mask=mask)))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))


class Backbone(nn.Module):
    """Token embeddings, absolute positions where the scheme adds them, and a stack of blocks."""

    def __init__(self, config: RunConfig, task: TaskShape) -> None:
        super().__init__()
        model = config.model
        self.depth, self.memory_length, self.checkpointed = model.depth, model.mem_len, config.train.activation_checkpointing
        self.word_dropout = model.word_dropout
        self.class_token: nn.Parameter | None = None
        with initialised(config.seed, "embedding"):
            self.embedding = nn.Embedding(task.vocabulary, model.dim)
            nn.init.normal_(self.embedding.weight, std=model.dim**-0.5)
            if _has_class_token(config, task):
                self.class_token = nn.Parameter(torch.randn(model.dim))
        self.scale = sqrt(model.dim)  # unit variance going in, and well-scaled logits where the output is tied (Vaswani 3.4)
        self.dropout = nn.Dropout(model.embedding_dropout)
        embedded = _position(config, task, "embedding")
        self.position = embedded if embedded.hook == "embed" else None
        self.blocks = nn.ModuleList([_block(config, task, i) for i in range(model.depth)])
        self.norm = nn.LayerNorm(model.dim) if model.norm == "pre" else nn.Identity()

    def forward(
        self, tokens: Tensor, *, memory: list[Tensor] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """tokens (b, t) -> features (b, t, dim) and the next segment's memory: a (b, m, dim) for every block, or []."""
        x = self._embed(tokens)
        if mask is not None and self.class_token is not None:
            mask = nn.functional.pad(mask, (1, 0), value=True)
        kept: list[Tensor] = []
        for i, block in enumerate(self.blocks):
            before = memory[i] if memory else None
            if self.memory_length:
                kept.append(self._keep(x, before))
            if self.checkpointed and self.training:
                x = checkpoint(block, x, before, mask, use_reentrant=False)
            else:
                x = block(x, before, mask)
        return self.norm(x), kept

    def _embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.scale
        if self.training and self.word_dropout:
            heard = torch.rand(tokens.shape, device=tokens.device) >= self.word_dropout
            x = x * heard.unsqueeze(-1)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        if self.position is not None:
            x = x + self.position.embed(x.shape[1])
        return self.dropout(x)

    def _keep(self, x: Tensor, before: Tensor | None) -> Tensor:
        """The last ``memory_length`` inputs of a block, their gradient stopped."""
        if before is not None and x.shape[1] < self.memory_length:
            x = torch.cat([before, x], dim=1)
        return x[:, -self.memory_length :].detach()


def position_config(config: RunConfig, task: TaskShape) -> PositionConfig:
    """What the configuration's position scheme is built for."""
    model = config.model
    variant: type[Variant] = VARIANTS.get(config.variant.name)
    length = model.mem_len + task.length + (1 if _has_class_token(config, task) else 0)
    head_dim = variant.head_dim(model.dim, model.heads)
    return PositionConfig(
        dim=model.dim,
        heads=model.heads,
        head_dim=head_dim,
        length=length,
        role=task.role,
        blockwise_bias=variant.blockwise_bias,
    )


def _has_class_token(config: RunConfig, task: TaskShape) -> bool:
    return task.kind == "classifier" and config.model.pool == "class"


def _position(config: RunConfig, task: TaskShape, *place: str | int) -> Position:
    assert config.position is not None, "the plan resolves the position scheme"
    scheme: type[Position] = POSITIONS.get(config.position.name)
    with initialised(config.seed, "position", *place):
        return scheme(position_config(config, task), **config.position.options)


def _block(config: RunConfig, task: TaskShape, i: int) -> Block:
    model = config.model
    position = _position(config, task, i)
    attention_config = AttentionConfig(
        dim=model.dim,
        heads=model.heads,
        role=task.role,
        backend=config.backend,
        dropout=model.attention_dropout,
        position=position if position.hook in ("rotate", "bias") else None,
    )
    variant: type[Variant] = VARIANTS.get(config.variant.name)
    with initialised(config.seed, "attention", i):
        attention = variant(attention_config, **config.variant.options)
    with initialised(config.seed, "feed_forward", i):
        feed_forward = FeedForward(model.dim, model.ff_mult, activation=model.activation, dropout=model.dropout)
    return Block(attention, feed_forward, config=model)

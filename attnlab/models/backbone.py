"""The backbone that the models share: token and segment embeddings and a stack of blocks with the variant under test.

The memory follows Dai et al. 2019, arXiv:1901.02860, section 3.2: the last ``model.mem_len`` inputs of each block, without
gradient.
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attnlab.components.base import token_readers
from attnlab.config.run import RunConfig
from attnlab.models.base import TaskShape, model_class
from attnlab.models.block import Block
from attnlab.models.parts import Part, block_parts, build_attention, build_position
from attnlab.models.residual import make_ends, number_connections
from attnlab.nn.layers import Dropout


class Backbone(nn.Module):
    """Token embeddings, with absolute positions if the scheme acts by ``embed``, and a stack of blocks.

    Args:
        config: resolved.
        task: the task.
        block: the class of the blocks.
        name: the part of the model that the blocks belong to (``attnlab.models.parts``); "" for the whole model.
    """

    def __init__(self, config: RunConfig, task: TaskShape, *, block: type[Block], name: str = "") -> None:
        super().__init__()
        self.block = block
        model, of_blocks = config.model, block_parts(config, task, name)
        self.depth, self.loops, self.mem_len = model.depth, model.loops, model.mem_len
        self.activation_checkpointing = config.train.activation_checkpointing
        self.word_dropout = model.word_dropout
        self.class_token: nn.Parameter | None = None
        self.embedding = nn.Embedding(task.vocabulary, model.dim)
        nn.init.normal_(self.embedding.weight, std=model.dim**-0.5)
        if model_class(config, task).has_class_token(model):
            self.class_token = nn.Parameter(torch.randn(model.dim))
        # With unit variance of the input, logits with tied embeddings are well scaled (Vaswani et al. 2017, section 3.4).
        self.scale = sqrt(model.dim) if model.scale_embeddings else 1.0
        self.dropout = Dropout(model.embedding_dropout)
        self.position = build_position(config, task, of_blocks[0], "embed")  # the plan requires one scheme for all blocks
        segments = getattr(task, "segments", 0)  # an attribute of few tasks
        self.segment_embedding = nn.Embedding(segments, model.dim) if segments else None
        self.embedding_norm = block.make_norm(model) if model.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList([self.make_block(config, task, own) for own in of_blocks])
        self._token_readers = token_readers(self.blocks)
        self.ends = make_ends(model)
        number_connections(self.blocks)
        self.norm = block.make_norm(model) if model.norm != "post" else nn.Identity()

    def make_block(self, config: RunConfig, task: TaskShape, own: Part) -> Block:
        """Return a block of the part ``own``."""
        return self.block(build_attention(config, task, own), config=config.model)

    def forward(
        self,
        tokens: Tensor,
        *,
        memory: list[Tensor] | None = None,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        start: int = 0,
    ) -> tuple[Tensor, list[Tensor]]:
        """Compute features of tokens.

        Args:
            tokens: (b, t) integers.
            memory: the second value that the call for the previous segment returned, or None.
            mask: (b, t), boolean, True = a real token; None: all are.
            segments: (b, t) integers, the segment of each token, in a task with segments; None: all 0.
            start: the position of the first token, with a cache of the memory and of the positions before it
                (``attnlab.models.decoding``).

        Returns:
            The features (b, t, dim), t + 1 with a class token, and the memory for the next segment: a tensor for each block,
            (b, m, dim) or, of a residual connection with several streams, (b, m, n, dim); [] without memory.
        """
        x = self.ends.enter(x0 := self._embed(tokens, segments, start=start))
        if mask is not None and self.class_token is not None:
            mask = nn.functional.pad(mask, (1, 0), value=True)
        new_memory: list[Tensor] = []
        for i, block in enumerate([*self.blocks] * self.loops):
            block_memory = memory[i] if memory else None
            x = self._input_of(block, x, x0)
            if self.mem_len:
                new_memory.append(self._update_memory(x, block_memory))
            x = self._apply_block(block, x, block_memory, mask)
        return self.norm(self.ends.leave(x)), new_memory

    def _input_of(self, block: nn.Module, x: Tensor, x0: Tensor) -> Tensor:
        """Return the input of a block: the output x of the block before it, with the embeddings x0 (``residual: x0``)."""
        mix = getattr(block, "embedding_residual", None)
        return x if mix is None else mix(x, x0)

    def _apply_block(self, block: nn.Module, *inputs: Tensor | None) -> Tensor:
        """Apply a block; with ``train.activation_checkpointing``, its activations are recomputed in the backward pass."""
        if self.activation_checkpointing and self.training:
            return checkpoint(block, *inputs, use_reentrant=False)
        return block(*inputs)

    def _embed(self, tokens: Tensor, segments: Tensor | None = None, *, start: int = 0) -> Tensor:
        """Return the embeddings (b, t, dim) of tokens (b, t), the first of which is at position ``start``."""
        x = self.embedding(tokens) * self.scale
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(torch.zeros_like(tokens) if segments is None else segments)
        if self.training and self.word_dropout:
            keep = torch.rand(tokens.shape, device=tokens.device) >= self.word_dropout
            x = x * keep.unsqueeze(-1)
            tokens = tokens.masked_fill(~keep, -1)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
            tokens = nn.functional.pad(tokens, (1, 0), value=-1)
        for component in self._token_readers:
            component.tokens = tokens
        if self.position is not None:
            x = x + self.position.embed(start + x.shape[1])[start:]
        return self.dropout(self.embedding_norm(x))

    def _update_memory(self, x: Tensor, memory: Tensor | None) -> Tensor:
        """Return the last ``mem_len`` inputs of a block, without gradient."""
        if memory is not None and x.shape[1] < self.mem_len:
            x = torch.cat([memory, x], dim=1)
        return x[:, -self.mem_len :].detach()

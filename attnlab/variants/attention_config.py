"""The settings that a study passes to its variants."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from attnlab.components import Component
from attnlab.positions import Position

ROLES = ("causal", "bidirectional", "cross")


@dataclass(frozen=True)
class AttentionConfig:
    """Settings that a variant is constructed with, from the sections ``model``, ``task`` and ``position`` of a study.

    Attributes:
        dim: model width (``model.dim``).
        heads: number of heads (``model.heads``); 1 for a variant without heads.
        role: ``causal`` (query i attends to keys up to position i), ``bidirectional``, or ``cross``
            (``context`` is another sequence).
        backend: implementation of softmax attention, one of ``BACKENDS``; ``auto`` is already resolved.
        dropout: probability of dropping an attention weight in training (``model.attention_dropout``).
        position: position scheme of this block, a module, if it acts on queries and keys (hook ``rotate`` or ``bias``), else
            None.
        bias: True for biases in all projections (``model.attention_bias``).
        layer: the number of the block in its stack, from 0.
        components: the components of this layer by name, modules, in the order in which they act.
    """

    dim: int
    heads: int
    role: str = "bidirectional"
    backend: str = "reference"
    dropout: float = 0.0
    position: Position | None = None
    bias: bool = False
    layer: int = 0
    components: Mapping[str, Component] = field(default_factory=dict)

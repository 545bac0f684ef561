"""The parts of a model that have attention, and the attention of each.

A language model or a classifier is one part; with a pattern ``model.layers``, each entry of it is one. An encoder-decoder has
three parts, with a variant and a position scheme each: ``model.encoder``, ``model.decoder`` and ``model.cross``.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from attnlab.components import Component, ComponentConfig
from attnlab.config.run import RunConfig
from attnlab.config.types import LAYERS, ComposedVariant, Named
from attnlab.errors import UserError
from attnlab.models.base import Model, TaskShape, model_class
from attnlab.positions import Position, PositionConfig
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from attnlab.variants import AttentionConfig, Variant


@dataclass(frozen=True)
class Part:
    """A part of a model.

    Attributes:
        name: the name of its section in ``model``; "" for the whole model.
        role: ``causal``, ``bidirectional`` or ``cross``.
        variant: the variant of its blocks.
        position: the position scheme of its blocks.
        entry: the index of its entry in ``model.layers``; None without a pattern.
        layer: the number of the block in its stack, from 0; ``block_parts`` sets it.
    """

    name: str
    role: str
    variant: ComposedVariant
    position: Named
    entry: int | None = None
    layer: int = 0

    @property
    def section(self) -> str:
        """The section of the configuration that has its variant: ``model.encoder``, ``model.layers[1]``, or "" for a cell's."""
        return f"{LAYERS}[{self.entry}]" if self.entry is not None else f"model.{self.name}" if self.name else ""

    @property
    def variant_class(self) -> type[Variant]:
        return VARIANTS.get(self.variant.name)

    @property
    def classes(self) -> list[tuple[Named, type]]:
        """The names of the variant, its components and the position scheme, with their classes."""
        return [(self.variant, self.variant_class), *component_classes(self.variant), (self.position, self.position_class)]

    @property
    def position_class(self) -> type[Position]:
        return POSITIONS.get(self.position.name)

    def heads(self, config: RunConfig) -> int:
        """Return the number of heads; 1 for a variant without heads, even when its neighbors have several."""
        return config.model.heads if self.variant_class.has_heads else 1

    @property
    def chooses_backend(self) -> bool:
        """False for an entry of a pattern if its variant has the backend ``reference`` alone, whatever the others use."""
        return self.entry is None or self.variant_class.backends != ("reference",)

    def backend(self, config: RunConfig) -> str:
        """Return the backend of its attention: the cell's, if the part can choose."""
        return config.backend if self.chooses_backend else "reference"


def component_classes(variant: ComposedVariant) -> list[tuple[Named, type[Component]]]:
    """Return the components of a variant with their classes, in the order of the study."""
    return [(component, COMPONENTS.get(component.name)) for component in variant.components]


def parts(config: RunConfig, task: TaskShape) -> tuple[Part, ...]:
    """Return the parts of the model of a resolved configuration; of a pattern, those that occur in the model."""
    if config.model.layers is not None:
        return tuple(_entries(config, task)[: config.model.depth])
    return tuple(part(config, task, name) for name in model_class(config, task).roles(task))


def part(config: RunConfig, task: TaskShape, name: str = "") -> Part:
    """Return one part of the model of a resolved configuration; ``name`` is "" for the whole model.

    Raises:
        UserError: the blocks of the model have several variants (``model.layers``): see ``block_parts``.
    """
    if config.model.layers is not None:
        model = model_class(config, task).__name__
        raise UserError(f"{LAYERS}: {model} builds all blocks alike: expected a model that calls block_parts")
    own = getattr(config.model, name) if name else config
    assert own.variant is not None and own.position is not None, "the plan resolves the variant and the position scheme"
    return Part(name, model_class(config, task).roles(task)[name], own.variant, own.position)


def block_parts(config: RunConfig, task: TaskShape, name: str = "") -> tuple[Part, ...]:
    """Return the part of each block of a stack, from the input to the output.

    The entries of ``model.layers`` repeat over the blocks. Without a pattern all blocks belong to the part ``name``.
    """
    entries = [part(config, task, name)] if config.model.layers is None else _entries(config, task)
    return tuple(replace(entries[i % len(entries)], layer=i) for i in range(config.model.depth))


def _entries(config: RunConfig, task: TaskShape) -> list[Part]:
    """Return the parts of ``model.layers``."""
    role = model_class(config, task).roles(task)[""]
    entries = []
    for i, entry in enumerate(config.model.layers.pattern if config.model.layers else ()):
        assert entry.position is not None, "the plan resolves the position scheme of each entry"
        entries.append(Part("", role, entry, entry.position, i))
    return entries


def position_config(config: RunConfig, task: TaskShape, part: Part) -> PositionConfig:
    """Return the settings for the position scheme of a part."""
    model, variant, heads = config.model, part.variant_class, part.heads(config)
    return PositionConfig(
        dim=model.dim,
        heads=heads,
        head_dim=variant.head_dim(model.dim, heads),
        length=model.mem_len + task.length + model_class(config, task).has_class_token(model),
        role=part.role,
        blockwise_bias=variant.blockwise_bias,
    )


def build_position(config: RunConfig, task: TaskShape, part: Part, *hooks: str) -> Position | None:
    """Return the position scheme of a part if it acts by one of ``hooks``, else None."""
    scheme = part.position_class
    return scheme(position_config(config, task, part), **part.position.options) if scheme.hook in hooks else None


def build_attention(config: RunConfig, task: TaskShape, part: Part) -> Variant:
    """Return the attention of one block of a part."""
    model = config.model
    attention_config = AttentionConfig(
        dim=model.dim,
        heads=part.heads(config),
        role=part.role,
        backend=part.backend(config),
        dropout=model.attention_dropout,
        position=build_position(config, task, part, "rotate", "bias"),
        bias=model.attention_bias is True,
        layer=part.layer,
        components=build_components(config, task, part),
    )
    attention = part.variant_class(attention_config, **part.variant.options)
    if model.attention_bias == "out":
        _add_output_bias(attention, part.variant.label)
    return attention


def _add_output_bias(attention: Variant, label: str) -> None:
    """Add a bias to the residual projections of a variant, drawn as in the constructor of ``nn.Linear``."""
    for name in attention.residual_projections or ():
        layer = getattr(attention, name)
        if not isinstance(layer, nn.Linear):
            reason = f"{label} has no linear layer {name!r}"
            raise UserError(f"model.attention_bias: expected true or false, because {reason}, got 'out'")
        if layer.bias is None:
            layer.bias = nn.Parameter(torch.empty(layer.out_features))
            bound = layer.in_features**-0.5
            nn.init.uniform_(layer.bias, -bound, bound)


def component_config(config: RunConfig, task: TaskShape, part: Part) -> ComponentConfig:
    """Return the settings for the components of a part."""
    position = position_config(config, task, part)
    return ComponentConfig(
        dim=position.dim,
        heads=position.heads,
        head_dim=position.head_dim,
        role=position.role,
        length=position.length,
        bias=config.model.attention_bias is True,
        vocabulary=task.vocabulary,
    )


def build_components(config: RunConfig, task: TaskShape, part: Part) -> dict[str, Component]:
    """Return the components of one block of a part, by name."""
    settings = component_config(config, task, part)
    return {named.short_name: cls(settings, **named.options) for named, cls in component_classes(part.variant)}


def connect_components(model: Model) -> None:
    """Connect each component to the component of the same name in the first block of its stack that has one."""
    for stack in model.stacks:
        first: dict[str, Component] = {}
        for block in stack:
            for name, component in block.named_modules():
                if isinstance(component, Component) and first.setdefault(name, component) is not component:
                    component.connect(first[name])

"""Classes of the names in a study, and configurations in which every default of their options is written out.

Each entry of a pattern of ``model.layers`` has classes, options and a position scheme, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from attnlab.config.axes import LAYERS
from attnlab.config.grid import CellConfig
from attnlab.config.layers import LayerConfig, LayersConfig
from attnlab.config.run import PARTS, PartConfig, RunConfig
from attnlab.config.types import ComposedVariant, Named, NamedVariant
from attnlab.config.yaml import Loc
from attnlab.errors import UserError
from attnlab.registry import COMPONENTS, MODELS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS, Registry, options_of

ResolveVariant = Callable[[CellConfig, LayerConfig, Loc], tuple[LayerConfig, Any]]  # -> the variant and its class
ResolvePosition = Callable[[CellConfig, Named, Any, Loc], Named]  # of the class of a variant -> the position scheme
N = TypeVar("N", bound=Named)
V = TypeVar("V", bound=ComposedVariant)

REGISTRIES: dict[str, Registry] = {
    "task": TASKS,
    "variant": VARIANTS,
    "component": COMPONENTS,
    "position": POSITIONS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
}


def base_class(kind: str) -> type:
    """Return the base class of variants, components, positions, tasks, models or optimizers."""
    from torch.optim import Optimizer

    from attnlab.components import Component
    from attnlab.models.base import Model
    from attnlab.positions import Position
    from attnlab.tasks import Task
    from attnlab.variants import Variant

    bases = {"task": Task, "variant": Variant, "component": Component, "position": Position, "model": Model}
    return {**bases, "optimizer": Optimizer}[kind]


def with_all_defaults(config: RunConfig) -> RunConfig:
    """Return a resolved configuration in which every option with a default is written out."""
    kinds = [kind for kind in ("task", "position") if getattr(config, kind) is not None]
    named: dict[str, Any] = {kind: _with_defaults(getattr(config, kind), REGISTRIES[kind]) for kind in kinds}
    if config.variant is not None:
        named["variant"] = _with_default_options(config.variant)
    own = {name: getattr(config.model, name) for name in PARTS}
    written: dict[str, Any] = {
        name: PartConfig(variant=_with_default_options(part.variant), position=_with_defaults(part.position, POSITIONS))
        for name, part in own.items()
        if part != PartConfig()
    }
    if config.model.layers is not None:
        written["layers"] = _entries_with_defaults(config.model.layers)
    optimizer = _with_defaults(config.train.optimizer, OPTIMIZERS)
    named["train"] = config.train.model_copy(update={"optimizer": optimizer})
    return config.model_copy(update={**named, "model": config.model.model_copy(update=written)})


def _entries_with_defaults(layers: LayersConfig) -> LayersConfig:
    """Return a pattern with every default of the options of its variants, components and position schemes written out."""
    entries = (e.model_copy(update={"position": _with_defaults(e.position, POSITIONS)}) for e in layers.pattern if e.position)
    return layers.model_copy(update={"pattern": tuple(map(_with_default_options, entries))})


def _with_default_options(variant: V) -> V:
    """Return a variant and its components with every default of their options written out."""
    components = tuple(_with_defaults(component, COMPONENTS) for component in variant.components)
    return _with_defaults(variant, VARIANTS).model_copy(update={"components": components})


def _with_defaults(named: N, registry: Registry) -> N:
    """Return the name with every default of its options written out."""
    parameters = options_of(registry.get(named.name))
    defaults = {name: p.default for name, p in parameters.items() if _is_plain(p.default)}
    return named.model_copy(update={"options": {**defaults, **named.options}})


def _is_plain(value: Any) -> bool:
    """Return True when a default exists and can be written to a configuration as JSON."""
    return value is not inspect.Parameter.empty and isinstance(value, str | int | float | bool | list | dict | None)


def resolve_layers(cell: CellConfig, resolve_variant: ResolveVariant, resolve_position: ResolvePosition) -> RunConfig:
    """Return the configuration of a cell with every entry of ``model.layers`` resolved.

    An entry without a position scheme has the cell's. If the cell has none either, it has the scheme that another entry
    adds to the input, or else the default of its variant. A pattern that repeats itself becomes as short as it can be, and a
    pattern of equal entries becomes the variant of the cell: configurations of equal models are equal.

    Raises:
        UserError: an unknown name, or options that the class does not accept; with the place in the study.
    """
    config, layers = cell.config, cell.config.model.layers
    assert layers is not None
    entries = list(_resolve_entries(cell, layers, resolve_variant, resolve_position))
    shared = next((position for _, position, _ in entries if _is_added_to_input(position)), None)
    pattern = _shortest(
        [
            entry.model_copy(
                update={"position": shared if is_default and shared is not None and position.name == "none" else position}
            )
            for entry, position, is_default in entries
        ]
    )
    first, *others = pattern
    if others:
        model = config.model.model_copy(update={"layers": layers.model_copy(update={"pattern": pattern})})
        return config.model_copy(update={"model": model, "position": None})
    variant = NamedVariant(name=first.name, options=first.options)
    variant = variant.model_copy(update={"components": first.components, "match": layers.match})
    model = config.model.model_copy(update={"layers": None})
    return config.model_copy(update={"variant": variant, "position": first.position, "model": model})


def _resolve_entries(
    cell: CellConfig, layers: LayersConfig, resolve_variant: ResolveVariant, resolve_position: ResolvePosition
) -> Iterator[tuple[LayerConfig, Named, bool]]:
    """Yield each entry with its position scheme, and True where that is the default of its variant."""
    inherited = cell.config.position
    for i, entry in enumerate(layers.pattern):
        loc: Loc = ("model", "layers", *(("pattern",) if layers.match else ()), i)
        try:
            variant, cls = resolve_variant(cell, entry, loc)
            named = entry.position or inherited or Named(name=cls.default_position)
            position = resolve_position(cell, named, cls, (*loc, "position") if entry.position else ("position",))
        except UserError as error:
            raise UserError(f"{LAYERS}[{i}]: {error.message}", error.where) from error
        yield variant, position, entry.position is None and inherited is None


def _is_added_to_input(position: Named) -> bool:
    return POSITIONS.get(position.name).hook == "embed"


def _shortest(pattern: Sequence[LayerConfig]) -> tuple[LayerConfig, ...]:
    """Return the shortest pattern that repeats to the same one."""
    lengths = (n for n in range(1, len(pattern) + 1) if len(pattern) % n == 0)
    n = next(n for n in lengths if all(entry == pattern[i % n] for i, entry in enumerate(pattern)))
    return tuple(pattern[:n])

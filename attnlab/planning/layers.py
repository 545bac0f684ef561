"""Resolve a pattern of ``model.layers``: each entry has a class, options and a position scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attnlab.config.grid import Cell
from attnlab.config.run import RunConfig
from attnlab.config.types import LAYERS, LayerConfig, LayersConfig, Named, NamedVariant
from attnlab.config.yaml import Loc
from attnlab.errors import UserError
from attnlab.registry import POSITIONS

ResolveVariant = Callable[[Cell, LayerConfig, Loc], tuple[LayerConfig, Any]]  # -> the variant and its class
ResolvePosition = Callable[[Cell, Named, Any, Loc], Named]  # of the class of a variant -> the position scheme


def resolve_layers(cell: Cell, resolve_variant: ResolveVariant, resolve_position: ResolvePosition) -> RunConfig:
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
    cell: Cell, layers: LayersConfig, resolve_variant: ResolveVariant, resolve_position: ResolvePosition
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

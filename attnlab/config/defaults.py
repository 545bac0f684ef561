"""Options that a configuration leaves at their defaults, which classes state and not the study file."""

from __future__ import annotations

from inspect import Parameter
from typing import Any, TypeVar

from attnlab.config.run import PARTS, PartConfig, RunConfig
from attnlab.config.types import ComposedVariant, LayersConfig, Named
from attnlab.registry import COMPONENTS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS, Registry, options_of

N = TypeVar("N", bound=Named)
V = TypeVar("V", bound=ComposedVariant)


def with_all_defaults(config: RunConfig, *, builtin: bool = False) -> RunConfig:
    """Return a configuration in which every option with a default is written out.

    Args:
        builtin: Only options of attnlab's own classes; no other class is imported.
    """

    def named(value: N, registry: Registry) -> N:
        if builtin and not registry.is_builtin(value.name):
            return value
        parameters = options_of(registry.get(value.name))
        defaults = {name: p.default for name, p in parameters.items() if _is_plain(p.default)}
        return value.model_copy(update={"options": {**defaults, **value.options}})

    def position(value: Named | None) -> Named | None:
        return value and named(value, POSITIONS)

    def variant(value: V) -> V:
        components = tuple(named(component, COMPONENTS) for component in value.components)
        return named(value, VARIANTS).model_copy(update={"components": components})

    def layers(value: LayersConfig) -> LayersConfig:
        entries = (entry.model_copy(update={"position": position(entry.position)}) for entry in value.pattern)
        return value.model_copy(update={"pattern": tuple(map(variant, entries))})

    model = config.model
    changes: dict[str, Any] = {"layers": model.layers and layers(model.layers)}
    for name in PARTS:
        part: PartConfig = getattr(model, name)
        changes[name] = PartConfig(variant=part.variant and variant(part.variant), position=position(part.position))
    optimizer = named(config.train.optimizer, OPTIMIZERS)
    return config.model_copy(
        update={
            "task": named(config.task, TASKS),
            "variant": config.variant and variant(config.variant),
            "position": position(config.position),
            "model": model.model_copy(update=changes),
            "train": config.train.model_copy(update={"optimizer": optimizer}),
        }
    )


def _is_plain(value: Any) -> bool:
    """Return True when a default exists and can be written to a configuration as JSON."""
    return value is not Parameter.empty and isinstance(value, str | int | float | bool | list | dict | None)

"""Composition of a variant with components as one class, so that every check of variants applies to it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from attnlab.components import Component, ComponentConfig
from attnlab.components.base import exclusive_pair, missing_places, without_place
from attnlab.errors import UserError
from attnlab.nn.attention import BACKENDS, FUNCTION_BACKENDS
from attnlab.registry import COMPONENTS, check_options, with_defaults
from attnlab.variants import Setting, Variant

V = TypeVar("V")


@dataclass(frozen=True)
class ComponentSpec:
    """A component with options.

    Attributes:
        name: its name, or the name of its class.
        cls: the class.
        options: keyword arguments of its constructor.
    """

    name: str
    cls: type[Component]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, component: "str | type[Component] | Mapping[str, Any]") -> "ComponentSpec":
        """Resolve a registered name, a path such as ``file.py:Class``, either with options as in a study, or a class.

        Raises:
            UserError: the name is unknown, or the constructor does not take the options.
        """
        options: dict[str, Any] = {}
        if isinstance(component, Mapping):
            options = {key: value for key, value in component.items() if key != "name"}
            component = component["name"]
        found = COMPONENTS.get(component) if isinstance(component, str) else component
        if not (isinstance(found, type) and issubclass(found, Component)):
            got = getattr(found, "__qualname__", found)
            raise UserError(f"expected a subclass of attnlab.components.Component, got {got}")
        name = component.rpartition(":")[2] if isinstance(component, str) else found.__name__
        check_options(found, options, what=f"component {name!r}")
        return cls(name, found, options)


def compose(variant: type[Variant], components: Sequence[ComponentSpec]) -> type[Variant]:
    """Return a variant that declares what it and its components declare together.

    Its instances are constructed with the components of ``build_components``.

    Raises:
        UserError: the variant has no such place, or two components replace the computation of one place.
    """
    if reason := conflict(variant, components):
        raise UserError(reason)
    classes = [spec.cls for spec in components]
    places = {place for cls in classes for place in cls.places()}
    removed = {"output_projection"} & places
    name = f"{variant.__name__} with {', '.join(spec.name for spec in components)}"

    class Composed(variant):  # type: ignore[misc, valid-type]
        composed_of: ClassVar[tuple[type[Variant], tuple[ComponentSpec, ...]]] = (variant, tuple(components))
        roles = variant.roles.intersection(*(cls.roles for cls in classes))
        supports_memory = variant.supports_memory and all(cls.supports_memory for cls in classes)
        supports_cache = variant.supports_cache and all(cls.supports_cache for cls in classes)
        supports_compile = variant.supports_compile and all(cls.supports_compile for cls in classes)
        supports_attention_bias = variant.supports_attention_bias
        permutation_equivariant = variant.permutation_equivariant and all(cls.permutation_equivariant for cls in classes)
        constant_first_output = variant.constant_first_output or any(cls.constant_first_output for cls in classes)
        backends = tuple(b for b in variant.backends if all(b in FUNCTION_BACKENDS.get(place, BACKENDS) for place in places))
        residual_projections = () if removed else variant.residual_projections

        @classmethod
        def unsupported(cls, setting: Setting) -> str | None:
            reason = variant.unsupported.__func__(cls, setting)  # type: ignore[attr-defined]
            return reason or _unsupported(cls, components, setting)

    setattr(sys.modules[__name__], name, Composed)  # where pickle looks for it
    Composed.__name__ = Composed.__qualname__ = name
    Composed.places = frozenset()
    return Composed


def decompose(variant: type[V]) -> tuple[type[V], tuple[ComponentSpec, ...]]:
    """Return the variant and the components of a variant of ``compose``; another class has no components."""
    return getattr(variant, "composed_of", (variant, ()))


def component_classes(variant: type) -> tuple[type[Component], ...]:
    """Return the classes of the components of a variant of ``compose``; () for another class."""
    return tuple(spec.cls for spec in decompose(variant)[1])


def build_components(variant: type[Variant], config: ComponentConfig) -> dict[str, Component]:
    """Return new components of a variant of ``compose``, by name; {} for another variant."""
    return {spec.name: spec.cls(config, **spec.options) for spec in decompose(variant)[1]}


def conflict(variant: type[Variant], components: Sequence[ComponentSpec]) -> str | None:
    """Return the reason why a variant cannot have these components together, or None."""
    for spec in components:
        if reason := without_place(spec.cls):
            return f"{spec.name}: {reason}"
        if missing := missing_places(spec.cls, variant.places):
            return f"{variant.__name__} has no place {missing[0]!r}, which the component {spec.name} changes"
    pair = exclusive_pair([(spec.name, spec.cls) for spec in components])
    return None if pair is None else f"{pair[0]} and {pair[1]} both replace {pair[2]}"


def _unsupported(variant: type[Variant], components: Sequence[ComponentSpec], setting: Setting) -> str | None:
    """Return the first reason why a component does not support a configuration of its variant, or None."""
    head_dim = variant.head_dim(setting.dim, setting.heads)
    for spec in components:
        options = with_defaults(spec.cls, dict(spec.options))
        if reason := spec.cls.unsupported(replace(setting, head_dim=head_dim, options=options)):
            return f"{spec.name}: {reason}"
    return None

"""Rules on the components of a variant: the places that they change, each other, the backend and the model."""

from typing import TypeAlias

from attnlab.components import Component, Components
from attnlab.components.base import PLACES, exclusive_pair, missing_places, without_place
from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.models.parts import Part, component_classes
from attnlab.nn.attention import BACKENDS, FUNCTION_BACKENDS
from attnlab.nn.attention import unsupported as unsupported_backend
from attnlab.registry import with_defaults

NamedComponent: TypeAlias = tuple[Named, type[Component]]


def unsupported(config: RunConfig, part: Part) -> str | None:
    """Return the first reason why the components of a part cannot be combined with it or with each other, or None.

    Args:
        config: resolved; its backend is not ``auto``.
    """
    components = component_classes(part.variant)
    rules = (_places, _declared, _backend)
    reasons = ((named, rule(config, part, (named, cls))) for named, cls in components for rule in rules)
    return next((f"{named.label}: {reason}" for named, reason in reasons if reason), None) or _exclusive(components)


def supported_backends(config: RunConfig, part: Part, *, device: str) -> tuple[str, ...]:
    """Return the backends that the variant of a part supports, and each of its components; ``flex`` where it can run."""
    components, backends = component_classes(part.variant), part.variant_class.backends
    supported = [backend for backend in backends if not any(_needs_functions(c, backend) for _, c in components)]
    if "flex" in supported:
        head_dim = part.variant_class.head_dim(config.model.dim, part.heads(config))
        if unsupported_backend("flex", device=device, head_dim=head_dim, dropout=config.model.attention_dropout):
            supported.remove("flex")
    return tuple(supported)


def without_cache(part: Part) -> list[str]:
    """Return the labels of the variant and the components of a part with which decoding cannot use a cache."""
    variant = [] if part.variant_class.supports_cache else [part.variant.label]
    return variant + [named.label for named, cls in component_classes(part.variant) if not cls.supports_cache]


def _places(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require that the component changes a place, that the variant supports it there, and a name for its parameters."""
    named, cls = component
    supported = part.variant_class.places | {"input"}
    if reason := without_place(cls):
        return reason
    if "." in named.short_name or hasattr(Components({}), named.short_name):
        return f"expected another name: the parameters of a variant cannot be called {named.short_name!r}"
    if missing := missing_places(cls, part.variant_class.places):
        listed = ", ".join(place for place in PLACES if place in supported)
        name = Named(name=part.variant.name, options=part.variant.options).label
        return f"changes {' and '.join(missing)}, where {name} supports no component (supports {listed})"
    return None


def _declared(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require what the component declares: its roles, memory, compilation, and its options."""
    named, cls = component
    heads = part.heads(config)
    return cls.unsupported(
        role=part.role,
        hook=part.position_class.hook,
        memory=config.model.mem_len > 0,
        backend=part.backend(config),
        dim=config.model.dim,
        heads=heads,
        head_dim=part.variant_class.head_dim(config.model.dim, heads),
        compile=config.train.compile,
        options=with_defaults(cls, named.options),
    )


def _backend(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require a backend that computes functions of logits or weights, if the component has one."""
    named, cls = component
    if _needs_functions(cls, part.backend(config)):
        place = next(place for place in cls.places() if part.backend(config) not in FUNCTION_BACKENDS.get(place, BACKENDS))
        return (
            f"changes {place}, which requires the backend {' or '.join(FUNCTION_BACKENDS[place])}, got {part.backend(config)}"
        )
    return None


def _needs_functions(component: type[Component], backend: str) -> bool:
    """Return True when a component changes a place that ``backend`` does not compute by functions."""
    return any(backend not in FUNCTION_BACKENDS.get(place, BACKENDS) for place in component.places())


def _exclusive(components: list[NamedComponent]) -> str | None:
    """Require at most one component at each place that holds one computation."""
    pair = exclusive_pair(components)
    if pair is None:
        return None
    first, second, place = pair
    return f"{first.label} and {second.label} both replace {place}, which has one computation: keep one of them"

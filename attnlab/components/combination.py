"""Rules on sets of components: the places that a variant has, and those that hold one computation."""

from collections.abc import Sequence
from typing import TypeVar

from attnlab.components.base import PLACES, REPLACED, Component
from attnlab.errors import nearest

N = TypeVar("N")


def missing_places(component: type[Component], places: frozenset[str]) -> list[str]:
    """Return the places that a component changes and a variant with ``places`` does not have."""
    return [place for place in component.places() if place not in places | {"input"}]


def without_place(component: type[Component]) -> str | None:
    """Return the reason why a class is no component, or None: it implements the method of no place."""
    if component.places():
        return None
    own = [name for name in vars(component) if not name.startswith("_") and not hasattr(Component, name)]
    misspelt = next((f"; {name}{guess}" for name in own if (guess := nearest(name, PLACES))), "")
    return f"changes no place: expected one of the methods {', '.join(PLACES)}{misspelt}"


def exclusive_pair(components: Sequence[tuple[N, type[Component]]]) -> tuple[N, N, str] | None:
    """Return the first two of some named components that replace the same place, and the place, or None."""
    for place in REPLACED:
        replacing = [name for name, component in components if place in component.places()]
        if len(replacing) > 1:
            return replacing[0], replacing[1], place
    return None

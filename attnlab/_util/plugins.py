"""From names to objects that are imported when they are first used, in attnlab and in installed packages."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Plugins:
    """A mapping from names to objects of one kind, each imported when it is first used.

    Args:
        kind: singular noun for messages, for example ``"verb"``.
        group: entry-point group with which installed packages add objects.
        builtin: name -> ``"module"`` or ``"module:attribute"`` of attnlab's objects. They are strings, so that neither a
            clone without an installed distribution nor an import of this module needs more than the table.
    """

    def __init__(self, kind: str, *, group: str, builtin: dict[str, str]) -> None:
        self.kind = kind
        self._group = group
        self._builtin = builtin

    def names(self) -> list[str]:
        """Return all names, built-in ones and entry points."""
        return list(dict.fromkeys([*self._builtin, *self._entry_points()]))

    def is_builtin(self, name: str) -> bool:
        """Return True for the name of one of attnlab's entries."""
        return name in self._builtin

    def load(self, name: str) -> Any:
        """Return the object of one of the names.

        Raises:
            UserError: an installed package has no such object, or importing it failed.
        """
        if name not in self._builtin:
            return self._load(self._entry_points()[name])
        module, _, attribute = self._builtin[name].partition(":")
        imported = importlib.import_module(module)
        return getattr(imported, attribute) if attribute else imported

    def _entry_points(self) -> dict[str, EntryPoint]:
        points: dict[str, EntryPoint] = {}
        for point in _installed_entry_points(self._group, tuple(sys.path)):
            first = points.setdefault(point.name, point)
            if first.value != point.value or point.name in self._builtin:
                other = self._builtin.get(point.name, first.value)
                raise UserError(f"the {self.kind} {point.name!r} is provided by two packages: {other} and {point.value}")
        return points

    def _load(self, point: EntryPoint) -> Any:
        try:
            return point.load()
        except Exception as error:  # a third-party package may raise anything: name it
            raise UserError(f"{self.kind} {point.name!r}: importing {point.value} failed: {error}") from error


@cache
def _installed_entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return a group's entry points of all packages on the search path."""
    from importlib.metadata import entry_points  # here: importing it takes longer than the rest of this module

    return tuple(entry_points(group=group))

"""What the registries hold, as tables: `attnlab list`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlab.cli.printing import near, show


def print_registries(kinds: Sequence[str]) -> None:
    """Print a table for each of `variants`, `positions`, `tasks`, `backends` that is asked for."""
    from attnlab.registry import POSITIONS, TASKS, VARIANTS

    for kind in kinds:
        if kind != kinds[0]:
            print()
        if kind == "variants":
            heads = ["variant", "options", "roles", "positions act by", "memory", "backends", "paper", "defined in"]
            show(heads, [_listed(VARIANTS, name) for name in VARIANTS.names()])
        elif kind == "positions":
            show(
                ["position", "options", "hook", "paper", "defined in"],
                [_listed(POSITIONS, name) for name in POSITIONS.names()],
            )
        elif kind == "tasks":
            heads = ["task", "options", "kind", "role", "metric", "better", "defined in"]
            show(heads, [_listed(TASKS, name) for name in TASKS.names()])
        else:
            show(["backend", "on this machine"], _backends())


def _listed(registry: Any, name: str) -> Sequence[str]:
    from attnlab.registry import source

    cls = registry.get(name)
    file, _, line = source(cls).rpartition(":")
    place = f"{near(Path(file))}:{line}" if file else line
    known = [name, _options(cls)]
    if registry.kind == "variant":
        memory = "yes" if cls.memory else "no"
        return [*known, _names(cls.roles), _names(cls.hooks), memory, ", ".join(cls.backends), cls.paper, place]
    if registry.kind == "task":
        return [*known, cls.kind, cls.role, cls.metric, cls.direction, place]
    return [*known, cls.hook, cls.paper, place]


def _options(cls: type) -> str:
    """What a study may set of a class, with defaults; one that must be set has none."""
    from attnlab.config.axes import text
    from attnlab.registry import options_of

    options = options_of(cls).items()
    return ", ".join(name if p.default is p.empty else f"{name}={text(p.default)}" for name, p in options)


def _backends() -> Sequence[Sequence[str]]:
    from attnlab.nn import attention
    from attnlab.training import device as machine

    device = machine.resolve_device("auto")
    return [[name, attention.unsupported(name, device=device) or f"available on {device}"] for name in attention.BACKENDS]


def _names(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"

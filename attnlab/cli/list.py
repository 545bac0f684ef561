"""`attnlab list`: print the names of every kind, the registered classes of one, the backends, or the keys of a study file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from attnlab.cli._arguments import Parser
from attnlab.cli._json import add_json_argument
from attnlab.cli._printing import print_table, print_text, relative

HELP = "list variants, components, positions, tasks, models, optimizers and backends, or the keys of a study file"
HEADINGS = {
    "variants": "variant, options, roles, position hooks, default position, memory, backends, components, paper, defined in",
    "components": "component, options, places, roles, memory, cache, paper, defined in",
    "positions": "position, options, hook, paper, defined in",
    "tasks": "task, options, kind, role, metric, better, defined in",
    "models": "model, defined in",
    "optimizers": "optimizer, options, defined in",
}
WRAPPED = ("names", "description", "options", "places", "roles", "position hooks", "backends", "components", "paper")
WRAPPED += ("on this machine",)
KINDS = (*HEADINGS, "backends", "config")


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "kind", nargs="?", choices=KINDS, metavar="|".join(KINDS), help="default: the names of all kinds but config"
    )
    parser.add_repeatable("--imports", metavar="FILE", help="Python file to import first (repeatable)")
    add_json_argument(parser)


def main(arguments: Namespace) -> int:
    from attnlab._util.user_code import load_file

    for path in arguments.imports:
        load_file(Path(path))
    headings, rows = table(arguments.kind)
    print_table(headings, rows, keep_empty=arguments.kind == "config", wrap=WRAPPED)
    if arguments.kind is None:
        print_text("attnlab list KIND adds options, papers and files")
    arguments.answer = {arguments.kind or "kinds": [dict(zip(headings, row, strict=True)) for row in rows]}
    return 0


def table(kind: str | None) -> tuple[Sequence[str], list[list[str]]]:
    """Return the headings and the rows of one of `KINDS`; of None the names of each, which imports none of the classes."""
    from attnlab import registry

    if kind is None:
        rows = [[name, ", ".join(getattr(registry, name.upper()).names())] for name in HEADINGS]
        return ("kind", "names"), [*rows, ["backends", ", ".join(registry.BACKENDS)]]
    if kind == "config":
        from attnlab.cli._config_keys import config_keys

        return ("key", "default", "description"), [list(row) for row in config_keys()]
    if kind == "backends":
        return ("backend", "on this machine"), _backends()
    names = getattr(registry, kind.upper())
    return HEADINGS[kind].split(", "), [_describe(names, name) for name in names.names()]


def _describe(registry: Any, name: str) -> list[str]:
    """Return a registered class's row."""
    from attnlab.registry import source

    cls = registry.get(name)
    file, _, line = source(cls).rpartition(":")
    place = f"{relative(Path(file))}:{line}" if file else line
    if registry.kind == "model":
        return [name, place]
    row = [name, _options(cls)]
    if registry.kind == "optimizer":
        return [*row, place]
    if registry.kind == "variant":
        memory, backends, supported = _yes(cls.supports_memory), ", ".join(cls.backends), _supported_places(cls)
        positions = [_joined(cls.hooks), cls.default_position]
        return [*row, _joined(cls.roles), *positions, memory, backends, supported, cls.paper, place]
    if registry.kind == "component":
        cached = _yes(cls.supports_cache)
        return [*row, _places(cls.places()), _joined(cls.roles), _yes(cls.supports_memory), cached, cls.paper, place]
    if registry.kind == "task":
        return [*row, cls.kind, cls.role, cls.metric, cls.direction, place]
    return [*row, cls.hook, cls.paper, place]


def _options(cls: type) -> str:
    """Return the options that a study can set, with defaults; a required option has none."""
    from attnlab.config.types import text
    from attnlab.registry import options_of

    options = options_of(cls).items()
    return ", ".join(name if p.default is p.empty else f"{name}={text(p.default)}" for name, p in options)


def _supported_places(variant: Any) -> str:
    """Return the places at which a variant supports components: ``all``, or all but some, or a list."""
    from attnlab.components import PLACES

    supported = variant.places | {"input"}
    missing = [place for place in PLACES if place not in supported]
    if len(missing) > 2:
        return _places(supported)
    return f"all but {', '.join(missing)}" if missing else "all"


def _places(places: Collection[str]) -> str:
    """Return places in the order of computation."""
    from attnlab.components import PLACES

    return ", ".join(place for place in PLACES if place in places)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _backends() -> list[list[str]]:
    from attnlab.nn import attention
    from attnlab.training.device import resolve_device

    device = resolve_device("auto")
    return [[name, attention.unsupported(name, device=device) or f"available on {device}"] for name in attention.BACKENDS]


def _joined(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "none"

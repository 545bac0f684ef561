"""The contract over combinations: variants and components with every position scheme, role and backend that runs here.

    python -m benchmarks.contract [--sets 200] [--processes 2]

Each configuration is checked by the properties that combinations break: shapes, causality, padding, memory, decoding over a
cache, agreement of the backends, and the effect of each component. A table counts the results for each kind of configuration;
failures are listed below it. It takes a few minutes on two cores.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import torch

from attnlab.components.base import exclusive_pair, missing_places
from attnlab.errors import UserError
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from attnlab.testing import check
from attnlab.testing.contract import STATUSES

CHECKS = ("shapes", "causality by value", "padding", "memory", "key-value cache", "backends", "components take effect")
OPTIONS: dict[str, dict[str, Any]] = {"window": {"size": 5}, "kv_heads": {"count": 1}, "softcap": {"cap": 1.5}}


class Configuration(NamedTuple):
    """A variant with components and a position scheme."""

    kind: str
    variant: str
    components: tuple[str, ...]
    position: str


class Outcome(NamedTuple):
    """The results of one configuration, counted by status, and its failures."""

    configuration: Configuration
    counts: Mapping[str, int]
    failures: Sequence[str]


def configurations(sets: int) -> Iterator[Configuration]:
    """Yield each variant and each component with every position scheme, and random sets of components."""
    draw = random.Random(18)
    for position in POSITIONS.names():
        for variant in VARIANTS.names():
            yield Configuration("variants", variant, (), position)
        for component in COMPONENTS.names():
            yield Configuration("components", "dense", (component,), position)
    drawn: set[frozenset[str]] = set()
    while len(drawn) < sets:
        names = draw.sample(COMPONENTS.names(), draw.randint(2, 6))
        classes = [(name, COMPONENTS.get(name)) for name in names]
        places = VARIANTS.get("dense").places
        combine = exclusive_pair(classes) is None and not any(missing_places(cls, places) for _, cls in classes)
        if combine and frozenset(names) not in drawn:
            drawn.add(frozenset(names))
            yield Configuration("random sets", "dense", tuple(names), draw.choice(POSITIONS.names()))


def outcome(configuration: Configuration) -> Outcome:
    """Check one configuration."""
    torch.set_num_threads(1)
    components = [{"name": name, **OPTIONS.get(name, {})} for name in configuration.components]
    only = CHECKS if components else CHECKS[:-1]
    try:
        results = check(configuration.variant, components=components, position=configuration.position, only=only)
    except UserError as error:
        return Outcome(configuration, {"refused": 1}, [] if "support" in str(error) else [str(error)])
    failures = [f"{result.check}: {result.detail}" for result in results if result.status == "failed"]
    return Outcome(configuration, Counter(result.status for result in results), failures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=int, default=200, metavar="N", help="random sets of components (default: 200)")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="processes (default: 2)")
    arguments = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    number: Counter[str] = Counter()
    failures: list[str] = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for one in pool.map(outcome, configurations(arguments.sets)):
            kind = one.configuration.kind
            counts.setdefault(kind, Counter()).update(one.counts)
            number[kind] += 1
            name = " + ".join([one.configuration.variant, *one.configuration.components])
            failures += [f"{name} with {one.configuration.position}: {failure}" for failure in one.failures]
    print("| | configurations | " + " | ".join(STATUSES) + " |\n|---|---|" + "---|" * len(STATUSES))
    for kind, count in counts.items():
        print(f"| {kind} | {number[kind]} | " + " | ".join(str(count[status]) for status in STATUSES) + " |")
    print("\n".join(failures))


if __name__ == "__main__":
    main()

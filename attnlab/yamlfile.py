"""Strict YAML 1.2: plain values, and where in the file each of them stands."""

from collections.abc import Iterable
from typing import Any


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """``["train.steps=50", "variant=no_wo"]`` -> ``{"train.steps": 50, "variant": "no_wo"}``."""
    raise NotImplementedError

"""Tests of README.md: it names what is built in, so that nothing new is forgotten there."""

import re

import pytest

from attnlab.nn.attention import BACKENDS
from attnlab.registry import MODELS, POSITIONS, TASKS, VARIANTS, Registry
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(kind: str) -> set[str]:
    """Return the names in the row ``kind`` of README's table of built-in names."""
    (line,) = re.findall(rf"^\| {kind} \|(.*)\|$", README, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", line))


@pytest.mark.parametrize(
    ("kind", "registry"),
    [("variants", VARIANTS), ("position schemes", POSITIONS), ("tasks", TASKS), ("models", MODELS)],
)
def test_the_readme_names_every_built_in_class_and_no_other(kind: str, registry: Registry) -> None:
    assert row(kind) == set(registry._builtin)


def test_the_readme_names_every_backend() -> None:
    assert row("backends") - {"auto"} == set(BACKENDS)

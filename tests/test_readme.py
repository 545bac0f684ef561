"""Tests of README.md: it names what is built in, so that nothing new is forgotten there."""

import ast
import re

import pytest

from attnlab.nn.attention import BACKENDS
from attnlab.registry import COMPONENTS, MODELS, POSITIONS, TASKS, VARIANTS, Registry
from tests.support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(kind: str) -> set[str]:
    """Return the names in the row ``kind`` of README's table of built-in names."""
    (line,) = re.findall(rf"^\| {kind} \|(.*)\|$", README, flags=re.MULTILINE)
    return set(re.findall(r"`(\w+)`", line))


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        ("variants", VARIANTS),
        ("components", COMPONENTS),
        ("position schemes", POSITIONS),
        ("tasks", TASKS),
        ("models", MODELS),
    ],
)
def test_the_readme_names_every_built_in_class_and_no_other(kind: str, registry: Registry) -> None:
    assert row(kind) == set(registry._builtin)


def test_the_component_of_the_page_is_that_of_the_example() -> None:
    """The example adds the paper's equations, a docstring and types."""
    page = (ROOT / "docs" / "how-to" / "component.md").read_text(encoding="utf-8")
    (text,) = re.findall(r'```python title="head_scale.py"\n(.*?)```', page, flags=re.DOTALL)
    example = (ROOT / "examples" / "my_component" / "head_scale.py").read_text(encoding="utf-8")
    shown, complete = (
        {node.name: node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)} for code in (text, example)
    )
    assert shown.keys() == complete.keys() == {"__init__", "head_outputs"}
    for name, function in shown.items():
        assert [ast.dump(line) for line in function.body] == [ast.dump(line) for line in complete[name].body]


def test_the_readme_names_every_backend() -> None:
    assert row("backends") - {"auto"} == set(BACKENDS)

"""Tests of registration: a task needs only its file and one line in the registry."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import attnlab
from attnlab.registry import TASKS
from attnlab.tasks import Task

PACKAGE = Path(attnlab.__file__).parent


@cache
def importers() -> dict[str, list[str]]:
    """Return the modules that attnlab imports -> the files that import them."""
    files: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for module in set(_imported(ast.parse(path.read_text()))):
            files.setdefault(module, []).append(path.relative_to(PACKAGE).as_posix())
    return files


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", TASKS.names())
def test_a_task_is_its_file_and_one_line_in_the_registry(name: str) -> None:
    cls = TASKS.get(name)
    assert issubclass(cls, Task)
    assert cls.__module__ not in importers(), "nothing but the registry may know a task"
    assert (PACKAGE / "registry.py").read_text().count(f'"{cls.__module__}:{cls.__name__}"') == 1


def test_importers_are_seen() -> None:
    assert "tasks/__init__.py" in importers()["attnlab.tasks.base"]

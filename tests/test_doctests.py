"""The examples in the docstrings of the public packages run, and print what they say."""

import doctest
import importlib
import inspect
from types import ModuleType

import pytest

PUBLIC = (
    "attnlab",
    "attnlab.variants",
    "attnlab.components",
    "attnlab.positions",
    "attnlab.models",
    "attnlab.tasks",
    "attnlab.nn",
    "attnlab.testing",
    "attnlab.extras.bench.suite",
)


def examples(module: ModuleType) -> list[doctest.DocTest]:
    """The examples of a package's docstring and of everything that it exports, wherever that is defined."""
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(module, module.__name__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            source = inspect.getmodule(value)
            tests += doctest.DocTestFinder().find(value, f"{module.__name__}.{name}", module=source, globs=dict(vars(source)))
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_package_declares_its_exports(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__ and module.__all__
    undocumented = [
        export for export in module.__all__ if not export.startswith("__") and not documented(getattr(module, export))
    ]
    assert not undocumented


def documented(value: object) -> bool:
    """Return whether a class or function has a docstring of its own; constants need none."""
    return bool(inspect.getdoc(value)) if inspect.isclass(value) or callable(value) else True


@pytest.mark.parametrize("name", PUBLIC)
def test_examples_run(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tests = examples(importlib.import_module(name))
    assert tests, f"{name}: expected an example in a docstring of what it exports"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0

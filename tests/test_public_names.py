"""The public names are offered by `dir` and by tab completion, also those that are imported on first use."""

import argparse
import importlib
import inspect
import rlcompleter
import subprocess
import sys

import pytest

import attnlab
from attnlab.cli.main import build_parser
from tests.support.terminal import assert_snapshot

PACKAGES = ("variants", "components", "positions", "models", "tasks", "nn", "testing", "report")
NAMES = ("attnlab", *(f"attnlab.{name}" for name in PACKAGES))


@pytest.mark.parametrize("name", NAMES)
def test_dir_offers_every_public_name(name: str) -> None:
    package = importlib.import_module(name)
    assert set(package.__all__) <= set(dir(package))


def test_offering_names_imports_nothing_heavy() -> None:
    code = "import sys, attnlab as a, attnlab.tasks as t; print('run' in dir(a), 'Task' in dir(t), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "False"]


def test_tab_completion_offers_the_lazy_names() -> None:
    complete = rlcompleter.Completer({"attnlab": attnlab, "tasks": importlib.import_module("attnlab.tasks")})
    assert complete.attr_matches("attnlab.verd") == ["attnlab.verdicts("]
    assert complete.attr_matches("attnlab.write_r") == ["attnlab.write_report("]
    assert any(name.startswith("tasks.known_split") for name in complete.attr_matches("tasks.known"))


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_there(name: str) -> None:
    package = importlib.import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is not None


def test_the_public_surface_is_what_it_was() -> None:
    """A name, parameter or option that is gone or new belongs in CHANGELOG.md; docs/scope.md says what may change when."""
    lines = []
    for package in map(importlib.import_module, NAMES):
        lines += [f"{package.__name__}.{name}{_parameters(getattr(package, name))}" for name in sorted(package.__all__)]
    for verb, parser in sorted(_verbs().items()):
        options = [action.option_strings[-1] if action.option_strings else action.dest for action in parser._actions]
        lines.append(" ".join(["attnlab", verb, *options]))
    assert_snapshot("public_surface", "\n".join(lines) + "\n")


def _verbs() -> dict[str, argparse.ArgumentParser]:
    (action,) = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return action.choices


def _parameters(public: object) -> str:
    if not callable(public) or isinstance(public, type) and not public.__module__.startswith("attnlab"):
        return ""
    return f"({', '.join(inspect.signature(public).parameters)})"

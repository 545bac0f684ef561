"""The public names are offered by `dir` and by tab completion, also those that are imported on first use."""

import importlib
import rlcompleter
import subprocess
import sys

import pytest

import attnlab

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

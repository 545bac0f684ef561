"""The adapter of flash-linear-attention: its own code by a small stand-in, and real functions where it is installed."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.extras.adapters import fla
from attnlab.testing import check
from attnlab.testing.dispatch import adapt

CHECKED = ["shapes", "causality by value", "padding", "training mode"]
INSTALLED = pytest.mark.skipif(importlib.util.find_spec("fla") is None, reason="flash-linear-attention is not installed")
FILES = {
    "__init__.py": "raise RuntimeError('the package imports Triton')\n",
    "ops/gla/naive.py": """
import torch


def naive_recurrent_gla(q, k, v, gk, initial_state=None, output_final_state=False):
    state, outputs = 0, []
    for i in range(q.shape[1]):
        state = state * gk[:, i].exp()[..., None] + k[:, i, :, :, None] * v[:, i, :, None, :]
        outputs.append((q[:, i, :, :, None] * state).sum(-2))
    return torch.stack(outputs, 1), state


def naive_leaking_gla(q, k, v, gk):
    return naive_recurrent_gla(q, k, v + v.mean(1, keepdim=True), gk)
""",
    "ops/retention/naive.py": """
def naive_retention(q, k, v):
    return (q @ k.mT).tril() @ v
""",
    "ops/kda/naive.py": "import no_such_package\n",
}


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package ``standin_fla`` with the layout of flash-linear-attention, which cannot be imported as a whole."""
    for name, code in FILES.items():
        path = tmp_path / "standin_fla" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(fla, "PACKAGE", "standin_fla")


def failures(ref: str, only: list[str] = CHECKED, **options: Any) -> list[str]:
    results = check(adapt(ref, options), only=only)
    assert {result.status for result in results} & {"passed", "failed"}
    return [result.check for result in results if result.status == "failed"]


def test_a_reference_function_is_checked_between_projections_without_its_package(library: None) -> None:
    assert failures("fla:gla") == failures("fla:retention", ["shapes", "causality by value"]) == []
    assert "standin_fla" not in sys.modules
    assert failures("fla:gla", ["causality by value"], function="naive_leaking_gla") == ["causality by value"]


@pytest.mark.parametrize(
    ("ref", "options", "words"),
    [
        ("fla:gal", {}, ["did you mean 'gla'"]),
        ("fla:gla", {"function": "naive_recurrent_gal"}, ["did you mean 'naive_recurrent_gla'"]),
        ("fla:gla", {"scales": 1}, ["naive_recurrent_gla", "'scales'"]),
        ("fla:delta_rule", {}, ["ops/delta_rule/naive.py"]),
        ("fla:kda", {}, ["pip install no_such_package"]),
    ],
)
def test_a_mistake_is_one_line(library: None, ref: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        adapt(ref, options)
    assert error.value.where == ref and all(word in error.value.message for word in words), error.value


@INSTALLED
@pytest.mark.parametrize("name", fla.RECURRENCES)
def test_the_reference_functions_of_the_library_pass(name: str) -> None:
    assert failures(f"fla:{name}", ["shapes", "causality by value", "padding"]) == []

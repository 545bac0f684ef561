"""Layers of other libraries are checked as variants."""

import importlib.util

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.testing import check
from attnlab.testing.dispatch import adapt, is_adapted

CHECKED = ["shapes", "causality by value", "padding", "memory", "training mode", "dropout share"]


def test_pytorchs_layer_passes_and_its_options_are_those_of_its_constructor() -> None:
    variant = adapt("torch:nn.MultiheadAttention", {"add_zero_attn": True})
    assert variant.__name__ == "MultiheadAttention"
    layer = adapt("torch:nn.MultiheadAttention", {})
    failed = [result for result in check(layer, heads=4, dim=16, only=CHECKED) if result.status == "failed"]
    assert not failed
    with pytest.raises(UserError, match="no_such_option"):
        check(adapt("torch:nn.MultiheadAttention", {"no_such_option": 1}), only=["shapes"])


def test_the_command_checks_pytorchs_layer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "torch:nn.MultiheadAttention", "--device", "cpu", "--only", "causality by gradient"]
    assert main.main([*arguments, "--options", "bias=true"]) == 0
    assert "causality by gradient" in capsys.readouterr().out
    assert main.main(["check", "torch:nn.MultiheadAttentoin"]) == 2
    assert "did you mean" in capsys.readouterr().err


def test_a_reference_of_a_users_module_is_not_taken_for_a_library() -> None:
    assert is_adapted("xt:Attention") and not is_adapted("dense") and not is_adapted("lab.torch:Mine")


@pytest.mark.skipif(importlib.util.find_spec("x_transformers") is not None, reason="x-transformers is installed")
def test_a_library_that_is_not_installed_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["check", "xt:Attention"]) == 2
    error = capsys.readouterr().err
    assert "x-transformers" in error and error.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("x_transformers") is None, reason="x-transformers is not installed")
def test_the_leak_of_x_transformers_is_found() -> None:
    def status(**options: bool) -> str:
        return check(adapt("xt:Attention", options), heads=4, dim=32, roles=["causal"], only=["causality by value"])[-1].status

    assert status() == "passed"
    assert status(orthog_projected_values=True) == status(orthog_projected_values_per_head=True) == "failed"

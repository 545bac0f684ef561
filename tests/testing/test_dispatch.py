"""`attnlab.check` takes a class of any kind, prints nothing, and returns results with a truth value and a readable text."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import attnlab
from attnlab.errors import UserError
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing import CheckResult
from attnlab.testing.checks import CHECKS
from attnlab.testing.model_checks import MODEL_CHECKS
from attnlab.testing.position_checks import POSITION_CHECKS
from attnlab.testing.task_checks import TASK_CHECKS
from tests.support.paths import ROOT

BROKEN = ROOT / "examples" / "my_variant" / "broken.py"


def cap(score: Tensor, b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
    return 20 * (score / 20).tanh()


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("no_wo", "NoWo"),
        (VARIANTS.get("no_wo"), "NoWo"),
        ("attnlab.variants.no_wo:NoWo", "NoWo"),
        ("rotary", "Rotary"),
        (POSITIONS.get("rotary"), "Rotary"),
        ("gate", "Dense"),
        (cap, "Dense"),
        ("language_model", "LanguageModel"),
        ("torch:nn.MultiheadAttention", "MultiheadAttention"),
    ],
)
def test_a_class_of_any_kind_is_checked(target: Any, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = attnlab.check(target, only=["shapes"])
    assert results and [result.status for result in results] == ["passed"]
    assert repr(results).startswith("check of ") and name in repr(results) and "1 passed" in repr(results)
    assert capsys.readouterr() == ("", "")


def test_a_failure_is_false_and_says_what_to_change() -> None:
    told: list[CheckResult] = []
    results = attnlab.check(f"{BROKEN}:Broken", only=["shapes", "causality by value"], report=told.append)
    assert not results and [result.check for result in results.failed] == ["causality by value"]
    assert told == results
    assert results.failed[0].advice in repr(results) and results.failed[0].advice in results._repr_html_()


def test_results_without_a_passed_check_are_false() -> None:
    results = attnlab.check("strided_sparse", roles=["cross"])
    assert not results and not results.failed and results[0].detail in repr(results)


@pytest.mark.parametrize(
    ("target", "arguments", "word"),
    [
        ("RoPE", {}, "'rotary'"),
        ("pydocs", {"position": "rotary"}, "position is for a variant or component"),
        (Path, {}, "got Path"),
        (3, {}, "got 3"),
    ],
)
def test_a_mistake_is_one_line(target: Any, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word) as raised:
        attnlab.check(target, **arguments)
    assert "\n" not in str(raised.value)


def test_the_documented_numbers_of_properties_are_those_of_the_checks() -> None:
    page = " ".join((ROOT / "docs" / "how-to" / "check.md").read_text(encoding="utf-8").split())
    for words, checks in (
        ("variant against {} properties", CHECKS),
        ("against {} properties, a task", POSITION_CHECKS),
        (", a task against {} (", TASK_CHECKS),
        ("encoder_decoder`) against {}.", MODEL_CHECKS),
    ):
        assert words.format(len(checks)) in page

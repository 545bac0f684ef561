"""The place of an exception: the innermost line of a user's own file."""

from pathlib import Path

import pytest
import torch

from attnlab._util.raise_site import describe_error
from attnlab.errors import UserError
from attnlab.registry import load_file
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense

OWN = """import torch
from attnlab.variants.dense import Dense


class Mine(Dense):
    def forward(self, x, *, context=None, mask=None):
        return helper(x)


def helper(x):
    return torch.zeros(2, 3) @ x
"""


def caught(call) -> BaseException:  # noqa: ANN001
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("expected an exception")


def test_the_innermost_line_outside_of_the_libraries_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    cls = load_file(tmp_path / "mine.py").Mine
    variant = cls(AttentionConfig(6, 2))
    text = describe_error(caught(lambda: variant(torch.zeros(1, 5, 6))))
    assert text.startswith("RuntimeError: ") and text.endswith("(mine.py:11)")


def test_a_call_that_does_not_fit_names_the_definition_of_the_users_class(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    cls = load_file(tmp_path / "mine.py").Mine
    error = caught(lambda: torch.nn.Module.__call__(cls(AttentionConfig(6, 2)), None, None, None))
    assert describe_error(error.with_traceback(None), Dense, cls).endswith("(mine.py:5)")


@pytest.mark.parametrize("text", ["", "first\nsecond"])
def test_one_line_of_the_message(text: str) -> None:
    described = describe_error(ValueError(text).with_traceback(None))
    assert described == ("ValueError: first" if text else "ValueError")


def test_a_message_of_attnlab_itself_is_not_decorated() -> None:
    assert describe_error(UserError("expected a stride of at least 1")) == "expected a stride of at least 1"

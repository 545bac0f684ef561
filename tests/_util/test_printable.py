"""Tests of the escaping of control characters, and of the places where names and messages are shown."""

import io
import logging
from typing import Any

import pytest

from attnlab._util.log import log_to
from attnlab._util.text import escape_controls
from attnlab.cli._printing import print_table, print_text
from attnlab.config.axes import labels
from attnlab.config.grid import Cell
from attnlab.report.section import escape_tags
from attnlab.study.execution.progress import ProgressDisplay
from tests.support.small_runs import tiny

HOSTILE = "a\x1b[2J\x9b1m\u202eb\nc\rd\u2028e\udc80"


def is_clean(text: str) -> bool:
    return all(c.isprintable() or c in " \n" for c in text)


def test_controls_are_escaped_and_nothing_else_is() -> None:
    assert escape_controls(HOSTILE) == r"a\x1b[2J\x9b1m\u202eb\nc\rd\u2028e\udc80"
    assert escape_controls("a\n\tb", keep="\n\t") == "a\n\tb"
    for text in ("", "näive Ελληνικά 漢字 🙂", "1\u202f000\u00a0m", "a\\x1b"):
        assert escape_controls(text) == text


def test_cells_and_sentences_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["cell"], [[HOSTILE]])
    print_text(HOSTILE)
    out = capsys.readouterr().out
    assert is_clean(out) and out.count("\\x1b") == 2


def test_labels_and_refusals_are_escaped() -> None:
    assert all(is_clean(str(label)) for label in labels([HOSTILE, {"name": HOSTILE, HOSTILE: HOSTILE}, [HOSTILE]]))
    assert all(is_clean(str(label)) for label in labels([f"a:{HOSTILE}", f"b:{HOSTILE}"]))
    missing: Any = None
    assert is_clean(str(Cell("a", {}, tiny(), missing, {}, refusal=HOSTILE).refusal))


def test_log_lines_and_the_display_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("attnlab"), "propagate", False)  # pytest-xdist cannot send a captured surrogate
    lines: list[str] = []
    with log_to(lines.append):
        logging.getLogger("attnlab").info("x %s", HOSTILE)
    stream = io.StringIO()
    ProgressDisplay(stream).print(HOSTILE)
    assert all(is_clean(text) and "\\x1b" in text for text in (*lines, stream.getvalue()))


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "![x](http://a/b)", "[x](javascript:a)", "[x][y]", "\x1b[2J"])
def test_a_comment_of_a_study_is_text_in_markdown(text: str) -> None:
    escaped = escape_tags(text)
    assert "<img" not in escaped and "](" not in escaped.replace("\\](", "") and "][" not in escaped.replace("\\][", "")

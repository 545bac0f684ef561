"""What 0.9 removed is refused by name, with what to write instead."""

import pytest

from attnlab import removed
from attnlab.cli.main import main
from attnlab.errors import nearest


def test_a_removed_name_is_answered_with_its_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(removed.REMOVED, "medain", "use `mean`")
    assert nearest("medain", ["median"]) == " (removed in 0.9: use `mean`)"


def test_a_removed_option_and_verb_are_answered_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(removed.REMOVED, "--colour", "set NO_COLOR")
    monkeypatch.setitem(removed.REMOVED, "replot", "run `attnlab report`")
    assert main(["list", "--colour"]) == 2
    assert "removed in 0.9: set NO_COLOR" in capsys.readouterr().err
    assert main(["replot"]) == 2
    assert "removed in 0.9: run `attnlab report`" in capsys.readouterr().err


def test_no_removed_name_is_still_in_use() -> None:
    from attnlab.cli.main import VERBS

    assert not set(removed.REMOVED) & set(VERBS.names())
    assert all(sentence and isinstance(sentence, str) for sentence in removed.REMOVED.values())

"""Tests of calls that are repeated while a store does not respond."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from attnlab._util import patience as module
from attnlab._util.database import is_conflict, outage
from attnlab._util.files import describe_disk_error
from attnlab._util.patience import CONFLICTS, Patience
from attnlab.errors import UserError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_BACKOFF", 0.001)
    monkeypatch.setattr(module, "MAX_BACKOFF", 0.002)


class UniqueViolation(Exception):
    """As a driver names it."""


def failing(errors: list[Any]) -> Callable[[], str]:
    def call() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    return call


def sqlite_error(name: str, text: str = "x") -> OperationalError:
    cause = sqlite3.OperationalError(text)
    cause.sqlite_errorname = name
    error = OperationalError("SELECT 1", {}, cause)
    error.__cause__ = cause
    return error


def patient() -> Patience:
    return Patience("the queue", reason=outage, is_conflict=is_conflict, hint="; delete it")


def test_a_call_is_repeated_until_the_store_responds() -> None:
    waiting, turns = patient(), list[int]()
    waiting.on_wait = lambda: turns.append(1)
    lost = OperationalError("x", {}, Exception("server closed the connection"), connection_invalidated=True)
    assert waiting(failing([lost, sqlite_error("SQLITE_BUSY")])) == "done" and len(turns) >= 2
    assert waiting.resumed > 0


def test_what_no_attempt_can_help_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = patient()
    for error in (ValueError("x"), KeyError("x"), sqlite_error("SQLITE_CORRUPT")):
        errors = [error]
        with pytest.raises(UserError, match="cannot use the queue: .*; delete it") as raised:
            waiting(failing(errors))
        assert not errors and raised.value.__cause__ is error
    for error in (UserError("x"), ImportError("x"), sqlite_error("SQLITE_IOERR_WRITE", "disk I/O error")):
        with pytest.raises(type(error)):
            waiting(failing([error]))
    assert "failing" in (describe_disk_error(sqlite_error("SQLITE_IOERR_WRITE", "disk I/O error")) or "")
    monkeypatch.setenv("ATTNLAB_TRACKING_PATIENCE", "0.01")
    with pytest.raises(UserError, match="the queue did not respond within 0 s: x; rerun"):
        waiting(failing([sqlite_error("SQLITE_BUSY") for _ in range(99)]))


def test_a_conflict_with_another_process_is_tried_again_a_few_times() -> None:
    assert patient()(failing([UniqueViolation() for _ in range(CONFLICTS - 1)])) == "done"
    with pytest.raises(UserError, match="cannot use"):
        patient()(failing([UniqueViolation() for _ in range(CONFLICTS)]))


def test_the_outer_call_is_repeated_as_a_whole() -> None:
    waiting, made = patient(), list[str]()
    inner = failing([sqlite_error("SQLITE_LOCKED")])

    def outer() -> str:
        made.append("outer")
        return waiting(inner)

    assert waiting(outer) == "done" and made == ["outer", "outer"]

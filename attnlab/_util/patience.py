"""Patience with a store that does not respond: calls are repeated, with exponential backoff and one line of notice."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

from attnlab._util.files import describe_disk_error, describe_error
from attnlab.errors import UserError

MIN_BACKOFF, MAX_BACKOFF = 0.1, 5.0  # seconds between two attempts
DEFAULT_TIMEOUT = 600.0  # seconds; ATTNLAB_TRACKING_PATIENCE overrides it
NOTICE_AFTER = 5.0  # seconds without a response before the user is notified
CONFLICTS = 5  # attempts of a call that conflicts with one of another process, such as two insertions of one key
TURN = 0.1  # seconds between two calls of ``on_wait``

logger = logging.getLogger(__name__)
T = TypeVar("T")


def response_timeout() -> float:
    """Return the seconds to wait for a response: ``ATTNLAB_TRACKING_PATIENCE``, else ``DEFAULT_TIMEOUT``.

    Raises:
        UserError: the variable is not a number.
    """
    text = os.environ.get("ATTNLAB_TRACKING_PATIENCE", DEFAULT_TIMEOUT)
    try:
        return float(text)
    except ValueError:
        raise UserError(f"expected a number of seconds, got {text!r}", "ATTNLAB_TRACKING_PATIENCE") from None


class Patience:
    """Repeats a call while its store does not respond. A call within a call is made once: the outer one is repeated whole.

    Args:
        store: the store's name in messages.
        reason: returns why an error means that the store did not respond, or None when a further attempt cannot help.
        is_conflict: returns whether an error comes from a call that another process made at the same time.
        hint: what to do about a store with unusable content, for the message.

    Attributes:
        on_wait: called about ten times a second while a call waits.
        resumed: when the store last responded again after it had not, in seconds of ``time.monotonic``.
    """

    def __init__(
        self,
        store: str,
        *,
        reason: Callable[[Exception], str | None],
        is_conflict: Callable[[Exception], bool],
        hint: str = "",
    ) -> None:
        self._store, self._reason, self._is_conflict, self._hint = store, reason, is_conflict, hint
        self._inside = False
        self.on_wait: Callable[[], None] = lambda: None
        self.resumed = -float("inf")

    def __call__(self, call: Callable[[], T]) -> T:
        """Make a call, and return its result.

        Raises:
            UserError: the store did not respond in time, or a further attempt cannot help, because it is damaged.
        """
        if self._inside:
            return call()
        self._inside = True
        try:
            return self._repeat(call)
        finally:
            self._inside = False

    def _repeat(self, call: Callable[[], T]) -> T:
        since, backoff, conflicts, noticed = time.monotonic(), MIN_BACKOFF, 0, False
        while True:
            try:
                result = call()
            except Exception as error:
                conflict = self._is_conflict(error)
                conflicts += conflict
                reason = "two processes wrote at once" if conflict and conflicts < CONFLICTS else self._reason(error)
                waited = time.monotonic() - since
                if reason is None and (isinstance(error, UserError | ImportError) or describe_disk_error(error)):
                    raise
                if reason is None:
                    raise UserError(f"cannot use {self._store}: {describe_error(error)}{self._hint}") from error
                if waited > response_timeout():
                    message = f"{self._store} did not respond within {waited:.0f} s: {reason}; rerun the command to resume"
                    raise UserError(message) from error
                if waited > NOTICE_AFTER and not noticed:
                    noticed = True
                    logger.warning("%s does not respond (%s); retrying. Runs continue", self._store, reason)
                self._wait(backoff)
                backoff = min(2 * backoff, MAX_BACKOFF)
                self.resumed = self.resumed if conflict else time.monotonic()
            else:
                if noticed:
                    logger.info("%s responds again", self._store)
                return result

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.on_wait()
            time.sleep(min(TURN, left))

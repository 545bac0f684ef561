"""Console output of the loggers below ``attnlab``: plain lines, with secrets redacted."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attnlab._util.redact import redact
from attnlab._util.text import escape_controls


class _LineHandler(logging.Handler):
    """Pass the message of every record, as one redacted line, to ``write``."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(escape_controls(redact(self.format(record)), keep="\n\t"))
        except Exception:  # logging's convention: a failing handler must not stop the program
            self.handleError(record)


@contextmanager
def log_to(write: Callable[[str], None]) -> Iterator[None]:
    """Pass the messages of ``attnlab``'s loggers, from INFO up, to ``write`` while the block runs.

    An inner block replaces an outer one, so that no line is written twice: the progress display of a study replaces the
    command line. Handlers and a level that the program set itself are kept.
    """
    logger = logging.getLogger("attnlab")
    outer = [handler for handler in logger.handlers if isinstance(handler, _LineHandler)]
    level, handler = logger.level, _LineHandler(write)
    for outer_handler in outer:
        logger.removeHandler(outer_handler)
    logger.addHandler(handler)
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        for outer_handler in outer:
            logger.addHandler(outer_handler)

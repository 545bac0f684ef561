"""Tests of ``log_to``: lines of ``attnlab``'s loggers are redacted and written once."""

import logging
import subprocess
import sys

from attnlab._util.log import log_to

logger = logging.getLogger("attnlab.somewhere")


def test_an_inner_block_takes_over_and_gives_back() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with log_to(outer.append):
        logger.info("first")
        with log_to(inner.append):
            logger.info("second %d", 2)
        logger.debug("left out")
        logger.warning("third")
    logger.error("nobody listens")
    assert (outer, inner) == (["first", "third"], ["second 2"])


def test_a_level_that_was_set_stays() -> None:
    lines: list[str] = []
    package = logging.getLogger("attnlab")
    package.setLevel(logging.WARNING)
    try:
        with log_to(lines.append):
            logger.info("quiet")
            logger.warning("loud")
        assert lines == ["loud"] and package.level == logging.WARNING
    finally:
        package.setLevel(logging.NOTSET)


def test_secrets_are_redacted() -> None:
    lines: list[str] = []
    with log_to(lines.append):
        logger.warning("no answer of %s", "http://me:s3cret@host")
    assert "host" in lines[0] and "s3cret" not in lines[0]


def test_without_a_handler_warnings_alone_are_printed() -> None:
    code = "import logging, attnlab; log = logging.getLogger('attnlab.x'); log.info('quiet'); log.warning('loud')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "loud\n")

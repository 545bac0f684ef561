"""The command line: how errors and exit codes come out.

Exit codes: 0 done, 1 a run or a check failed, 2 a mistake of the user's or nothing that can be run (one line on standard
error), 130 interrupted.
Nothing heavy is imported here: `attnlab --help` answers at once. What may be typed is in `parser`, what verbs do in `verbs`.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from attnlab._util.files import describe_disk_error, describe_error
from attnlab._util.redact import redact
from attnlab.cli.parser import parser
from attnlab.errors import UserError, one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: the words after `attnlab`; default those of the process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _spare_the_collector()
    try:
        given = parser().parse_args(words, argparse.Namespace(words=words))
        from attnlab.cli import verbs

        return verbs.COMMANDS[given.verb](given)
    except UserError as error:
        if "--debug" in words:
            raise
        return _say(str(error), code=2)
    except KeyboardInterrupt as error:
        return _say(str(error) or "interrupted", code=130)
    except BrokenPipeError:  # `attnlab list | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        line = describe_disk_error(error) or (describe_error(error) if isinstance(error, OSError) else None)
        if line is None or "--debug" in words:
            raise
        return _say(line, code=2)


def _spare_the_collector() -> None:
    """Let Python look for garbage less often, and not at its end: a process that imports torch and MLflow has a million objects
    that live as long as it does, and looking through them takes seconds in all."""
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)


def _say(text: str, *, code: int) -> int:
    """Tell the person in one line, and return the exit code; a terminal that has been closed hears nothing."""
    with suppress(OSError):
        print(f"attnlab: {one_line(redact(text))}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())

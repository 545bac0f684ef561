"""The entry point of the command line: verbs, error messages and exit codes.

Exit codes: 0 success; 1 a run or a check failed; 2 invalid input, or nothing that can run (one line on standard error);
10 a cell is not better, when a script asks; 130 interrupted.

To add a verb, write a module with `HELP`, `add_arguments(parser)` and `main(arguments) -> int`, and a line in `VERBS`; an
installed package adds one by an entry point of the group `attnlab.verbs`. Verbs of `attnlab.extras` are strings in the same
table: nothing but a call of such a verb imports them. This module and the verbs import nothing heavy, so `attnlab --help`
responds at once; a verb's `main` imports what it needs.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import sys
from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from attnlab._util.files import describe_disk_error, describe_error
from attnlab._util.log import log_to
from attnlab._util.machine import describe_address_limit
from attnlab._util.plugins import Plugins
from attnlab._util.redact import redact
from attnlab._version import __version__
from attnlab.cli._arguments import Parser
from attnlab.cli._json import call
from attnlab.errors import UserError, one_line

VERBS = Plugins(
    "verb",
    group="attnlab.verbs",
    builtin={
        "init": "attnlab.cli.init",
        "plan": "attnlab.cli.plan",
        "run": "attnlab.cli.run",
        "submit": "attnlab.extras.slurm.cli",
        "train": "attnlab.cli.train",
        "verdict": "attnlab.cli.verdict",
        "report": "attnlab.cli.report",
        "attention-maps": "attnlab.cli.attention_maps",
        "bundle": "attnlab.extras.sharing.bundle_verb",
        "merge": "attnlab.extras.sharing.merge_verb",
        "export": "attnlab.extras.sharing.export",
        "runs": "attnlab.cli.runs",
        "redo": "attnlab.cli.redo",
        "delete": "attnlab.cli.delete",
        "ui": "attnlab.cli.ui",
        "generate": "attnlab.cli.generate",
        "list": "attnlab.cli.list",
        "schema": "attnlab.cli.schema",
        "check": "attnlab.cli.check",
        "bench": "attnlab.extras.bench.cli",
        "tune": "attnlab.extras.tune",
        "profile": "attnlab.extras.profile.cli",
        "compare": "attnlab.extras.compare",
        "claims": "attnlab.extras.claims.cli",
        "data": "attnlab.cli.data",
    },
)
EPILOG = "Runs are stored in ./runs (or ATTNLAB_RUNS), data sets in the user's cache folder (or ATTNLAB_DATA)."
SHELLS = ("bash", "zsh")
FILES: tuple[str, ...] = ("BUNDLE.zip", "FILE", "STUDY.yaml")  # metavariables of files
FOLDERS: tuple[str, ...] = ("FOLDER",)
VARIANTS: tuple[str, ...] = ("NAME|PATH",)  # names of classes, or files that define them
PREAMBLE = {
    "bash": '_attnlab_variants() {{ compgen -f -W "{names}" -- "$1"; }}',
    "zsh": "_attnlab_variants() {{ _alternative 'variants:variant:({names})' 'files:file:_files' }}",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after `attnlab`; default: from the command line.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _open_closed_streams()
        _collect_garbage_less_often()
        _escape_what_the_terminal_cannot_show()
    try:
        arguments = build_parser(words).parse_args(words, argparse.Namespace(argv=words))
        with log_to(_print_line):
            return call(arguments)
    except UserError as error:
        if "--debug" in words:
            raise
        return _fail(str(error), code=2)
    except KeyboardInterrupt as error:
        return _fail(str(error) or "interrupted", code=130)
    except BrokenPipeError:  # `attnlab list | head`: the reader has closed the pipe
        return 0
    except Exception as error:
        line = describe_address_limit(error) or describe_disk_error(error)
        line = line or (describe_error(error) if isinstance(error, OSError) else None)
        if line is None or "--debug" in words:
            raise
        return _fail(line, code=2)
    finally:
        _flush_output()


def build_parser(words: Sequence[str] = ()) -> Parser:
    """Return the parser of the verbs; the parsed arguments hold the verb's function as `main`.

    Args:
        words: The words to parse. When the first is a verb, the parser knows this verb only, so that no other is imported.

    Raises:
        UserError: The verb of an installed package cannot be imported.
    """
    parser = Parser(prog="attnlab", description="A testbed for attention variants, with an ablation runner.", epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"attnlab {__version__}")
    shells = {"choices": SHELLS, "help": "print a completion script for a shell"}
    parser.add_argument("--print-completion", action=PrintCompletion, **shells)
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    called = words[0] if words else ""
    if called == "--version":  # answered at once: verbs of installed packages take 50 ms to find
        return parser
    if VERBS.is_builtin(called) or called in VERBS.names():
        _add_verb(verbs, called)
        return parser
    for name in VERBS.names():
        try:
            _add_verb(verbs, name)
        except UserError as error:  # of an installed package: the others still have their help
            verbs.add_parser(name, help=str(error).replace("%", "%%"))
    return parser


def _add_verb(verbs: _SubParsersAction[Parser], name: str) -> None:
    module = VERBS.load(name)
    if missing := [part for part in ("HELP", "add_arguments", "main") if not hasattr(module, part)]:
        raise UserError(f"the verb {name!r}: expected a module with HELP, add_arguments and main; {module} lacks {missing[0]}")
    verb = verbs.add_parser(name, help=module.HELP, description=getattr(module, "DESCRIPTION", None))
    module.add_arguments(verb)
    verb.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verb.set_defaults(main=module.main)


def _open_closed_streams() -> None:
    """Open the standard streams that the caller has closed (`>&-`): a file would get their number, and be printed into."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _collect_garbage_less_often() -> None:
    """Collect garbage less often, and not at exit.

    A process that imports torch and MLflow has a million objects that live until it exits; traversing them takes seconds in
    total.
    """
    gc.set_threshold(50_000, 20, 100)
    atexit.register(gc.freeze)


def _escape_what_the_terminal_cannot_show() -> None:
    """Print a character that the locale cannot encode as an escape: standard error does so by default."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _flush_output() -> None:
    """Flush standard output now, so that a closed pipe does not change the exit code when Python exits."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_line(text: str) -> None:
    """Print one line on standard error, unless its terminal has been closed."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _fail(text: str, *, code: int) -> int:
    """Print an error on standard error and return the exit code."""
    _print_line(f"attnlab: {one_line(redact(text))}")
    return code


class PrintCompletion(Action):
    """Print the completion script of a shell, and exit."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        print(completion(parser, values))
        parser.exit(0)


def completion(parser: ArgumentParser, shell: str) -> str:
    """Return the script that completes verbs, flags, choices, files and names of variants.

    Args:
        parser: The parser of all verbs.
        shell: One of `SHELLS`.
    """
    import shtab

    from attnlab.registry import VARIANTS as REGISTRY

    kinds: dict[str, Any] = dict.fromkeys(FILES, shtab.FILE) | dict.fromkeys(FOLDERS, shtab.DIRECTORY)
    kinds |= dict.fromkeys(VARIANTS, dict.fromkeys(SHELLS, "_attnlab_variants"))
    for action in _actions(parser):
        if action.metavar in kinds and action.nargs != 0:
            vars(action)["complete"] = kinds[str(action.metavar)]  # where shtab looks for it
    return shtab.complete(parser, shell, preamble=PREAMBLE[shell].format(names=" ".join(REGISTRY.names())))


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield the arguments of a parser and of its verbs."""
    actions: Sequence[Action] = parser._actions
    for action in actions:
        yield action
        if isinstance(action, _SubParsersAction):
            for verb in dict.fromkeys(action.choices.values()):
                yield from _actions(verb)

"""The completion scripts of bash and zsh, made by shtab from the parser of all verbs."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator, Sequence
from typing import Any

SHELLS = ("bash", "zsh")
FILES: tuple[str, ...] = ("BUNDLE.zip", "FILE", "STUDY.yaml")  # metavariables of files
FOLDERS: tuple[str, ...] = ("FOLDER",)
VARIANTS: tuple[str, ...] = ("NAME|PATH",)  # names of classes, or files that define them
PREAMBLE = {
    "bash": '_attnlab_variants() {{ compgen -f -W "{names}" -- "$1"; }}',
    "zsh": "_attnlab_variants() {{ _alternative 'variants:variant:({names})' 'files:file:_files' }}",
}


class PrintCompletion(Action):
    """Print the completion script of a shell, and exit."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None) -> None:
        print(completion(parser, values))
        parser.exit(0)


def completion(parser: ArgumentParser, shell: str) -> str:
    """Return the script that completes verbs, flags, choices, files and names of variants.

    Args:
        parser: That of all verbs.
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

"""Resolve the cells of a study of a program: find the program, and the files that determine its results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attnlab._util.files import why_no_file
from attnlab.config.command import CommandConfig
from attnlab.config.grid import CellConfig
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError
from attnlab.planning.cell import Cell
from attnlab.planning.command_files import command_files, file_digest, find_program


def resolve_commands(study: StudyConfig, cells: Sequence[CellConfig]) -> list[Cell]:
    """Return the cells of a plan, each with the digests of its files.

    Raises:
        UserError: the program, or a file that the study lists, does not exist.
    """
    listed = None if study.files is None else _listed_files(study)
    digests: dict[Path, str] = {}
    resolved = []
    for cell in cells:
        command = cell.command
        _check_program(study, command)
        files = command_files(study.folder, _without_seed(command), command.env) if listed is None else listed
        for path in files.values():
            if path not in digests:
                digests[path] = file_digest(path)
        command = command.model_copy(update={"files": {name: digests[path] for name, path in files.items()}})
        resolved.append(Cell(cell.name, cell.axes, command, where=cell.place))
    return resolved


def _check_program(study: StudyConfig, command: CommandConfig) -> None:
    if not command.arguments:
        raise UserError("command: expected a program, got an empty command line", study.where("command"))
    program = command.arguments[0]
    if find_program(program, study.folder) is None:
        where = f"in {study.folder.resolve()}" if "/" in program else "in PATH"
        raise UserError(f"command: expected a program, but there is no executable {program!r} {where}", study.where("command"))
    for word in command.arguments[1:]:
        path = study.folder / word.rpartition("=")[2]
        with suppress(OSError):  # a word that is no path, such as one that is too long
            if path.is_fifo():
                raise UserError(f"command: expected a file, got {word!r}: {why_no_file(path)}", study.where("command"))


def _listed_files(study: StudyConfig) -> dict[str, Path]:
    """Return name -> path of the files that the study lists."""
    files: dict[str, Path] = {}
    for i, pattern in enumerate(study.files or []):
        try:
            matches = sorted(study.folder.glob(pattern))
        except (ValueError, NotImplementedError) as error:  # an empty or an absolute pattern
            message = f"files: expected a path or a pattern relative to the study, got {pattern!r} ({error})"
            raise UserError(message, study.where("files", i)) from None
        paths = [path for path in matches if path.is_file()]
        if not paths:
            found = f"{matches[0].name}: {why_no_file(matches[0])}" if matches else f"none matches {pattern!r}"
            raise UserError(f"files: expected a file or a pattern of files, but {found}", study.where("files", i))
        files |= {path.relative_to(study.folder).as_posix(): path for path in paths}
    return files


def _without_seed(command: CommandConfig) -> list[str]:
    """Return the words of a command line that are the same for all seeds."""
    other = command.model_copy(update={"seed": command.seed + 1}).arguments
    return [word for word, of_other in zip(command.arguments, other, strict=True) if word == of_other]

"""The files that determine the results of a program.

They are those that ``files:`` of its study lists; without it, those that git lists below the folder of the study; outside of a
checkout, those whose names end in ``WITHOUT_GIT``. Nothing is read to find out what a program reads.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from attnlab._util import git
from attnlab._util.code_digest import normalized
from attnlab._util.files import real_path, sha256, why_no_file
from attnlab.config.command import CommandConfig
from attnlab.config.grid import Cell
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError

PYTHON = "python"  # as the first word, the interpreter that runs attnlab
WITHOUT_GIT = (".py", ".yaml", ".yml", ".toml", ".json")
OUTPUTS = ("runs", "reports")  # attnlab's folders
STUDY, CELLS = re.compile(rb"^study:", re.MULTILINE), re.compile(rb"^(grid|include):", re.MULTILINE)  # keys of a study file
DIGITS = 16  # of a digest
MOST = 40  # files that a run records one by one: MLflow shortens a tag of more than 8,000 characters


def find_program(word: str, folder: Path) -> str | None:
    """Return the path of the program that the first word of a command names; None when there is none.

    Args:
        word: The first word.
        folder: Of the study, to which a word with a slash is relative; others are looked up in ``PATH``.
    """
    if word == PYTHON:
        return sys.executable
    return shutil.which(str(real_path(folder / word)) if "/" in word else word)


def file_digests(path: Path) -> tuple[str, str]:
    """Return the digests of a file and, of Python code, without comments and docstrings; "" when there is no such file."""
    try:
        exact = sha256(path)[:DIGITS]
        return exact, _code_digest(path, exact) if path.suffix == ".py" else exact
    except OSError:
        return "", ""


@lru_cache(maxsize=4096)
def _code_digest(path: Path, _exact: str) -> str:
    return hashlib.sha256(normalized(path.read_bytes())).hexdigest()[:DIGITS]


def changed_file(command: CommandConfig) -> str:
    """Return the name of the first file that is not as it was when its study was planned; "" when all are."""
    for name, (exact, code) in command.listing.items():
        path = Path(command.folder) / name
        if not path.is_file() or (sha256(path)[:DIGITS] != exact and file_digests(path)[1] != code):
            return name
    return ""


def counted_files(study: StudyConfig) -> list[str]:
    """Return the names of the files that count for a study of a program, relative to its folder.

    Raises:
        UserError: ``files`` names a file that does not exist, or a pattern that matches none.
    """
    if study.files is not None:
        return sorted({name for i in range(len(study.files)) for name in _matches(study, i)})
    return sorted(_counting(study, git.listed_files(study.folder)) or _counting(study, _without_git(study)))


def new_files(study: StudyConfig, listing: Collection[str]) -> list[str]:
    """Return the names of files that count now and did not when the study was planned: its program may have written them."""
    return [name for name in counted_files(study) if name not in listing]


def _matches(study: StudyConfig, i: int) -> list[str]:
    """Return the files of the i-th entry of ``files``: a file, a folder with all that is below it, or a pattern."""
    assert study.files is not None
    pattern, place = study.files[i], study.where("files", i)
    named = study.folder / pattern
    if pattern and named.is_file():
        return [_name(study, named)]
    try:
        paths = named.rglob("*") if pattern and named.is_dir() else study.folder.glob(pattern)
        names = _counting(study, (_name(study, path) for path in paths))
    except (ValueError, NotImplementedError) as error:  # an empty or an absolute pattern
        message = f"files: expected a path or a pattern relative to the study, got {pattern!r} ({error})"
        raise UserError(message, place) from None
    if not names:
        found = why_no_file(named) if os.path.lexists(named) and not named.is_dir() else "it matches none"
        raise UserError(f"files: expected a file, a folder or a pattern of files, got {pattern!r}: {found}", place)
    return names


def _name(study: StudyConfig, path: Path) -> str:
    return Path(os.path.relpath(path, study.folder)).as_posix()


def _without_git(study: StudyConfig) -> Iterator[str]:
    for place, folders, files in os.walk(study.folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not Path(place, name, "pyvenv.cfg").exists()]
        yield from (_name(study, Path(place, name)) for name in files if name.endswith(WITHOUT_GIT))


def _counting(study: StudyConfig, names: Iterable[str]) -> list[str]:
    """Return the names without folders, hidden files, studies, and files that attnlab writes."""
    return [
        name
        for name in names
        if not any(part.startswith(".") and part != ".." for part in Path(name).parts)
        and (path := study.folder / name).is_file()
        and not _is_output(study, path)
        and not _is_study(study, path)
    ]


def _is_output(study: StudyConfig, path: Path) -> bool:
    """Return whether a path lies in a folder of runs or reports."""
    folder, path = study.folder.absolute(), path.absolute()
    own = [*(folder / name for name in OUTPUTS), Path(os.environ.get("ATTNLAB_RUNS") or "runs").absolute()]
    top = folder / os.path.relpath(path, folder).partition("/")[0]
    return any(path.is_relative_to(place) for place in own) or (top / "mlflow.db").exists()


def _is_study(study: StudyConfig, path: Path) -> bool:
    if study.path is not None and path.samefile(study.path):
        return True
    return path.suffix in (".yaml", ".yml") and all(key.search(path.read_bytes()) for key in (STUDY, CELLS))


def resolve_commands(study: StudyConfig, cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells of a plan, each with the digests of its files.

    Raises:
        UserError: the program, or a file that the study lists, does not exist; or nothing says whether a file that a command
            names counts.
    """
    for cell in cells:
        _check_program(study, cell.command)
    listing = {name: file_digests(study.folder / name) for name in counted_files(study)}
    commands = [cell.command for cell in cells]
    _check_named(study, uncounted_files(study, commands, listing))
    codes = {name: code for name, (_, code) in listing.items()}
    update = {"files": _recorded(codes, first=_all_named(study, commands)), "listing": listing}
    return [replace(cell, settings=cell.command.model_copy(update=update)) for cell in cells]


def _recorded(listing: Mapping[str, str], *, first: Iterable[str]) -> dict[str, str]:
    """Return the digests that a run records: of the first files one by one, and one of all others."""
    names = list(dict.fromkeys([*(name for name in first if name in listing), *listing]))
    kept, rest = {name: listing[name] for name in names[:MOST]}, "".join(f"{name} {listing[name]}\n" for name in names[MOST:])
    digest = hashlib.sha256(rest.encode("utf-8", "surrogateescape")).hexdigest()[:DIGITS]
    return kept | ({f"{len(names) - MOST} more files": digest} if rest else {})


def _check_program(study: StudyConfig, command: CommandConfig) -> None:
    if not command.arguments:
        raise UserError("command: expected a program, got an empty command line", study.where("command"))
    program = command.arguments[0]
    if find_program(program, study.folder) is None:
        where = f"in {real_path(study.folder)}" if "/" in program else "in PATH"
        raise UserError(f"command: expected a program, but there is no executable {program!r} {where}", study.where("command"))


def uncounted_files(study: StudyConfig, commands: Iterable[CommandConfig], listing: Iterable[str]) -> list[str]:
    """Return the files and folders that commands name and that do not count; none if the study says what counts."""
    named = () if study.files is not None else _all_named(study, commands)
    return [name for name in named if not any(counted == name or counted.startswith(f"{name}/") for counted in listing)]


def _check_named(study: StudyConfig, uncounted: Sequence[str]) -> None:
    """Raise ``UserError`` for a file that a command names if neither ``files`` nor git says whether it counts."""
    in_git = bool(git.listed_files(study.folder))
    for name in uncounted:
        if not in_git or name.startswith("../"):  # else git ignores it
            message = (
                f"command: expected the key 'files', because the command names {name!r}, which would not count: list what the"
            )
            raise UserError(f'{message} program reads, for example files: ["*.py", {name}]', study.where("command"))


def _all_named(study: StudyConfig, commands: Iterable[CommandConfig]) -> list[str]:
    return list(dict.fromkeys(name for command in commands for name in _named(study, command)))


def _named(study: StudyConfig, command: CommandConfig) -> Iterator[str]:
    """Yield the files, and the folders below the study's, that the words of a command name whatever its seed."""
    folder = study.folder.absolute()
    for i, word in enumerate(_without_seed(command)):
        for part in dict.fromkeys((word, word.partition("=")[2])):
            path = Path(os.path.normpath(folder / part))
            is_below = path.is_relative_to(folder) and path != folder and not _is_output(study, path)
            with suppress(OSError, ValueError):  # a word that is no path, such as one that is too long
                is_file = path.is_file() and (i or "/" in part) and not _is_installed(path, folder)
                if part and (is_file or (is_below and path.is_dir())):
                    yield _name(study, path)


def _is_installed(path: Path, folder: Path) -> bool:
    """Return whether a file is a program that is not the study's own, such as an interpreter."""
    is_elsewhere = not real_path(path).is_relative_to(real_path(folder)) or (path.parents[1] / "pyvenv.cfg").exists()
    return is_elsewhere and path.suffix not in (".py", ".sh") and os.access(path, os.X_OK)


def _without_seed(command: CommandConfig) -> list[str]:
    """Return the words of a command line that are the same for all seeds."""
    other = command.model_copy(update={"seed": command.seed + 1}).arguments
    return [word for word, of_other in zip(command.arguments, other, strict=True) if word == of_other]

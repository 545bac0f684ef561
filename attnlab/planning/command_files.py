"""The files that determine the results of a program: those that its command line names, and those that these import.

A word of the command line can name a script, a configuration or data, wherever wrappers such as ``torchrun`` or ``uv run`` put
it. Shell scripts are read as command lines. What an option such as ``--out`` names is a result, which does not count.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from attnlab._util.code_digest import code_digest, code_files
from attnlab._util.files import real_path, sha256, why_no_file
from attnlab._util.imported_files import (
    OUTPUT,
    Roots,
    base_files,
    code_tree,
    computed_imports,
    computed_names,
    configuration_file,
    editable_roots,
    hydra_places,
    imported_files,
    module_file,
    path_roots,
)
from attnlab.config.command import CommandConfig
from attnlab.config.grid import CellConfig
from attnlab.config.study import StudyConfig
from attnlab.errors import UserError
from attnlab.planning.cell import Cell

PYTHON = "python"  # as the first word, the interpreter that runs attnlab
SHELLS = {"sh", "bash", "zsh", "dash", "ksh"}
CONFIGURATION = ("*.yaml", "*.yml", "*.toml")  # of a folder that the command names
RESULT = (
    r"(out|outputs?|logs?|save|results?|metrics?|dump|export|checkpoints?|ckpts?|cache|tmp|history|predictions?|plots?|runs?|"
    r"work|artifacts?|mlruns|wandb)"
)
PLACE = r"(to|file|path|dir|directory|folder|name|root|json|csv)"
RESULT_OPTION = re.compile(rf"(-o|-{{0,2}}([a-z0-9]+[-_.])*{RESULT}[-_]?{PLACE}?([-_]{PLACE})*)", re.IGNORECASE)
REDIRECTIONS = {">", ">>", "2>", "&>", "1>", "tee", "-a"}
BEFORE_VARIABLE = re.compile(r"^.*\$(\{[^}]*\}|\([^)]*\)|\w+)/")  # "$(dirname "$0")/train.py"
SETTINGS = (".py", ".sh", ".yaml", ".yml", ".toml")  # of files that are no result, whatever their name
MAX_NAME = 200  # characters of a path that a word completes
MAX_SCRIPT = 2**20  # bytes of a shell script that is read


def command_files(folder: Path, arguments: Sequence[str], env: Mapping[str, str]) -> dict[str, Path]:
    """Return name -> path of the files that count for a command line.

    Python code counts with the modules of its folder; modules from elsewhere have a separate entry.

    Args:
        folder: in which the command runs. Names are relative to it, or absolute as in the command.
        arguments: the words.
        env: the variables that the study sets, which may name files, too.
    """
    search = _Search(folder.absolute())
    search.path(env.get("PYTHONPATH", os.environ.get("PYTHONPATH", "")))
    search.words(
        [*arguments, *(word for name, word in env.items() if name != "PYTHONPATH" and not RESULT_OPTION.fullmatch(name))]
    )
    search.imports(arguments)
    search.configurations(arguments)
    return search.files


def counted_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the names of files with those that Python code among them imports, relative to a folder where they lie in it."""
    paths: set[Path] = set()
    for name in names:
        path = folder.absolute() / name
        paths |= code_files(path) if path.suffix == ".py" else {path}
    return sorted({_name(path, folder.absolute()) for path in paths})


def unfollowed_imports(folder: Path, names: Iterable[str]) -> list[str]:
    """Return "file:line" of each import of a module with a computed name, in the counted files with these names."""
    return [f"{name}:{line}" for name in counted_files(folder, names) for line in computed_imports(folder.absolute() / name)]


def file_digest(path: Path) -> str:
    """Return the digest of a file; of Python code without comments, and with the files that it imports from its folder."""
    return code_digest(path) if path.suffix == ".py" else sha256(path)


def find_program(word: str, folder: Path) -> str | None:
    """Return the path of the program that the first word of a command names; None when there is none.

    Args:
        folder: of the study, to which a word with a slash is relative; others are looked up in ``PATH``.
    """
    if word == PYTHON:
        return sys.executable
    return shutil.which(str(real_path(folder / word)) if "/" in word else word)


def _name(path: Path, folder: Path) -> str:
    """Return the path relative to the folder of a study, if it lies near to it, so that both can be moved; else the path."""
    near = folder.parents[min(2, len(folder.parents)) - 1] if len(folder.parents) > 2 else folder
    return Path(os.path.relpath(path, folder)).as_posix() if path.is_relative_to(near) else str(path)


class _Search:
    """Collects the files of a command line.

    Attributes:
        files: name -> path.
        folders: in which words may name files: the one of the study, and those that a script changes to.
        roots: where absolute imports start, in addition to the folder of each script.
    """

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, Path] = {}
        self.folders = [folder]
        self.roots: Roots = []
        self.code: set[Path] = set()  # that has no name: of `python -c`, and of installed scripts

    def words(self, words: Sequence[str]) -> None:
        """Add the files that the words of a command line name."""
        for i, (before, word) in enumerate(zip(["", *words], words, strict=False)):
            variable, equals, value = word.partition("=")
            if equals and variable == "PYTHONPATH":
                self.path(value)
            elif before in ("cd", "--chdir", "--directory", "-C") and self._place(word, Path.is_dir) is not None:
                self.folders.append(self._place(word, Path.is_dir))  # type: ignore[arg-type]
            elif re.fullmatch(r"-[a-z]*c", before) and re.search(r"[\s;]", word):
                self.script(word)
            elif re.fullmatch(r"-[A-Za-z]{0,3}m|--module", before):
                self._module(word)
            elif re.fullmatch(r"-[A-Za-z]{0,3}m[a-z_][\w.]+", word):  # `python -mpackage.module`
                self._module(word.partition("m")[2])
            if not (
                before in REDIRECTIONS or RESULT_OPTION.fullmatch(before) or (equals and RESULT_OPTION.fullmatch(variable))
            ):
                self._named(word, is_program=i == 0)

    def script(self, text: str) -> None:
        """Add the files that a shell script names, or Python code after ``-c`` imports."""
        try:
            compile(text, "", "exec")
        except (SyntaxError, ValueError):
            for line in text.replace("\\\n", " ").splitlines():
                try:
                    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
                    lexer.whitespace_split = True
                    self.words(list(lexer))
                except ValueError:  # a quotation that continues in the next line
                    self.words(line.split())
            return
        self.code_text(text)

    def code_text(self, text: str) -> None:
        """Add what the text of Python code imports from the folder of the study."""
        import tempfile

        self.roots += [(folder, None) for folder in self.folders]
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "code.py"
            file.write_text(text, encoding="utf-8")
            self._add_imported({file}, set())

    def path(self, value: str) -> None:
        """Add the folders of a value of ``PYTHONPATH`` to those from which modules are imported."""
        self.roots += path_roots(value, self.folders[0])

    def imports(self, arguments: Sequence[str]) -> None:
        """Add the modules that the code imports from elsewhere than the folders of its files."""
        programs = [arguments[0], *(word for before, word in zip(arguments, arguments[1:], strict=False) if before == "run")]
        prefixes = [self.folders[0] / ".venv"]
        for word in programs if arguments else ():
            found = find_program(word, self.folders[0])
            if found is not None:
                prefixes.append(Path(found).parent.parent)
                if re.match(rb"#!.*python", _start(Path(found))):
                    self.code.add(Path(found))
        for prefix in dict.fromkeys(prefixes):
            self.roots += editable_roots(prefix)
        code = {path for path in self.files.values() if path.suffix == ".py"}
        self.roots += [(folder, None) for folder in dict.fromkeys(path.parent for path in self.files.values() if path in code)]
        own = set[Path]().union(*(code_files(path) for path in code))
        self._add_imported(own | self.code, own | self.code)

    def configurations(self, words: Sequence[str]) -> None:
        """Add what the words choose among configurations of Hydra, and the bases of all configurations."""
        places = dict.fromkeys(place for file in self._all_code() for place in self._hydra_folders(file))
        for before, word in zip(["", *words], words, strict=False):
            option, equals, value = word.partition("=")
            group = option.lstrip("+~-").partition("@")[0]
            if before in ("--config-name", "-cn") or (equals and group == "config-name"):
                names = [word if before in ("--config-name", "-cn") else value]
            else:
                names = [f"{group}/{choice}" for choice in value.strip("[]").split(",")] if equals and group else []
            found = [configuration_file(place, name.strip()) for place in places for name in names]
            for path in filter(None, found):
                self._add(path)
        self._computed(words)
        for path in base_files(self.files.values(), self.folders):
            self._add(path)

    def _computed(self, words: Sequence[str]) -> None:
        """Add the files that the code reads by a name computed from a word: `open(f"conf/{name}.json")`."""
        values = {word.rpartition("=")[2] for word in words} - {""}
        for file in self._all_code():
            tree = code_tree(file)
            for pattern, value in product(sorted(computed_names(tree)) if tree else (), sorted(values)):
                name = pattern.replace("*", value)
                if not (value.isdigit() or os.path.isabs(value) or OUTPUT.search(name)):
                    places = [Path(os.path.normpath(folder / name)) for folder in (file.parent, *self.folders)]
                    for path in places:
                        if "\0" not in name and len(name) < MAX_NAME and path.is_file():
                            self._add(path)

    def _all_code(self) -> set[Path]:
        """Return the Python code among the files, with what it imports from its folder."""
        own = (code_files(path) for path in self.files.values() if path.suffix == ".py")
        return {path for path in self.code.union(*own) if path.suffix in (".py", "")}

    def _hydra_folders(self, file: Path) -> Iterator[Path]:
        tree = code_tree(file)
        yield from (place for place, is_file in hydra_places(tree, file.parent) if not is_file) if tree else ()

    def _add_imported(self, code: set[Path], known: set[Path]) -> None:
        for path in imported_files(code, self.roots, named=self.folders) - known - code:
            self._add(path)

    def _add(self, path: Path) -> None:
        self.files[_name(path, self.folders[0])] = path

    def _place(self, name: str, is_kind: object) -> Path | None:
        for folder in self.folders:
            try:
                path = Path(os.path.normpath(folder / name))  # a link counts, wherever it leads
                if is_kind(path):  # type: ignore[operator]
                    return path
            except (OSError, ValueError):  # a word that is no path, such as one that is too long
                continue
        return None

    def _named(self, word: str, *, is_program: bool) -> None:
        """Add the files that a word names: itself, what follows ``=`` or ``@``, and parts between commas."""
        for name in _candidates(word):
            path = self._place(name, Path.is_file)
            folder = self._place(name, Path.is_dir) if path is None and not is_program else None
            counts = path is not None and path not in self.files.values() and not self._is_program(path)
            if path is not None and counts and (is_program or not _is_result(path)):
                self._add(path)
                start = _start(path)
                if path.suffix in (".sh", ".bash") or (start.startswith(b"#!") and b"sh" in start) or path.name == "Makefile":
                    self.script(path.read_bytes()[:MAX_SCRIPT].decode(errors="replace"))
            elif folder is not None and self._is_inside(folder) and not re.fullmatch(RESULT, folder.name):
                if (folder / "__main__.py").is_file():
                    self._add(folder / "__main__.py")
                for pattern in CONFIGURATION:
                    for file in (file for depth in ("", "*/", "*/*/") for file in folder.glob(depth + pattern)):
                        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
                            self._add(file)
        if is_program and Path(word).name == "make":
            self._named("Makefile", is_program=False)

    def _is_inside(self, folder: Path) -> bool:
        return folder not in self.folders and folder.is_relative_to(self.folders[0])

    def _is_program(self, path: Path) -> bool:
        """Return whether a file outside of the study's folder is an installed program, for example an interpreter."""
        return path.suffix not in (".py", ".sh") and not path.is_relative_to(self.folders[0]) and os.access(path, os.X_OK)

    def _module(self, module: str) -> None:
        """Add the files of a module that is run by its name, and let modules be imported from the folder of the study."""
        self.roots += [(folder, None) for folder in self.folders if (folder, None) not in self.roots]
        for root in dict.fromkeys(root for root, _ in self.roots):
            parts = module.split(".")
            names = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
            found = [module_file(root, name) for name in (*names, f"{module}.__main__")]
            if any(found[len(names) - 1 :]):
                for file in filter(None, found):
                    self._add(file)


def _is_result(path: Path) -> bool:
    return path.suffix not in SETTINGS and (path.suffix == ".log" or bool(re.match(rf"{RESULT}([-_.]|$)", path.stem)))


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(200)
    except OSError:
        return b""


def _candidates(word: str) -> Iterator[str]:
    word = BEFORE_VARIABLE.sub("", word)
    parts = [word, word.partition("=")[2], word.removeprefix("@")]
    yield from dict.fromkeys(name for part in parts for name in (part, *part.split(",")) if name)


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
        where = f"in {real_path(study.folder)}" if "/" in program else "in PATH"
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

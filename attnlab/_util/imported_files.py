"""The files that Python code, C++, CUDA and configurations build on, read from their text, transitively. Nothing is imported.

Found are imports anywhere in a file, relative ones, folders without ``__init__.py``, ``import_module("name")``,
modules in the folders of ``PYTHONPATH``, of ``sys.path.append("folder")`` and of editable installs, and code (also C++ and
CUDA sources) and configuration files that a text in the code names, with their bases. Packages that are installed as usual do
not count, and a module with a computed name cannot be followed (`computed_imports`).

A configuration in YAML, JSON or TOML names its base files under keys such as ``defaults``, ``extends``, ``base`` or
``_base_``, relative to itself or to the folder of the study, with or without a suffix. Entries of Hydra's ``defaults`` are
``group: option``. Sources include headers by ``#include "name"``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path
from typing import Any

Roots = list[tuple[Path, str | None]]  # a folder that absolute imports start from, and the only package that counts there

NOT_LOCAL = frozenset({*sys.stdlib_module_names, "attnlab"})  # never taken from a user's folder
# Large packages that developers install as editable: their thousands of files are not the user's own code.
LARGE = frozenset({"torch", "numpy", "scipy", "pandas", "sklearn", "mlflow", "optuna", "transformers", "triton", "jax"})
CONFIGURATIONS = (".yaml", ".yml", ".toml", ".json")
SOURCES = (".cu", ".cuh", ".cpp", ".cxx", ".cc", ".c", ".hpp", ".hxx", ".h")
# Of files that count if a text in the code names them.
NAMED = {".py", ".sh", ".ini", ".cfg", *CONFIGURATIONS, *SOURCES}
# A program writes JSON more often than it reads it.
PATTERN = re.compile(r"(\w[\w.-]*/){1,3}[\w.-]*\*[\w.-]*")  # of the files of one folder
READS = re.compile(r"open|read|load|parse|from_")  # begins the names of functions that read a file
OUTPUT = re.compile(r"result|metric|score|log|out|histor|summar|stat|state|checkpoint|ckpt|cache|record|report|tmp|progress")
WRITES = re.compile(
    r"(save|dump|write|to_|export|touch|unlink|remove|imsave)"
)  # begins the names of functions that write a file
RUNNERS = {"exec", "run_path"}
IMPORTERS = {"import_module", "__import__", "run_module"}
BASE_KEY = re.compile(
    r"[_$]*((defaults?|extends?|bases?|parents?|includes?|inherits?|imports?)([_-]?(from|files?|configs?|paths?))?)_*",
    re.IGNORECASE,
)
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
GROUP_PREFIX = re.compile(r"^(optional\s+|override\s+)+")  # of Hydra
LARGEST = 2**20  # bytes of a file that is read


def imported_files(start: Iterable[Path], roots: Roots, *, named: Iterable[Path] | None = ()) -> set[Path]:
    """Return files of Python code and all files that they import, transitively, and those that their texts name.

    Args:
        start: the files; those that are no Python code import nothing.
        roots: where absolute imports start.
        named: folders to which the texts are relative, in addition to the one of each file; None: texts do not count.
    """
    files, roots, reads, writes = set(start), list(roots), set[Path](), set[str]()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        tree = code_tree(file)
        if tree is None:
            continue
        if added := [(folder, None) for folder in _added_to_path(tree, file) if (folder, None) not in roots]:
            roots += added
            waiting = list(files)  # they may import modules from there, too
            continue
        found = set(_modules(tree, file, roots))
        if named is not None:
            reads |= set(_named(tree, (file.parent, *named)))
            writes |= _written(tree)
            found |= {path for path in reads if path.suffix == ".py"}
        waiting += found - files
        files |= found
    reads = {path for path in reads if path.name not in writes}
    return files | reads | {path for path in base_files(reads, named or ()) if path.name not in writes}


def module_file(folder: Path, name: str) -> Path | None:
    """Return the file of a module with this dotted name relative to a folder, or None: a folder without files has none."""
    parts = name.split(".")
    place = folder.joinpath(*parts)
    if not all(parts):
        return None
    suffixes = (".py", *EXTENSION_SUFFIXES)
    places = (place / "__init__.py", *(place.with_name(f"{parts[-1]}{suffix}") for suffix in suffixes))
    return next((file for file in places if file.is_file()), None)


def is_local(root: Path, module: str) -> bool:
    """Return whether an absolute import of ``module`` means a file in ``root``: Python's and attnlab's modules stay.

    A folder without ``__init__.py`` is a package if no installed one has its name, as for Python.
    """
    first = module.partition(".")[0]
    if not first or first in NOT_LOCAL:
        return False
    return module_file(root, first) is not None or is_namespace(root, module)


def is_namespace(root: Path, module: str) -> bool:
    """Return whether the first part of a module's name is a folder without ``__init__.py`` that holds the module."""
    first, _, rest = module.partition(".")
    folder = root / first
    if not first.isidentifier() or not folder.is_dir() or module_file(root, first) is not None or _is_installed(first):
        return False
    return any(_files(root, module)) if rest else any(path for form in ("*.py", "*/*.py") for path in folder.glob(form))


@cache
def _is_installed(name: str) -> bool:
    """Return whether a package or module of this name is installed; folders that could be one do not count."""
    spec = PathFinder.find_spec(name, [place for place in sys.path if re.search(r"(site|dist)-packages", place)])
    return spec is not None and spec.origin is not None


def editable_roots(prefix: Path) -> Roots:
    """Return the folders from which the environment at ``prefix`` imports packages that are installed as editable."""
    roots: Roots = []
    for site in [*prefix.glob("lib/python3*/site-packages"), prefix / "Lib" / "site-packages"]:
        for path in sorted(site.glob("*.pth")):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            roots += [(Path(line), None) for line in lines if os.path.isabs(line) and Path(line).is_dir()]
        for path in sorted(site.glob("__editable__*_finder.py")):  # of setuptools: a table of packages and their folders
            for package, place in _mapping(path).items():
                roots.append((Path(place).parent, package))
    return [(root, package) for root, package in roots if not _is_of_packages(root)]


def path_roots(value: str, folder: Path) -> Roots:
    """Return the folders of a value of ``PYTHONPATH``, relative to the folder in which a program runs."""
    places = [folder / place for place in value.split(os.pathsep) if place]
    return [(Path(os.path.normpath(place)), None) for place in places if place.is_dir() and not _is_of_packages(place)]


def _is_of_packages(root: Path) -> bool:
    return root.name in ("site-packages", "dist-packages") or any(root.glob("*.dist-info"))


def _mapping(path: Path) -> dict[str, str]:
    tree = code_tree(path)
    for node in tree.body if tree else ():
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id == "MAPPING":
            try:
                return dict(ast.literal_eval(node.value))  # type: ignore[union-attr]
            except (ValueError, TypeError):
                return {}
    return {}


# ---------------------------------------------------------------- imports


def code_tree(file: Path) -> ast.Module | None:
    """Return the syntax tree of a file; None when it is no Python code that can be read."""
    try:
        return ast.parse(file.read_bytes()) if file.suffix in (".py", "") else None
    except (OSError, SyntaxError, ValueError, RecursionError):  # importing the file fails with a message of its own
        return None


def _modules(tree: ast.AST, file: Path, roots: Roots) -> Iterator[Path]:
    """Yield the files of the modules that a file may import, and of the packages that contain them."""
    for level, name in _imports(tree):
        if level:
            yield from _files(file.parents[min(level, len(file.parents)) - 1], name)
            continue
        first = name.partition(".")[0]
        for root, package in roots:
            if package in (None, first) and first not in NOT_LOCAL | LARGE and is_local(root, name):
                yield from _files(root, name)


def _files(root: Path, module: str) -> Iterator[Path]:
    """Yield the files of a module and of the packages that contain it: Python imports those before. ``*``: all of a package."""
    parts = module.split(".")
    for n in range(1, len(parts) + 1):
        name = ".".join(parts[:n])
        if parts[n - 1] == "*":
            yield from sorted(root.joinpath(*parts[: n - 1]).glob("*.py"))
            return
        file = module_file(root, name)
        if file is not None:
            yield file
        elif not all(parts[:n]) or not root.joinpath(*parts[:n]).is_dir():
            return


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the number of dots and the dotted name of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{prefix}{alias.name}" if alias.name != "*" else prefix[:-1]) for alias in node.names)
        elif isinstance(node, ast.Call) and _name(node.func) in IMPORTERS and node.args:
            text, is_whole = _start_of_text(node.args[0])
            level = len(text) - len(text.lstrip("."))
            name = text if is_whole else f"{text.rpartition('.')[0]}.*"  # any module of that package
            if name.strip(".*") or level:
                yield level, name[level:]


def computed_imports(file: Path) -> list[int]:
    """Return the lines of a file's code that import a module by a name that does not begin with a text in the code."""
    tree = code_tree(file)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args] if tree else []
    computed = [node for node in calls if _name(node.func) in IMPORTERS and not _start_of_text(node.args[0])[0]]
    return sorted(node.lineno for node in computed)


def hydra_places(tree: ast.AST, folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of configurations that calls with ``config_path`` name (False), and their first files (True).

    Args:
        tree: the code.
        folder: the one of its file.
    """
    keywords = [
        {keyword.arg: keyword.value.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
    names = [words["config_name"] for words in keywords if isinstance(words.get("config_name"), str)]
    for path in (words.get("config_path", "." if "config_name" in words else None) for words in keywords):
        place = Path(os.path.normpath(folder / path)) if isinstance(path, str) and "\0" not in path else None
        if place is None or not place.is_dir():
            continue
        yield place, False
        yield from ((file, True) for name in names if (file := configuration_file(place, str(name))) is not None)


def _start_of_text(node: ast.AST) -> tuple[str, bool]:
    """Return the text of an expression up to its first value that is not a literal, and whether that is all of it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    if isinstance(node, ast.JoinedStr) and node.values:
        return _start_of_text(node.values[0])[0], False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _start_of_text(node.left)[0], False
    return "", False


def _name(function: ast.AST) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _added_to_path(tree: ast.AST, file: Path) -> Iterator[Path]:
    """Yield the folders that a file may add to ``sys.path``: those that its texts name, relative to it or to its parents."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) == "sys.path" and node.func.attr in ("append", "insert", "extend"):
            texts = _texts(node)
            for folder in (file.parent, file.parent.parent):
                place = Path(os.path.normpath(folder.joinpath(*texts)))
                if place.is_dir() and not _is_of_packages(place):
                    yield place


def _texts(node: ast.AST) -> list[str]:
    """Return the texts of an expression, in the order of the source."""
    constants = [part for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return [str(part.value) for part in sorted(constants, key=lambda part: (part.lineno, part.col_offset))]


# ---------------------------------------------------------------- files that a text names


def _named(tree: ast.AST, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the files of code and configuration in the folders that a text names, or the parts of a path together."""
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    names: set[str] = set()
    folders = tuple(folders)
    yield from (path for path, names_file in hydra_places(tree, folders[0]) if names_file)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            names.add(node.value)
        elif (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)) or (
            isinstance(node, ast.Call) and _name(node.func) in ("join", "joinpath", "Path")
        ):
            names.add("/".join(_texts(node)))
    executed = _executed(tree)
    for name in names:
        path = Path(name)
        if (
            "\n" in name
            or len(name) > 200
            or (path.suffix not in NAMED and name not in executed)
            or (path.suffix == ".json" and OUTPUT.search(path.stem))
        ):
            continue
        if PATTERN.fullmatch(name):
            if not OUTPUT.search(name):
                yield from (place for folder in folders for place in folder.glob(name) if place.is_file())
            continue
        for folder in folders:
            place = Path(os.path.normpath(folder / name))
            if "\0" not in name and place.is_file():
                yield place


def computed_names(tree: ast.AST) -> set[str]:
    """Return the computed names in calls that read a file, as patterns: `open(f"conf/{name}.json")` gives "conf/*.json"."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and READS.match(_name(node.func).lower())]
    names = set[str]().union(*(_templates(call) for call in calls if not _is_written(call)))
    return {name for name in names if name.strip("*/.") and "\n" not in name}


def _templates(call: ast.Call) -> set[str]:
    """Return the texts in a call that are computed from one value, with ``*`` for it."""
    inside = {id(part) for node in ast.walk(call) for part in ast.iter_child_nodes(node) if isinstance(node, ast.BinOp)}
    places = [
        node for node in ast.walk(call) if isinstance(node, ast.JoinedStr | ast.BinOp | ast.Call) and id(node) not in inside
    ]
    patterns = {re.sub(r"\*+", "*", _template(node)) for node in places if node is not call}
    return {pattern for pattern in patterns if pattern.count("*") == 1}


def _template(node: ast.AST) -> str:
    """Return the text of an expression with ``*`` for each value that is not in the code."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_template, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
        return ("/" if isinstance(node.op, ast.Div) else "").join((_template(node.left), _template(node.right)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return re.sub(r"%\w+|%\(\w+\)\w", "*", str(node.left.value))
    if isinstance(node, ast.Call) and _name(node.func) in ("join", "joinpath", "Path"):
        return "/".join(map(_template, node.args))
    if isinstance(node, ast.Call) and _name(node.func) == "format" and isinstance(node.func, ast.Attribute):
        return re.sub(r"\{[^}]*\}", "*", _template(node.func.value))
    return "*"


def _executed(tree: ast.AST) -> set[str]:
    """Return the texts in calls that open a file, when the code runs a text: `exec(open("layers.txt").read())`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not any(isinstance(call.func, ast.Name) and call.func.id in RUNNERS for call in calls):
        return set()
    opened = [call for call in calls if _name(call.func) in ("open", "Path", "read_text", *RUNNERS)]
    return {text for call in opened for text in _texts(call) if text.strip(".")}


def _written(tree: ast.AST) -> set[str]:
    """Return the names of the files that a call writes: their content is a result."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_written(node)]
    return {Path(text).name for call in calls for text in _texts(call) if "\0" not in text}


def _is_written(call: ast.Call) -> bool:
    """Return True for a call that writes a file."""
    modes = {text for text in _texts(call) if re.fullmatch(r"[rwaxbt+]{1,3}", text)}
    opens = _name(call.func) == "open" and any(set(mode) & set("wax+") for mode in modes)
    return opens or bool(WRITES.match(_name(call.func).lower()))


def base_files(start: Iterable[Path], folders: Iterable[Path] = ()) -> set[Path]:
    """Return the files that configurations and sources name as their bases or headers, transitively.

    Args:
        start: the files; others than configurations and sources name nothing.
        folders: to which names are relative, in addition to the folder of each file.
    """
    found, waiting, folders = set[Path](), list(start), tuple(folders)
    while waiting:
        file = waiting.pop()
        new = set(_bases(file, folders)) - found
        found |= new
        waiting += new
    return found


def configuration_file(folder: Path, name: str) -> Path | None:
    """Return the configuration with a name in a folder, with or without its suffix; None when there is none."""
    if not name or "\0" in name or "\n" in name or len(name) > 200:
        return None
    has_suffix = name.lower().endswith((*CONFIGURATIONS, ".py"))
    for suffix in ("",) if has_suffix else CONFIGURATIONS:
        place = Path(os.path.normpath(folder / f"{name}{suffix}"))
        if place.is_file():
            return place
    return None


def _bases(file: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    suffix = file.suffix.lower()
    try:
        if suffix not in (*CONFIGURATIONS, *SOURCES) or file.stat().st_size > LARGEST:
            return
        content = file.read_bytes()
    except OSError:
        return
    if suffix in SOURCES:
        places = (Path(os.path.normpath(file.parent / os.fsdecode(name))) for name in INCLUDE.findall(content))
        yield from (place for place in places if place.is_file())
        return
    for name, is_option in _names(_parsed(content, suffix), set()):
        places = (file.parent, *folders)
        if is_option:  # of a group, whose folder is relative to the root of the configurations
            places += tuple(file.parents[1:3])
        found = (configuration_file(folder, name.lstrip("/") if is_option else name) for folder in places)
        yield from (path for path in found if path is not None)


def _parsed(content: bytes, suffix: str) -> Any:
    """Return the values of a file; None when it cannot be read: the program that reads it fails with its own message."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        text = content.decode("utf-8-sig")
        if suffix == ".json":
            return json.loads(text)
        if suffix == ".toml":
            import tomllib

            return tomllib.loads(text)
        known: dict[int, Any] = {}
        return [_plain(node, known) for node in YAML(typ="safe", pure=True).compose_all(text)]
    except (ValueError, RecursionError, YAMLError):
        return None


def _plain(node: Any, known: dict[int, Any]) -> Any:
    """Return the texts of a YAML node in lists and mappings, also nodes with a tag that the program defines.

    Args:
        node: of a composed document, in which aliases are the same node.
        known: id of a node -> its list or mapping, so that aliases of aliases cost nothing.
    """
    if isinstance(node.value, str):
        return node.value
    if id(node) not in known:
        known[id(node)] = result = [] if node.id == "sequence" else {}
        if isinstance(result, list):
            result += [_plain(child, known) for child in node.value]
        else:
            texts = ((key.value if isinstance(key.value, str) else "", value) for key, value in node.value)
            result |= {key: _plain(value, known) for key, value in texts}
    return known[id(node)]


def _names(value: Any, seen: set[int]) -> Iterator[tuple[str, bool]]:
    """Yield the names under the keys of bases, and whether each is an option of a group or of Hydra's ``defaults``.

    Args:
        value: of a file.
        seen: ids of the lists and mappings that were read.
    """
    if not isinstance(value, list | dict) or id(value) in seen:
        return
    seen.add(id(value))
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str) and BASE_KEY.fullmatch(key):
            yield from _named_bases(part, is_defaults=key.strip("_$").lower() == "defaults")
        yield from _names(part, seen)


def _named_bases(value: Any, *, is_defaults: bool) -> Iterator[tuple[str, bool]]:
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            yield entry.partition("@")[0] if is_defaults else entry, is_defaults
        elif isinstance(entry, dict) and is_defaults:
            for group, options in entry.items():
                folder = GROUP_PREFIX.sub("", str(group)).partition("@")[0]
                for option in options if isinstance(options, list) else [options]:
                    if isinstance(option, str):
                        yield f"{folder}/{option}", True

"""The files that Python code imports, transitively, read from its text. Nothing is imported.

Found are imports anywhere in a file, relative ones, folders without ``__init__.py``, and modules in the folders of
``PYTHONPATH`` and of editable installs. Packages that are installed as usual do not count, nor does a module whose name is
computed or passed to a function.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

Roots = list[tuple[Path, str | None]]  # a folder that absolute imports start from, and the only package that counts there

NOT_LOCAL = frozenset({*sys.stdlib_module_names, "attnlab"})  # never taken from a user's folder
# Large packages that developers install as editable: their thousands of files are not the user's own code.
LARGE = frozenset({"torch", "numpy", "scipy", "pandas", "sklearn", "mlflow", "optuna", "transformers", "triton", "jax"})


def imported_files(start: Iterable[Path], roots: Roots) -> set[Path]:
    """Return files of Python code and all files that they import, transitively.

    Args:
        start: the files.
        roots: where absolute imports start.
    """
    files, waiting = set(start), list(start)
    while waiting:
        file = waiting.pop()
        tree = code_tree(file)
        found = set(_modules(tree, file, roots)) - files if tree else set[Path]()
        waiting += found
        files |= found
    return files


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


def code_tree(file: Path) -> ast.Module | None:
    """Return the syntax tree of a file; None when it is no Python code that can be read."""
    try:
        return ast.parse(file.read_bytes()) if file.suffix == ".py" else None
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
    """Yield the files of a module and of the packages that contain it: Python imports those before."""
    parts = module.split(".")
    for n in range(1, len(parts) + 1):
        name = ".".join(parts[:n])
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

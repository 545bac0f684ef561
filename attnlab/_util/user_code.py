"""Import of users' Python files by their path.

The files of a folder are modules of a separate package, for example ``attnlab_user_1f2e3d4c.cosine``. A file may import the
other modules of its folder as a script would (``import helper``); these imports are rewritten to the package, so that
``sys.path`` stays as it is and two folders may each have a ``helper.py``.
"""

import ast
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from attnlab._util.code_digest import code_digest, code_files
from attnlab._util.files import real_path, why_no_file
from attnlab._util.imported_files import is_local, is_namespace, module_file
from attnlab.errors import UserError

USER_MODULE = "attnlab_user_"  # prefix of the packages
Stamps = dict[Path, tuple[int, int]]  # file -> modification time in ns, size

_stamps: dict[str, Stamps] = {}  # name of a module -> its files when it was imported


def load_file(path: Path) -> ModuleType:
    """Import a user's Python file. Further calls return the same module.

    Raises:
        UserError: the file does not exist, or running it failed.
    """
    path = real_path(path)
    if not path.is_file():
        raise UserError(f"expected a Python file at {path}: {why_no_file(path)}")
    name = module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    _add_package(path.parent)
    stamps = _stamp(code_files(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path)))
    assert spec is not None and spec.loader is not None  # the loader is given
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look up their own module
    try:
        spec.loader.exec_module(module)
    except UserError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:  # user code may raise anything: name file and line
        del sys.modules[name]
        raise UserError(f"importing {path} failed: {type(error).__name__}: {error}", _line_in(path, error)) from error
    _stamps[name] = stamps
    return module


def load_sources(sources: dict[str, str]) -> None:
    """Import the files that a run was planned with.

    Args:
        sources: paths -> digests of their code at the time of the plan.

    Raises:
        UserError: a file does not exist or has changed since the plan, or running it failed.
    """
    for name, expected in sources.items():
        path = Path(name)
        if path.is_file():
            require_unchanged(path, expected)
        load_file(path)


def require_unchanged(path: Path, expected: str) -> str:
    """Return the digest of a file's code; raise ``UserError`` if it is not ``expected``."""
    digest = code_digest(real_path(path))
    if digest != expected:
        files = code_files(real_path(path)) - {real_path(path)}
        helpers = f" (or a file that it imports: {', '.join(sorted(file.name for file in files))})" if files else ""
        message = f"{path}{helpers} has changed since this was planned: expected the digest {expected[:16]}, got {digest[:16]}"
        raise UserError(message)
    return digest


def forget_changed_files() -> None:
    """Forget the modules of users' files that have changed since they were imported, so that they are imported again."""
    for name, stamps in list(_stamps.items()):
        if name in sys.modules and _stamp(stamps) != stamps:
            package = name.partition(".")[0]
            for module in [module for module in sys.modules if module.startswith(f"{package}.")]:
                del sys.modules[module]
                _stamps.pop(module, None)


def is_loaded(path: Path) -> bool:
    """Return whether a user's file, as it is now, has been imported in this process."""
    name = module_name(real_path(path))
    return name in sys.modules and name in _stamps and _stamp(_stamps[name]) == _stamps[name]


def module_name(path: Path) -> str:
    """Return the name of the module of a user's file."""
    if path.stem.isidentifier():
        return f"{_package_name(path.parent)}.{path.stem}"
    words = re.sub(r"\W", "_", path.stem)  # "my-variant" and "my_variant" remain two modules
    return f"{_package_name(path.parent)}.{words}_{_short_digest(path)}"


def _package_name(folder: Path) -> str:
    return f"{USER_MODULE}{_short_digest(folder)}"


def _short_digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:8]


def _add_package(folder: Path) -> None:
    """Add the package of a folder to ``sys.modules``."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())  # type: ignore[arg-type]
    name = _package_name(folder)
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def _stamp(files: Sequence[Path] | set[Path] | Stamps) -> Stamps:
    """Return the stamps of the files that exist."""
    return {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.is_file()}


class _Finder:
    """Find the modules of the packages of users' folders."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(USER_MODULE) or not path:
            return None
        folder, last = Path(path[0]), name.rpartition(".")[2]
        file = module_file(folder, last)
        if file is None:
            if not is_namespace(folder, last):
                return None
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(folder / last)]
            return spec
        if file.suffix != ".py":
            return importlib.util.spec_from_file_location(name, file)
        folders = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, file, loader=_Loader(name, str(file)), submodule_search_locations=folders
        )


class _Loader(SourceFileLoader):
    """Compile a file with its imports from its own folder rewritten. No bytecode is stored: Python would use it elsewhere."""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> Any:  # type: ignore[override]
        package = self.name.partition(".")[0]
        tree = _LocalImports(package).visit(ast.parse(data, path))
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


class _LocalImports(ast.NodeTransformer):
    """Rewrite absolute imports of modules in a user's folder to imports from the package of that folder."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._root = Path(sys.modules[package].__path__[0])

    def _is_local(self, module: str) -> bool:
        return is_local(self._root, module)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if not node.level and node.module and self._is_local(node.module):
            node.module = f"{self._package}.{node.module}"
        return node

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for alias in node.names:
            first = alias.name.partition(".")[0]
            names = [alias]
            if self._is_local(alias.name):
                names = [ast.alias(f"{self._package}.{alias.name}", alias.asname or first)]
                if alias.asname is None and alias.name != first:  # `import a.b` binds a
                    names = [ast.alias(f"{self._package}.{alias.name}"), ast.alias(f"{self._package}.{first}", first)]
            statements += [ast.copy_location(ast.Import([name]), node) for name in names]
        for statement in statements:
            ast.fix_missing_locations(statement)
        return statements


def _line_in(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or path).name}:{error.lineno}"
    lines = [frame for frame in inspect.getinnerframes(error.__traceback__) if frame.filename == str(path)]  # type: ignore[arg-type]
    return f"{path.name}:{lines[-1].lineno}" if lines else path.name

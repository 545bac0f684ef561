"""The import contracts of ``pyproject.toml``, no cycle between modules, and a light start."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.support.paths import ROOT

HEAVY = {"torch", "mlflow", "optuna", "pandas", "xformers", "matplotlib", "scipy", "sklearn", "jinja2"}
# These import nothing heavy when they are imported.
LIGHT = ("config", "stats", "cli", "report", "extras/paper.py", "_util", "registry.py", "errors.py")
FILES = sorted(
    path for name in LIGHT for path in [ROOT / "attnlab" / name, *(ROOT / "attnlab" / name).rglob("*.py")] if path.is_file()
)


def test_the_import_contracts_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Lazy imports and those for the type checker count, too."""
    graph = grimp.build_graph("attnlab", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    order = list(TopologicalSorter(imports).static_order())  # raises CycleError, with the cycle
    assert set(order) == graph.modules


def test_no_module_has_the_name_of_a_package_beside_it() -> None:
    packages = [path.parent for path in (ROOT / "attnlab").rglob("__init__.py")]
    pairs = [
        p for p in packages for name in (p.name, p.name.removesuffix("s"), p.name + "s") if (p.parent / f"{name}.py").exists()
    ]
    assert not pairs


def imported(tree: ast.AST) -> Iterator[str]:
    """Names of the packages that a file imports when it is imported: nothing inside functions or for the type checker."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        yield from imported(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_light_modules_import_nothing_heavy(path: Path) -> None:
    assert not set(imported(ast.parse(path.read_text(encoding="utf-8")))) & HEAVY


@pytest.mark.parametrize("words", [["-c", "import attnlab"], ["-m", "attnlab", "--help"], ["-m", "attnlab", "--version"]])
def test_starting_is_light(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True, check=True, timeout=60)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    loaded = {module.partition(".")[0] for module in modules}
    assert "attnlab" in loaded
    assert not loaded & (HEAVY | {"numpy", "pydantic", "rich"})
    assert "attnlab.registry" not in modules
    assert "--help" in words or not modules & {"importlib.metadata", "inspect"}  # the help has the verbs of installed packages


@pytest.mark.parametrize("words", [["list"], ["runs"]])
def test_lists_need_no_torch(words: list[str], empty_store: Path) -> None:
    program = [sys.executable, "-X", "importtime", "-m", "attnlab", *words]
    environment = os.environ | {"ATTNLAB_RUNS": str(empty_store)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True, timeout=120)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "attnlab" in loaded and not loaded & {"torch", "optuna", "xformers", "sklearn"}

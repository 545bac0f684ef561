"""Who may import whom: a module imports only from layers to its left, and some libraries have one door each."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "attnlab"
LAYERS = [
    {"errors", "disk", "redact", "seeds", "palette", "signals"},
    {"", "registry"},  # "" is attnlab/__init__.py: register_* and the version
    {"fields", "config", "grid"},
    {"layers", "blocked", "efficient", "backends", "positions"}
    | {"metrics", "archives", "data", "lock", "machine", "out_of_memory", "processor"},
    {"variants", "tasks", "baselines"},
    {"model", "checkpoint", "result", "selection"},
    {"train", "loop", "feed", "gradients", "clock", "optimise", "parallel", "evaluate", "lengths"}
    | {"measure", "footprint", "check", "checks"},
    {"trials.suggest"},  # of its package it alone is asked when the plan is made
    {"planning"},
    {"trials", "running", "tracking", "track", "study", "bench", "benching"},
    {"stats", "sequential", "reporting", "report", "settle"},
    {"commands", "arguments", "parser", "cli", "__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ONE_DOOR = {"optuna": {"trials", "trials.suggest"}, "mlflow": {"track"}}
WITHOUT_TORCH = {*LAYERS[0], *LAYERS[1], *LAYERS[2], "stats", "sequential", "reporting", "settle", "arguments", "parser", "cli"}
HEAVY = {"torch", "mlflow", "optuna", "pandas", "xformers", "matplotlib", "scipy", "sklearn", "jinja2"}
FILES = sorted(PACKAGE.rglob("*.py"))


def placed(parts: tuple[str, ...]) -> str:
    """What of LAYERS the parts of a name belong to: a sub-package is one unit, unless LAYERS names a module of it."""
    module = ".".join(parts[:2])
    return module if module in LEVEL else parts[0]


def unit(path: Path) -> str:
    """`attnlab/tasks/imdb.py` -> `tasks`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts[0] == "__init__" else placed(parts)


def imports(tree: ast.AST, *, at_import: bool = False) -> Iterator[str]:
    """Dotted names that a file imports, those for the type checker left out.

    With `at_import` only what runs when the file is imported: nothing inside functions.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if at_import and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "attnlab":
            yield from (f"attnlab.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        yield from imports(node, at_import=at_import)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_to_the_left(path: Path) -> None:
    own = unit(path)
    assert own in LEVEL, f"{own}: give it a place in LAYERS"
    for name in imports(ast.parse(path.read_text())):
        if name.partition(".")[0] != "attnlab":
            continue
        other = placed((*name.split(".")[1:], ""))
        other = other if other in LEVEL else ""  # `from attnlab import __version__`
        assert LEVEL[other] <= LEVEL[own], f"{own} imports {name}, which stands to its right"


@pytest.mark.parametrize(("library", "doors"), ONE_DOOR.items())
def test_some_libraries_have_one_door(library: str, doors: set[str]) -> None:
    found = {
        unit(path).partition(".")[0]
        for path in FILES
        if any(name.partition(".")[0] == library for name in imports(ast.parse(path.read_text())))
    }
    assert found <= doors, f"{library} is imported by {found - doors}"


@pytest.mark.parametrize("path", [p for p in FILES if unit(p) in WITHOUT_TORCH], ids=lambda path: path.stem)
def test_light_modules_import_nothing_heavy(path: Path) -> None:
    names = {name.partition(".")[0] for name in imports(ast.parse(path.read_text()), at_import=True)}
    assert not names & HEAVY


@pytest.mark.parametrize("words", [["-c", "import attnlab"], ["-m", "attnlab", "--help"]])
def test_starting_is_light(words: list[str]) -> None:
    """Neither `import attnlab` nor `attnlab --help` loads anything heavy."""
    done = subprocess.run([sys.executable, "-X", "importtime", *words], capture_output=True, text=True, check=True, timeout=60)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "attnlab" in loaded
    assert not loaded & (HEAVY | {"numpy", "pydantic", "rich"})

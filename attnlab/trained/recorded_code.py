"""The run that a user names, and the import of the code that its recorded configuration names.

A record alone imports no code: the user names the files of their classes, as everywhere (``imports``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from attnlab._util.code_digest import module_digest
from attnlab._util.files import real_path, why_no_file
from attnlab._util.user_code import is_loaded, load_file, require_unchanged
from attnlab.components import Component
from attnlab.config.run import PARTS, RunConfig
from attnlab.config.types import WITH, Named, layer_entries
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.positions import Position
from attnlab.registry import COMPONENTS, MODELS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS, Registry, check_options
from attnlab.tasks import Task
from attnlab.training import weights
from attnlab.variants import Variant

REGISTRIES: dict[str, tuple[Registry, type]] = {
    "task": (TASKS, Task),
    "variant": (VARIANTS, Variant),
    "component": (COMPONENTS, Component),
    "position": (POSITIONS, Position),
    "model": (MODELS, Model),
    "optimizer": (OPTIMIZERS, Optimizer),
}


def import_recorded_code(config: RunConfig, *, where: str, imports: Sequence[str | Path] = ()) -> RunConfig:
    """Import the user's code that a configuration names, and check that its names lead to classes of the right kind.

    Args:
        config: The configuration.
        where: The file that holds the configuration, for messages.
        imports: Python files, wherever they lie now, and names of installed modules that may be imported.

    Returns:
        The configuration with the present places of the files.

    Raises:
        UserError: code that the model needs is neither in ``imports`` nor imported already, has changed since the model was
            trained, or is not of the right kind.
    """
    config = _relocated(config, [real_path(file) for file in imports], where=where)
    for name in config.sources:
        load_file(Path(name))
    for kind, value in _named(config.model_dump()):
        named = Named(name=value["name"], options=_options(value))
        location = named.name.rpartition(":")[0]
        if location.endswith(".py") and location not in config.sources:
            raise UserError(f"expected a digest of the file {location} in 'sources', got none", where)
        if location and not location.endswith(".py") and not location.startswith(("attnlab.", "torch.")):
            _require_module(location, config.packages.get(location), where=where, imports=imports)
        registry, base = REGISTRIES[kind]
        cls: Any = registry.get(named.name)
        if not issubclass(cls, base):  # any other class could do anything when it is called
            raise UserError(f"{kind} {named.name!r}: expected a subclass of {base.__name__}, got {cls.__qualname__}", where)
        check_options(cls, named.options, what=f"{kind} {named.label}")
    return config


def _relocated(config: RunConfig, files: Sequence[Path], *, where: str) -> RunConfig:
    """Return the configuration with the present places of its files, whose code is as it was recorded."""
    moved: dict[str, str] = {}
    for name, digest in config.sources.items():
        path = Path(name)
        place = next((file for file in files if file.name == path.name), path if is_loaded(path) else None)
        if place is None:
            raise _missing(name, name if path.is_file() else path.name, where)
        if not place.is_file():
            raise UserError(f"expected a Python file at {place}: {why_no_file(place)}", "imports")
        require_unchanged(place, digest)
        moved[name] = str(place)
    fields = config.model_dump()
    for _, value in _named(fields):
        location, colon, cls = value["name"].rpartition(":")
        value["name"] = f"{moved.get(location, location)}{colon}{cls}"
    fields["sources"] = {moved[path]: digest for path, digest in config.sources.items()}
    return RunConfig.model_validate(fields)


def _missing(name: str, given: str, where: str) -> UserError:
    message = f"the model needs the code of {name}, which a record alone does not import: pass --imports {given}"
    return UserError(f"{message} (in Python: imports=[{given!r}])", where)


def _named(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind and the section of each name of a class in the fields of a configuration."""
    for section in (fields, *(fields["model"][part] for part in PARTS)):
        yield from ((kind, section[kind]) for kind in ("task", "variant", "position") if section.get(kind) is not None)
        yield from (("component", component) for component in (section["variant"] or {}).get(WITH, ()))
    for entry in layer_entries(fields["model"]["layers"]):
        yield "variant", entry
        yield from (("position", entry[key]) for key in ("position",) if key in entry)
        yield from (("component", component) for component in entry.get(WITH, ()))
    yield "optimizer", fields["train"]["optimizer"]
    if fields["model"]["name"] is not None:
        yield "model", fields["model"]


def _options(section: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a class: a model's options have a separate key."""
    return (
        section["options"]
        if "options" in section
        else {key: v for key, v in section.items() if key not in ("name", "match", "position", WITH)}
    )


def _require_module(module: str, expected: str | None, *, where: str, imports: Sequence[str | Path]) -> None:
    """Raise ``UserError`` unless an installed module may be imported: its file is found without importing anything."""
    if module in sys.modules:
        return
    if module not in map(str, imports):
        raise _missing(module, module, where)
    file = _find_module(module)
    if file is None:
        raise UserError(f"the model needs the module {module}: it is not installed", where)
    if expected is not None and expected != module_digest(module, file):
        raise UserError(f"the module {module} ({file}) has changed since the model was trained", where)


def _find_module(module: str) -> Path | None:
    """Return the source file of a module, without importing the packages that contain it."""
    path: Any = None
    origin = None
    parts = module.split(".")
    for n in range(len(parts)):
        spec = PathFinder.find_spec(".".join(parts[: n + 1]), path)
        if spec is None:
            return None
        path, origin = spec.submodule_search_locations, spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def find_run(run: str | Path, *, root: str | Path | None = None) -> tuple[str, Path]:
    """Return a description of a run and the folder that holds its trained model.

    Args:
        run: as for `attnlab.load_model`.
        root: the folder of runs.

    Raises:
        UserError: no run or several runs match, or the run left no model.
    """
    path = Path(run)
    if str(run) and path.is_dir():  # Path("") is the working directory
        return str(path), _with_model(path, str(run))
    matches = _matches(str(run), root)
    if not matches:
        raise UserError(f"no run and no folder is named {str(run)!r}: `attnlab runs STUDY` lists the runs")
    if len(matches) > 1:
        listed = "; ".join(f"{match['run_id'][:8]} {match['name']} of {match['study']}" for match in matches[:5])
        raise UserError(f"{len(matches)} runs match {str(run)!r} ({listed}): give the beginning of an id")
    match = matches[0]
    name = f"{match['name']} of {match['study']}, MLflow run {match['run_id']}"
    return name, _with_model(Path(match["folder"]), f"{match['name']} ({match['state']})")


def _matches(run: str, root: str | Path | None) -> list[dict[Any, Any]]:
    """Return the rows of `load_runs` that match."""
    from attnlab.tracking.client import connect, runs_folder, search_studies
    from attnlab.tracking.runs import load_runs

    client = connect(runs_folder(root))
    experiments = {experiment.experiment_id: experiment.name for experiment in search_studies(client)}
    studies = list(experiments.values())
    whole_id = re.fullmatch(r"[0-9a-f]{32}", run) is not None
    if whole_id:
        with suppress(UserError):  # no such run
            studies = [experiments.get(client.get_run(run).info.experiment_id, "")]
    study, _, rest = run.partition("/")
    cell, slash, seed = rest.rpartition("/")
    by_parts = bool(slash) and study in studies and re.fullmatch(r"s?\d+", seed) is not None

    def is_match(row: dict[Any, Any]) -> bool:
        if by_parts:
            number = int(seed.removeprefix("s"))
            is_cell = row["cell"] == cell or row["name"] == f"{cell} s{number}"  # of a sweep, the value follows the cell
            return is_cell and row["seed"] == number and row["phase"] != "search"
        return row["run_id"].startswith(run) or row["name"] == run

    rows: list[dict[Any, Any]] = []
    for name in [study] if by_parts else filter(None, studies):
        frame = load_runs(name, root, every=whole_id)
        rows += [row for row in frame.to_dict("records") if is_match(row)]
    return rows


def _with_model(folder: Path, run: str) -> Path:
    if not weights.exist(folder):
        raise UserError(f"{run} left no model: expected {weights.WEIGHTS} and {weights.CONFIG} in {folder}")
    return folder

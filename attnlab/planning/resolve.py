"""Resolve the configuration of a cell: names to classes, ``auto`` to a value; give the reason if the cell cannot run."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from attnlab._util.code_digest import code_digest, module_digest
from attnlab._util.files import real_path, why_no_file
from attnlab._util.user_code import USER_MODULE, forget_changed_files, load_file
from attnlab.config.grid import Cell
from attnlab.config.run import PARTS, ModelConfig, PartConfig, RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import WITH, ComposedVariant, Named
from attnlab.config.validation import check_option
from attnlab.config.yaml import Loc
from attnlab.errors import UserError, nearest
from attnlab.models.base import Model
from attnlab.models.parts import component_classes, parts
from attnlab.planning import support
from attnlab.planning.costs import Traces, evaluation_sample
from attnlab.planning.effects import without_ineffective_fields
from attnlab.planning.layers import resolve_layers
from attnlab.registry import (
    COMPONENTS,
    MODELS,
    OPTIMIZERS,
    POSITIONS,
    TASKS,
    VARIANTS,
    Registry,
    check_options,
    options_of,
)
from attnlab.training.device import resolve_device, resolve_precision

N = TypeVar("N", bound=Named)
V = TypeVar("V", bound=ComposedVariant)

REGISTRIES: dict[str, Registry] = {
    "task": TASKS,
    "variant": VARIANTS,
    "component": COMPONENTS,
    "position": POSITIONS,
    "model": MODELS,
    "optimizer": OPTIMIZERS,
}


def base_class(kind: str) -> type:
    """Return the base class of variants, components, positions, tasks, models or optimizers."""
    from torch.optim import Optimizer

    from attnlab.components import Component
    from attnlab.models.base import Model
    from attnlab.positions import Position
    from attnlab.tasks import Task
    from attnlab.variants import Variant

    bases = {"task": Task, "variant": Variant, "component": Component, "position": Position, "model": Model}
    return {**bases, "optimizer": Optimizer}[kind]


def import_files(study: StudyConfig) -> list[Path]:
    """Import the files that the study's ``imports`` names, in order, and return them.

    Raises:
        UserError: a file does not exist, or importing it fails.
    """
    files = [_existing(study, name, what="imports", place=study.where("imports", i)) for i, name in enumerate(study.imports)]
    for file in files:
        load_file(file)
    return files


def _existing(study: StudyConfig, name: str, *, what: str, place: str) -> Path:
    """Return the path of a file given relative to the study; raise ``UserError`` at ``place`` if it does not exist."""
    try:
        path = real_path(study.folder / Path(name).expanduser())
        if path.is_file():
            return path
        if path.exists():
            raise UserError(f"{what}: expected a file, got {name!r}: {why_no_file(path)}", place)
        near = f" (no folder {path.parent})"
        if path.parent.is_dir():
            near = nearest(path.name, [p.name for p in path.parent.iterdir() if p.is_file()])
    except (OSError, RuntimeError, ValueError) as error:
        # A name that is too long, a folder without permission, or an unknown ~user.
        raise UserError(f"{what}: expected a file, but {name!r} cannot be looked up ({error})", place) from None
    raise UserError(f"{what}: expected a file, but there is no {name!r}{near}", place)


class Resolver:
    """Resolves the cells of one study. Tasks are created once for each set of options.

    Attributes:
        traces: the costs of their models.
    """

    def __init__(self, study: StudyConfig) -> None:
        self._study = study
        forget_changed_files()  # edited since an earlier plan in this process, as in a notebook
        self._imported = import_files(study)
        self._digests: dict[Path, str] = {}
        self._tasks: dict[str, tuple[Any, str]] = {}
        self.traces = Traces()

    def __call__(self, cell: Cell) -> Cell:
        """Resolve a cell.

        Raises:
            UserError: an unknown name, or options that the class does not accept; with the place in the study.
        """
        original = cell.config
        named = resolve_layers(cell, self._variant, self._position) if original.model.layers else self._with_variant(cell)
        task_named, task_class = self._named(cell, "task", original.task, ("task",))
        optimizer, optimizer_class = self._named(cell, "optimizer", original.train.optimizer, ("train", "optimizer"))
        task, data = self._task(cell, task_named, task_class)
        device = resolve_device(original.machine.device)
        precision = resolve_precision(original.train.precision, device)
        model, model_class = self._model(cell, original, task)
        changes = {
            "task": task_named,
            "train": original.train.model_copy(update={"optimizer": optimizer, "precision": precision}),
            "evaluate": original.evaluate.model_copy(update={"sample": evaluation_sample(original, task)}),
            "machine": original.machine.model_copy(update={"device": device}),
            "model": model.model_copy(update={"layers": named.model.layers}),
            "data": data,
        }
        config = named.model_copy(update=changes)
        resolved_parts = parts(config, task)
        if not any(part.variant_class.has_heads for part in resolved_parts):
            config = config.model_copy(update={"model": config.model.model_copy(update={"heads": 1})})
        classes = [(task_named, task_class), (optimizer, optimizer_class), (Named(name=model.name or task.kind), model_class)]
        classes += component_classes(config.variant) if config.variant else []
        classes += [pair for part in resolved_parts for pair in part.classes]
        classes += [(own, REGISTRIES[kind].get(own.name)) for kind in ("variant", "position") if (own := getattr(config, kind))]
        config = config.model_copy(update={"sources": self._sources(classes), "packages": self._packages(classes)})
        backends = [support.resolve_backend(cell, config, resolved_parts, device=d) for d in (config.machine.device, "cuda")]
        config = config.model_copy(update={"backend": backends[0]})
        key = without_ineffective_fields(config.with_all_defaults(), task).fingerprint()
        found = {"written": cell.settings, "key": key, "task": task, "cuda_backend": backends[1]}
        return replace(cell, settings=config, refusal=support.unsupported(config, task), **found)

    def _with_variant(self, cell: Cell) -> RunConfig:
        """Return the configuration of a cell with its variant and its position scheme resolved."""
        config = cell.config
        assert config.variant is not None
        variant, cls = self._variant(cell, config.variant, ("variant",))
        position = self._position(cell, config.position or Named(name=cls.default_position), cls, ("position",))
        return config.model_copy(update={"variant": variant, "position": position})

    def _model(self, cell: Cell, config: RunConfig, task: Any) -> tuple[ModelConfig, type[Model]]:
        """Return the section of the model, with the variant and the position scheme of each of its parts, and its class."""
        model, name = config.model, config.model.name
        if name is not None:
            name, cls = self._class(cell, "model", name, place=cell.where("model", "name"))
        else:
            cls = MODELS.get(task.kind)
        if cls.kind != task.kind:
            wanted = f"{task.kind}, as the task {config.task.label} requires"
            message = f"model {name}: expected a model of the kind {wanted}, got {cls.kind}"
            raise UserError(message, cell.where("model", "name"))
        with _placed(lambda: cell.where("model", "options")):
            check_options(cls, model.options, what=f"model {name or task.kind}")
        roles = cls.roles(task)
        if model.layers is not None and "" not in roles:
            message = f"model.layers: expected a model with one kind of attention, got {name or task.kind}"
            parts_of_model = ", ".join(f"model.{part}" for part in roles)
            raise UserError(f"{message}, in which each part has a variant: {parts_of_model}", cell.where("model", "layers"))
        changes: dict[str, Any] = {"name": None if name == task.kind else name}
        for part in PARTS:
            own: PartConfig = getattr(model, part)
            if part in roles:
                changes[part] = self._part(cell, config, part, own, role=roles[part])
            elif own != PartConfig():
                message = f"the model {name or task.kind} has no part {part!r}"
                raise UserError(message, cell.where("model", part))
        return model.model_copy(update=changes), cls

    def _part(self, cell: Cell, config: RunConfig, part: str, own: PartConfig, *, role: str) -> PartConfig:
        """Return the variant and the position scheme of a part: the stated ones, else the cell's."""
        section = ("model", part)
        assert config.variant is not None  # a model with parts has no pattern of layers
        inherited = ComposedVariant(name=config.variant.name, options=config.variant.options)
        inherited = inherited.model_copy(update={"components": config.variant.components})
        variant, variant_class = self._variant(
            cell, own.variant or inherited, (*section, "variant") if own.variant else ("variant",)
        )
        default = Named(name="none" if role == "cross" else variant_class.default_position)
        position = own.position or (config.position if role != "cross" else None) or default
        position = self._position(cell, position, variant_class, (*section, "position") if own.position else ("position",))
        return PartConfig(variant=variant, position=position)

    def _variant(self, cell: Cell, variant: V, loc: Loc) -> tuple[V, Any]:
        """Return a variant and its components as `_named` does, and the class of the variant."""
        components = [self._named(cell, "component", c, (*loc, WITH, i))[0] for i, c in enumerate(variant.components)]
        named, cls = self._named(cell, "variant", variant, loc)
        return named.model_copy(update={"components": tuple(components)}), cls

    def _position(self, cell: Cell, position: Named, variant: Any, loc: Loc) -> Named:
        """Return a position scheme as `_named` does; "none" where a variant has no pairs of positions that it could act on."""
        named, cls = self._named(cell, "position", position, loc)
        return named if variant.mixes_positions or cls.hook not in ("rotate", "bias") else Named(name="none")

    def _class(self, cell: Cell, kind: str, name: str, *, place: str) -> tuple[str, Any]:
        """Return a name, of a file by its absolute path, and its class."""
        file, _, class_name = name.rpartition(":")
        if file.endswith(".py"):
            name = f"{_existing(self._study, file, what=kind, place=place)}:{class_name}"
        with _placed(lambda: place):
            cls = REGISTRIES[kind].get(name, relative_to=self._study.folder)
        base = base_class(kind)
        if not issubclass(cls, base):
            message = f"{kind} {name!r}: expected a subclass of {base.__module__}.{base.__name__}, got {cls.__qualname__}"
            raise UserError(message, place)
        if cls.__module__ == "__main__":
            raise UserError(f"{kind} {name!r} must be defined in a file that 'imports' lists", place)
        return name, cls

    def _named(self, cell: Cell, kind: str, named: N, loc: Loc) -> tuple[N, Any]:
        """Return the name with its options and with files by their absolute path, and its class.

        Args:
            loc: the location of the name in the configuration.
        """
        name, cls = self._class(cell, kind, named.name, place=cell.where(*loc, "name"))
        options = self._options(cell, kind, cls, named, loc)
        return named.model_copy(update={"name": name, "options": options}), cls

    def _options(self, cell: Cell, kind: str, cls: type, named: Named, loc: Loc) -> dict[str, Any]:
        known = options_of(cls)
        taken = [name for name in ("match", "position") if kind == "variant" and name in known]
        if taken:
            message = f"variant {named.name}: expected no option {taken[0]!r}, a key that a study uses itself: rename it"
            raise UserError(message, cell.where(*loc, "name"))
        unknown = [option for option in named.options if option not in known]
        place = cell.where(*loc, unknown[0], key=True) if unknown else cell.where(*loc)
        with _placed(lambda: place):
            check_options(cls, named.options, what=f"{kind} {named.name}")
        options = dict(named.options)
        for name, value in options.items():
            check_option(cls, name, value, place=cell.where(*loc, name))
            if name in getattr(cls, "files", ("path",)) and isinstance(value, str):
                what, place = f"{kind}.{name}", cell.where(*loc, name)
                options[name] = str(_existing(self._study, value, what=what, place=place))
        return options

    def _task(self, cell: Cell, named: Named, cls: Any) -> tuple[Any, str]:
        """Return the task and the identity of its data."""
        from attnlab.tasks.validation import check_definition, construct, identity_of

        key = json.dumps([named.name, named.options], sort_keys=True, default=str)
        if key not in self._tasks:
            with _placed(lambda: cell.where("task"), options={o: cell.where("task", o) for o in named.options}):
                task = construct(cls, named)
                self._tasks[key] = (task, identity_of(task, named))
                check_definition(task, name=named.label)
        return self._tasks[key]

    def _sources(self, classes: list[tuple[Named, Any]]) -> dict[str, str]:
        """Return the user files that define the classes -> digests of their code: a worker process imports them."""
        files: set[Path] = set()
        for named, cls in classes:
            module = sys.modules.get(cls.__module__)
            if cls.__module__.startswith(USER_MODULE) and module is not None and module.__file__:
                files.add(Path(module.__file__))
            elif ":" not in named.name and not _is_builtin(named, cls) and self._imported:
                files.update(self._imported)  # registered by one of them, defined elsewhere
        return {str(path): self._digest(path) for path in sorted(files)}

    def _packages(self, classes: list[tuple[Named, Any]]) -> dict[str, str]:
        """Return the installed modules that define or name the classes -> digests of their code."""
        modules = {module for named, cls in classes for module in (cls.__module__, named.name.rpartition(":")[0])}
        digests: dict[str, str] = {}
        for module in sorted(modules):
            # Not PyTorch and its optimizers: a digest reads all that a module imports, and the version is recorded.
            outside = not module.startswith(("attnlab.", "torch.", USER_MODULE)) and module in sys.modules
            file = inspect.getsourcefile(sys.modules[module]) if outside else None
            if file:
                digests[module] = self._digest(Path(file), module)
        return digests

    def _digest(self, path: Path, module: str | None = None) -> str:
        """Return the digest of the code of a user's file, or of an installed module, computed once for the whole study."""
        if path not in self._digests:
            self._digests[path] = code_digest(path) if module is None else module_digest(module, path)
        return self._digests[path]


def _is_builtin(named: Named, cls: Any) -> bool:
    """Return True for a class of attnlab, or one of PyTorch's optimizers under the name that attnlab gives it."""
    return cls.__module__.startswith("attnlab.") or (
        cls.__module__.startswith("torch.") and REGISTRIES["optimizer"].is_builtin(named.name)
    )


@contextmanager
def _placed(place: Callable[[], str], *, options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Add a place to a ``UserError`` without one; "length: expected ..." is about the option of that name."""
    try:
        yield
    except UserError as error:
        if error.where:
            raise
        raise UserError(error.message, (options or {}).get(error.message.split(":")[0]) or place()) from error

"""Cells of a study, from the study file to the plan; the expansion of a grid into cells, with the places of their values.

Levels of axes add components to the variant of a cell: the base's come first, then each axis's in order.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from attnlab.config.axes import SECTIONS, FieldSetting, check_axis, field_settings, label_text, labels, pick, split_stage
from attnlab.config.command import CommandConfig, base_values, command_config
from attnlab.config.factors import design_cell_name, factorial_design
from attnlab.config.run import RunConfig, set_path
from attnlab.config.study import StudyConfig
from attnlab.config.types import LAYERS, WITH, Label
from attnlab.config.validation import validate
from attnlab.config.yaml import Loc, assignment, parse
from attnlab.errors import UserError, one_line

C = TypeVar("C", bound=RunConfig | CommandConfig)
NAMED_VALUES = ("init",)  # fields outside the sections whose values need the name of the field in the name of a cell
MAX_CELLS = 10_000  # cells of one study
ONE_OF = {"train.steps": "epochs", "train.epochs": "steps"}


@dataclass(frozen=True)
class Cell:
    """One point of the grid: as the study declares it, then resolved, then with its costs.

    Attributes:
        name: its axis values, as in ``no_wo learned``.
        axes: axis -> short label.
        settings: with seed 0, of attnlab's training or of a program. ``planning`` resolves it: without ``auto``, and with files
            by their absolute path.
        chosen: axis -> index of its value.
        written: the settings as the study file writes them.
        key: equal for two configurations that differ only in defaults that are written out, or in fields without effect.
        task: the task of the resolved settings.
        refusal: the reason why it cannot run, or None.
        parameters, attention_parameters, flops_per_token: None for a refused cell. Of a program, none of the costs is known.
        hidden_parameters, matrix_parameters, embedding_parameters: matrices of blocks, other matrices, and embeddings
            (``attnlab.training.optim``).
        cache_bytes, state_bytes: of one sequence of full length while it is decoded (``attnlab.training.costs``); None
            also for a model that does not decode, or decodes without a cache.
        steps, train_flops: of one run: 3 x forward x tokens of all steps.
        has_unknown_lengths: True when rows count at full length, because the task does not know theirs before its data are
            prepared (``Task.mean_length``): ``train_flops`` and ``eval_flops`` are then upper bounds.
        eval_flops: of its evaluations on ``valid`` and ``test`` at the trained length; None also
            if the task does not estimate its tokens.
        matched: a description of how its cost was matched to its baseline's, or "".
        cuda_backend: the backend that it would use on CUDA.
        data_sizes: the number of items of each split, and how many of them are scored.
        data_notes: what the task says about its data, for example test data that also occur in ``train``.
        stage: the stage that its runs start from; None: from scratch.
        taken: a description of the tensors that they take over from it, or "".
    """

    name: str
    axes: dict[str, Label]
    settings: RunConfig | CommandConfig
    study: StudyConfig = field(repr=False, compare=False)
    chosen: dict[str, int] = field(repr=False)
    written: RunConfig | CommandConfig | None = field(default=None, repr=False)
    key: str = ""
    task: Any = field(default=None, repr=False, compare=False)
    refusal: str | None = None
    parameters: int | None = None
    attention_parameters: int | None = None
    hidden_parameters: int | None = None
    matrix_parameters: int | None = None
    embedding_parameters: int | None = None
    flops_per_token: int | None = None
    cache_bytes: int | None = None
    state_bytes: int | None = None
    steps: int | None = None
    train_flops: int | None = None
    eval_flops: int | None = None
    has_unknown_lengths: bool = False
    matched: str = ""
    cuda_backend: str = ""
    data_notes: tuple[str, ...] = ()
    data_sizes: str = ""
    stage: Cell | None = None
    taken: str = ""

    def __post_init__(self) -> None:
        if self.refusal is not None:  # it may quote the user's code
            object.__setattr__(self, "refusal", one_line(self.refusal))

    @property
    def config(self) -> RunConfig:
        """The configuration of attnlab's training."""
        assert isinstance(self.settings, RunConfig)
        return self.settings

    @property
    def command(self) -> CommandConfig:
        """The configuration of a program."""
        assert isinstance(self.settings, CommandConfig)
        return self.settings

    @property
    def factors(self) -> dict[str, int]:
        """Of a factorial study, factor -> index of its level: 0 for off, 1 for on."""
        return {axis: index for axis, index in self.chosen.items() if axis in self.study.factors}

    def where(self, *loc: str | int, key: bool = False) -> str:
        """Return the place that sets ``loc``: an item of the grid, an assignment, or a line of the base."""
        return place_of(self.study, self.chosen, loc, key=key)

    @property
    def place(self) -> str:
        """The place of the value of its last axis; without axes, the place of the variant."""
        if not self.chosen:
            return self.where("variant")
        axis, index = list(self.chosen.items())[-1]
        values = self.study.grid[axis]
        return self.study.where("grid", axis, index if isinstance(values, list) else list(values)[index])

    @property
    def figures(self) -> dict[str, int] | None:
        """The figures of ``attnlab.training.costs.plan_figures`` that a run records; None when they are not known."""
        if self.flops_per_token is None:
            return None
        names = ("parameters", "attention_parameters", "cache_bytes", "state_bytes", "flops_per_token")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def stages(self) -> list[Cell]:
        """The stages of its chain, the first one to be trained first."""
        return [] if self.stage is None else [*self.stage.stages, self.stage]

    @property
    def chain_flops(self) -> int | None:
        """The training FLOPs of one run and of the runs that it builds on; None for a refused cell."""
        parts = [cell.train_flops for cell in (*self.stages, self)]
        return None if None in parts else sum(part for part in parts if part is not None)

    def with_seed(self, settings: C, seed: int) -> C:
        """Return a configuration of this cell with a seed, which starts from the stage's run of the same seed."""
        if settings.init is None or self.stage is None:
            return settings.model_copy(update={"seed": seed})
        stage = self.stage.with_seed(self.stage.settings, seed)
        return settings.model_copy(
            update={"seed": seed, "init": settings.init.model_copy(update={"fingerprint": stage.fingerprint()})}
        )


@dataclass(frozen=True)
class SkippedCell:
    """A point of the grid that the study leaves out, and the reason."""

    name: str
    axes: dict[str, Label]
    because: str


def expand(study: StudyConfig) -> tuple[list[Cell], list[SkippedCell]]:
    """Return the cells of the grid, the last axis varying fastest, and the points that ``skip`` leaves out.

    Raises:
        UserError: too many cells, a cell with an invalid configuration, or no cell left.
    """
    grid, design = study.axes, factorial_design(study) if study.factors else None
    size = design.size if design else math.prod(map(len, grid.values()))
    if size > MAX_CELLS:
        section, hint = ("factors", ": choose a fractional design") if design else ("grid", "")
        message = f"{section}: expected a product of at most {MAX_CELLS:,} cells, got {size:,}{hint}"
        raise UserError(message, study.where(section, key=True))
    cells: list[Cell] = []
    skipped: list[SkippedCell] = []
    skips = [(skip.because, _indices(study, skip.where)) for skip in study.skip]
    written = {axis: labels(values, axis=axis) for axis, values in grid.items()}
    for point in design.points if design else itertools.product(*(range(len(values)) for values in grid.values())):
        chosen = dict(zip(grid, point, strict=True))
        axes = {axis: written[axis][i] for axis, i in chosen.items()}
        reasons = [reason for reason, where in skips if all(chosen[axis] in where[axis] for axis in where)]
        if reasons:
            skipped.append(SkippedCell(cell_name(axes), axes, reasons[0]))
            continue
        if study.command is not None:
            cells.append(Cell(cell_name(axes), axes, command_config(study, chosen), study, chosen))
            continue
        config = _config(study, chosen)
        axes = axes or {"variant": config.variant_label}
        name = design_cell_name(design, point) if design else cell_name(axes)
        cells.append(Cell(name, axes, config, study, chosen))
    if not cells:
        raise UserError("expected 'skip' to leave a cell of the grid, got none", study.where("skip", key=True))
    return cells, skipped


def cell_name(axes: Mapping[str, Label]) -> str:
    """Return ``no_wo learned`` for names and ``no_wo lr=0.001`` for other fields (the whole path if last parts are equal).

    Values of ``variant``, ``position``, ``task``, ``backend``, ``model.name`` and ``model.layers`` stand alone, as do names of
    levels, and texts that are values of a program, but not its numbers and booleans.
    """
    ends = [axis.rpartition(".")[2] for axis in axes]
    parts = []
    for axis, value in axes.items():
        end = axis.rpartition(".")[2]
        shown = label_text(value)
        is_field = "." in axis or axis in (*SECTIONS, *NAMED_VALUES) or isinstance(value, int | float)
        stands_alone = axis in (LAYERS, "model.name") or not is_field
        parts.append(shown if stands_alone else f"{end if ends.count(end) == 1 else axis}={shown}")
    return " ".join(parts)


def _indices(study: StudyConfig, where: dict[str, Any]) -> dict[str, set[int]]:
    """Return axis -> indices of the values that a skip names, which ``reader`` has checked."""
    return {
        axis: {
            i
            for item in (wanted if isinstance(wanted, list) else [wanted])
            for i in pick(axis, study.axes[axis], item, place="")
        }
        for axis, wanted in where.items()
    }


def assigned_base(study: StudyConfig) -> dict[str, Any]:
    """Return a copy of the base with the assignments over it."""
    if study.command is not None:
        return base_values(study)
    fields = copy.deepcopy(study.base)
    for path, value in study.sets.items():
        alternative = ONE_OF.get(path)
        if alternative and f"train.{alternative}" not in study.sets and isinstance(fields.get("train"), dict):
            fields["train"].pop(alternative, None)  # --set train.steps=50 also shortens a study that sets epochs
        set_path(fields, path, copy.deepcopy(value))
    return fields


def cell_settings(study: StudyConfig, chosen: dict[str, int]) -> list[FieldSetting]:
    """Return the fields that the values of the axes set, a whole section before a field in it."""
    settings = [setting for axis, index in chosen.items() for setting in field_settings(study, axis, index)]
    return sorted(settings, key=lambda setting: setting.path.count("."))


def _config(study: StudyConfig, chosen: dict[str, int]) -> RunConfig:
    """Return the configuration of a cell: the base, then the assignments over it, then the values of the axes."""
    fields = _fields(study, chosen)
    settings = cell_settings(study, chosen)
    for setting in settings:
        if setting.adds:
            if _layers(fields) is not None:
                message = f"{WITH}: expected one variant to add components to, got {LAYERS}: write them in its entries"
                raise UserError(message, study.where(*setting.loc, key=True))
            add_components(fields, setting)
    if has_position(fields.get("variant")):  # of the base: that of an axis is a setting of its own
        scheme = fields["variant"].pop("position")
        if all(setting.path != "position" for setting in settings):
            fields["position"] = scheme
    if _replaces_variant(study, settings):
        fields.pop("variant", None)
    return validate(RunConfig, fields, where=lambda loc, /, *, key=False: place_of(study, chosen, loc, key=key))


def _fields(study: StudyConfig, chosen: dict[str, int]) -> dict[str, Any]:
    """Return the fields of a cell without the components that its axes add."""
    fields = assigned_base(study)
    for setting in cell_settings(study, chosen):
        if not setting.adds and not split_stage(setting.path)[0]:
            value = copy.deepcopy(setting.value)
            if setting.path == "variant" and study.factors:  # whose effect must not be that of other components, too
                value = with_components_of(value, fields.get("variant"))
            set_path(fields, setting.path, value)
    return fields


def _replaces_variant(study: StudyConfig, settings: Sequence[FieldSetting]) -> bool:
    """Return True when an axis or an assignment sets ``model.layers``, and only the base sets the variant."""
    values = {**study.sets, **{setting.path: setting.value for setting in settings}}
    layers = values.get(LAYERS, _layers(values))
    return layers is not None and all(path.partition(".")[0] != "variant" for path in values)


def _layers(fields: dict[str, Any]) -> Any:
    """Return the pattern of layers in the section ``model`` of some fields, or None."""
    model = fields.get("model")
    return model.get("layers") if isinstance(model, dict) else None


def has_position(variant: Any) -> bool:
    """Return True when the entry of a variant names its position scheme."""
    return isinstance(variant, dict) and "position" in variant


def place_of(study: StudyConfig, chosen: dict[str, int], loc: Loc, *, key: bool) -> str:
    """Return the place of the axis, the assignment or the line that sets ``loc``, the longest path first."""
    every = cell_settings(study, chosen)
    if loc[:2] == ("variant", WITH) and any(setting.adds for setting in every):
        added = added_loc([setting for setting in every if setting.adds], _fields(study, chosen), loc)
        if added is not None:
            return study.where(*added, key=key)
    settings: dict[Loc, FieldSetting] = {tuple(s.path.split(".")): s for s in every if not s.adds}
    sets: dict[Loc, str] = {tuple(path.split(".")): path for path in study.sets}
    for length in range(len(loc), 0, -1):  # the most specific one applies
        head, rest = loc[:length], loc[length:]
        if head in settings:
            setting = settings[head]
            if key and not rest and length > 1 and setting.path in study.grid:  # the key of the axis task.length is the axis
                return study.where("grid", setting.path, key=True)
            return study.where(*setting.loc, *rest, key=key)
        if head in sets:
            return assignment(sets[head], study.sets[sets[head]])
    if loc[:1] == ("position",) and has_position(study.base.get("variant")):
        return study.where("base", "variant", *loc, key=key)
    return study.where("base", *loc, key=key)


def add_components(fields: dict[str, Any], setting: FieldSetting) -> None:
    """Add the components of a setting to the variant of a cell, in place."""
    variant = fields.get("variant")
    variant = variant if isinstance(variant, dict) else {"name": variant}
    components = [*_components(variant.get(WITH)), *_components(copy.deepcopy(setting.value))]
    fields["variant"] = {**variant, WITH: components}


def with_components_of(variant: Any, base: Any) -> Any:
    """Return a variant as a study writes it, with the components of ``base`` if it names none itself."""
    if not isinstance(base, dict) or WITH not in base or (isinstance(variant, dict) and WITH in variant):
        return variant
    return {**(variant if isinstance(variant, dict) else {"name": variant}), WITH: base[WITH]}


def added_loc(settings: Sequence[FieldSetting], fields: dict[str, Any], loc: Loc) -> Loc | None:
    """Return the location in the study of a component that a setting adds; None for one that no setting adds.

    Args:
        settings: those that add components, in order.
        fields: of the cell without added components.
        loc: ``("variant", "with", index, ...)`` in the configuration of the cell.
    """
    if len(loc) < 3 or not isinstance(loc[2], int):
        return None
    variant = fields.get("variant")
    index = loc[2] - len(_components(variant.get(WITH) if isinstance(variant, dict) else None))
    for setting in settings:
        count = len(_components(setting.value))
        if 0 <= index < count:
            rest = (index, *loc[3:]) if isinstance(setting.value, list) else loc[3:]
            return (*setting.loc, *rest)
        index -= count
    return None


def _components(value: Any) -> list[Any]:
    """Return the value of ``with`` as a list: a single component needs none in a study."""
    return [] if value is None else value if isinstance(value, list) else [value]


def selected_names(study: StudyConfig, cells: Sequence[Cell], only: Mapping[str, Any]) -> list[str]:
    """Return the names of the cells that ``only`` selects.

    Raises:
        UserError: there are none.
    """
    names = [cell.name for cell in cells if _is_selected(study, cell, only)]
    if not names:
        selection = ", ".join(assignment(axis, value) for axis, value in only.items())
        raise UserError("expected a cell of the grid, got none (skipped, or not in the grid)", f"--only {selection}")
    return names


def _is_selected(study: StudyConfig, cell: Cell, only: Mapping[str, Any]) -> bool:
    """Return True when every axis of ``only`` has one of its values in the cell; see ``attnlab.plan``."""
    for word, values in only.items():
        place = f"--only {assignment(word, values)}"
        ends = [axis for axis in study.grid if axis.rpartition(".")[2] == word]
        axis = ends[0] if len(ends) == 1 else word
        check_axis(study, axis, place=place)
        if cell.chosen[axis] not in _chosen(study, axis, values, place):
            return False
    return True


def _chosen(study: StudyConfig, axis: str, values: Any, place: str) -> set[int]:
    """Return the indices of one value, even if its label has commas (``dense with sink, gate``), or of several values."""
    with suppress(UserError):
        return set(_picked(study, axis, values, place))
    if isinstance(values, str):
        values = re.split(r",(?![^\[]*\])", values)  # a comma in brackets is a part of a value: [gru, dense],[dense]
    return {i for value in (values if isinstance(values, list) else [values]) for i in _picked(study, axis, value, place)}


def _picked(study: StudyConfig, axis: str, value: Any, place: str) -> list[int]:
    if isinstance(value, str):  # 1e-3,3e-4 was given as one text, but its parts are numbers
        value = parse(value.strip(), name=place)[0]
    return pick(axis, study.axes[axis], value, place=place)

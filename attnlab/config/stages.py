"""The stages of a study: trainings that other runs start from, as ``init: {from: pretrain}`` requests.

The configuration of a stage belongs to a cell: it is the base with the stage's sections merged over it, and has the
variant, the position scheme and the model of the cell. Other axes of the grid do not concern it, unless they set a path into
the stage, for example ``stages.pretrain.train.steps``. Cells with equal configurations of a stage share its runs.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from attnlab.config.axes import STAGES, FieldSetting, paths_of_axis, split_stage
from attnlab.config.grid import ONE_OF, Cell, assigned_base, cell_name, cell_settings, has_position, place_of
from attnlab.config.run import RunConfig, set_path
from attnlab.config.study import StudyConfig
from attnlab.config.validation import validate
from attnlab.config.yaml import Loc
from attnlab.errors import UserError, nearest

OF_THE_CELL = ("variant", "position", "backend", "model", "machine")  # fields that a stage has from the cell

# Fields that a stage does not have from the base; its metric may be another one than that of ``train.stop_at``.
OF_CELLS_ALONE = {"train": ("frozen", "layer_lr_decay", "stop_at"), "evaluate": ("lengths",)}


@dataclass(frozen=True)
class StageCell(Cell):
    """A stage as a cell has it. Its ``axes`` are the axes of the grid that concern it.

    Attributes:
        stage_name: its name in the study.
        cell: the cell, or the later stage, that it shares its variant, position scheme and model with.
    """

    stage_name: str = ""
    cell: Cell = field(kw_only=True, repr=False, compare=False)

    def where(self, *loc: str | int, key: bool = False) -> str:
        """Return the place that sets ``loc``: an item of the grid, a line of the stage, of the cell, or of the base."""
        settings: dict[Loc, FieldSetting] = {
            tuple(setting.path.split(".")): setting for setting in _settings(self.grid_cell, self.stage_name)
        }
        for length in range(len(loc), 0, -1):
            if setting := settings.get(loc[:length]):
                return self.study.where(*setting.loc, *loc[length:], key=key)
        if loc and loc[0] in self.study.stages[self.stage_name]:
            return self.study.where(STAGES, self.stage_name, *loc, key=key)
        if loc and loc[0] in OF_THE_CELL:
            return self.cell.where(*loc, key=key)
        return place_of(self.study, {}, loc, key=key) if loc and loc[0] in self.study.base else self.place

    @property
    def place(self) -> str:
        """The place of the stage."""
        return self.study.where(STAGES, self.stage_name, key=True)

    @property
    def later_stages(self) -> list[str]:
        """The names of the stages from the one that the cell starts from to this one."""
        return [*(self.cell.later_stages if isinstance(self.cell, StageCell) else []), self.stage_name]

    @property
    def grid_cell(self) -> Cell:
        """The cell of the grid at the end of the chain."""
        return self.cell.grid_cell if isinstance(self.cell, StageCell) else self.cell


def stage_of(cell: Cell) -> StageCell | None:
    """Return the stage that a cell starts from; None when it starts from scratch.

    Args:
        cell: of the grid, or a stage that starts from another one; resolved.

    Raises:
        UserError: no stage has this name, a stage starts from itself, or its configuration is invalid; with its place.
    """
    if cell.config.init is None:
        return None
    study, name = cell.study, cell.config.init.stage
    known, later = list(study.stages), cell.later_stages if isinstance(cell, StageCell) else []
    if name not in known:
        expectation = f"expected one of {', '.join(known)}" if known else "the study has no 'stages'"
        raise UserError(f"init: no stage {name!r}{nearest(name, known)}: {expectation}", cell.where("init"))
    if name in later:
        circle = " from ".join([*later[later.index(name) :], name])
        raise UserError(f"init: expected a stage that does not start from itself, got {circle}", cell.where("init"))
    stage = StageCell(name, {}, cell.config, study, {}, stage_name=name, cell=cell)
    grid_cell, upstream = stage.grid_cell, _upstream(stage.grid_cell, name)
    chosen = {axis: index for axis, index in grid_cell.chosen.items() if _concerns(study, axis, upstream, later)}
    axes = {axis: grid_cell.axes[axis] for axis in chosen}
    full_name = f"{name}: {cell_name(axes)}" if axes else name
    return replace(stage, name=full_name, axes=axes, chosen=chosen, settings=_config(stage))


def _config(stage: StageCell) -> RunConfig:
    """Return the configuration of a stage: the base, then fields of the cell, then the stage's fields."""
    own, resolved = _own_fields(stage.grid_cell, stage.stage_name), stage.cell.config
    written = stage.cell.written or resolved
    assert isinstance(written, RunConfig)
    fields = {key: value for key, value in assigned_base(stage.study).items() if key in ("task", "train", "evaluate")}
    # 1. A matched model belongs to its variant: a stage with another variant has the model as the study writes it.
    model_of = written if "variant" in own else resolved
    of_cell = model_of.model_copy(update={"backend": written.backend, "machine": written.machine})
    fields |= of_cell.without_match().model_dump(include=set(OF_THE_CELL))
    # 2. Of the base, fine-tuning, the score that ends a run, and further test lengths concern the cells alone.
    for section, names in OF_CELLS_ALONE.items():
        if isinstance(base := fields.get(section), dict):
            fields[section] = {key: value for key, value in base.items() if key not in names}
    # 3. The stage's own fields; a number of steps replaces one of epochs.
    train = own.get("train", {})
    for path, other in ONE_OF.items():
        if path.rpartition(".")[2] in train and other not in train and isinstance(fields.get("train"), dict):
            fields["train"].pop(other, None)
    for key, value in own.items():
        set_path(fields, key, value)
    if has_position(fields["variant"]):
        fields["position"] = fields["variant"].pop("position")
    return validate(RunConfig, fields, where=lambda loc, /, *, key=False: stage.where(*loc, key=key))


def _settings(cell: Cell, stage: str) -> list[FieldSetting]:
    """Return the fields of a stage that the axes of a cell set, with their paths in the stage."""
    settings = [(setting, *split_stage(setting.path)) for setting in cell_settings(cell.study, cell.chosen)]
    return [replace(setting, path=path) for setting, name, path in settings if name == stage]


def _own_fields(cell: Cell, stage: str) -> dict[str, Any]:
    """Return the fields that a stage sets itself, with those that the axes of the cell set in it."""
    fields = copy.deepcopy(cell.study.stages[stage])
    for path, other in ONE_OF.items():
        assigned = {f"{STAGES}.{stage}.{path}", f"{STAGES}.{stage}.train.{other}"} & cell.study.assignments.keys()
        if assigned == {f"{STAGES}.{stage}.{path}"}:  # --set stages.pretrain.train.steps=50 replaces epochs
            fields["train"].pop(other, None)
    for setting in _settings(cell, stage):
        set_path(fields, setting.path, copy.deepcopy(setting.value))
    return fields


def _upstream(cell: Cell, stage: str) -> list[str]:
    """Return a stage and those that it starts from, directly and indirectly."""
    names: list[str] = []
    while stage in cell.study.stages and stage not in names:
        names.append(stage)
        init = _own_fields(cell, stage).get("init")
        stage = str(init.get("from") if isinstance(init, dict) else init)
    return names


def _concerns(study: StudyConfig, axis: str, upstream: Collection[str], later: Collection[str]) -> bool:
    """Return whether an axis of the grid sets a field of a stage.

    Args:
        upstream: the stage and those that it starts from.
        later: the stages between it and the cell that it shares its variant, position scheme and model with.
    """
    for path in paths_of_axis(study, axis):
        stage, inner = split_stage(path)
        if stage in upstream or (stage in ("", *later) and inner.partition(".")[0] in OF_THE_CELL):
            return True
    return False

"""The plan of a study: its cells and runs, before training."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from attnlab._util.text import count, html_table
from attnlab.config.command import CommandConfig
from attnlab.config.grid import Cell, SkippedCell, cell_name
from attnlab.config.question import EstimandConfig, TaskQuestion
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import text
from attnlab.errors import UserError

Phase = Literal["grid", "search", "confirm", "sweep", "stage"]


@dataclass(frozen=True)
class Run:
    """One training of a cell with one seed.

    Attributes:
        settings: the cell's settings, with the seed.
        phase: ``search`` and ``confirm`` are the two halves of a searched study; only the second is reported. All runs of a
            sweep have the phase ``sweep``. Runs of the phase ``stage`` are those that others start from.
        params: dotted path -> value that the search or the sweep set; empty in a study without either.
        trial: the number of a search's trial within its cell.
        search: of a trial, the digest of its search (``Plan.search_digest``).
    """

    cell: Cell
    seed: int
    settings: RunConfig | CommandConfig
    phase: Phase = "grid"
    params: dict[str, Any] = field(default_factory=dict)
    trial: int | None = None
    search: str = ""

    @property
    def config(self) -> RunConfig:
        """The configuration of attnlab's training."""
        assert isinstance(self.settings, RunConfig)
        return self.settings

    @property
    def name(self) -> str:
        """The name of the run: ``no_wo learned s0``; of a trial ``no_wo learned t07``, of a sweep ``no_wo lr=0.003 s0``."""
        if self.trial is not None:
            return f"{self.cell.name} t{self.trial:02d}"
        swept = self.params if self.phase == "sweep" else {}
        values = "".join(f" {path.rpartition('.')[2]}={text(value)}" for path, value in swept.items())
        return f"{self.cell.name}{values} s{self.seed}"

    @cached_property
    def fingerprint(self) -> str:
        """The fingerprint of the configuration, seed included."""
        return self.settings.fingerprint()

    @property
    def steps(self) -> int | None:
        """The number of training steps, if it is known; with epochs, as the plan computed it for the cell."""
        return self.settings.train.steps or self.cell.steps if isinstance(self.settings, RunConfig) else None

    @property
    def starts_from(self) -> str:
        """The key of the run that training starts from, or ""."""
        return self.settings.init.fingerprint if self.settings.init else ""

    @property
    def key(self) -> str:
        """The key of its record, its queue entry and its folder. Two trials have two keys, even with equal values."""
        return self.fingerprint if self.trial is None else f"{self.search}.t{self.trial:02d}"


@dataclass(frozen=True)
class Plan:
    """The cells and runs of a study, before training.

    Attributes:
        skipped: points of the grid that the study itself leaves out.
        unselected: the other cells of the study if the plan is a part of it (``only``), without their costs.
        doubles: name of a cell -> name of an earlier cell with the same configuration, which is run for both.
        notes: sentences for the user, for example on equal cells or a missing baseline.
        metric, direction: the metric that is compared, and ``max`` or ``min``; of several tasks, the first task's.
        estimand: the number that summarizes the seeds of a cell.
        sweep_extensions: the numbers of values by which the results have extended the sweep below and above its list.
        task_axis: the axis that sets the task, if the study has several; else "".
        tasks: label of its values -> what the study compares on this task; empty in a study of one task.
        further: the further questions of the study, about the same cells.
        order: the names of all cells of the grid.
    """

    study: StudyConfig
    cells: list[Cell]
    skipped: list[SkippedCell]
    notes: list[str]
    metric: str
    direction: str
    doubles: dict[str, str] = field(default_factory=dict)
    unselected: list[Cell] = field(default_factory=list)
    sweep_extensions: tuple[int, int] = (0, 0)
    estimand: EstimandConfig = EstimandConfig()
    task_axis: str = ""
    tasks: dict[str, TaskQuestion] = field(default_factory=dict)
    further: list[TaskQuestion] = field(default_factory=list)
    order: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return one line for the study and one for each cell, for display in a notebook."""
        sizes = [f": {c.parameters:,} parameters" if c.parameters is not None else "" for c in self.cells]
        texts = [f": refused: {c.refusal}" if c.refusal else size for c, size in zip(self.cells, sizes, strict=True)]
        cells = [f"{c.name}{text}" for c, text in zip(self.cells, texts, strict=True)]
        size = f"{count(len(cells), 'cell')}, {count(self.total, 'run')}"
        goals = ", ".join(f"{metric} ({way})" for metric, way in dict.fromkeys(map(self.metric_of, self.cells)))
        head = f"plan of {self.study.study}: {size}, {goals}"
        return "\n  ".join([head, *cells])

    def _repr_html_(self) -> str:
        """Return the cells as a table, for display in a notebook."""
        costs = [(cell.parameters, cell.attention_parameters, cell.flops_per_token) for cell in self.cells]
        texts = [["" if cost is None else f"{cost:,}" for cost in row] for row in costs]
        rows = [[cell.name, *row, cell.refusal or ""] for cell, row in zip(self.cells, texts, strict=True)]
        headings = ["cell", "parameters", "of attention", "FLOPs per token", "refused"]
        return html_table(headings, rows, caption=repr(self).partition("\n")[0])

    @property
    def metrics(self) -> list[str]:
        """The metric, or the metrics of all tasks; ``loss``, which runs with another metric also have, comes last."""
        names = dict.fromkeys(question.metric for question in self.tasks.values()) or {self.metric: None}
        names |= {question.metric: None for question in self.further}
        return sorted(names, key=lambda name: name == "loss")

    @property
    def margin(self) -> float | dict[str, float | None] | None:
        """The margin as the study states it; of several tasks, label of the task -> margin."""
        if self.tasks:
            return {label: question.margin for label, question in self.tasks.items()}
        assert not isinstance(self.study.margin, dict)
        return self.study.margin

    def metric_of(self, cell: Cell) -> tuple[str, str]:
        """Return the metric by which a cell is compared, and its direction."""
        question = self.tasks.get(str(cell.axes.get(self.task_axis)))
        return (question.metric, question.direction) if question else (self.metric, self.direction)

    @property
    def searched(self) -> bool:
        """True when each cell is searched, and the chosen values are confirmed on fresh seeds."""
        return self.study.search is not None

    @property
    def runs(self) -> list[Run]:
        """Every run of the cells that are not refused, cell by cell, without the runs of the stages.

        Empty for a searched study: its runs depend on the search, and ``search_run`` and ``confirm_run`` create them.
        """
        if self.searched:
            return []
        cells, values = [cell for cell in self.cells if cell.refusal is None], self.sweep_values
        if values:
            return [self._sweep_run(cell, seed, value) for cell in cells for value in values for seed in self.study.seeds]
        return [_run(cell, seed) for cell in cells for seed in self.study.seeds]

    @property
    def stages(self) -> list[Cell]:
        """The stages that cells start from, each once and after the one that it starts from itself."""
        stages = [stage for cell in self.cells if cell.refusal is None for stage in cell.stages]
        return list({stage.config.fingerprint(): stage for stage in stages}.values())

    @property
    def stage_runs(self) -> list[Run]:
        """The runs that others start from: the runs of each stage, with the seeds of the runs that need them."""
        seeds = [self.study.search.seed, *self.seeds] if self.study.search else self.seeds
        return [_run(stage, seed, phase="stage") for stage in self.stages for seed in seeds]

    @property
    def estimator(self) -> Any:
        """The value of a cell, the difference of two cells, and their names (`attnlab.stats.estimators.Estimator`)."""
        return self.estimand.estimator(self.metric, self.direction)

    @property
    def sweep_values(self) -> tuple[float, ...]:
        """The values at which each cell is trained, in ascending order; empty in a study without a sweep."""
        return self.study.sweep.extended(*self.sweep_extensions) if self.study.sweep else ()

    def _sweep_run(self, cell: Cell, seed: int, value: float) -> Run:
        """Return a run of a sweep. A swept field decides neither what can run nor its cost: the cell stays as resolved."""
        assert self.study.sweep is not None
        section, _, name = self.study.sweep.path.partition(".")
        updated = getattr(cell.config, section).model_copy(update={name: value})
        config = cell.with_seed(cell.config.model_copy(update={section: updated}), seed)
        return Run(cell, seed, config, "sweep", {self.study.sweep.path: value})

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs that are reported."""
        return self.study.reported_seeds

    @property
    def refused(self) -> list[tuple[Cell, Run]]:
        """The refused cells, each with the run of its first reported seed."""
        seed, phase = self.seeds[0], "confirm" if self.searched else "sweep" if self.study.sweep else "grid"
        return [(cell, _run(cell, seed, phase=phase)) for cell in self.cells if cell.refusal is not None]

    @property
    def runs_per_cell(self) -> int:
        """The number of runs of each cell: its seeds and the trials of a search, or its seeds at each value of a sweep."""
        trials = self.study.search.trials if self.study.search else 0
        return trials + len(self.seeds) * max(1, len(self.sweep_values))

    @property
    def total(self) -> int:
        """The number of runs of all cells and stages, trials included."""
        return self.runs_per_cell * sum(cell.refusal is None for cell in self.cells) + len(self.stage_runs)

    def require_runs(self) -> None:
        """Raise `UserError`, with the reasons, if every cell is refused."""
        if not self.total:
            reasons = dict.fromkeys(str(cell.refusal) for cell in self.cells)
            message = f"no cell of the study {self.study.study!r} can run: {'; '.join(reasons)}"
            raise UserError(message, str(self.study.path or ""))

    @property
    def train_flops(self) -> int:
        """The training FLOPs of all runs; runs count in full, as if none were pruned or ended early, and shared stages once."""
        stages = sum(run.cell.train_flops or 0 for run in self.stage_runs)
        return stages + self.runs_per_cell * sum(cell.train_flops or 0 for cell in self.cells)

    def search_run(self, cell: Cell, trial: int, params: dict[str, Any]) -> Run:
        """Return one trial of a cell's search: trained with ``search.seed``, never evaluated on ``test``.

        Args:
            params: dotted path -> value.

        Raises:
            UserError: the values make an invalid configuration, or one that cannot run.
        """
        from attnlab.planning.search import apply_changes

        assert self.study.search is not None
        config, seed = apply_changes(self.study, cell, params), self.study.search.seed
        evaluate = config.evaluate.model_copy(update={"test": False, "lengths": ()})
        config = cell.with_seed(config.model_copy(update={"evaluate": evaluate}), seed)
        return Run(cell, seed, config, "search", params, trial, self.search_digest(cell))

    def confirm_run(self, cell: Cell, seed: int, params: dict[str, Any]) -> Run:
        """Return a run with the values that the search chose and a fresh seed; raises as ``search_run`` does."""
        from attnlab.planning.search import apply_changes

        config = cell.with_seed(apply_changes(self.study, cell, params), seed)
        return Run(cell, seed, config, "confirm", params)

    def search_digest(self, cell: Cell) -> str:
        """Return 12 hex digits over all that determines a search: cell, space, sampler, pruner and metric.

        A search with the same digest can be continued. The number of trials is left out, so that a search can be extended, and
        so is ``parallel``, which only affects the load.
        """
        assert self.study.search is not None
        settings = self.study.search.model_dump(mode="json", exclude={"trials", "parallel"})
        evaluate = cell.config.evaluate.model_copy(update={"lengths": ()})  # trials are not evaluated on the test split
        config, goal = cell.config.model_copy(update={"evaluate": evaluate}), " ".join(self.metric_of(cell))
        text = json.dumps([config.fingerprint(), settings, goal], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def baseline_of(self, cell: Cell, number: int = 0) -> Cell | None:
        """Return the cell with the axes of ``cell``, overridden by the axes of a baseline; None when there is none.

        If that cell is a double, return the cell that is run for it.

        Args:
            number: of the baseline, in a study with several.
        """
        if number >= len(self.study.baselines):
            return None
        name = cell_name({**cell.axes, **self.study.baselines[number]})
        name = self.doubles.get(name, name)
        return next((candidate for candidate in self.cells if candidate.name == name), None)


def _run(cell: Cell, seed: int, *, phase: Phase = "grid") -> Run:
    return Run(cell, seed, cell.with_seed(cell.settings, seed), phase)

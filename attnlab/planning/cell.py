"""A cell of a plan, and a run of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

from attnlab.config.axes import Label, text
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.errors import one_line

C = TypeVar("C", bound=RunConfig | CommandConfig)
Phase = Literal["grid", "search", "confirm", "sweep", "stage"]


@dataclass(frozen=True)
class Cell:
    """One point of the grid.

    Attributes:
        name: its axis values, as in ``no_wo learned``.
        axes: axis -> short label.
        settings: the resolved configuration, with seed 0: of attnlab's training, or of a program.
        refusal: the reason why it cannot run, or None.
        parameters, attention_parameters, flops_per_token: None for a refused cell. Of a program, none of the costs is known.
        hidden_parameters, matrix_parameters, embedding_parameters: matrices of blocks, other matrices, and embeddings
            (``attnlab.training.optim``).
        cache_bytes, state_bytes: of one sequence of full length while it is decoded (``attnlab.training.costs``); None
            also for a model that does not decode, or decodes without a cache.
        train_flops: of all steps of one run: 3 x forward x tokens.
        has_unknown_lengths: True when rows count at full length, because the task does not know theirs before its data are
            prepared (``Task.mean_length``): ``train_flops`` and ``eval_flops`` are then upper bounds.
        eval_flops: of its evaluations on ``valid`` and ``test`` at the trained length; None also
            if the task does not estimate its tokens.
        where: the place in the study file of its last axis, for messages.
        matched: a description of how its cost was matched to its baseline's, or "".
        cuda_backend: the backend that it would use on CUDA.
        factors: of a factorial study, factor -> index of its level: 0 for off, 1 for on.
        data_sizes: the number of items of each split, and how many of them are scored.
        data_notes: what the task says about its data, for example test data that also occur in ``train``.
        fixed_costs: the costs above that a search must not change: those in which it is matched, or others are matched to it.
        stage: the stage that its runs start from; None: from scratch.
        taken: a description of the tensors that they take over from it, or "".
    """

    name: str
    axes: dict[str, Label]
    settings: RunConfig | CommandConfig
    refusal: str | None = None
    parameters: int | None = None
    attention_parameters: int | None = None
    hidden_parameters: int | None = None
    matrix_parameters: int | None = None
    embedding_parameters: int | None = None
    flops_per_token: int | None = None
    cache_bytes: int | None = None
    state_bytes: int | None = None
    train_flops: int | None = None
    eval_flops: int | None = None
    has_unknown_lengths: bool = False
    where: str = ""
    matched: str = ""
    cuda_backend: str = ""
    fixed_costs: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    data_sizes: str = ""
    factors: dict[str, int] = field(default_factory=dict)
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
        """The number of training steps, where the configuration states it."""
        return self.settings.train.steps if isinstance(self.settings, RunConfig) else None

    @property
    def starts_from(self) -> str:
        """The key of the run that training starts from, or ""."""
        return self.settings.init.fingerprint if self.settings.init else ""

    @property
    def key(self) -> str:
        """The key of its record, its queue entry and its folder. Two trials have two keys, even with equal values."""
        return self.fingerprint if self.trial is None else f"{self.search}.t{self.trial:02d}"

"""A cell of the plan, and one training of it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from attnlab.config.axes import Label
from attnlab.config.run import RunConfig


@dataclass(frozen=True)
class Cell:
    """One point of the grid.

    Attributes:
        name: its axis values, as in ``no_wo learned``.
        axes: axis -> short label.
        config: resolved; its seed is 0.
        refusal: why it cannot be run, or None.
        parameters, attention_parameters, flops_per_token: of a refused cell None.
        train_flops: of one run: 3 x forward x tokens, every row counted at full length.
        eval_flops: of its evaluations on ``valid`` and ``test`` at the trained length; None also where the task does not say.
        where: the place in the study file of its last axis, for messages.
        matched: how it was made to cost as much as its baseline, where that was asked.
        cuda_backend: the backend that it would have on CUDA.
    """

    name: str
    axes: dict[str, Label]
    config: RunConfig
    refusal: str | None = None
    parameters: int | None = None
    attention_parameters: int | None = None
    flops_per_token: int | None = None
    train_flops: int | None = None
    eval_flops: int | None = None
    where: str = ""
    matched: str = ""
    cuda_backend: str = ""


@dataclass(frozen=True)
class Run:
    """One training of one cell with one seed.

    Attributes:
        phase: ``search`` and ``confirm`` are the two halves of a searched study; only the second is reported.
        params: dotted path -> what the search chose; empty outside a searched study.
        trial: the number of a search's trial within its cell.
        search: of a trial, the digest of its search (``Plan.search_digest``).
    """

    cell: Cell
    seed: int
    config: RunConfig
    phase: Literal["grid", "search", "confirm"] = "grid"
    params: dict[str, Any] = field(default_factory=dict)
    trial: int | None = None
    search: str = ""

    @property
    def name(self) -> str:
        """``no_wo learned s0``; of a trial ``no_wo learned t07``."""
        return f"{self.cell.name} s{self.seed}" if self.trial is None else f"{self.cell.name} t{self.trial:02d}"

    @cached_property
    def fingerprint(self) -> str:
        """Of the configuration, seed included."""
        return self.config.fingerprint()

    @property
    def key(self) -> str:
        """What its record, its ticket and its folder go by. Two trials are two, even where they try the same."""
        return self.fingerprint if self.trial is None else f"{self.search}.t{self.trial:02d}"

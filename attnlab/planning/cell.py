"""A cell of a plan, and a run of it."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from attnlab.config.axes import Label, text
from attnlab.config.run import RunConfig
from attnlab.errors import one_line


@dataclass(frozen=True)
class Cell:
    """One point of the grid.

    Attributes:
        name: its axis values, as in ``no_wo learned``.
        axes: axis -> short label.
        config: resolved, with seed 0.
        refusal: the reason why it cannot run, or None.
        parameters, attention_parameters, flops_per_token: None for a refused cell.
        train_flops: of one run: 3 x forward x tokens, every row counted at full length.
        eval_flops: of its evaluations on ``valid`` and ``test`` at the trained length; None also
            if the task does not estimate its tokens.
        where: the place in the study file of its last axis, for messages.
        matched: a description of the match of its cost to that of its baseline, or "".
        cuda_backend: the backend that it would use on CUDA.
        factors: of a factorial study, factor -> index of its level: 0 for off, 1 for on.
        data_notes: what the task says about its data, such as test data that also occur in ``train``.
        fixed_costs: the costs above that a search must not change: those in which it is matched, or others are matched to it.
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
    fixed_costs: tuple[str, ...] = ()
    data_notes: tuple[str, ...] = ()
    factors: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.refusal is not None:  # it may quote the user's code
            object.__setattr__(self, "refusal", one_line(self.refusal))


@dataclass(frozen=True)
class Run:
    """One training of a cell with one seed.

    Attributes:
        phase: ``search`` and ``confirm`` are the two halves of a searched study; only the second is reported. All runs of a
            sweep have the phase ``sweep``.
        params: dotted path -> value that the search or the sweep set; empty in a study without either.
        trial: the number of a search's trial within its cell.
        search: of a trial, the digest of its search (``Plan.search_digest``).
    """

    cell: Cell
    seed: int
    config: RunConfig
    phase: Literal["grid", "search", "confirm", "sweep"] = "grid"
    params: dict[str, Any] = field(default_factory=dict)
    trial: int | None = None
    search: str = ""

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
        return self.config.fingerprint()

    @property
    def key(self) -> str:
        """The key of its record, its queue entry and its folder. Two trials have two keys, even with equal values."""
        return self.fingerprint if self.trial is None else f"{self.search}.t{self.trial:02d}"

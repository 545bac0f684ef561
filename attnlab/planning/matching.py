"""Match the cost of a cell to its baseline's, as ``{name: no_wo, match: params}`` requests.

A variant with fewer parameters is otherwise compared with a larger model. Matching spends the saved parameters elsewhere: it
adjusts the width of the feed-forward, or the field that ``by`` names, until the costs agree within 1 %. Without matching, a
comparison asks whether a part can be removed; with it, whether the parameters are better spent elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from attnlab._util.progress import Progress, no_progress, track
from attnlab.config.axes import level_settings, paths_of_axis
from attnlab.config.checks import check_path
from attnlab.config.grid import Cell
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import Match, text
from attnlab.errors import UserError
from attnlab.planning.costs import BuildError
from attnlab.planning.resolve import Resolver
from attnlab.registry import VARIANTS, options_of

TOLERANCE = 0.01  # of the baseline's cost
COSTS = {"params": "parameters", "flops": "FLOPs per token"}
# The fields that decide the size of the model. An option of a variant that is a whole number can be adjusted, too.
MATCHABLE = ("model.ff_mult", "model.dim", "model.depth", "model.heads", "model.mem_len")
MAX_STEPS = 2**16  # of the field that is adjusted


def match_costs(study: StudyConfig, cells: list[Cell], resolver: Resolver, *, progress: Progress = no_progress) -> list[Cell]:
    """Return the cells with every ``match`` resolved; a cell that cannot be matched is refused with the reason.

    Raises:
        UserError: no baseline to match to, or a field that cannot be adjusted; with the place in the study.
    """
    for path in study.search.space if study.search else ():
        if path.startswith(("model.", "variant.", "position.")) and not path.endswith("dropout"):
            message = f"search.space: expected no {path!r}, which may change the sizes in which cells are matched"
            raise UserError(message, study.where("search", "space", path, key=True))
    tracked = track(cells, "matching costs", progress)
    return [_Matching(study, cell, cell.config.match, cells, resolver)() if cell.config.match else cell for cell in tracked]


@dataclass(frozen=True)
class _Matching:
    """The matching of one cell."""

    study: StudyConfig
    cell: Cell
    match: Match
    cells: list[Cell]
    resolver: Resolver

    def __call__(self) -> Cell:
        bare = self.cell.config.without_match()
        unmatched = replace(self.cell, settings=bare)
        if self.cell.refusal is not None:
            return unmatched
        before = self._check_field(bare)
        base = self.baseline
        if base.refusal is not None:
            return replace(unmatched, refusal=f"match: its baseline {base.name!r} is refused")
        try:
            target, unit = self._cost_of(base), _unit(bare, self.match.by)
        except BuildError as error:
            return replace(unmatched, refusal=f"match: its baseline {base.name!r} is refused: {error.message}")
        limit = self.cell.task.length if self.match.by.startswith("variant.") else MAX_STEPS

        def at(steps: int) -> Cell:
            return self._resolve_with({self.match.by: steps * unit})

        try:
            start = min(round(before / unit), limit)
            best = at(_nearest(lambda steps: self._cost_of(at(steps)), target, start=start, limit=limit))
        except (_Refused, BuildError) as error:
            return replace(unmatched, refusal=f"match: {error}")
        cost, words = self._cost_of(best), COSTS[self.match.cost]
        values = " becomes ".join(text(_short(value)) for value in (before, _value(best.config, self.match.by)))
        gap = cost / target - 1
        summary = f"{self.match.by} {values}: {cost:,} {words}, {gap:+.2%} against {base.name!r}"
        if abs(gap) > TOLERANCE:
            return replace(unmatched, refusal=f"match: expected {target:,} {words} within 1 %, but {summary}")
        return replace(best, matched=summary, written=self.cell.written)

    @property
    def _place(self) -> str:
        return self.cell.where(*(("model", "layers") if self.cell.config.model.layers else ("variant",)), "match")

    def _cost_of(self, cell: Cell) -> int:
        traces = self.resolver.traces
        if self.match.cost == "params":
            return traces.parameters(cell.config, cell.task)
        return traces.figures(cell.config, cell.task)["flops_per_token"]

    def _resolve_with(self, changes: dict[str, Any]) -> Cell:
        """Return the cell with fields set; raise ``_Refused`` if it cannot run."""
        written = self.cell.written
        assert isinstance(written, RunConfig)
        try:
            config = written.replace(changes)
        except UserError as error:
            raise _Refused(f"{error.where}: {error.message}") from error
        resolved = self.resolver(replace(self.cell, settings=config.without_match()))
        if resolved.refusal is not None:
            shown = ", ".join(f"{path}={text(_short(value))}" for path, value in changes.items())
            raise _Refused(f"with {shown}: {resolved.refusal}")
        return resolved

    def _check_field(self, config: RunConfig) -> int | float:
        """Return the value of the field to adjust; raise unless it decides the size of the model and nothing else sets it."""
        by = self.match.by
        check_path(by, place=self._place)
        value = _value(config, by)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if by not in MATCHABLE and not (by.startswith("variant.") and whole):
            options = f", or an option of {config.variant.label} that is a whole number" if config.variant else ""
            raise UserError(f"match: expected one of {', '.join(MATCHABLE)}{options}, got {by}", self._place)
        if by == "model.ff_mult" and not value:
            raise UserError("match: expected another field in 'by', for example model.dim: model.ff_mult is 0", self._place)
        own: set[str] = set()  # what the levels of this cell set; other levels may set the field
        for axis, levels in self.study.grid.items():
            if isinstance(levels, list):
                own |= {*paths_of_axis(self.study, axis)}
            else:
                own |= {setting.path for setting in level_settings(self.study, axis, self.cell.axes[axis])}
        if by in own:
            raise UserError(f"match: expected a field to adjust, but the grid sets {by} already", self._place)
        return value

    @property
    def baseline(self) -> Cell:
        """The cell to match to; of several baselines, the first."""
        if not self.study.baselines:
            raise UserError("match: expected a 'baseline' in the study to match to, got none", self._place)
        axes = {**self.cell.axes, **self.study.baselines[0]}
        baseline = next((cell for cell in self.cells if cell.axes == axes), None)
        if baseline is None:
            raise UserError(f"match: the baseline of {self.cell.name!r} is not in the grid", self._place)
        if baseline.axes == self.cell.axes:
            raise UserError("match: the baseline cannot be matched to itself", self._place)
        # Of several cells with one configuration, the first is run for all.
        return next(cell for cell in self.cells if cell.key == baseline.key)


class _Refused(Exception):
    """A value of the field with which the cell cannot run."""


def _value(config: RunConfig, path: str) -> Any:
    """Return the value of a field; of an option that is not written out, its default."""
    section, _, name = path.partition(".")
    if section == "variant" and config.variant is not None and name not in config.variant.options:
        option = options_of(VARIANTS.get(config.variant.name)).get(name)
        return None if option is None else option.default
    fields: Any = config.model_dump()
    for part in path.split("."):
        fields = fields.get(part) if isinstance(fields, dict) else None
    return fields


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _unit(config: RunConfig, path: str) -> int | float:
    """Return the smallest step of a field that changes the model."""
    if path == "model.ff_mult":
        return 1 / config.model.dim
    return config.model.heads if path == "model.dim" else 1


def _nearest(cost: Callable[[int], int], target: int, *, start: int, limit: int) -> int:
    """Return the number of steps, at most ``limit``, with the cost nearest to ``target``; costs increase with the steps.

    Args:
        start: an estimate to begin with.

    Raises:
        _Refused: no number of steps up to ``limit`` reaches the target.
    """
    cost = cache(cost)
    low, high = 1, min(max(2, start), limit)
    while cost(high) < target:
        if high == limit:
            raise _Refused(f"expected a cost that grows to {target:,}, got {cost(high):,} at {high:,} steps of the field")
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) < target else (low, middle)
    return min((low, high), key=lambda steps: abs(cost(steps) - target))

"""Match the cost of a cell to that of its baseline, as ``{name: no_wo, match: params}`` requests.

A variant with fewer parameters is otherwise compared with a larger model. Matching spends the saved parameters elsewhere: it
adjusts the width of the feed-forward, or the field that ``by`` names, until the costs agree within 1 %. Without matching, a
comparison asks whether a part can be removed; with it, whether the parameters are better spent elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from attnlab.config.axes import text
from attnlab.config.grid import CellConfig
from attnlab.config.paths import check_path
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import Match
from attnlab.errors import UserError
from attnlab.planning.resolve import ResolvedCell, Resolver

TOLERANCE = 0.01  # of the baseline's cost
COST_NAMES = {"params": "parameters", "flops": "FLOPs per token"}
MAX_STEPS = 2**16  # of the field that is adjusted

CellPair = tuple[CellConfig, ResolvedCell]  # a cell of the grid and its resolution


def match_costs(study: StudyConfig, cells: list[CellPair], resolver: Resolver) -> list[CellPair]:
    """Return the cells with every ``match`` resolved; a cell that cannot be matched is refused with the reason.

    Raises:
        UserError: no baseline to match to, or a field that cannot be adjusted; with the place in the study.
    """
    return [
        _Matching(study, cell, resolved, cells, resolver)() if resolved.config.variant.match else (cell, resolved)
        for cell, resolved in cells
    ]


@dataclass(frozen=True)
class _Matching:
    """The matching of one cell."""

    study: StudyConfig
    cell: CellConfig
    resolved: ResolvedCell
    cells: list[CellPair]
    resolver: Resolver

    def __call__(self) -> CellPair:
        bare = _without_match(self.resolved.config)
        if self.resolved.refusal is not None:
            return self.cell, replace(self.resolved, config=bare)
        self._check_field(bare)
        base_cell, base = self._baseline()
        if base.refusal is not None:
            return self.cell, replace(self.resolved, config=bare, refusal=f"match: its baseline {base_cell.name!r} is refused")
        target, unit = _cost(base, self._match.cost), _unit(bare, self._match.by)

        def at(steps: int) -> ResolvedCell:
            return self._resolve_with({self._match.by: steps * unit})

        try:
            start = round(_value(bare, self._match.by) / unit)
            best = at(_nearest(lambda steps: _cost(at(steps), self._match.cost), target, start=start))
        except _Refused as error:
            return self.cell, replace(self.resolved, config=bare, refusal=f"match: {error}")
        cost, unit_name = _cost(best, self._match.cost), COST_NAMES[self._match.cost]
        before, after = (text(_short(_value(config, self._match.by))) for config in (bare, best.config))
        gap = cost / target - 1
        summary = f"{self._match.by} {before} becomes {after}: {cost:,} {unit_name}, {gap:+.2%} against {base_cell.name!r}"
        if abs(gap) > TOLERANCE:
            return self.cell, replace(
                self.resolved, config=bare, refusal=f"match: expected {target:,} {unit_name} within 1 %, but {summary}"
            )
        self._check_search(best, cost)
        return self.cell, replace(best, matched=summary)

    @property
    def _match(self) -> Match:
        assert self.resolved.config.variant.match is not None
        return self.resolved.config.variant.match

    @property
    def _place(self) -> str:
        return self.cell.where("variant", "match")

    def _resolve_with(self, changes: dict[str, Any]) -> ResolvedCell:
        """Return the cell with fields set; raise ``_Refused`` if it cannot run."""
        try:
            config = self.cell.config.replace(changes)
        except UserError as error:
            raise _Refused(f"{error.where}: {error.message}") from error
        resolved = self.resolver(replace(self.cell, config=_without_match(config)))
        if resolved.refusal is not None:
            shown = ", ".join(f"{path}={text(_short(value))}" for path, value in changes.items())
            raise _Refused(f"with {shown}: {resolved.refusal}")
        return resolved

    def _check_field(self, config: RunConfig) -> None:
        by = self._match.by
        check_path(by, place=self._place)
        value = _value(config, by)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"match: expected a field with a number to adjust, got {by} ({text(value)})", self._place)
        for part, fields in (("grid", self.study.grid), ("search.space", self.study.search.space if self.study.search else {})):
            if by in fields:
                raise UserError(f"match: expected a field to adjust, but {part} sets {by} already", self._place)

    def _baseline(self) -> CellPair:
        if self.study.baseline is None:
            raise UserError("match: expected a 'baseline' in the study to match to, got none", self._place)
        axes = {**self.cell.axes, **self.study.baseline}
        baseline = next(((cell, resolved) for cell, resolved in self.cells if cell.axes == axes), None)
        if baseline is None:
            raise UserError(f"match: the baseline of {self.cell.name!r} is not in the grid", self._place)
        if baseline[0].axes == self.cell.axes:
            raise UserError("match: the baseline cannot be matched to itself", self._place)
        return baseline

    def _check_search(self, best: ResolvedCell, cost: int) -> None:
        """Raise if a dimension of the search changes the cost that is matched."""
        space = self.study.search.space if self.study.search else {}
        for path in (path for path in space if not path.startswith("train.")):
            for _, value in space[path].ends:
                moved = self._resolve_with({self._match.by: _value(best.config, self._match.by), path: value})
                if _cost(moved, self._match.cost) != cost:
                    message = f"the search moves the {COST_NAMES[self._match.cost]} that {self.cell.name!r} is matched in"
                    raise UserError(message, self.study.where("search", "space", path, key=True))


class _Refused(Exception):
    """A value of the field with which the cell cannot run."""


def _without_match(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"variant": config.variant.model_copy(update={"match": None})})


def _cost(resolved: ResolvedCell, cost: str) -> int:
    from attnlab.training.costs import plan_figures, plan_parameters

    return (
        plan_parameters(resolved.config, resolved.task)
        if cost == "params"
        else plan_figures(resolved.config, resolved.task)["flops_per_token"]
    )


def _value(config: RunConfig, path: str) -> Any:
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


def _nearest(cost: Callable[[int], int], target: int, *, start: int) -> int:
    """Return the number of steps whose cost is nearest to ``target``; costs increase with the steps.

    Args:
        start: an estimate to begin with.

    Raises:
        _Refused: no number of steps up to ``MAX_STEPS`` reaches the target.
    """
    cost = cache(cost)
    low, high = 1, max(2, start)
    while cost(high) < target:
        low, high = high, 2 * high
        if high > MAX_STEPS:
            raise _Refused(f"expected a cost that grows to {target:,}, got {cost(low):,} at {low:,} steps of the field")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) < target else (low, middle)
    return min((low, high), key=lambda steps: abs(cost(steps) - target))

"""Cells that are made to cost as much as their baseline, as ``{name: no_wo, match: params}`` asks.

A variant that saves parameters is compared with a larger model. Matched, it may spend what it saves elsewhere: the width
of the feed-forward, or the field that ``by`` names, is adjusted until the two agree within 1 %. The first comparison
asks whether the part can be left out, the second whether its parameters were well spent there.
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
from attnlab.planning.resolve import Resolved, Resolver

WITHIN = 0.01
WORDS = {"params": "parameters", "flops": "FLOPs per token"}
MOST = 2**16  # steps of the field, at most

Planned = tuple[CellConfig, Resolved]


def matched(study: StudyConfig, planned: list[Planned], resolver: Resolver) -> list[Planned]:
    """Adjust every cell that is to be matched; those that cannot be are refused, with the reason.

    Raises:
        UserError: there is nothing to match to, or a field that cannot be adjusted; with the place in the study.
    """
    return [_Matching(study, cell, it, planned, resolver)() if it.config.variant.match else (cell, it) for cell, it in planned]


@dataclass(frozen=True)
class _Matching:
    """One cell that is to be matched."""

    study: StudyConfig
    cell: CellConfig
    it: Resolved
    planned: list[Planned]
    resolver: Resolver

    def __call__(self) -> Planned:
        bare = _without_match(self.it.config)
        if self.it.refusal is not None:
            return self.cell, replace(self.it, config=bare)
        self._check_field(bare)
        base_cell, base = self._baseline()
        if base.refusal is not None:
            return self.cell, replace(self.it, config=bare, refusal=f"match: its baseline {base_cell.name!r} is refused")
        target, unit = _cost(base, self._wish.cost), _unit(bare, self._wish.by)

        def at(steps: int) -> Resolved:
            return self._resolved({self._wish.by: steps * unit})

        try:
            start = round(_value(bare, self._wish.by) / unit)
            best = at(_nearest(lambda steps: _cost(at(steps), self._wish.cost), target, start=start))
        except _Refused as error:
            return self.cell, replace(self.it, config=bare, refusal=f"match: {error}")
        found, what = _cost(best, self._wish.cost), WORDS[self._wish.cost]
        before, after = (text(_short(_value(config, self._wish.by))) for config in (bare, best.config))
        gap = found / target - 1
        said = f"{self._wish.by} {before} becomes {after}: {found:,} {what}, {gap:+.2%} against {base_cell.name!r}"
        if abs(gap) > WITHIN:
            return self.cell, replace(self.it, config=bare, refusal=f"match: expected {target:,} {what} within 1 %, but {said}")
        self._check_search(best, found)
        return self.cell, replace(best, matched=said)

    @property
    def _wish(self) -> Match:
        assert self.it.config.variant.match is not None
        return self.it.config.variant.match

    @property
    def _place(self) -> str:
        return self.cell.where("variant", "match")

    def _resolved(self, changes: dict[str, Any]) -> Resolved:
        """The cell with fields set; raises ``_Refused`` where that cannot be run."""
        try:
            config = self.cell.config.replace(changes)
        except UserError as error:
            raise _Refused(f"{error.where}: {error.message}") from error
        found = self.resolver(replace(self.cell, config=_without_match(config)))
        if found.refusal is not None:
            shown = ", ".join(f"{path}={text(_short(value))}" for path, value in changes.items())
            raise _Refused(f"with {shown}: {found.refusal}")
        return found

    def _check_field(self, config: RunConfig) -> None:
        by = self._wish.by
        check_path(by, place=self._place)
        value = _value(config, by)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise UserError(f"match: expected a field with a number to adjust, got {by} ({text(value)})", self._place)
        for part, fields in (("grid", self.study.grid), ("search.space", self.study.search.space if self.study.search else {})):
            if by in fields:
                raise UserError(f"match: expected a field to adjust, but {part} sets {by} already", self._place)

    def _baseline(self) -> Planned:
        if self.study.baseline is None:
            raise UserError("match: expected a 'baseline' in the study to match to, got none", self._place)
        axes = {**self.cell.axes, **self.study.baseline}
        found = next(((cell, it) for cell, it in self.planned if cell.axes == axes), None)
        if found is None:
            raise UserError(f"match: the baseline of {self.cell.name!r} is not in the grid", self._place)
        if found[0].axes == self.cell.axes:
            raise UserError("match: the baseline cannot be matched to itself", self._place)
        return found

    def _check_search(self, best: Resolved, cost: int) -> None:
        """A search must not move what is held equal."""
        space = self.study.search.space if self.study.search else {}
        for path in (path for path in space if not path.startswith("train.")):
            for _, value in space[path].ends:
                moved = self._resolved({self._wish.by: _value(best.config, self._wish.by), path: value})
                if _cost(moved, self._wish.cost) != cost:
                    message = f"the search moves the {WORDS[self._wish.cost]} that {self.cell.name!r} is matched in"
                    raise UserError(message, self.study.where("search", "space", path, key=True))


class _Refused(Exception):
    """A value that the cell cannot be run with."""


def _without_match(config: RunConfig) -> RunConfig:
    return config.model_copy(update={"variant": config.variant.model_copy(update={"match": None})})


def _cost(it: Resolved, cost: str) -> int:
    from attnlab.training.costs import plan_figures, plan_parameters

    return plan_parameters(it.config, it.task) if cost == "params" else plan_figures(it.config, it.task)["flops_per_token"]


def _value(config: RunConfig, path: str) -> Any:
    fields: Any = config.model_dump()
    for part in path.split("."):
        fields = fields.get(part) if isinstance(fields, dict) else None
    return fields


def _short(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _unit(config: RunConfig, path: str) -> int | float:
    """The smallest step of a field that changes anything."""
    if path == "model.ff_mult":
        return 1 / config.model.dim
    return config.model.heads if path == "model.dim" else 1


def _nearest(cost: Callable[[int], int], target: int, *, start: int) -> int:
    """The number of steps whose cost is nearest to ``target``; costs grow with the steps.

    Args:
        start: a number of steps to begin with.

    Raises:
        _Refused: no number of steps costs as much.
    """
    cost = cache(cost)
    low, high = 1, max(2, start)
    while cost(high) < target:
        low, high = high, 2 * high
        if high > MOST:
            raise _Refused(f"expected a cost that grows to {target:,}, got {cost(low):,} at {low:,} steps of the field")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) < target else (low, middle)
    return min((low, high), key=lambda steps: abs(cost(steps) - target))

"""The search in one cell: its own Optuna study, with the same budget as every other cell's.

Trial n of a cell is the ticket ``tn`` of its queue, and its sampler is seeded by its cell and n. With one trial of a cell at a
time (``parallel: 1``), what it suggests depends on nothing but the trials before it: not on timing, workers or restarts.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError
from attnlab.planning.samplers import pruner, sampler, suggest, values
from attnlab.study.trials.queue import FAILED, Queue, Ticket

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan, Run
    from attnlab.study.trials.store import Store

STOP = "stop"  # attribute of a trial: the step at which it was told to end


class Search:
    """The search for one cell's best setting.

    Attributes:
        cell: what is searched for.
        values: what a trial is judged by while it runs: the name of the curve.
    """

    def __init__(self, plan: Plan, cell: Cell, store: Store) -> None:
        assert plan.study.search is not None
        self.cell, self._plan, self._settings = cell, plan, plan.study.search
        self.digest = plan.search_digest(cell)
        self.queue = Queue(
            store,
            f"{plan.study.study} / {cell.name} / {self.digest}",
            direction=plan.direction,
            pruner=pruner(self._settings.pruner),
        )
        self.keys = [f"{self.digest}.t{n:02d}" for n in range(self._settings.trials)]
        self.values = f"valid/{plan.metric}"

    def take(self) -> tuple[Ticket, Run] | None:
        """The next trial and its run; None when as many as may run at once do, or none is left."""
        if len(self.queue.trials("RUNNING")) >= self._settings.parallel:
            return None
        waiting = self.queue.keys("WAITING") & set(self.keys)
        if not waiting:
            return None
        n = self.keys.index(min(waiting))
        self.queue.study.sampler = sampler(self._settings.sampler, seed=zlib.crc32(self.keys[n].encode()))
        ticket = self.queue.take({self.keys[n]})
        if ticket is None:  # another parent was quicker
            return None
        params = suggest(ticket.trial, self._settings.space)
        try:
            return ticket, self._plan.search_run(self.cell, n, params)
        except UserError as error:  # each value is valid, together they are not
            ticket.trial.set_user_attr("reason", str(error))
            self.queue.tell(ticket, "failed", math.nan)
            return None

    def judge(self, ticket: Ticket, step: int, metrics: dict[str, float]) -> bool | None:
        """Whether to end a trial after this point of its curve; None where the point is no evaluation."""
        if self.values not in metrics:
            return None
        before = ticket.trial.storage.get_trial(ticket.trial._trial_id)
        if step not in before.intermediate_values:
            ticket.trial.report(metrics[self.values], step)
        elif step != before.last_step:
            return False  # an earlier attempt came further: it was let go on
        elif before.user_attrs.get(STOP) == step:
            return True
        stop = bool(ticket.trial.should_prune())
        if stop:
            ticket.trial.set_user_attr(STOP, step)  # successive halving does not say so twice
        return stop

    @property
    def ended(self) -> set[str]:
        """The keys of the trials that have an outcome."""
        failed = {t.user_attrs["key"] for t in self.queue.trials("FAIL") if t.user_attrs.get("state") in FAILED}
        return (self.queue.keys("COMPLETE", "PRUNED") | failed) - self.queue.keys("WAITING", "RUNNING")

    @property
    def over(self) -> bool:
        """Whether every trial has an outcome."""
        return set(self.keys) <= self.ended

    def best(self) -> dict[str, Any]:
        """The setting of the best completed trial within the budget; empty where none was completed."""
        found = [t for t in self.queue.trials("COMPLETE") if t.user_attrs["key"] in self.keys]
        choose = min if self._plan.direction == "min" else max  # among equals the oldest
        best = choose(found, key=lambda trial: trial.values[0], default=None)
        return values(best.params, self._settings.space) if best else {}

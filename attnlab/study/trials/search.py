"""The search in one cell: a separate Optuna study, with the same budget as every other cell's.

Trial n of a cell is the ticket ``tn`` of its queue, and its sampler is seeded by the study's search and n. Samplers that do
not learn from results therefore try the same values in every cell. With one trial of a cell at a time (``parallel: 1``), its
parameters depend on the trials before it alone, not on timing, workers or restarts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import WITHOUT_RESULT, RunState
from attnlab.errors import UserError
from attnlab.planning.samplers import pruner, sampler, suggest, values
from attnlab.study.trials.queue import Queue, Ticket

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan, Run
    from attnlab.study.trials.store import Store

STOP = "stop"  # attribute of a trial: the step at which it was stopped


class Search:
    """The search for the best parameters of one cell.

    Attributes:
        keys: of its trials, in order.
        metric: the curve by which a running trial is judged.
        score: the metric on the validation split by which its trials are ranked.
        starts_from: the key of the run that its trials start from, or "".
    """

    def __init__(self, plan: Plan, cell: Cell, store: Store) -> None:
        assert plan.study.search is not None
        self.cell, self._plan, self._config = cell, plan, plan.study.search
        self.digest = plan.search_digest(cell)
        metric, self._direction = plan.metric_of(cell)
        self.queue = Queue(
            store,
            f"{plan.study.study} / {cell.name} / {self.digest}",
            direction=self._direction,
            pruner=pruner(self._config.pruner),
        )
        self.keys = [f"{self.digest}.t{n:02d}" for n in range(self._config.trials)]
        self.metric, self.score = f"valid/{metric}", f"valid_{metric}"
        init = cell.with_seed(cell.config, self._config.seed).init
        self.starts_from = init.fingerprint if init else ""

    def claim(self) -> tuple[Ticket, Run] | None:
        """Claim the next trial; None when ``parallel`` trials already run, none is left, or its configuration is invalid."""
        if len(self.queue.trials("RUNNING")) >= self._config.parallel:
            return None
        waiting = self.queue.keys("WAITING") & set(self.keys)
        if not waiting:
            return None
        n = self.keys.index(min(waiting))
        self.queue.study.sampler = sampler(self._config.sampler, seed=self._config.seed, trial=n)
        ticket = self.queue.claim({self.keys[n]})
        if ticket is None:  # another parent claimed it first
            return None
        params: dict[str, Any] = {}
        if not self.queue.update(ticket, lambda: params.update(suggest(ticket.trial, self._config.space))):
            return None
        try:
            return ticket, self._plan.search_run(self.cell, n, params)
        except UserError as error:  # each value is valid, but not their combination
            reason = str(error)
            if self.queue.update(ticket, lambda: ticket.trial.set_user_attr("reason", reason)):
                self.queue.tell(ticket, RunState.FAILED, math.nan)
            return None

    def should_stop(self, ticket: Ticket, step: int, metrics: dict[str, float]) -> bool | None:
        """Return whether to stop a trial after this point of its curve; None when the point is no evaluation.

        A trial that resumes repeats points that an earlier attempt sent: it gets the earlier answer.
        """
        if self.metric not in metrics:
            return None
        stop = list[bool]()
        self.queue.update(ticket, lambda: stop.append(self._judge(ticket, step, metrics[self.metric])))
        return bool(stop) and stop[-1]  # a trial that was taken over trains to the end: its files are those of the other parent

    def _judge(self, ticket: Ticket, step: int, value: float) -> bool:
        stored = ticket.trial.storage.get_trial(ticket.trial._trial_id)
        if step not in stored.intermediate_values:
            ticket.trial.report(value, step)
        elif step != stored.last_step:
            return False  # an earlier attempt continued past this step, so it was not stopped here
        elif stored.user_attrs.get(STOP) == step:
            return True
        stop = bool(ticket.trial.should_prune())
        if stop:
            ticket.trial.set_user_attr(STOP, step)  # successive halving answers once only
        return stop

    @property
    def ended(self) -> set[str]:
        """The keys of the trials that have an outcome."""
        failed = {t.user_attrs["key"] for t in self.queue.trials("FAIL") if t.user_attrs.get("state") in WITHOUT_RESULT}
        return (self.queue.keys("COMPLETE", "PRUNED") | failed) - self.queue.keys("WAITING", "RUNNING")

    @property
    def is_over(self) -> bool:
        """True when every trial has an outcome."""
        return set(self.keys) <= self.ended

    def best_params(self) -> dict[str, Any]:
        """Return the parameters of the best completed trial within the budget; empty when none was completed."""
        completed = [t for t in self.queue.trials("COMPLETE") if t.user_attrs["key"] in self.keys]
        choose = min if self._direction == "min" else max  # both return the oldest of equal trials
        best = choose(completed, key=lambda trial: trial.values[0], default=None)
        return values(best.params, self._config.space) if best else {}

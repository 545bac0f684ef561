"""Writing a study's records to MLflow, from the parent process.

Each run of a study has one MLflow run, its record. At most one record is active per key (for a run of the grid, its
fingerprint): a new attempt replaces the earlier record, which MLflow keeps among its deleted runs. A run is finished when
its record's status is FINISHED, which is written last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from attnlab._util.files import read_end
from attnlab._util.metrics import ITEMS_FILE, length_of
from attnlab._util.patience import response_timeout
from attnlab._util.redact import redact
from attnlab._util.run_state import COUNTS_AS_FAILURE, Reset, RunState
from attnlab.errors import UserError, one_line
from attnlab.tracking.artifacts import log_run_inputs, log_weights, write_reference_scores
from attnlab.tracking.client import connect, is_local, log_batch, search_runs, storable, tracking_uri
from attnlab.tracking.delivery import Delivery, MetricBuffer, RetryingClient, TrackingRejected
from attnlab.tracking.experiment import get_or_create_experiment, record_call
from attnlab.tracking.record import (
    NOTE_TAG,
    PREFIX,
    REQUEST_TAG,
    RETRIED,
    RUNS_VIEW_KEY,
    VIEW_KEY,
    RunRecord,
    StudyRecord,
    tag,
    to_tags,
    with_tag,
)
from attnlab.tracking.tags import (
    owner_id,
    planned_cells,
    run_note,
    run_tags,
    split_note,
    study_tags,
    study_text,
)
from attnlab.tracking.views import runs_view, view_tags

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from attnlab.planning.plan import Cell, Plan, Run
    from attnlab.tracking.artifacts import ReferenceScore

logger = logging.getLogger(__name__)

P = ParamSpec("P")

MAX_LOG_BYTES = 1_000_000  # of a log file, from its end
STATUS: dict[str, str] = {  # MLflow's; FINISHED for all other states
    RunState.FAILED: "FAILED",
    RunState.TIMED_OUT: "FAILED",
    RunState.INTERRUPTED: "KILLED",
    RunState.REFUSED: "KILLED",
}


class Tracker:
    """Writes a study's records to MLflow. As a context manager it closes itself, with a short deadline after an exception.

    Only the calls that need a response (``start``, ``finish``, looking up records) wait for a store that does not
    respond, for ``ATTNLAB_TRACKING_PATIENCE`` seconds. Metrics, tags and files are buffered and delivered later.

    Args:
        plan: the study; its name is the name of the experiment.
        root: the runs folder.

    Raises:
        TrackingTimeout: by every method but ``log_metrics``, ``log_tag``, ``log_text`` and ``log_file``: the store did not
            respond in time.
        TrackingRejected: by every method: the store rejected this call or an earlier one for the same run.
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan, self._root, self._study_text = plan, root, study_text(plan)
        self._raw = connect(root, create=True)
        store = redact(tracking_uri(root))
        self.delivery = Delivery(store, timeout=response_timeout())
        self._metrics = MetricBuffer(self._raw, self.delivery)
        self._retrying = RetryingClient(self._raw, self.delivery)
        self._client = cast("MlflowClient", self._retrying)
        self._owner = owner_id(root)
        self._active: dict[str, RunRecord] = {}
        self._experiment_id = get_or_create_experiment(self._client, plan.study.study, root)

    def log_study(self, comparison: dict[str, Any]) -> None:
        """Write the study's note, the preset view of the UI, its comparison as a JSON object, and this call."""
        recorded, comparisons = self._study(), [comparison]
        if any(record.is_finished for record in self._active.values()) and recorded.comparisons[:1] != comparisons:
            comparisons = [*recorded.comparisons[:1], comparison]  # the first one is that before the first result
        answer, _ = split_note(recorded.tags)
        tags = {**study_tags(self._plan, answer), **view_tags(RUNS_VIEW_KEY, "Runs", view := runs_view(self._plan))}
        tags |= {} if answer else view_tags(VIEW_KEY, "Cells", view)
        self._set_tags({**tags, **to_tags(StudyRecord, comparisons=comparisons)})
        record_call(self._client, self._experiment_id, self._plan)

    def _study(self) -> StudyRecord:
        return StudyRecord.of(self._client.get_experiment(self._experiment_id))

    def _set_tags(self, tags: dict[str, str]) -> None:
        for key, value in tags.items():
            self._client.set_experiment_tag(self._experiment_id, key, storable(value))

    def log_plan(self) -> None:
        """Record the cells and seeds that the whole study plans, cells that ``only`` leaves out included."""
        self._set_tags(to_tags(StudyRecord, planned=planned_cells(self._plan)))

    def recorded_threads(self) -> int | None:
        """Return the number of threads that ``record_threads`` recorded; None when it has not."""
        return self._study().threads

    def record_threads(self, threads: int) -> None:
        """Record the CPU threads of the study's runs, so that runs of later calls have as many."""
        self._set_tags(to_tags(StudyRecord, threads=threads))

    def log_reference_scores(self, scores: Sequence[ReferenceScore], *, partial: bool = False) -> None:
        """Record the study's reference scores; ``partial`` keeps earlier scores that are not in ``scores``."""
        write_reference_scores(self._client, self._experiment_id, scores, partial=partial)

    def reconcile(self, *, alive: Callable[[], set[str]] | None = None) -> dict[str, RunRecord]:
        """Clean up the records of earlier processes; return the active record of each key.

        A record that is RUNNING although its parent has ended becomes ``interrupted``. Of two records with one key, the
        finished one is kept, else the later one.

        Args:
            alive: returns the keys that other parents are training. Every other RUNNING record has then lost its parent.
                None: there are no other parents, and this is known only of records written from this runs folder: all of
                those in the folder's database, and on a server those with the folder's ID.
        """
        # Read the keys before and after the records: another parent may claim a run, or finish one, in between.
        before = alive() if alive else set()
        records = search_runs(self._client, self._experiment_id)
        keys_alive = before | (alive() if alive else set())
        known = alive is not None or is_local(self._root)
        for record in records:
            orphaned = known or record.owner == self._owner
            if record.status == "RUNNING" and orphaned and record.key not in keys_alive:
                record = self.finish(record.run_id, RunState.INTERRUPTED, reason="its parent process ended")
            self._add_active(record)
        return dict(self._active)

    def rename(self, record: RunRecord, *, name: str, cell: Cell) -> RunRecord:
        """Give a record the name and the axes that its run has in this plan, if its cell's changed; return it.

        MLflow's params cannot be changed: columns of the UI that show axes keep the earlier values.
        """
        if (record.cell, record.axes) == (cell.name, cell.axes):
            return record
        note = record.tags.get(NOTE_TAG, "").replace(f"**{record.cell}**", f"**{cell.name}**", 1)

        def write() -> RunRecord:
            self._raw.update_run(record.run_id, name=name)
            log_batch(self._raw, record.run_id, tags={**to_tags(cell=cell.name, axes=cell.axes), NOTE_TAG: note})
            return RunRecord.of(self._raw.get_run(record.run_id))

        renamed = self.delivery.call(write)
        self._active[record.key] = renamed
        return renamed

    def update_plan(self, plan: Plan) -> None:
        """Write records of this plan from now on: the same study with an extended sweep."""
        self._plan = plan

    def records(self) -> list[RunRecord]:
        """Return the records of the study's experiment as they are in the store, including other parents' records."""
        return search_runs(self._client, self._experiment_id)

    def find(self, key: str) -> RunRecord | None:
        """Look up the current record of a key in the store, where another parent may have written it.

        It is the finished one, else the last. Others that have ended are deleted; of two that are running, the parent without
        the ticket deletes its own.
        """
        records = search_runs(self._client, self._experiment_id, with_tag("key", key))
        if records:
            current = next((record for record in records if record.is_finished), records[-1])
            for other in records:
                if other is not current and other.status != "RUNNING":
                    self.delivery.call(partial(self._delete, other.run_id))
            self._active[key] = current
        return self._active.get(key)

    def update_current(self, keys: Collection[str], *, partial: bool = False) -> None:
        """Record of each run whether the study's plan contains it.

        Args:
            keys: keys of the runs that the plan contains.
            partial: the plan covers only a part of the study; leave the records of other cells unchanged.
        """
        planned = {*keys, *(_refused_key(run) for _, run in self._plan.refused)}
        planned_cells = {cell.name for cell in (*self._plan.stages, *self._plan.cells)}
        excluded_cells = {stage.name for cell in self._plan.unselected for stage in (cell, *cell.stages)}
        for key, record in self._active.items():
            if record.cell in planned_cells or not (partial or record.cell in excluded_cells):
                current = "yes" if key in planned else "no"
                if record.current != current:
                    self._client.set_tag(record.run_id, tag("current"), current)

    def _add_active(self, record: RunRecord) -> None:
        """Make a record the active one of its key, unless the key has a finished one; delete the other."""
        previous = self._active.get(record.key)
        if previous is not None and previous.run_id != record.run_id:
            kept, duplicate = (previous, record) if previous.is_finished else (record, previous)
            self.delivery.call(partial(self._delete, duplicate.run_id))
            record = kept
        self._active[record.key] = record

    def _delete(self, run_id: str, how: str = "yes") -> None:
        """Delete a record, which another parent may do at the same time.

        If its parent died after the last ``reconcile``, it is still RUNNING and is ended first.
        """
        from mlflow.exceptions import MlflowException

        record = self._raw.get_run(run_id)
        if record.info.lifecycle_stage != "active":
            return
        try:
            if record.info.status == "RUNNING":
                self._raw.set_terminated(run_id, STATUS[RunState.INTERRUPTED])
            self._raw.set_tag(run_id, tag("replaced"), how)
            self._raw.delete_run(run_id)
        except MlflowException:
            if self._raw.get_run(run_id).info.lifecycle_stage == "active":
                raise

    def is_replaced(self, run_id: str) -> bool:
        """Return whether another parent deleted a record, because it took the run over or had a record of it, too."""
        record = self._client.get_run(run_id)
        return record.info.lifecycle_stage != "active" and tag("replaced") in record.data.tags

    def withdrawn(self) -> dict[str, str]:
        """Return key -> reason of each run without an active record, if the user withdrew the last one.

        The reason is ``deleted in MLflow`` or ``withdrawn by attnlab redo``. You should call ``reconcile`` first.
        """
        deleted = search_runs(self._client, self._experiment_id, deleted=True)
        reasons = {record.key: "deleted in MLflow" for record in deleted if record.replaced is None}
        reasons |= {record.redone: "withdrawn by attnlab redo" for record in self._active.values() if record.redone}
        return {key: reason for key, reason in reasons.items() if key not in self._active}

    def start(self, run: Run, *, reset: Reset = Reset.NONE) -> str:
        """Create the record of a run, replacing an earlier attempt's; return its MLflow run ID.

        Args:
            reset: the files that the run's process removes first. This is recorded in case the parent dies before.
        """
        return self._create(run, name=run.name, key=run.key, state=RunState.RUNNING, reset=reset)

    def delete(self, run_id: str) -> None:
        """Delete the record of a run that another parent has taken over."""
        self._metrics.pop(run_id)
        self.delivery.call(partial(self._delete, run_id))

    def _create(self, run: Run, *, name: str, key: str, state: RunState, reset: Reset = Reset.NONE) -> str:
        fields = {"key": key, "state": state, "current": "yes", "owner": self._owner, "attempt": 1}
        fields |= {"reset": reset} if reset else {}
        earlier = self._active.get(key)
        if earlier is not None:
            fields |= {"attempt": earlier.attempt + 1, "failures": earlier.failures}
            fields["earlier"] = f"{earlier.state}: {earlier.reason}"[:500]
        tags = {**run_tags(run, plan=self._plan), **to_tags(**fields)}
        created = RunRecord.of(self._client.create_run(self._experiment_id, run_name=name, tags=tags))
        if earlier is not None:
            how = RETRIED if earlier.is_finished else "yes"
            self._submit(created.run_id, self._delete, earlier.run_id, how)
        self._submit(created.run_id, log_run_inputs, self._raw, created.run_id, run, self._study_text)
        self._active[key] = created
        return created.run_id

    def log_refused(self, run: Run, cell: Cell) -> RunRecord:
        """Record a refused cell once: a single record without a seed in its name, with the reason; return it."""
        return self._log_once(run, RunState.REFUSED, str(cell.refusal), name=cell.name, key=_refused_key(run))

    def log_untrained(self, run: Run, *, reason: str) -> RunRecord:
        """Record a run that failed before it was trained, once for each reason. It does not count as a failed attempt."""
        return self._log_once(run, RunState.FAILED, reason, name=run.name, key=run.key)

    def _log_once(self, run: Run, state: RunState, reason: str, *, name: str, key: str) -> RunRecord:
        known = self._active.get(key)
        if known is not None and (known.state, known.reason) == (state, reason):
            return self.rename(known, name=name, cell=run.cell)
        run_id = self._create(run, name=name, key=key, state=state)
        note = run_note(run, plan=self._plan, reason=reason)
        return self.finish(run_id, state, reason=reason, note=note, counts=False)

    def log_metrics(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Add one point to each of a run's curves; points are written in batches."""
        self._metrics.add(run_id, step, metrics)

    def _submit(self, run_id: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        self.delivery.submit(partial(function, *args, **kwargs), run_id=run_id)

    def log_tag(self, run_id: str, name: str, value: str) -> None:
        """Set one tag of a run, a field of its record or, for example, ``length.512``; the value becomes one line."""
        self._submit(run_id, self._raw.set_tag, run_id, f"{PREFIX}{name}", one_line(value))

    def finish(
        self,
        run_id: str,
        state: str,
        *,
        summary: dict[str, float] | None = None,
        reason: str = "",
        note: str = "",
        counts: bool = True,
    ) -> RunRecord:
        """Close a record and return it. MLflow's status is written last: FINISHED means that the record is complete.

        Args:
            state: the final state: ``completed``, ``failed``, ``out_of_memory``, ...
            summary: final metrics; NaN is left out.
            reason: why the run did not complete.
            note: Markdown for the run's page, replacing the one it has.
            counts: a failure counts as an attempt.
        """
        curves = self._metrics.pop(run_id)
        now = int(1_000 * time.time())
        final = [(name, value, now, length_of(name) or 0) for name, value in (summary or {}).items() if value == value]
        known = next((record for record in self._active.values() if record.run_id == run_id), None)
        tags = {**to_tags(state=state, **({"reason": reason[:4_000]} if reason else {})), **({NOTE_TAG: note} if note else {})}
        if state in COUNTS_AS_FAILURE and counts:
            tags |= to_tags(failures=1 + (known.failures if known else 0))

        def end() -> RunRecord:
            log_batch(self._raw, run_id, points=curves + final, tags=tags)
            self._raw.set_terminated(run_id, STATUS.get(state, "FINISHED"))
            return RunRecord.of(self._raw.get_run(run_id))

        stopping = self.delivery.has_deadline
        try:
            closed = self.delivery.call(end, run_id=run_id)
        except UserError:
            if known is None or not stopping:
                raise
            return known  # it stays RUNNING until the next ``reconcile``
        active = self._active.get(closed.key)
        if active is not None and active.run_id == run_id:  # else ``reconcile`` has yet to choose between them
            self._active[closed.key] = closed
        return closed

    def log_text(self, run_id: str, name: str, content: str) -> None:
        """Attach a text to a run as a file. Characters that cannot be encoded (lone surrogates) are escaped."""
        self._submit(run_id, self._raw.log_text, run_id, content.encode("utf8", "backslashreplace").decode("utf8"), name)

    def log_file(self, run_id: str, path: Path) -> None:
        """Attach the last ``MAX_LOG_BYTES`` of a text file to a run, without secrets; do nothing if it is missing or empty."""
        if path.is_file() and path.stat().st_size:
            self.log_text(run_id, path.name, redact(read_end(path, MAX_LOG_BYTES)))

    def log_items(self, run_id: str, folder: Path) -> None:
        """Attach the scores of a run's test items, if its folder has any."""
        if (folder / ITEMS_FILE).is_file():
            self._submit(run_id, self._raw.log_artifact, run_id, str(folder / ITEMS_FILE))
            self.log_tag(run_id, "items", "yes")

    def log_weights(self, run_id: str, folder: Path) -> None:
        """Attach the weights in a run's folder, if it has any, for parents on other machines."""
        self._submit(run_id, log_weights, self._raw, run_id, folder)

    def set_deadline(self) -> None:
        """Limit all remaining calls to seconds rather than minutes, because the study is being stopped.

        A record that cannot be closed in that time stays RUNNING until the next ``reconcile``.
        """
        self.delivery.set_deadline()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.set_deadline()
        self.close()

    def close(self) -> None:
        """Wait until everything is delivered, and mark records that this tracker left RUNNING as interrupted."""
        stopping = self.delivery.has_deadline
        try:
            for record in search_runs(self._client, self._experiment_id, "attributes.status = 'RUNNING'"):
                run_id, request_id = record.run_id, record.tags.get(REQUEST_TAG)
                if request_id in self._retrying.created:
                    with suppress(TrackingRejected):  # reported when the run ended; the next ``reconcile`` repairs the record
                        self.finish(run_id, RunState.INTERRUPTED, reason="the study ended")
                    if run_id != self._retrying.created[request_id]:  # created by a request whose response was lost
                        self.delivery.call(partial(self._delete, run_id))
        except UserError:
            if not stopping:
                raise
        finally:
            self.delivery.close()


def _refused_key(run: Run) -> str:
    """Return the key of a refused cell's record; not the fingerprint, so that the cell counts as not run."""
    return f"refused-{run.fingerprint}"

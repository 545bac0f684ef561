"""A study's records in MLflow, as the parent writes them.

One flat MLflow run for each run of a study. At most one of them is active for each key (of a run of the grid its
fingerprint): a new attempt replaces the one before, which MLflow keeps among its deleted runs. A run counts as finished when
MLflow says FINISHED, which is written last.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from attnlab._util.metrics import length_of
from attnlab._util.redact import redact
from attnlab.errors import UserError, one_line
from attnlab.tracking import reference_scores as reference_scores
from attnlab.tracking import tags as record
from attnlab.tracking.client import QUESTIONS, connect, search_runs, tracking_uri, write
from attnlab.tracking.delivery import MARK, Delivery, Patient, TrackingRejected, patience
from attnlab.tracking.points import Points
from attnlab.tracking.ui import VIEW_TAG, view_state

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

    from attnlab.planning.plan import Cell, Plan, Run
    from attnlab.tracking.reference_scores import ReferenceScore

STATUS = {"failed": "FAILED", "timed_out": "FAILED", "interrupted": "KILLED", "refused": "KILLED"}  # all others: FINISHED
COUNTED = ("failed", "timed_out")  # states in which an attempt counts against the study's ``retries``
MOST_QUESTIONS = 10  # earlier ones that are remembered: MLflow's tags are short
ANEW = "attnlab.anew"  # tag of an attempt that forgets the result before it
DEVICE = "attnlab.device"  # tag that an attempt gets when its process is about to train
TEXT_BYTES = 1_000_000  # of a log, from its end


class Tracker:
    """The parent's pen: everything that a study writes into MLflow. As a context it is closed, in a hurry after an exception.

    Args:
        plan: the study; its name is the experiment's.
        root: the folder of runs.

    A store that does not answer holds nothing up but what needs its answer (``start``, ``finish``, looking for
    records): that waits, for ``ATTNLAB_TRACKING_PATIENCE`` seconds. Points, tags and texts are kept and delivered later.

    Raises:
        UserError: of every method but ``log``, ``tag`` and ``text``: the store did not answer in time (``Absent``). Of
            every method: it refused (``Refused``), this call or an earlier one about the same run.
    """

    def __init__(self, plan: Plan, root: Path) -> None:
        self._plan, self._root, self._study_text = plan, root, record.study_text(plan)
        self._raw = connect(root, create=True)
        where = redact(tracking_uri(root))
        self.delivery = Delivery(where, patience=patience())
        self._points = Points(self._raw, self.delivery)
        self._patient = Patient(self._raw, self.delivery)
        self._client = cast("MlflowClient", self._patient)
        self._owner = record.owner(root)
        self._active: dict[str, Record] = {}
        self._experiment = self._open(plan.study.study)

    def _open(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            local = not tracking_uri(self._root).startswith("http")  # a server decides where its artifacts go
            folder = (self._root / "artifacts" / name).as_uri() if local else None
            try:
                return self._client.create_experiment(name, artifact_location=folder)
            except TrackingRejected:  # it is there: made by another parent, or by a call whose answer got lost
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            raise UserError(f"the experiment {name!r} was deleted in MLflow: restore it there, or rename the study")
        return found.experiment_id

    def describe(self) -> None:
        """Write the study's note, the preset view of the UI, and what the study asks."""
        tags = {"mlflow.note.content": record.study_note(self._plan), VIEW_TAG: view_state(self._plan)}
        tags[QUESTIONS] = json.dumps(self._questions())
        for key, value in tags.items():
            self._client.set_experiment_tag(self._experiment, key, value)

    def _questions(self) -> list[dict[str, Any]]:
        """What the study has asked since it had its first result, the present question last."""
        now = record.question(self._plan)
        if not any(found.info.status == "FINISHED" for found in self._active.values()):
            return [now]
        before = json.loads(self._client.get_experiment(self._experiment).tags.get(QUESTIONS, "[]"))
        return [*[each for each in before if each != now][-MOST_QUESTIONS:], now]

    def reference_scores(self, scores: Sequence[ReferenceScore], *, partial: bool = False) -> None:
        """Record the trivial baselines beside the study's runs; ``partial`` as for ``mark``."""
        reference_scores.write(self._client, self._experiment, scores, partial=partial)

    def sweep(self, *, alive: Collection[str] = (), shared: bool = False) -> dict[str, Record]:
        """Put the records of earlier processes in order; return one for each key.

        A run that is still RUNNING although its parent is gone becomes ``interrupted``; of two with one key the
        finished or else the later one stays.

        Args:
            alive: keys that other parents train at this moment.
            shared: other parents may be at work: what is RUNNING and not alive is nobody's. Else only what was run
                from this folder is known to have lost its parent.
        """
        for found in search_runs(self._client, self._experiment):
            data = found.data.tags
            orphaned = shared or data.get("attnlab.owner") == self._owner
            if found.info.status == "RUNNING" and orphaned and data.get("attnlab.fingerprint") not in alive:
                found = self.finish(found.info.run_id, "interrupted", reason="its parent process ended")
            self._keep_one(found)
        return dict(self._active)

    def find(self, key: str) -> Record | None:
        """The record of a key as the store has it now: another parent may have written it."""
        wanted = f"tags.`attnlab.fingerprint` = '{key}'"
        for found in self._client.search_runs([self._experiment], wanted, order_by=["attributes.start_time ASC"]):
            self._keep_one(found)
        return self._active.get(key)

    def mark(self, keys: Collection[str], *, partial: bool = False) -> None:
        """Say of every record whether the study still holds its run (``attnlab.current``).

        Args:
            keys: of the runs that the study holds.
            partial: the plan is a part of what was run under this name: leave the records of other cells alone.
        """
        planned = {*keys, *(_refused(run) for _, run in self._plan.refused)}
        here = {cell.name for cell in self._plan.cells}
        elsewhere = record.names(self._plan) - here  # cells of the study that the plan was told to leave out
        for key, found in self._active.items():
            cell = found.data.tags.get("attnlab.cell")
            if cell in here or not (partial or cell in elsewhere):
                self._mark(found, "yes" if key in planned else "no")

    def _keep_one(self, found: Record) -> None:
        key = found.data.tags.get("attnlab.fingerprint", found.info.run_id)
        other = self._active.get(key)
        if other is not None and other.info.run_id != found.info.run_id:
            loser = found if other.info.status == "FINISHED" else other
            self.delivery.call(partial(self._drop, loser.info.run_id))
            found = other if loser is found else found
        self._active[key] = found

    def _drop(self, run_id: str) -> None:
        """Delete a record that another one replaces. Of a parent that died since the last sweep it may still be RUNNING."""
        if self._raw.get_run(run_id).info.status == "RUNNING":
            self._raw.set_terminated(run_id, STATUS["interrupted"])
        self._raw.delete_run(run_id)

    def _mark(self, found: Record, current: str) -> None:
        if found.data.tags.get("attnlab.current") != current:
            self._client.set_tag(found.info.run_id, "attnlab.current", current)

    def start(self, run: Run, *, anew: bool = False) -> str:
        """Open the record of a run, in place of an earlier attempt's; return MLflow's id of it.

        Args:
            anew: its process forgets the earlier result first: written down, should the parent die before that is done.
        """
        return self._create(run, name=run.name, key=run.key, state="running", more={ANEW: "yes"} if anew else {})

    def discard(self, run_id: str) -> None:
        """Take back a record whose run has become another parent's."""
        self._points.take(run_id)
        self.delivery.call(partial(self._drop, run_id))

    def _create(self, run: Run, *, name: str, key: str, state: str, more: dict[str, str] | None = None) -> str:
        tags = {**record.tags(run, plan=self._plan), **(more or {})}
        tags |= {"attnlab.fingerprint": key, "attnlab.state": state, "attnlab.current": "yes"}
        tags |= {"attnlab.owner": self._owner, "attnlab.attempt": "1"}
        earlier = self._active.get(key)
        if earlier is not None:
            before = earlier.data.tags
            tags["attnlab.attempt"] = str(1 + int(before.get("attnlab.attempt", 0)))
            tags["attnlab.failures"] = str(failures(earlier))
            tags["attnlab.earlier"] = f"{before.get('attnlab.state')}: {before.get('attnlab.reason', '')}"[:500]
        created = self._client.create_run(self._experiment, run_name=name, tags=tags)
        run_id = created.info.run_id
        if earlier is not None:
            self._post(run_id, self._drop, earlier.info.run_id)
        self._post(run_id, write, self._raw, run_id, params=record.params(run))
        self._post(run_id, self._attach, run_id, run)
        self._active[key] = created
        return run_id

    def _attach(self, run_id: str, run: Run) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = run.config.to_json()
            (Path(folder) / "config.json").write_text(text)
            (Path(folder) / "config.yaml").write_text(record.as_yaml(json.loads(text)))
            (Path(folder) / "study.yaml").write_text(self._study_text)
            self._raw.log_artifacts(run_id, folder)

    def refuse(self, run: Run, cell: Cell) -> str:
        """Record a refused cell: one run without a seed in its name, with the reason; once."""
        key, reason = _refused(run), str(cell.refusal)
        known = self._active.get(key)
        if known is not None and known.data.tags.get("attnlab.reason") == reason:
            return known.info.run_id
        run_id = self._create(run, name=cell.name, key=key, state="refused")
        self.finish(run_id, "refused", reason=reason, note=record.note(run, plan=self._plan, reason=reason))
        return run_id

    def log(self, run_id: str, step: int, metrics: dict[str, float]) -> None:
        """Add points of curves; they are written in batches."""
        self._points.add(run_id, step, metrics)

    def _post(self, run_id: str, do: Callable[..., object], *args: Any, **words: Any) -> None:
        self.delivery.submit(partial(do, *args, **words), about=run_id)

    def tag(self, run_id: str, key: str, value: str) -> None:
        """Set one tag of a run, to one line that fits."""
        self._post(run_id, self._raw.set_tag, run_id, key, one_line(value))

    def finish(
        self,
        run_id: str,
        state: str,
        *,
        summary: dict[str, float] | None = None,
        reason: str = "",
        note: str = "",
    ) -> Record:
        """Close a record, and return it. MLflow's status comes last: FINISHED means that everything else is there."""
        rest = self._points.take(run_id)
        now = int(1_000 * time.time())
        points = [(name, value, now, length_of(name) or 0) for name, value in (summary or {}).items() if math.isfinite(value)]
        tags = {"attnlab.state": state, "attnlab.reason": reason[:4_000], "mlflow.note.content": note}
        known = self._known(run_id)
        tags["attnlab.failures"] = str(1 + (failures(known) if known else 0)) if state in COUNTED else ""

        def end() -> Record:
            write(self._raw, run_id, points=rest + points, tags={key: value for key, value in tags.items() if value})
            self._raw.set_terminated(run_id, STATUS.get(state, "FINISHED"))
            return self._raw.get_run(run_id)

        leaving = self.delivery.hurried
        try:
            closed = self.delivery.call(end, about=run_id)
        except UserError:
            if known is None or not leaving:
                raise
            return known  # it stays RUNNING: the next start puts it right
        key = closed.data.tags.get("attnlab.fingerprint", run_id)
        if key in self._active and self._active[key].info.run_id == run_id:  # else a sweep has yet to choose between them
            self._active[key] = closed
        return closed

    def _known(self, run_id: str) -> Record | None:
        return next((found for found in self._active.values() if found.info.run_id == run_id), None)

    def text(self, run_id: str, name: str, content: str) -> None:
        """Attach a text to a run, as a file of this name. What cannot be encoded (half of a character) becomes its escape."""
        self._post(run_id, self._raw.log_text, run_id, content.encode("utf8", "backslashreplace").decode("utf8"), name)

    def artifact(self, run_id: str, path: Path) -> None:
        """Attach a text file to a run: its last ``TEXT_BYTES``. One that is not there is left out."""
        if path.is_file():
            self.text(run_id, path.name, _tail(path))

    def set_deadline(self) -> None:
        """The study is being left: from now on, ``finish`` gives a store that does not answer seconds, not minutes.

        A record that cannot be closed stays RUNNING; the next start puts it right.
        """
        self.delivery.set_deadline()

    def __enter__(self) -> Tracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.set_deadline()
        self.close()

    def close(self) -> None:
        """Wait until everything is delivered; leave no record RUNNING that was opened here."""
        leaving = self.delivery.hurried
        try:
            for found in search_runs(self._client, self._experiment, "attributes.status = 'RUNNING'"):
                run_id, mark = found.info.run_id, found.data.tags.get(MARK)
                if mark in self._patient.opened:
                    self.finish(run_id, "interrupted", reason="the study ended")
                    if run_id != self._patient.opened[mark]:  # opened by a call whose answer nobody heard
                        self._client.delete_run(run_id)
        except UserError:
            if not leaving:
                raise
        finally:
            self.delivery.close()


def _tail(path: Path) -> str:
    """The end of a file, from the start of a line."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - TEXT_BYTES))
        end = file.read()
    if len(end) < size:
        end = end.partition(b"\n")[2] or end
        end = f"[the first {size - len(end):,} bytes are left out]\n".encode() + end
    return end.decode(errors="replace")


def failures(found: Record) -> int:
    """How many attempts of a run have failed, up to this record; those that lost their parent do not count."""
    return int(found.data.tags.get("attnlab.failures", 0))


def state_of(found: Record) -> str:
    """The state that a record was closed with, or ``running``."""
    return found.data.tags.get("attnlab.state", "")


def left_to_forget(found: Record) -> bool:
    """Whether an attempt that was to begin anew ended before its process had forgotten the earlier result."""
    return ANEW in found.data.tags and DEVICE not in found.data.tags


def _refused(run: Run) -> str:
    """What stands in a refused cell's record for a fingerprint: should it become possible, it has not been run."""
    return f"refused-{run.fingerprint}"

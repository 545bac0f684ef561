"""Tests of delivery to an unreliable MLflow store: everything once and in order. (HTTP servers: test_server_outage.)"""

import errno
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes
from sqlalchemy.exc import OperationalError, ProgrammingError

from attnlab._util.run_state import RunState
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.study.trials.queue import Queue
from attnlab.study.trials.store import Store
from attnlab.tracking import delivery as delivery_module
from attnlab.tracking import tracker as tracker_module
from attnlab.tracking.client import connect, unavailable_reason
from attnlab.tracking.delivery import Delivery, TrackingRejected, TrackingTimeout
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.support.paths import ROOT

UNAVAILABLE = MlflowException("gone fishing", codes.TEMPORARILY_UNAVAILABLE)
REJECTED = MlflowException("no such run", codes.RESOURCE_DOES_NOT_EXIST)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "MAX_BACKOFF", 0.1)
    monkeypatch.setattr(delivery_module, "NOTICE_AFTER", 0.3)
    monkeypatch.setattr(delivery_module, "SHUTDOWN_SECONDS", 0.5)


@pytest.fixture
def delivery() -> Iterator[Delivery]:
    with closing(Delivery("http://host", timeout=20)) as made:
        yield made


def small(name: str = "small") -> Plan:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 5}, "machine": {"device": "cpu"}}
    return plan({"study": name, "base": base, "grid": {"variant": ["dense"]}, "seeds": [0, 1]})


def points(root: Path, run_id: str, key: str = "train/loss") -> list[tuple[int, float]]:
    """Return the points of a curve in the store, in the order in which they were written."""
    query = "SELECT step, value FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY rowid"
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        return database.execute(query, (run_id, key)).fetchall()


class FakeStore:
    """Records the values of its calls; does not respond while it is unavailable."""

    def __init__(self, *, available: bool = True) -> None:
        self.available = available
        self.values: list[Any] = []
        self.attempts = 0

    def put(self, value: Any) -> Callable[[], Any]:
        def function() -> Any:
            self.attempts += 1
            if not self.available:
                raise UNAVAILABLE
            self.values.append(value)
            return value

        return function


def test_everything_arrives_in_order_when_the_store_is_back(delivery: Delivery, log: pytest.LogCaptureFixture) -> None:
    store = FakeStore(available=False)
    for i in range(50):
        delivery.submit(store.put(i))
    threading.Timer(1.0, setattr, (store, "available", True)).start()
    turns = []
    delivery.on_wait = lambda: turns.append(1)
    assert delivery.call(store.put("last")) == "last"
    assert store.values == [*range(50), "last"] and store.attempts > 55 and turns
    lost, back = log.messages
    assert "http://host does not respond" in lost and "gone fishing" in lost
    assert "http://host responds again" in back


def test_after_a_timeout_calls_fail_fast_and_abandoned_calls_are_never_made(log: pytest.LogCaptureFixture) -> None:
    delivery = Delivery("http://host", timeout=0.5)
    store = FakeStore(available=False)
    with pytest.raises(TrackingTimeout, match=r"http://host did not respond within \d+ s: gone fishing"):
        delivery.call(store.put("a"))
    for value in "bcd":
        with pytest.raises(TrackingTimeout):
            delivery.call(store.put(value))
    store.available = True
    delivery.close()
    time.sleep(0.3)
    assert store.values == []
    assert len(log.messages) == 1 and "does not respond" in log.messages[0], "an abandoned call counted as answered"


def test_an_interrupt_while_waiting_abandons_the_call(delivery: Delivery) -> None:
    store = FakeStore(available=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    delivery.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        delivery.call(store.put("a"))
    delivery.on_wait = lambda: None
    store.available = True
    delivery.call(store.put("b"))
    assert store.values == ["b"]


def test_a_rejection_is_raised_for_its_run_and_stops_no_other(delivery: Delivery, log: pytest.LogCaptureFixture) -> None:
    def reject() -> None:
        raise REJECTED

    store = FakeStore()
    delivery.submit(reject, run_id="one")
    delivery.submit(store.put("other"), run_id="other")
    with pytest.raises(TrackingRejected, match=r"http://host .*: no such run"):
        delivery.call(store.put("done"), run_id="one")
    delivery.call(lambda: None)  # the rejection may be raised before the call for the other run is made
    assert store.values == ["other"], "a run counted as done although its points were rejected"
    assert delivery.call(store.put("failed"), run_id="one") == "failed"
    delivery.submit(reject, run_id="one")
    delivery.call(store.put("other"), run_id="other")
    with pytest.raises(TrackingRejected):
        delivery.submit(store.put("more"), run_id="one")
    assert log.messages == []


def test_a_full_disk_is_a_rejection_that_names_the_file(delivery: Delivery) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "mlflow.db")

    with pytest.raises(TrackingRejected, match=r"full.*mlflow\.db|mlflow\.db.*full"):
        delivery.call(fill)


def web(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(f"{status} for http://me:s3cret@host/x", response=response)


REFUSED_CONNECTION = (
    "API request to http://me:s3cret@host/api failed with exception HTTPConnectionPool(host='host', port=80): Max retries"
    ' exceeded with url: /api (Caused by NewConnectionError("x: Failed to establish a new connection: [Errno 111]'
    ' Connection refused"))'
)
LOCKED = "(sqlite3.OperationalError) database is locked\n[SQL: INSERT ...]\n(Background on this error at: https://sqlalche.me)"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MlflowException(REFUSED_CONNECTION), "[Errno 111] Connection refused"),
        (MlflowException(LOCKED, codes.TEMPORARILY_UNAVAILABLE), "(sqlite3.OperationalError) database is locked"),
        (MlflowException("slow down", codes.REQUEST_LIMIT_EXCEEDED), "slow down"),
        (web(503), "503 for http://***@host/x"),
        (requests.ConnectionError("http://me:s3cret@host is away"), "http://***@host is away"),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (MlflowException("(sqlite3.OperationalError) database or disk is full", codes.TEMPORARILY_UNAVAILABLE), None),
        (REJECTED, None),
        (OperationalError("ROLLBACK", {}, ConnectionError("server closed")), "(builtins.ConnectionError) server closed"),
        (ProgrammingError("SELECT x", {}, ValueError("no column x")), None),
        (MlflowException("attempt to write a readonly database", codes.TEMPORARILY_UNAVAILABLE), None),
        (MlflowException("who are you", codes.UNAUTHENTICATED), None),
        (MlflowException("not you", codes.PERMISSION_DENIED), None),
        (MlflowException("the run must be in the 'active' state", codes.INVALID_PARAMETER_VALUE), None),
        (web(403), None),
        (PermissionError(errno.EACCES, "Permission denied"), None),
        (TypeError("a mistake of ours"), None),
    ],
)
def test_temporary_errors_are_told_from_rejections(error: Exception, reason: str | None) -> None:
    assert unavailable_reason(error) == reason


def raised(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: B017
        call()
    return caught.value


def test_errors_of_the_call_itself_are_rejections(root: Path) -> None:
    """MLflow gives these errors the status 500 or 503, as it does to a store that does not respond."""
    client = MlflowClient(f"sqlite:///{root / 'mlflow.db'}")
    run_id = client.create_run(client.create_experiment("any")).info.run_id
    assert unavailable_reason(raised(lambda: client.set_tag(run_id, "name", "not UTF-8: \udcff"))) is None
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        database.execute("UPDATE runs SET start_time = NULL")
    assert unavailable_reason(raised(lambda: client.get_run(run_id))) is None
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        database.execute("DROP TABLE tags")
    assert unavailable_reason(raised(lambda: client.set_tag(run_id, "name", "value"))) is None


def test_points_whose_response_was_lost_are_not_doubled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "FLUSH_POINTS", 1)
    tracker = Tracker(small(), root)
    run_id = tracker.start(small().runs[0])
    log_batch, calls = tracker._raw.log_batch, []

    def lose_response(*args: Any, **kwargs: Any) -> None:
        log_batch(*args, **kwargs)
        calls.append(1)
        if len(calls) % 2:
            raise UNAVAILABLE

    tracker._raw.log_batch = lose_response  # type: ignore[method-assign]
    values = [1.5, float("nan"), 0.1 + 0.2, float("inf"), 1e-300]
    for step, value in enumerate(values):
        tracker.log_metrics(run_id, step, {"train/loss": value})
    tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5})
    tracker.close()
    assert len(calls) > len(values)
    assert [step for step, _ in points(root, run_id)] == [0, 1, 2, 3, 4]
    assert len(points(root, run_id, "bits_per_byte")) == 1


def test_a_record_is_created_once_although_the_response_was_lost(root: Path) -> None:
    tracker = Tracker(small(), root)
    create_run, made = tracker._raw.create_run, []

    def lose_response(*args: Any, **kwargs: Any) -> Any:
        made.append((create_run(*args, **kwargs).info.run_id, args, kwargs))
        raise UNAVAILABLE

    tracker._raw.create_run = lose_response  # type: ignore[method-assign]
    run_id = tracker.start(small().runs[0])
    assert [created for created, _, _ in made] == [run_id]
    _, args, kwargs = made[0]
    late = create_run(*args, **kwargs).info.run_id  # a server that hung processes the same request much later
    tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5})
    tracker.close()
    assert list(load_runs("small", root)["run_id"]) == [run_id]
    assert connect(root).get_run(late).info.to_proto().lifecycle_stage == "deleted"


def test_a_record_that_is_still_running_at_close_is_interrupted(root: Path) -> None:
    tracker = Tracker(small(), root)
    tracker.start(small().runs[0])
    tracker.close()
    assert list(load_runs("small", root)["state"]) == ["interrupted"]


def test_stopping_does_not_wait_for_an_unavailable_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout is ten minutes, but after Ctrl-C the study stops within seconds."""

    def unavailable(*args: Any, **kwargs: Any) -> None:
        raise UNAVAILABLE

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Tracker(small(), root) as tracker:
        run_id = tracker.start(small().runs[0])
        tracker.delivery.call(lambda: None)
        for call in ("log_batch", "search_runs"):
            monkeypatch.setattr(tracker._raw, call, unavailable)
        tracker.delivery.on_wait = interrupt
        try:
            tracker.find("another run")
        finally:
            tracker.delivery.on_wait = lambda: None
    assert connect(root).get_run(run_id).info.status == "RUNNING"
    with Tracker(small(), root) as again:
        assert [record.status for record in again.reconcile().values()] == ["KILLED"]


def test_a_run_that_was_deleted_in_the_ui_is_one_clear_line(root: Path) -> None:
    tracker = Tracker(small(), root)
    run_id = tracker.start(small().runs[0])
    tracker.delivery.call(lambda: None)
    connect(root).delete_run(run_id)
    tracker.log_metrics(run_id, 1, {"train/loss": 1.0})
    with pytest.raises(UserError, match=r"sqlite:///.*: The run .* must be in the 'active' state"):
        tracker.finish(run_id, RunState.COMPLETED)


@pytest.mark.parametrize("value", ["soon", ""])
def test_the_timeout_is_a_number(root: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ATTNLAB_TRACKING_PATIENCE", value)
    with pytest.raises(UserError, match=repr(value)) as caught:
        Tracker(small(), root)
    assert caught.value.where == "ATTNLAB_TRACKING_PATIENCE"


def test_texts_and_the_end_of_a_long_log(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "MAX_LOG_BYTES", 25)
    log = tmp_path / "log.txt"
    log.write_bytes(b"".join(b"line %d \xff\n" % i for i in range(9)))
    tracker = Tracker(small(), root)
    run_id = tracker.start(small().runs[0])
    tracker.log_text(run_id, "traceback.txt", "Traceback:\n  somewhere\n")
    tracker.log_file(run_id, log)
    tracker.log_file(run_id, tmp_path / "none.txt")
    tracker.log_tag(run_id, "length.8", "\udc80\n" * 9_000)
    assert tracker.finish(run_id, RunState.FAILED).tags["attnlab.length.8"].startswith(r"\udc80\n\udc80")
    folder = root / "artifacts" / "small" / run_id / "artifacts"
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "log.txt", "study.yaml", "traceback.txt",
    ]  # fmt: skip
    assert (folder / "traceback.txt").read_text() == "Traceback:\n  somewhere\n"
    assert (folder / "log.txt").read_text() == "[the first 63 bytes are omitted]\nline 7 �\nline 8 �\n"


LOCK = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_a_database_that_another_process_locks(root: Path, seconds: float, log: pytest.LogCaptureFixture) -> None:
    """MLflow itself waits 20 s before it fails, so only the long lock is reported."""
    tracker = Tracker(small(), root)
    run_id = tracker.start(small().runs[0])
    tracker.delivery.call(lambda: None)
    command = [sys.executable, "-c", LOCK, str(root / "mlflow.db"), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as locker:
        assert locker.stdin is not None and locker.stdout is not None and locker.stdout.readline() == "locked\n"
        for step in range(500):  # if logging waited for the database, it would wait forever: the lock is still held
            tracker.log_metrics(run_id, step, {"train/loss": 1.0 / (1 + step)})
        print("logged", file=locker.stdin, flush=True)
        tracker.finish(run_id, RunState.COMPLETED, summary={"bits_per_byte": 2.5})
    tracker.close()
    assert [step for step, _ in points(root, run_id)] == list(range(500))
    assert list(load_runs("small", root)["state"]) == ["completed"]
    assert [" responds again" in line for line in log.messages] == ([False, True] if seconds > 20 else [])


BEGIN = """
import os, sys
from pathlib import Path
import mlflow.store.tracking.sqlalchemy_store, optuna.storages
from attnlab.tracking.client import connect
from attnlab.study.trials.queue import Queue
from attnlab.study.trials.store import Store
root = Path(sys.argv[1])
for i in range(4):
    if os.fork() == 0:
        client = connect(root, create=True)
        run = client.create_run(client.create_experiment(f"p{i}"))
        client.log_metric(run.info.run_id, "x", 1.0)
        Queue(Store(root), f"p{i}", direction="min").enqueue([f"p{i}"])
        os._exit(0)
sys.exit(any([os.wait()[1] for i in range(4)]))
"""


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.exhaustive)])
def test_four_parents_start_at_once_after_one_died_while_creating_the_store(tmp_path: Path, rounds: int) -> None:
    for i in range(rounds):
        root = tmp_path / str(i)
        (root / "mlflow.new").mkdir(parents=True)
        (root / "mlflow.new" / "mlflow.db").write_bytes(b"half of a database")
        subprocess.run([sys.executable, "-c", BEGIN, str(root)], check=True, timeout=240)
        assert sorted(experiment.name for experiment in connect(root).search_experiments()) == [
            "Default",
            "p0",
            "p1",
            "p2",
            "p3",
        ]
        assert intact(root) and not (root / "mlflow.new").exists()
        store = Store(root)
        assert [Queue(store, f"p{n}", direction="min").keys("WAITING") for n in range(4)] == [{f"p{n}"} for n in range(4)]


def intact(root: Path) -> bool:
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        mode, check = (database.execute(f"PRAGMA {name}").fetchone() for name in ("journal_mode", "integrity_check"))
    return (mode, check) == (("wal",), ("ok",))


HALF = """
import os, signal, sys
from pathlib import Path
from attnlab.tracking import client
client.sqlite3.connect = lambda *args: os.kill(os.getpid(), signal.SIGKILL)  # after the tables, before the rename
client.connect(Path(sys.argv[1]), create=True)
"""


@pytest.mark.exhaustive
def test_a_store_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", HALF, str(tmp_path)]).returncode == -signal.SIGKILL
    assert not (tmp_path / "mlflow.db").exists()
    with pytest.raises(UserError, match="no runs in .* yet"):
        connect(tmp_path)
    connect(tmp_path, create=True)
    assert intact(tmp_path) and not (tmp_path / "mlflow.new").exists()


HEAVY = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from attnlab.tracking import delivery
from attnlab.tracking.tracker import Tracker
from tests.tracking.test_delivery import small
delivery.FLUSH_POINTS = 20
tracker = Tracker(small(), Path(sys.argv[1]))
tracker.reconcile()
run_id = tracker.start(small().runs[0])
tracker.delivery.call(lambda: None)
print(run_id, flush=True)
for step in itertools.count():
    tracker.log_metrics(run_id, step, {{f"train/{{name}}": step / 7 for name in "abcdefghij"}})
    if step % 10 == 0:
        tracker.delivery.call(lambda: None)
    if step == 10:
        print("delivered", flush=True)
"""


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.exhaustive)])
def test_a_parent_killed_in_the_middle_of_a_flush_leaves_a_sound_store(root: Path, kills: int) -> None:
    before: list[str] = []
    for i in range(kills):
        command = [sys.executable, "-c", HEAVY.format(here=str(ROOT)), str(root)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            run_id = parent.stdout.readline().strip()
            assert parent.stdout.readline() == "delivered\n"
            time.sleep(0.3 + 0.07 * i)
            parent.kill()
        assert intact(root)
        steps = [step for step, _ in points(root, run_id, "train/a")]
        assert steps and steps == list(range(len(steps))), "a gap in the curve"
        client = connect(root)
        assert client.get_run(run_id).info.status == "RUNNING"
        assert all(client.get_run(earlier).info.status == "KILLED" for earlier in before)
        before.append(run_id)
    with Tracker(small(), root) as tracker:
        tracker.reconcile()
    assert connect(root).get_run(before[-1]).info.status == "KILLED"

"""What reaches the MLflow store when the store misbehaves: all of it, once, in order. (Servers: test_absent_server.)"""

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
from mlflow.exceptions import MlflowException
from mlflow.protos import databricks_pb2 as codes

from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.study.trials.queue import Queue
from attnlab.study.trials.store import Store
from attnlab.tracking import delivery, tracker
from attnlab.tracking import points as points_module
from attnlab.tracking.client import absence, connect
from attnlab.tracking.delivery import Delivery, TrackingRejected, TrackingTimeout
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from tests.support.paths import ROOT

AWAY = MlflowException("gone fishing", codes.TEMPORARILY_UNAVAILABLE)
NEVER = MlflowException("no such run", codes.RESOURCE_DOES_NOT_EXIST)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(delivery, "QUIET", 0.3)
    monkeypatch.setattr(delivery, "LEAVING", 0.5)


@pytest.fixture
def way() -> Iterator[Delivery]:
    with closing(Delivery("http://host", patience=20)) as made:
        yield made


def small(name: str = "small") -> Plan:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}}
    base |= {"train": {"steps": 5}, "machine": {"device": "cpu"}}
    return plan({"study": name, "base": base, "grid": {"variant": ["dense"]}, "seeds": [0, 1]})


def points(root: Path, run_id: str, key: str = "train/loss") -> list[tuple[int, float]]:
    """What the store holds of a curve, in the order in which it was written."""
    question = "SELECT step, value FROM metrics WHERE run_uuid = ? AND key = ? ORDER BY rowid"
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        return database.execute(question, (run_id, key)).fetchall()


class Shop:
    """Notes what it is asked for; shut, it does not answer."""

    def __init__(self, *, opened: bool = True) -> None:
        self.open = opened
        self.served: list[Any] = []
        self.asked = 0

    def order(self, what: Any) -> Callable[[], Any]:
        def do() -> Any:
            self.asked += 1
            if not self.open:
                raise AWAY
            self.served.append(what)
            return what

        return do


def test_everything_arrives_in_order_when_the_store_is_back(way: Delivery, log: pytest.LogCaptureFixture) -> None:
    shop = Shop(opened=False)
    for i in range(50):
        way.submit(shop.order(i))
    threading.Timer(1.0, setattr, (shop, "open", True)).start()
    turns = []
    way.meanwhile = lambda: turns.append(1)
    assert way.call(shop.order("last")) == "last"
    assert shop.served == [*range(50), "last"] and shop.asked > 55 and turns
    away, back = log.messages
    assert "http://host does not answer (gone fishing)" in away and "http://host answers again" in back


def test_patience_ends_once_and_what_was_given_up_is_never_done(log: pytest.LogCaptureFixture) -> None:
    way = Delivery("http://host", patience=0.5)
    shop = Shop(opened=False)
    with pytest.raises(TrackingTimeout, match="expected an answer of the MLflow store http://host, got none: gone fishing"):
        way.call(shop.order("a"))
    for order in "bcd":
        with pytest.raises(TrackingTimeout):
            way.call(shop.order(order))
    shop.open = True
    way.close()
    time.sleep(0.3)
    assert shop.served == []
    assert len(log.messages) == 1 and "does not answer" in log.messages[0], "a call that was given up counted as answered"


def test_an_interrupt_while_waiting_takes_the_call_back(way: Delivery) -> None:
    shop = Shop(opened=False)

    def interrupt() -> None:
        raise KeyboardInterrupt

    way.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        way.call(shop.order("a"))
    way.meanwhile = lambda: None
    shop.open = True
    way.call(shop.order("b"))
    assert shop.served == ["b"]


def test_a_refusal_is_told_to_its_run_and_stops_no_other(way: Delivery, log: pytest.LogCaptureFixture) -> None:
    def refuse() -> None:
        raise NEVER

    shop = Shop()
    way.submit(refuse, about="one")
    way.submit(shop.order("other"), about="other")
    with pytest.raises(TrackingRejected, match=r"the MLflow store http://host refused: no such run"):
        way.call(shop.order("done"), about="one")
    assert shop.served == ["other"], "a run counted as done although its points were refused"
    assert way.call(shop.order("failed"), about="one") == "failed"
    way.submit(refuse, about="one")
    way.call(shop.order("other"), about="other")
    with pytest.raises(TrackingRejected):
        way.submit(shop.order("more"), about="one")
    assert log.messages == []


def test_a_full_disk_is_told_as_everywhere(way: Delivery) -> None:
    def fill() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "mlflow.db")

    with pytest.raises(TrackingRejected, match=r"^the disk is full \(No space left on device: mlflow.db\)"):
        way.call(fill)


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
    ("error", "why"),
    [
        (MlflowException(REFUSED_CONNECTION), "[Errno 111] Connection refused"),
        (MlflowException(LOCKED, codes.TEMPORARILY_UNAVAILABLE), "(sqlite3.OperationalError) database is locked"),
        (MlflowException("slow down", codes.REQUEST_LIMIT_EXCEEDED), "slow down"),
        (web(503), "503 for http://***@host/x"),
        (requests.ConnectionError("http://me:s3cret@host is away"), "http://***@host is away"),
        (OSError(errno.ENOSPC, "No space left on device"), None),
        (MlflowException("(sqlite3.OperationalError) database or disk is full", codes.TEMPORARILY_UNAVAILABLE), None),
        (NEVER, None),
        (MlflowException("attempt to write a readonly database", codes.TEMPORARILY_UNAVAILABLE), None),
        (MlflowException("who are you", codes.UNAUTHENTICATED), None),
        (MlflowException("not you", codes.PERMISSION_DENIED), None),
        (MlflowException("the run must be in the 'active' state", codes.INVALID_PARAMETER_VALUE), None),
        (web(403), None),
        (PermissionError(errno.EACCES, "Permission denied"), None),
        (TypeError("a mistake of ours"), None),
    ],
)
def test_what_is_waited_for(error: Exception, why: str | None) -> None:
    assert absence(error) == why


def test_points_that_were_carried_out_without_an_answer_are_not_doubled(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points_module, "FLUSH_POINTS", 1)
    pen = Tracker(small(), root)
    run_id = pen.start(small().runs[0])
    log_batch, calls = pen._raw.log_batch, []

    def deaf(*args: Any, **words: Any) -> None:
        log_batch(*args, **words)
        calls.append(1)
        if len(calls) % 2:
            raise AWAY

    pen._raw.log_batch = deaf  # type: ignore[method-assign]
    values = [1.5, float("nan"), 0.1 + 0.2, float("inf"), 1e-300]
    for step, value in enumerate(values):
        pen.log(run_id, step, {"train/loss": value})
    pen.finish(run_id, "completed", summary={"bits_per_byte": 2.5})
    pen.close()
    assert len(calls) > len(values)
    assert [step for step, _ in points(root, run_id)] == [0, 1, 2, 3, 4]
    assert len(points(root, run_id, "bits_per_byte")) == 1


def test_a_record_is_opened_once_although_no_answer_came(root: Path) -> None:
    pen = Tracker(small(), root)
    create_run, made = pen._raw.create_run, []

    def deaf(*args: Any, **words: Any) -> Any:
        made.append((create_run(*args, **words).info.run_id, args, words))
        raise AWAY

    pen._raw.create_run = deaf  # type: ignore[method-assign]
    run_id = pen.start(small().runs[0])
    assert [each[0] for each in made] == [run_id]
    _, args, words = made[0]
    late = create_run(*args, **words).info.run_id  # a server that hung carries the same request out much later
    pen.finish(run_id, "completed", summary={"bits_per_byte": 2.5})
    pen.close()
    assert list(load_runs("small", root)["run_id"]) == [run_id]
    assert connect(root).get_run(late).info.to_proto().lifecycle_stage == "deleted"


def test_a_record_that_nobody_came_back_for_is_interrupted(root: Path) -> None:
    pen = Tracker(small(), root)
    pen.start(small().runs[0])
    pen.close()
    assert list(load_runs("small", root)["state"]) == ["interrupted"]


def test_leaving_does_not_wait_for_a_store_that_is_away(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, wherever it comes: patience is ten minutes, leaving takes seconds."""

    def away(*args: Any, **words: Any) -> None:
        raise AWAY

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Tracker(small(), root) as pen:
        run_id = pen.start(small().runs[0])
        pen.delivery.call(lambda: None)
        for call in ("log_batch", "search_runs"):
            monkeypatch.setattr(pen._raw, call, away)
        pen.delivery.meanwhile = interrupt
        try:
            pen.find("another run")
        finally:
            pen.delivery.meanwhile = lambda: None
    assert connect(root).get_run(run_id).info.status == "RUNNING"
    with Tracker(small(), root) as again:
        assert [found.info.status for found in again.sweep().values()] == ["KILLED"]


def test_a_run_that_was_deleted_in_the_ui_is_one_clear_line(root: Path) -> None:
    pen = Tracker(small(), root)
    run_id = pen.start(small().runs[0])
    pen.delivery.call(lambda: None)
    connect(root).delete_run(run_id)
    pen.log(run_id, 1, {"train/loss": 1.0})
    with pytest.raises(UserError, match=r"^the MLflow store sqlite:///.* refused: The run .* must be in the 'active' state"):
        pen.finish(run_id, "completed")


@pytest.mark.parametrize("given", ["soon", ""])
def test_patience_is_a_number(root: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("ATTNLAB_TRACKING_PATIENCE", given)
    with pytest.raises(UserError, match=f"ATTNLAB_TRACKING_PATIENCE: expected a number of seconds, got '{given}'"):
        Tracker(small(), root)


def test_texts_and_the_end_of_a_long_log(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "TEXT_BYTES", 25)
    log = tmp_path / "log.txt"
    log.write_bytes(b"".join(b"line %d \xff\n" % i for i in range(9)))
    pen = Tracker(small(), root)
    run_id = pen.start(small().runs[0])
    pen.text(run_id, "traceback.txt", "Traceback:\n  somewhere\n")
    pen.artifact(run_id, log)
    pen.artifact(run_id, tmp_path / "none.txt")
    pen.tag(run_id, "attnlab.length.8", "\udc80\n" * 9_000)
    assert pen.finish(run_id, "failed").data.tags["attnlab.length.8"].startswith(r"\udc80\n\udc80")
    folder = root / "artifacts" / "small" / run_id / "artifacts"
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "config.yaml", "log.txt", "study.yaml", "traceback.txt",
    ]  # fmt: skip
    assert (folder / "traceback.txt").read_text() == "Traceback:\n  somewhere\n"
    assert (folder / "log.txt").read_text() == "[the first 63 bytes are left out]\nline 7 �\nline 8 �\n"


LOCK = """
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("seconds", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_a_database_that_somebody_else_locks(root: Path, seconds: float, log: pytest.LogCaptureFixture) -> None:
    """MLflow itself waits 20 s before it gives up: only the long lock is heard of."""
    pen = Tracker(small(), root)
    run_id = pen.start(small().runs[0])
    pen.delivery.call(lambda: None)
    words = [sys.executable, "-c", LOCK, str(root / "mlflow.db"), str(seconds)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None and other.stdout.readline() == "locked\n"
        for step in range(500):  # a log that waited for the database would wait for ever: it is not let go yet
            pen.log(run_id, step, {"train/loss": 1.0 / (1 + step)})
        print("logged", file=other.stdin, flush=True)
        pen.finish(run_id, "completed", summary={"bits_per_byte": 2.5})
    pen.close()
    assert [step for step, _ in points(root, run_id)] == list(range(500))
    assert list(load_runs("small", root)["state"]) == ["completed"]
    assert [line.partition("mlflow.db ")[2].split(" (")[0] for line in log.messages] == (
        ["does not answer", "answers again"] if seconds > 20 else []
    )


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
        Queue(Store(root), f"p{i}", direction="min").fill([f"p{i}"])
        os._exit(0)
sys.exit(any([os.wait()[1] for i in range(4)]))
"""


@pytest.mark.parametrize("rounds", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_four_parents_may_begin_at_once_where_one_died_while_it_began(tmp_path: Path, rounds: int) -> None:
    for i in range(rounds):
        root = tmp_path / str(i)
        (root / "mlflow.new").mkdir(parents=True)
        (root / "mlflow.new" / "mlflow.db").write_bytes(b"half of a database")
        subprocess.run([sys.executable, "-c", BEGIN, str(root)], check=True, timeout=240)
        assert sorted(each.name for each in connect(root).search_experiments()) == ["Default", "p0", "p1", "p2", "p3"]
        assert intact(root) and not (root / "mlflow.new").exists()
        store = Store(root)
        assert [Queue(store, f"p{n}", direction="min").keys("WAITING") for n in range(4)] == [{f"p{n}"} for n in range(4)]


def intact(root: Path) -> bool:
    with closing(sqlite3.connect(root / "mlflow.db")) as database:
        mode, check = (database.execute(f"PRAGMA {what}").fetchone() for what in ("journal_mode", "integrity_check"))
    return (mode, check) == (("wal",), ("ok",))


HALF = """
import os, signal, sys
from pathlib import Path
from attnlab.tracking import client
client.sqlite3.connect = lambda *args: os.kill(os.getpid(), signal.SIGKILL)  # after the tables, before it is in its place
client.connect(Path(sys.argv[1]), create=True)
"""


@pytest.mark.slow
def test_a_store_whose_making_was_killed_is_made_anew(tmp_path: Path) -> None:
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
from attnlab.tracking import points
from attnlab.tracking.tracker import Tracker
from tests.tracking.test_delivery import small
points.FLUSH_POINTS = 20
pen = Tracker(small(), Path(sys.argv[1]))
pen.sweep()
run_id = pen.start(small().runs[0])
pen.delivery.call(lambda: None)
print(run_id, flush=True)
for step in itertools.count():
    pen.log(run_id, step, {{f"train/{{name}}": step / 7 for name in "abcdefghij"}})
    if step % 10 == 0:
        pen.delivery.call(lambda: None)
    if step == 10:
        print("delivered", flush=True)
"""


@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_a_parent_killed_in_the_middle_of_a_flush_leaves_a_sound_store(root: Path, kills: int) -> None:
    before: list[str] = []
    for i in range(kills):
        words = [sys.executable, "-c", HEAVY.format(here=str(ROOT)), str(root)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            run_id = parent.stdout.readline().strip()
            assert parent.stdout.readline() == "delivered\n"
            time.sleep(0.3 + 0.07 * i)
            parent.kill()
        assert intact(root)
        steps = [step for step, _ in points(root, run_id, "train/a")]
        assert steps and steps == list(range(len(steps))), "a hole in what was written"
        client = connect(root)
        assert client.get_run(run_id).info.status == "RUNNING"
        assert all(client.get_run(each).info.status == "KILLED" for each in before)
        before.append(run_id)
    with Tracker(small(), root) as pen:
        pen.sweep()
    assert connect(root).get_run(before[-1]).info.status == "KILLED"

"""The environment of every test: few threads, no telemetry, and separate folders for all files that tests write."""

import logging
import os
import signal
import tempfile
from collections import ChainMap, Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from torch import Tensor

    from tests.support.postgres import Server

ROOT = Path(__file__).resolve().parent.parent
REAL_DATA = Path(os.environ.get("ATTNLAB_DATA") or ROOT.parent / "shared" / "data").resolve()

# Before anything is imported, and in the environment: processes that tests start inherit it. The workers of
# pytest-xdist inherit the first process's folders, so what one prepares the others find.
if "ATTNLAB_TESTS" not in os.environ:
    _home = tempfile.TemporaryDirectory(prefix="attnlab-tests-")  # removed when this process ends
    os.environ["ATTNLAB_TESTS"] = _home.name
    os.environ["ATTNLAB_REAL_DATA"] = str(REAL_DATA)
    for name in ("DATA", "CACHE", "RUNS", "STATE"):
        os.environ[f"ATTNLAB_{name}"] = str(Path(_home.name) / name.lower())
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    os.environ["OMP_NUM_THREADS"] = os.environ["ATTNLAB_WORKERS"] = "1"

# A background job of a script ignores Ctrl-C, and so would all processes that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# SIGTERM, too, ends the tests in an orderly way: fixtures stop the servers that they have started.
signal.signal(signal.SIGTERM, signal.default_int_handler)


def _forget_users_files() -> Iterator[None]:
    from tests.support.users_files import forget_users_files

    with forget_users_files():
        yield


forget_a_modules_files = pytest.fixture(scope="module", autouse=True)(_forget_users_files)
forget_a_tests_files = pytest.fixture(autouse=True)(_forget_users_files)


# What starts studies, servers or interpreters for minutes: `make test-slow`. The files that take longest come first, so that no
# process is left alone with one of them at the end.
SLOW = (
    "testing/test_contract.py",
    "study/test_torture.py",
    "study/test_study.py",
    "testing/test_components.py",
    "documentation/test_pages.py",
    "study/test_looks.py",
    "benchmarks/test_verdict.py",
    "testing/test_mutants.py",
    "testing/test_museum.py",
    "study/",
    "benchmarks/test_gpu_check.py",
    "extras/test_claims.py",
    "extras/test_sharing.py",
    "extras/test_export.py",
    "extras/test_slurm.py",
    "extras/test_profile.py",
    "trained/test_attention_maps.py",
    "trained/test_model.py",
    "trained/test_part_weights.py",
    "trained/test_recorded_code.py",
    "training/test_cuda_memory.py",
    "models/test_decoding.py",
    "tracking/test_moved_folder.py",
    "benchmarks/test_speed.py",
    "cli/test_init.py",
    "cli/test_snapshots.py",
    "cli/test_terminal.py",
    "config/test_fuzz.py",
    "report/test_reproduction.py",
    "report/test_sweep_study.py",
    "extras/test_bench.py",
    "tracking/test_delivery.py",
    "tracking/test_server_outage.py",
    "tracking/test_shared_server.py",
    "tracking/test_ui_server.py",
    "training/test_compile.py",
    "training/test_distributed.py",
    "_util/test_process.py",
    "test_examples.py",
    "test_notebook.py",
    "test_packaging.py",
    "test_tutorials.py",
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which `-m` selects nothing: each process of the tests would import them, which takes seconds."""
    selected = (config.getoption("markexpr") or "").split(" and ")
    if not collection_path.name.startswith("test_") or not {"slow", "not slow"} & set(selected):
        return None
    return True if (_place(collection_path) < len(SLOW)) != ("slow" in selected) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files in `SLOW`, and begin with them in this order."""
    places = {item: _place(item.path) for item in items}
    for item, place in places.items():
        if place < len(SLOW):
            item.add_marker("slow")
    items.sort(key=places.__getitem__)


def _place(file: Path) -> int:
    path = file.relative_to(ROOT / "tests").as_posix() if file.is_relative_to(ROOT / "tests") else ""
    return next((i for i, name in enumerate(SLOW) if path == name or (name.endswith("/") and path.startswith(name))), len(SLOW))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Reset the settings of the process that an earlier test may have changed, before any fixture computes with them.

    One thread: test inputs are tiny, and several processes share the machine.
    """
    import torch

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("highest")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The counts of the contract's matrix, from whichever processes ran it (tests/testing/test_contract.py records them)."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, [])]
    cells, checks = Counter[str](), Counter[str]()
    for name, value in (pair for report in reports for pair in getattr(report, "user_properties", [])):
        if name == "contract":
            cells[value.split()[0]] += 1
            checks.update(dict(zip(value.split()[1::2], map(int, value.split()[2::2]), strict=True)))
    if cells:
        listed = ", ".join(f"{n} {result}" for result, n in sorted(cells.items()))
        single = ", ".join(f"{n} {result.replace('_', ' ')}" for result, n in sorted(checks.items()))
        terminalreporter.write_line(f"contract: variant x position x role x backend = {cells.total()}: {listed}")
        terminalreporter.write_line(f"contract: single checks: {single}")


@pytest.fixture(scope="session")
def postgres() -> Iterator["Server"]:
    """A PostgreSQL server of this process's own; ``postgres.database()`` makes a database for one test."""
    from tests.support.postgres import server

    with server() as running:
        yield running


@pytest.fixture(scope="session", autouse=True)
def copied_databases() -> Iterator[None]:
    """Copy empty databases wherever this process would create them; processes that tests start create their own."""
    from attnlab.study.trials.store import Store
    from attnlab.tracking import client
    from tests.support.empty_store import copying, copying_queues

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_create_database", copying(client._create_database))
        patch.setattr(Store, "_open_sqlite", copying_queues(Store._open_sqlite))
        yield


@pytest.fixture(scope="session", autouse=True)
def costs_once() -> Iterator[None]:
    """Trace the costs of a model once for all plans of a process; not with classes of a user, nor where a test replaces it."""
    from attnlab.planning.costs import BuildError, Traces
    from attnlab.training import costs

    real, empty = costs.plan_figures, Traces.__init__
    shared: dict[tuple[object, ...], Any] = {}
    latest: dict[tuple[object, ...], Any] = {}

    def start(traces: Traces) -> None:
        nonlocal latest
        empty(traces)
        own = ('"sources":{}', '"packages":{}')
        done = {key: value for key, value in latest.items() if all(text in str(key[-1]) for text in own)}
        shared.update({key: value for key, value in done.items() if not isinstance(value, BuildError)})
        latest = {}
        if costs.plan_figures is real:
            traces._known = ChainMap(latest, shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Traces, "__init__", start)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with a new MLflow database in it, to be copied."""
    from tests.support.empty_store import copy_store

    return copy_store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of runs with nothing in it yet."""
    from tests.support.empty_store import copy_store

    return copy_store(tmp_path / "runs")


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Empty folders of this test's own: ``data`` for archives and ``prepared`` next to it."""
    monkeypatch.setenv("ATTNLAB_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "prepared"))
    return tmp_path


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log of ``attnlab`` in this process, from INFO up: ``log.messages`` are its lines."""
    caplog.set_level(logging.INFO, logger="attnlab")
    return caplog


@pytest.fixture
def small_reviews(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive of few reviews in place of IMDb's."""
    from attnlab.tasks import archives, corpora, imdb
    from tests.support.small_reviews import PER_FOLDER, archive

    contents, digest = archive()
    (folders / "data").mkdir()
    (folders / "data" / archives.IMDB.file).write_bytes(contents)
    monkeypatch.setattr(archives, "REVIEWS_PER_FOLDER", PER_FOLDER)
    monkeypatch.setattr(corpora, "REVIEWS_PER_FOLDER", PER_FOLDER)
    monkeypatch.setattr(corpora, "HELD_OUT", PER_FOLDER // 10)
    for module in (imdb, corpora):
        monkeypatch.setattr(module, "IMDB", replace(archives.IMDB, contents=digest))


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of real archives, as ``ATTNLAB_DATA``; skips where there is none."""
    place = Path(os.environ["ATTNLAB_REAL_DATA"])
    if not (place / "enwik8.zip").is_file() or not (place / "aclImdb_v1.tar.gz").is_file():
        pytest.skip(f"no enwik8.zip and aclImdb_v1.tar.gz in {place}; set ATTNLAB_DATA to a folder with them")
    monkeypatch.setenv("ATTNLAB_DATA", str(place))
    return place


@pytest.fixture
def xformers_on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the backend run here, by a formula in place of its kernels; the kinds of bias that it is asked for, as they come."""
    from tests.support.xformers_fake import memory_efficient_attention

    kinds: list[str] = []

    def spied(*qkv: "Tensor", attn_bias: object, **kwargs: float) -> "Tensor":
        kinds.append(type(attn_bias).__name__)
        return memory_efficient_attention(*qkv, attn_bias=attn_bias, **kwargs)

    monkeypatch.setattr(pytest.importorskip("xformers.ops"), "memory_efficient_attention", spied)
    return kinds

"""Time of the commands that read a large study: ``python -m benchmarks.large_study [--runs 2000] [--server]``.

Makes a runs folder with a study of finished runs, each with 80 points of four curves, without training any; then prints
the seconds and the CPU seconds of ``attnlab runs`` and ``attnlab report``, each in a fresh Python.
"""

import argparse
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

CURVES = ("train/loss", "train/lr", "train/tokens_per_s", "valid/bits_per_byte")
STEPS = range(10, 201, 10)
ITEMS = 1_024  # scores of test items that a run keeps
POINT = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
LATEST = "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, 0, ?)"


def study(cells: int) -> dict[str, Any]:
    """Return a study of ``cells`` cells."""
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 8, "depth": 1, "heads": 2}, "train": {"steps": 200}}
    grid = {"variant": ["dense", "no_wo"], "train.lr": [1e-3 * (1 + i) for i in range(-(-cells // 2))]}
    return {"study": "large", "base": base, "grid": grid, "seeds": [0], "baseline": {"variant": "dense"}}


def make(root: Path, *, runs: int, cells: int = 20) -> None:
    """Fill a runs folder with about ``runs`` finished runs of ``cells`` cells.

    The first run of each cell is recorded as a study does it; the others are its copies in the database, with a seed and
    scores of their own.
    """
    import numpy

    from attnlab import plan
    from attnlab._util.metrics import ITEMS_FILE
    from attnlab._util.run_state import RunState
    from attnlab.study.comparison import comparison_of, to_json
    from attnlab.tracking.tracker import Tracker

    planned = plan(study(cells))
    with Tracker(planned, root) as tracker:
        tracker.log_study(to_json(comparison_of(planned)))
        templates = [tracker.start(run) for run in planned.runs]
        numpy.savez(root / ITEMS_FILE, score=numpy.ones(ITEMS), count=numpy.ones(ITEMS), metric="bits_per_byte")
        for template in templates:
            tracker.log_items(template, root)
            tracker.finish(template, RunState.COMPLETED, summary={"bits_per_byte": 3.0, "tokens_per_s": 1e4})
    noise = random.Random(0)
    with closing(sqlite3.connect(root / "mlflow.db")) as database, database:
        database.row_factory = sqlite3.Row
        for template in templates:
            _add_curves(database, template, noise)
            for seed in range(1, runs // len(templates)):
                copy = _copy(database, template, seed)
                _add_curves(database, copy, noise)


def _copy(database: sqlite3.Connection, template: str, seed: int) -> str:
    """Copy a record under another seed; return its run ID."""
    run_id = uuid.uuid4().hex
    for table in ("runs", "tags", "params"):
        for row in database.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (template,)).fetchall():
            fields = {**dict(row), "run_uuid": run_id}
            if table == "runs":
                fields["name"] = f"{fields['name'].rpartition(' ')[0]} s{seed}"
            elif fields["key"] in ("seed", "attnlab.seed"):
                fields["value"] = str(seed)
            elif fields["key"] == "attnlab.config":
                fields["value"] = json.dumps({**json.loads(fields["value"]), "seed": seed})
            elif fields["key"] == "attnlab.fingerprint":
                fields["value"] = run_id[:16]
            names = ", ".join(fields)
            database.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(fields))})", [*fields.values()])
    return run_id


def _add_curves(database: sqlite3.Connection, run_id: str, noise: random.Random) -> None:
    """Add the curves and scores of a run."""
    now = int(1_000 * time.time())
    database.executemany(POINT, [(name, 3 + noise.gauss(0, 0.1), now, run_id, step) for name in CURVES for step in STEPS])
    database.execute("DELETE FROM latest_metrics WHERE run_uuid = ?", (run_id,))
    scores = {"bits_per_byte": 3 + noise.gauss(0, 0.1), "tokens_per_s": 1e4}
    database.executemany(LATEST, [(name, value, now, 0, run_id) for name, value in scores.items()])
    database.executemany(LATEST, [(name, 3.0, now, STEPS[-1], run_id) for name in CURVES])


def measure(arguments: list[str], root: Path) -> tuple[float, float]:
    """Return the seconds and CPU seconds of a command in a process of its own."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "attnlab", *arguments]
    subprocess.run(command, env={**os.environ, "ATTNLAB_RUNS": str(root)}, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--server", action="store_true", help="read from an MLflow server on this machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        start = time.perf_counter()
        make(root, runs=arguments.runs)
        print(f"made {arguments.runs} runs in {time.perf_counter() - start:.1f} s", flush=True)
        server = _start_server(root) if arguments.server else None
        try:
            for command in (["runs", "large"], ["report", "large", "--out", f"{folder}/page"]):
                seconds, cpu = measure(command, root)
                print(f"attnlab {command[0]}: {seconds:.1f} s, {cpu:.1f} s of CPU", flush=True)
        finally:
            if server is not None:
                server.close()


def _start_server(root: Path) -> Any:
    from attnlab.tracking.client import tracking_uri
    from attnlab.tracking.ui import Server

    server = Server(tracking_uri(root), root=root, port=5099)
    server.ready()
    os.environ["MLFLOW_TRACKING_URI"] = server.base
    return server


if __name__ == "__main__":
    main()

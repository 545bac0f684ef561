"""Breakdown of a run's wall time into steps and everything else: ``python -m benchmarks.loop``.

It runs each byte task at default settings twice, each time in a fresh process; the second run uses the data that the first
prepared. It writes ``loop.csv`` into the folder of this machine in ``reports/benchmarks``, one line per run with the seconds of
its summary. Evaluation is a fixed amount of work, so its share falls as runs get longer; the last column is the number of
steps from which everything else takes at most 5 % of a run. ``--limit`` evaluates that many bytes of each split, and the last
column is scaled to all bytes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import pandas as pd

from benchmarks import processor
from benchmarks.speed import page
from benchmarks.speed.tables import LOOP_PARTS, loop_table

BYTES = ("pydocs", "enwik8")
LIMIT = 0.05  # share of a run that everything but its steps may take


def run(task: str, *, steps: int, limit: int | None, folder: Path) -> dict[str, float | str]:
    """Train the default model with the default settings; return the summary and the wall time without Python's start."""
    import attnlab
    from attnlab.registry import TASKS
    from attnlab.training.train import train

    train_config = {"steps": steps, "checkpoint_every": max(1, steps // 4)}
    machine = {"matmul_precision": "medium", "reuse_memory": True}
    evaluate = {"valid_limit": limit, "test_limit": limit}
    base = {"task": task, "train": train_config, "evaluate": evaluate, "machine": machine}
    cell = attnlab.plan({"study": "loop", "base": base, "grid": {"variant": ["dense"]}, "seeds": [0]}).cells[0]
    began = perf_counter()
    summary = train(cell.config, folder=folder).summary
    wall = perf_counter() - began
    ends = TASKS.get(task)().cuts()
    sizes = [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
    part = sum(min(size, limit or size) for size in sizes) / sum(sizes)
    return {"task": task, "steps": steps, "wall_seconds": wall, "evaluated": part, **summary}


def loop_row(row: dict) -> dict[str, float | str]:
    """Return the columns of ``loop.csv`` from a run's summary."""
    step = row["train_seconds"] / row["steps"]
    overhead = sum(row[name] for name in LOOP_PARTS)
    fixed = row["evaluation_seconds"] / row["evaluated"] + row["checkpoint_seconds"]
    kept = ("task", "steps", "evaluated", "wall_seconds", "train_seconds", "data_seconds", "startup_seconds", *LOOP_PARTS)
    return {
        **{name: row[name] for name in kept},
        "data_share_of_steps": row["data_seconds"] / row["train_seconds"],
        "share_besides": overhead / row["wall_seconds"],
        "steps_for_5_percent": round(fixed * (1 - LIMIT) / LIMIT / step),
    }


def run_in_fresh_process(task: str, *, steps: int, limit: int | None, cache: Path) -> dict[str, float | str]:
    """Call ``run`` in a fresh process that uses and fills the folder of prepared data ``cache``."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.loop", "--one", task, "--steps", str(steps), "--folder", folder]
        command += ["--limit", str(limit)] if limit else []
        environment = {**os.environ, "ATTNLAB_CACHE": str(cache)}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return loop_row(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop", description="Break a run's wall time down.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=int, help="bytes of each split that are evaluated; default: all")
    parser.add_argument("--tasks", nargs="+", default=BYTES, choices=BYTES)
    parser.add_argument("--out", type=Path, default=Path("reports/benchmarks"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run(options.one, steps=options.steps, limit=options.limit, folder=options.folder)))
        return
    rows = []
    for task in options.tasks:
        with tempfile.TemporaryDirectory() as cache:
            for start in ("first", "again"):
                rows.append(
                    {"start": start, **run_in_fresh_process(task, steps=options.steps, limit=options.limit, cache=Path(cache))}
                )
    folder = processor.folder(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.to_csv(folder / "loop.csv", index=False, float_format="%.6g")
    print(loop_table(frame))
    if (folder / "about.csv").is_file():
        page.write(options.out)


if __name__ == "__main__":
    main()

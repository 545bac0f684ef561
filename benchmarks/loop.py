"""Where the wall time of a run goes besides its steps: ``python -m benchmarks.loop``.

A run of each byte task at default settings, in a process of its own, twice: the second starts from what the first prepared.
Writes ``reports/benchmarks/loop.csv``, one line a run with the seconds that its summary tells. Evaluation is a fixed amount of
work, so its share falls as runs get longer; the last column says how long one must be for the shares besides steps to be 5 %.
``--limit`` evaluates that many bytes of each split, and the last column is scaled to all of them.
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

BYTES = ("pydocs", "enwik8")
LIMIT = 0.05
BESIDES = ("evaluation_seconds", "logging_seconds", "checkpoint_seconds")


def run(task: str, *, steps: int, limit: int | None, folder: Path) -> dict[str, float | str]:
    """The summary of one run of the default model under the default training, and its wall time without Python's start."""
    import attnlab
    from attnlab.registry import TASKS
    from attnlab.training.train import train

    train_how = {"steps": steps, "checkpoint_every": max(1, steps // 4)}
    machine = {"matmul_precision": "medium", "reuse_memory": True}
    evaluate = {"valid_limit": limit, "test_limit": limit}
    base = {"task": task, "train": train_how, "evaluate": evaluate, "machine": machine}
    cell = attnlab.plan({"study": "loop", "base": base, "grid": {"variant": ["dense"]}, "seeds": [0]}).cells[0]
    began = perf_counter()
    summary = train(cell.config, folder=folder).summary
    wall = perf_counter() - began
    ends = TASKS.get(task)().cuts()
    sizes = [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
    part = sum(min(size, limit or size) for size in sizes) / sum(sizes)
    return {"task": task, "steps": steps, "wall_seconds": wall, "evaluated": part, **summary}


def told(row: dict) -> dict[str, float | str]:
    """What the page needs of a run's summary."""
    step = row["train_seconds"] / row["steps"]
    exclude = sum(row[name] for name in BESIDES)
    fixed = row["evaluation_seconds"] / row["evaluated"] + row["checkpoint_seconds"]
    kept = ("task", "steps", "evaluated", "wall_seconds", "train_seconds", "data_seconds", "startup_seconds", *BESIDES)
    return {
        **{name: row[name] for name in kept},
        "data_share_of_steps": row["data_seconds"] / row["train_seconds"],
        "share_besides": exclude / row["wall_seconds"],
        "steps_for_5_percent": round(fixed * (1 - LIMIT) / LIMIT / step),
    }


def measured(task: str, *, steps: int, limit: int | None, cache: Path) -> dict[str, float | str]:
    """``run`` in a fresh process, which finds prepared data in ``cache`` if there are some."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "benchmarks.loop", "--one", task, "--steps", str(steps), "--folder", folder]
        words += ["--limit", str(limit)] if limit else []
        environment = {**os.environ, "ATTNLAB_CACHE": str(cache)}
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return told(json.loads(done.stdout.splitlines()[-1]))


def table(rows: pd.DataFrame) -> str:
    """The lines of ``loop.csv`` as Markdown."""
    heads = ["run", "wall s", "steps s", "drawing batches", "start s", "evaluation s", "logging s", "checkpoints s", "5 % from"]
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)]]
    for row in rows.to_dict("records"):
        seconds = [f"{row[name]:.2f}" for name in ("startup_seconds", *BESIDES)]
        share, enough = f"{row['data_share_of_steps']:.2%} of steps", f"{row['steps_for_5_percent']:,} steps"
        name = f"{row['task']}, {row['steps']} steps, {row['start']}"
        lines.append([name, f"{row['wall_seconds']:.1f}", f"{row['train_seconds']:.1f}", share, *seconds, enough])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loop", description="Where a run's wall time goes.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=int, help="bytes of each split that are evaluated; default: all")
    parser.add_argument("--tasks", nargs="+", default=BYTES, choices=BYTES)
    parser.add_argument("--out", type=Path, default=Path("reports/benchmarks"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run(given.one, steps=given.steps, limit=given.limit, folder=given.folder)))
        return
    rows = []
    for task in given.tasks:
        with tempfile.TemporaryDirectory() as cache:
            for start in ("first", "again"):
                rows.append({"start": start, **measured(task, steps=given.steps, limit=given.limit, cache=Path(cache))})
    given.out.mkdir(parents=True, exist_ok=True)
    frame = pd.DataFrame(rows)
    frame.to_csv(given.out / "loop.csv", index=False, float_format="%.6g")
    print(table(frame))
    if (given.out / "about.csv").is_file():
        from benchmarks.speed import page

        page.write(given.out)


if __name__ == "__main__":
    main()

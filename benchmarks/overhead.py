"""What a study costs beside the same runs in a bare Python loop: ``python -m benchmarks.overhead``.

The study (``attnlab run``, one worker) and the loop (``attnlab.training.train``, one process) take turns, each from the start
of a fresh Python to its end, on one thread. Then the same with runs of a single step: what an empty run costs. Last, how long a
run's process takes to its first step. Writes ``reports/overhead/README.md`` and ``timings.csv``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch

STUDY = """\
study: overhead
base:
  task: {{name: pydocs, length: 64}}
  model: {{dim: 64, depth: 2, heads: 4}}
  train: {{steps: {steps}, batch_size: 8}}
  evaluate: {{valid_limit: 2_000, test_limit: 2_000}}
  machine: {{device: cpu, threads: 1}}
grid:
  variant: [dense]
seeds: {seeds}
"""
TRIAL_STEPS = 100  # of the run that tells how many steps take as long as asked for
LIMIT = 0.05  # more than the bare loop
PAGE = """\
# What a study costs beside a bare loop

`attnlab run --workers 1` against `attnlab.training.train` in a loop in one process, in turns ({pairs} pairs), each timed
from the start of a fresh Python to its end. Written by `{command}`; every timing is in [timings.csv](timings.csv).

{machine}

| runs | of | bare loop, s | study, s | study / bare | more per run, s |
|---:|---|---:|---:|---:|---:|
{rows}

Medians, with (smallest to largest) over the pairs. The loop keeps nothing: no checkpoint, no model, no record.
Runs that train cost {more:+.1%} in a study, {verdict} the {limit:.0%} that are allowed for runs of about 5 s.

| a run's process | to its birth, s | to its first step, s |
|---|---:|---:|
{starts}

From the moment the parent asks for it. Modules of torch that the {later} later processes imported themselves: {again}.
"""


@dataclass(frozen=True)
class Bench:
    """Where the processes work, and the timings so far."""

    folder: Path
    rows: list[dict[str, object]]

    def study(self, *, runs: int, steps: int) -> Path:
        """A study file for as many runs of as many steps."""
        path = self.folder / f"{runs}x{steps}.yaml"
        path.write_text(STUDY.format(steps=steps, seeds=[*range(runs)]))
        return path

    def time(self, *words: object) -> float:
        """Seconds of ``python -m ...`` with folders of its own for what it writes."""
        with tempfile.TemporaryDirectory(dir=self.folder) as runs, (self.folder / "log.txt").open("w+") as log:
            own = {"ATTNLAB_RUNS": runs, "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
            kept = {name: os.environ[name] for name in os.environ if name not in ("MLFLOW_TRACKING_URI", "ATTNLAB_STORAGE")}
            began = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", *map(str, words)], env=kept | own, stdout=log, stderr=log)
            seconds = time.perf_counter() - began
            if done.returncode:
                log.seek(0)
                sys.exit(f"{words} ended with code {done.returncode}:\n{log.read()}")
            return seconds

    def marks(self, arm: str, study: Path) -> pd.DataFrame:
        """What an arm wrote down."""
        path = self.folder / "marks.jsonl"
        path.unlink(missing_ok=True)
        self.time("benchmarks.arms", arm, study, path)
        return pd.DataFrame(map(json.loads, path.read_text().splitlines()))

    def pair(self, number: int, study: Path, *, runs: int, steps: int) -> None:
        """The study and the bare loop, one after the other."""
        for arm, words in {
            "study": ("attnlab", "run", study, "--workers", 1, "--no-report"),
            "bare": ("benchmarks.arms", "bare", study, self.folder / "marks.jsonl"),
        }.items():
            load = os.getloadavg()[0]
            seconds = self.time(*words)
            self.rows.append({"pair": number, "arm": arm, "runs": runs, "steps": steps, "seconds": seconds, "load": load})
            print(f"{runs} runs of {steps} steps, {arm}: {seconds:.1f} s", flush=True)


def steps_for(bench: Bench, seconds: float) -> int:
    """How many steps take about so long, by a run of ``TRIAL_STEPS``; the one before it warms up and prepares the data."""
    found = bench.marks("bare", bench.study(runs=2, steps=TRIAL_STEPS))["seconds"].iloc[-1]
    return max(2, round(TRIAL_STEPS * seconds / found))


def compare(timings: pd.DataFrame) -> pd.DataFrame:
    """One line a pair: seconds of either arm, their ratio, and what the study takes more for each run."""
    pairs = timings.pivot(index=["steps", "runs", "pair"], columns="arm", values="seconds").reset_index("runs")
    return pairs.assign(ratio=pairs["study"] / pairs["bare"], more=(pairs["study"] - pairs["bare"]) / pairs["runs"])


def process_starts(marks: pd.DataFrame) -> pd.DataFrame:
    """One line a run, in the order they were begun: seconds to its birth and to its first step, torch's modules imported."""
    runs = marks.groupby("key", sort=False).first().sort_values("asked")
    return pd.DataFrame(
        {"birth": runs["born"] - runs["asked"], "step": runs["steps"] - runs["asked"], "again": runs["torch_again"]}
    )


def page(timings: pd.DataFrame, starts: pd.DataFrame, *, command: str, machine: str) -> str:
    """The report."""
    found = compare(timings)
    longest = found.loc[found.index.get_level_values("steps").max()]
    later = starts.iloc[1:]
    again = sorted({name for names in later["again"] for name in names})
    more = median(longest["ratio"]) - 1
    return PAGE.format(
        pairs=len(longest),
        command=command,
        machine=machine,
        rows="\n".join(_row(steps, group) for steps, group in found.groupby(level="steps", sort=False)),
        more=more,
        verdict="within" if more <= LIMIT else "above",
        limit=LIMIT,
        starts=f"| the first | {_spread(starts['birth'][:1])} | {_spread(starts['step'][:1])} |\n"
        f"| the {len(later)} later ones | {_spread(later['birth'])} | {_spread(later['step'])} |",
        later=len(later),
        again=", ".join(again) or "none",
    )


def _row(steps: object, pairs: pd.DataFrame) -> str:
    of = "1 step (empty)" if steps == 1 else f"{steps} steps, {median(pairs['bare'] / pairs['runs']):.2f} s"
    columns = " | ".join(
        _spread(pairs[name], digits) for name, digits in (("bare", 1), ("study", 1), ("ratio", 3), ("more", 3))
    )
    return f"| {pairs['runs'].iloc[0]} | {of} | {columns} |"


def _spread(column: Any, digits: int = 3) -> str:  # a column of floats: pandas' own types leave it open
    values = [float(value) for value in column]
    middle = f"{median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main(words: Sequence[str] | None = None) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description="A study beside a bare loop.")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long a run takes")
    parser.add_argument("--pairs", type=int, default=3, help="how often the study and the loop take turns")
    parser.add_argument("--out", type=Path, default=Path("reports/overhead"))
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), [])
        long = steps_for(bench, given.seconds)
        for number in range(given.pairs):
            for steps in (long, 1):
                bench.pair(number, bench.study(runs=given.runs, steps=steps), runs=given.runs, steps=steps)
        starts = process_starts(bench.marks("starts", bench.study(runs=given.runs, steps=1)))
    timings = pd.DataFrame(bench.rows)
    given.out.mkdir(parents=True, exist_ok=True)
    timings.to_csv(given.out / "timings.csv", index=False, float_format="%.3f")
    loads = f"load average before each timing {timings['load'].min():.1f} to {timings['load'].max():.1f}"
    machine = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    command = f"python -m benchmarks.overhead --runs {given.runs} --seconds {given.seconds:g} --pairs {given.pairs}"
    (given.out / "README.md").write_text(page(timings, starts, command=command, machine=f"{machine}; {loads}."))
    print(given.out / "README.md")


if __name__ == "__main__":
    main()

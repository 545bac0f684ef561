"""Overhead of a study compared with the same runs in a bare Python loop: ``python -m benchmarks.overhead``.

The study (``attnlab run``, one worker) and the loop (``attnlab.training.train``, one process) take turns, each timed from the
start of a fresh Python to its end, on one thread; then the same with runs of a single step, the cost of an empty run. Finally
the time from a run's request to its first step is measured. Writes ``README.md``, ``timings.csv`` and ``starts.csv`` into
``reports/overhead``.

Each pair is written as soon as it is measured. Run the command again to continue an interrupted benchmark; results of the
same configuration and machine are not measured again, except with ``--fresh``.
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

from attnlab import __version__
from benchmarks.results_file import ResultsFile

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
TRIAL_STEPS = 100  # of the run that the number of steps for ``--seconds`` is estimated from
TARGET = 0.05  # largest overhead relative to the bare loop
PAGE = """\
# Overhead of a study compared with a bare loop

`attnlab run --workers 1` against `attnlab.training.train` in a loop in one process, in turns ({pairs} pairs), each timed
from the start of a fresh Python to its end. Written by `{command}`; every timing is in [timings.csv](timings.csv).

{machine}

| runs | of | bare loop, s | study, s | study / bare | more per run, s |
|---:|---|---:|---:|---:|---:|
{rows}

Medians, with (smallest to largest) over the pairs. The loop writes no checkpoint, model or record.
Runs that train cost {more:+.1%} in a study, {verdict} the target of {limit:.0%} for runs of about 5 s.

| a run's process | to its start, s | to its first step, s |
|---|---:|---:|
{starts}

Measured from the parent's request. Modules of torch that the {later} later processes themselves imported: {again}.
"""


@dataclass(frozen=True)
class Bench:
    """Runs the processes that are timed.

    Attributes:
        folder: temporary folder that they work in.
    """

    folder: Path

    def study(self, *, runs: int, steps: int) -> Path:
        """Write a study file of ``runs`` runs with ``steps`` steps each and return its path."""
        path = self.folder / f"{runs}x{steps}.yaml"
        path.write_text(STUDY.format(steps=steps, seeds=[*range(runs)]), encoding="utf-8")
        return path

    def time(self, *command: object) -> float:
        """Return the seconds that ``python -m ...`` takes; its files go to temporary folders."""
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as runs,
            (self.folder / "log.txt").open("w+", encoding="utf-8") as log,
        ):
            own = {"ATTNLAB_RUNS": runs, "OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
            kept = {name: os.environ[name] for name in os.environ if name not in ("MLFLOW_TRACKING_URI", "ATTNLAB_STORAGE")}
            began = time.perf_counter()
            process = subprocess.run([sys.executable, "-m", *map(str, command)], env=kept | own, stdout=log, stderr=log)
            seconds = time.perf_counter() - began
            if process.returncode:
                log.seek(0)
                sys.exit(f"{command} ended with code {process.returncode}:\n{log.read()}")
            return seconds

    def marks(self, arm: str, study: Path) -> pd.DataFrame:
        """Run a process of ``overhead_processes`` and return the marks that it records."""
        path = self.folder / "marks.jsonl"
        path.unlink(missing_ok=True)
        self.time("benchmarks.overhead_processes", arm, study, path)
        return pd.DataFrame(map(json.loads, path.read_text(encoding="utf-8").splitlines()))

    def pair(self, number: int, *, runs: int, steps: int) -> list[dict[str, object]]:
        """Time the study and the bare loop, one right after the other; return a row for each."""
        study, rows = self.study(runs=runs, steps=steps), []
        for arm, command in {
            "study": ("attnlab.cli.main", "run", study, "--workers", 1, "--no-report"),
            "bare": ("benchmarks.overhead_processes", "bare", study, self.folder / "marks.jsonl"),
        }.items():
            load = os.getloadavg()[0]
            seconds = round(self.time(*command), 3)
            rows.append({"pair": number, "arm": arm, "runs": runs, "steps": steps, "seconds": seconds, "load": round(load, 3)})
            print(f"{runs} runs of {steps} steps, {arm}: {seconds:.1f} s", flush=True)
        return rows


def steps_for(bench: Bench, seconds: float) -> int:
    """Estimate how many steps take ``seconds`` from a run of ``TRIAL_STEPS``, after one that warms up and prepares the data."""
    trial = bench.marks("bare", bench.study(runs=2, steps=TRIAL_STEPS))["seconds"].iloc[-1]
    return max(2, round(TRIAL_STEPS * seconds / trial))


def compare(timings: pd.DataFrame) -> pd.DataFrame:
    """Return one row per pair: seconds of both arms, their ratio, and the study's additional seconds per run."""
    pairs = timings.pivot(index=["steps", "runs", "pair"], columns="arm", values="seconds").reset_index("runs")
    return pairs.assign(ratio=pairs["study"] / pairs["bare"], more=(pairs["study"] - pairs["bare"]) / pairs["runs"])


def process_starts(marks: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run, in order: seconds to its process's start and to its first step, imported modules of torch."""
    runs = marks.groupby("key", sort=False).first().sort_values("asked")
    return pd.DataFrame(
        {"start": runs["born"] - runs["asked"], "step": runs["steps"] - runs["asked"], "again": runs["torch_again"]}
    )


def page(timings: pd.DataFrame, starts: pd.DataFrame, *, command: str, machine: str) -> str:
    """Return the report as Markdown."""
    pairs = compare(timings)
    longest = pairs.loc[pairs.index.get_level_values("steps").max()]
    later = starts.iloc[1:]
    again = sorted({name for names in later["again"] for name in names})
    more = median(longest["ratio"]) - 1
    return PAGE.format(
        pairs=len(longest),
        command=command,
        machine=machine,
        rows="\n".join(_row(steps, group) for steps, group in pairs.groupby(level="steps", sort=False)),
        more=more,
        verdict="within" if more <= TARGET else "above",
        limit=TARGET,
        starts=f"| the first | {_spread(starts['start'][:1])} | {_spread(starts['step'][:1])} |\n"
        f"| the {len(later)} later ones | {_spread(later['start'])} | {_spread(later['step'])} |",
        later=len(later),
        again=", ".join(again) or "none",
    )


def _row(steps: object, pairs: pd.DataFrame) -> str:
    of = "1 step (empty)" if steps == 1 else f"{steps} steps, {median(pairs['bare'] / pairs['runs']):.2f} s"
    columns = " | ".join(
        _spread(pairs[name], digits) for name, digits in (("bare", 1), ("study", 1), ("ratio", 3), ("more", 3))
    )
    return f"| {pairs['runs'].iloc[0]} | {of} | {columns} |"


def _spread(column: Any, digits: int = 3) -> str:  # a column of floats, which pandas' stubs do not express
    values = [float(value) for value in column]
    middle = f"{median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def measure(out: Path, *, runs: int, seconds: float, pairs: int, fresh: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Measure what ``timings.csv`` and ``starts.csv`` in ``out`` lack; return both.

    Args:
        runs: number of runs of a study.
        seconds: approximate duration of a run.
        pairs: how many times the study and the loop take turns.
        fresh: discard earlier results.
    """
    configuration = {"runs": runs, "seconds": seconds, "machine": describe_machine(), "attnlab": __version__}
    trials = ResultsFile(out / "steps.csv", configuration, fresh=fresh)
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        if not trials.rows:
            trials.append([{"steps": steps_for(bench, seconds)}])
        configuration["steps"] = long = int(trials.rows[0]["steps"])
        timings = ResultsFile(out / "timings.csv", configuration, fresh=fresh)
        starts = ResultsFile(out / "starts.csv", configuration, fresh=fresh)
        measured = {(row["pair"], row["steps"]) for row in timings.rows}
        for number in range(pairs):
            for steps in (long, 1):
                if (str(number), str(steps)) not in measured:
                    timings.append(bench.pair(number, runs=runs, steps=steps))
        if not starts.rows:
            rows = process_starts(bench.marks("starts", bench.study(runs=runs, steps=1)))
            starts.append([{**row, "again": " ".join(row["again"])} for row in rows.to_dict("records")])
    types: Any = {"pair": int, "runs": int, "steps": int, "seconds": float, "load": float}
    table = pd.DataFrame(starts.rows).astype({"start": float, "step": float})
    return pd.DataFrame(timings.rows).astype(types), table.assign(again=table["again"].str.split())


def describe_machine() -> str:
    """Return the platform, number of cores, and versions of Python and torch."""
    return f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description="Compare a study with a bare loop.")
    parser.add_argument("--runs", type=int, default=40, help="runs of the study (default 40)")
    parser.add_argument("--seconds", type=float, default=5.0, help="approximate duration of a run (default 5)")
    parser.add_argument("--pairs", type=int, default=3, help="how many times the study and the loop take turns (default 3)")
    parser.add_argument("--out", type=Path, default=Path("reports/overhead"), help="folder of the results")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results and measure everything again")
    options = parser.parse_args(arguments)
    timings, starts = measure(options.out, runs=options.runs, seconds=options.seconds, pairs=options.pairs, fresh=options.fresh)
    loads = f"load average before each timing {timings['load'].min():.1f} to {timings['load'].max():.1f}"
    command = f"python -m benchmarks.overhead --runs {options.runs} --seconds {options.seconds:g} --pairs {options.pairs}"
    text = page(timings, starts, command=command, machine=f"{describe_machine()}; {loads}.")
    (options.out / "README.md").write_text(text, encoding="utf-8")
    print(options.out / "README.md")


if __name__ == "__main__":
    main()

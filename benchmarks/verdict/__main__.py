"""Measure the time to a verdict and write its part of ``reports/benchmarks``: ``python -m benchmarks.verdict``.

Each measurement is written to ``verdict.csv`` in the folder of this machine as soon as it is taken. Run the command again to
continue an interrupted benchmark.
"""

import argparse
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from attnlab import __version__
from benchmarks import processor
from benchmarks.results_file import ResultsFile
from benchmarks.speed import page
from benchmarks.speed.environment import PEERS, ROOT, absent
from benchmarks.verdict import tables
from benchmarks.verdict.ways import IN_FP32, OVERRIDES, WAYS, measure, precision, study, warm_up

REPORTS, TRIALS = Path("reports/benchmarks"), Path("reports/bench")


def benchmark(out: Path, *, rounds: int, quick: bool = False, here: bool = False, fresh: bool = False) -> ResultsFile:
    """Take the measurements that ``verdict.csv`` in ``out`` lacks, the ways in turn.

    Args:
        rounds: how many times every way is measured.
        quick: train two cells for a few steps.
        here: use this interpreter, without the peers that it cannot import.
        fresh: discard earlier results.
    """
    python = Path(sys.executable) if here else PEERS.python()
    missing = absent({way.name for way in WAYS}) if here else {}
    content = study(quick=quick)
    if precision(content) == "fp32":
        missing[IN_FP32] = "attnlab chooses fp32 on this machine"
    for way, reason in missing.items():
        print(f"{way} is left out: {reason}", flush=True)
    machine = {"processor": processor.machine(), "instruction_sets": processor.instruction_sets()}
    versions = {"Python": platform.python_version(), "torch": torch.__version__, "attnlab": __version__}
    peers = "this interpreter" if here else (ROOT / PEERS.requirements).read_text(encoding="utf-8").split()
    about = {**machine, "platform": platform.platform(), **versions, "peers": peers}
    configuration = {**about, "cleared variables": [*OVERRIDES], "study": content}
    results = ResultsFile(out / tables.FILE, configuration, fresh=fresh)
    measured = {(row["round"], row["way"], row["at_a_time"]) for row in results.rows}
    runs = len(content["grid"]["variant"]) * len(content["seeds"])
    warm = set[str]()
    for number in range(rounds):
        for way in WAYS:
            if way.name in missing or (str(number), way.name, str(way.at_a_time)) in measured:
                continue
            if way.name not in warm and not quick:
                warm_up(way, python=python)
                warm.add(way.name)
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory() as folder:
                taken = measure(way, content, python=python, folder=Path(folder))
            row = {
                "round": number,
                "way": way.name,
                "at_a_time": way.at_a_time,
                "runs": runs,
                "seconds": f"{taken.seconds:.3f}",
            }
            results.append([{**row, "bits_per_byte": f"{taken.bits_per_byte:.6f}", "load": f"{load:.2f}", **machine}])
            print(f"round {number + 1} of {rounds}: {tables.label(way.name, way.at_a_time)}: {taken.seconds:.1f} s", flush=True)
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the table, and write the page, unless it is a trial."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict", description="Compare the time to a verdict.")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each way (default 3)")
    parser.add_argument("--out", type=Path, help=f"folder of the results (default {REPORTS}; with --quick {TRIALS})")
    parser.add_argument("--quick", action="store_true", help="train two cells for a few steps, to try the benchmark itself")
    parser.add_argument("--here", action="store_true", help="use this environment, without peers that are not installed in it")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results and measure everything again")
    options = parser.parse_args(arguments)
    out = options.out or (TRIALS if options.quick else REPORTS)
    folder = processor.folder(out)
    results = benchmark(folder, rounds=options.rounds, quick=options.quick, here=options.here, fresh=options.fresh)
    print(tables.table(tables.frame(results.rows)))
    if not options.quick:
        page.write(out)
        print(out / "README.md")


if __name__ == "__main__":
    main()

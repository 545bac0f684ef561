"""The ways to train all runs of a study, each timed from the start of its first process to its last result."""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from ruamel.yaml import YAML

import attnlab
from attnlab._util.machine import processors
from benchmarks.processor import AVX2_ONLY
from benchmarks.speed.case import OURS
from benchmarks.speed.environment import ROOT
from benchmarks.verdict.script import PLAIN, X_TRANSFORMERS

STUDY = ROOT / "ablations" / "quickstart.yaml"
SEEDS = 5
IN_FP32 = f"{OURS}, fp32"  # in the precision of the peers, where the plan chooses another one
REPORT = Path("runs", "reports", "verdict", "runs.csv")  # of the study, in the folder that it runs in
# Prefixes of variables that would change the defaults. With PYTHONDONTWRITEBYTECODE, which some images set, Python compiles
# every module again in each process: 2 seconds for PyTorch alone.
OVERRIDES = ("ATTNLAB_", "MLFLOW_", "OMP_", "MKL_", "OPTUNA_", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Way:
    """A way to train the runs.

    Attributes:
        name: ``attnlab``, ``IN_FP32``, or the name of a peer.
        at_a_time: the number of a peer's runs that train at the same time; 0: attnlab, which chooses it.
    """

    name: str
    at_a_time: int = 0


WAYS = (Way(OURS), Way(IN_FP32), *(Way(peer, number) for peer in (X_TRANSFORMERS, PLAIN) for number in (1, 2)))


@dataclass(frozen=True)
class Measurement:
    """The seconds from the start to the last result, and the bits per byte of the baseline on ``test``, the mean over seeds."""

    seconds: float
    bits_per_byte: float


def study(*, quick: bool = False) -> dict[str, Any]:
    """Return the study: the quickstart with ``SEEDS`` seeds, or, if ``quick``, two cells, one seed and a few steps."""
    content = YAML(typ="safe").load(STUDY.read_text(encoding="utf-8"))
    content |= {"study": "verdict", "seeds": [0] if quick else [*range(SEEDS)]}
    if quick:
        content["grid"]["variant"] = content["grid"]["variant"][:2]
        content["base"]["train"] |= {"steps": 4, "warmup": 1, "eval_every": 2, "precision": "fp32"}
        content["base"]["machine"] = {"device": "cpu", "threads": 1}  # nothing is measured before the runs
        content["base"]["evaluate"] = {"valid_limit": 10_000, "test_limit": 20_000}
    return content


def precision(content: dict[str, Any]) -> str:
    """Return the precision that attnlab chooses for a study on this machine."""
    return attnlab.plan(content).cells[0].config.train.precision


def warm_up(way: Way, *, python: Path) -> None:
    """Train two cells for a few steps, so that Python has compiled all modules before the first measurement."""
    with tempfile.TemporaryDirectory() as folder:
        measure(way, study(quick=True), python=python, folder=Path(folder))


def measure(way: Way, content: dict[str, Any], *, python: Path, folder: Path) -> Measurement:
    """Train all runs of a study, and check that each has a result.

    Args:
        content: of the study file.
        python: the interpreter.
        folder: an empty folder, for files.
    """
    kept = {name: value for name, value in os.environ.items() if name in AVX2_ONLY or not name.startswith(OVERRIDES)}
    own = {f"ATTNLAB_{name}": str(folder / name.lower()) for name in ("RUNS", "CACHE", "STATE")}
    environment = {**kept, **own, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true"}

    def run(*command: object, log: str, threads: int | None = None) -> None:
        limits = {} if threads is None else {"OMP_NUM_THREADS": str(threads)}
        arguments = [str(python), "-m", *map(str, command)]
        with (folder / log).open("w+", encoding="utf-8") as file:
            process = subprocess.run(arguments, cwd=folder, env=environment | limits, stdout=file, stderr=subprocess.STDOUT)
            if process.returncode:
                file.seek(0)
                sys.exit(f"{' '.join(arguments)} ended with code {process.returncode}:\n{file.read()}")

    if way.name == OURS:
        return _by_attnlab(content, run=run, folder=folder)
    if way.name == IN_FP32:
        return _by_attnlab(content, "--set", "train.precision=fp32", run=run, folder=folder)
    return _by_scripts(way, content, run=run, folder=folder)


def _by_attnlab(content: dict[str, Any], *options: str, run: Callable[..., None], folder: Path) -> Measurement:
    """Measure ``attnlab run``, including its report."""
    path = folder / "verdict.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(content, file)
    began = perf_counter()
    run("attnlab", "run", path, *options, log="log.txt")
    seconds = perf_counter() - began
    log = (folder / "log.txt").read_text(encoding="utf-8")
    print(*re.findall(r"^note: .*: auto is .*$", log, re.MULTILINE), sep="\n", flush=True)  # what `auto` chose
    with (folder / REPORT).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    variants = content["grid"]["variant"]
    missing = len(variants) * len(content["seeds"]) - sum(row["state"] == "completed" for row in rows)
    if missing:
        sys.exit(f"attnlab: {missing} runs have no result:\n{log}")
    return Measurement(seconds, mean(float(row["bits_per_byte"]) for row in rows if row["variant"] == variants[0]))


def _by_scripts(way: Way, content: dict[str, Any], *, run: Callable[..., None], folder: Path) -> Measurement:
    """Measure a loop over ``script``, ``way.at_a_time`` of which run at the same time."""
    sources = configurations(content, folder)
    threads = max(1, processors() // way.at_a_time) if way.at_a_time > 1 else None

    def train(source: Path) -> None:
        log = source.with_suffix(".txt").name
        run("benchmarks.verdict.script", way.name, source, source.with_suffix(".out"), log=log, threads=threads)

    began = perf_counter()
    with ThreadPoolExecutor(way.at_a_time) as pool:
        list(pool.map(train, sources))
    seconds = perf_counter() - began
    results = {source: json.loads(source.with_suffix(".out").read_text(encoding="utf-8")) for source in sources}
    names = {f"{content['grid']['variant'][0]}-{seed}" for seed in content["seeds"]}
    return Measurement(seconds, mean(result["test"] for source, result in results.items() if source.stem in names))


def configurations(content: dict[str, Any], folder: Path) -> Sequence[Path]:
    """Write the resolved configuration of each run, in fp32, to a JSON file in ``folder``, and return the files in order."""
    settings = {"train.precision": "fp32", "machine.matmul_precision": "highest", "machine.reuse_memory": False}
    sources, cells = [], attnlab.plan(content, sets=settings).cells
    for seed in content["seeds"]:
        for cell in cells:
            source = folder / f"{cell.name}-{seed}.json"
            source.write_text(cell.config.replace({"seed": seed}).model_dump_json(), encoding="utf-8")
            sources.append(source)
    return sources

"""Time training steps of the peers in fp32 and under bf16 autocast: ``python -m benchmarks.verdict.autocast``.

The peers of the time to a verdict train in fp32. This shows how much faster or slower they would be in bf16. Steps of both
precisions take turns in one process. Their medians are written to ``autocast.csv`` in the folder of this machine.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor, nn

from attnlab._util.machine import processors
from attnlab.tasks import Task
from benchmarks import processor
from benchmarks.results_file import ResultsFile
from benchmarks.speed.environment import PEERS as ENVIRONMENT
from benchmarks.speed.environment import absent
from benchmarks.verdict.script import PEERS, Config, optimizer_of, task_of, train_step
from benchmarks.verdict.tables import AUTOCAST
from benchmarks.verdict.ways import configurations, study

REPORTS = Path("reports/benchmarks")
WARM_UP, STEPS = 3, 25


class UnderAutocast(nn.Module):
    """A language model whose forward pass runs under bf16 autocast; its logits are fp32, for the loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            logits: Tensor = self.model(tokens)
        return logits.float()


def stepper(model: nn.Module, task: Task, config: Config) -> Callable[[], float]:
    """Return a function that takes a training step on the first batch and returns its seconds."""
    batch = task.train_batch(0, seed=config["seed"], batch_size=config["train"]["batch_size"])
    optimizer = optimizer_of(model, config["train"])

    def step() -> float:
        start = perf_counter()
        train_step(model, optimizer, batch, config["train"])
        return perf_counter() - start

    return step


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the steps of every cell, in the peers' environment."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict.autocast", description="Time the peers in bf16.")
    parser.add_argument("--out", type=Path, default=REPORTS, help=f"folder of the results (default {REPORTS})")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"timed steps of each case (default {STEPS})")
    parser.add_argument("--here", action="store_true", help="use this environment, without peers that are not installed in it")
    options = parser.parse_args(arguments)
    if not options.here:
        given = sys.argv[1:] if arguments is None else arguments
        python = str(ENVIRONMENT.python())
        os.execv(python, [python, "-m", "benchmarks.verdict.autocast", "--here", *given])
    peers = {peer: make for peer, make in PEERS.items() if peer not in absent(PEERS)}
    about = {"processor": processor.machine(), "torch": torch.__version__, "steps": options.steps}
    results = ResultsFile(processor.folder(options.out) / AUTOCAST, about, fresh=True)
    with tempfile.TemporaryDirectory() as folder:
        sources = configurations({**study(), "seeds": [0]}, Path(folder))
        configs = {source.stem.removesuffix("-0"): json.loads(source.read_text(encoding="utf-8")) for source in sources}
    for threads in dict.fromkeys((1, processors())):
        torch.set_num_threads(threads)
        for peer, make in peers.items():
            for cell, config in configs.items():
                task = task_of(config)
                models = {"fp32": make(config, task.vocabulary), "bf16": UnderAutocast(make(config, task.vocabulary))}
                steps = {precision: stepper(model, task, config) for precision, model in models.items()}
                times = [{precision: step() for precision, step in steps.items()} for _ in range(WARM_UP + options.steps)]
                middle = {precision: median(taken[precision] for taken in times[WARM_UP:]) for precision in steps}
                row = {"peer": peer, "cell": cell, "threads": threads}
                results.append([row | {f"{precision}_ms": f"{1e3 * seconds:.3f}" for precision, seconds in middle.items()}])
    print(results.path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()

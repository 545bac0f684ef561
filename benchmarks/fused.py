"""Speed of seeds that are trained as one model (``run: {fuse: seeds}``): ``python -m benchmarks.fused``.

Steps of fused seeds and of the same seeds one after another take turns in one process. Prints a table of how many times as
fast the fused steps are, as medians over the turns. A CPU is timed by its processor time, on one thread.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from attnlab.config.run import RunConfig
from attnlab.tracking.tags import device_name
from attnlab.training.device import synchronise
from attnlab.training.fused.train import FusedRun, FusedStep, Member

BATCHES = ((4, 32), (8, 64), (16, 128))  # rows and tokens of a row
WARM_UP = 2


def config(*, width: int, rows: int, length: int, device: str, precision: str, seed: int) -> RunConfig:
    """Return a dense model of depth 2 that neither logs nor evaluates during the measurement."""
    return RunConfig.model_validate(
        {
            "task": {"name": "pydocs", "length": length},
            "variant": "dense",
            "position": "learned",
            "backend": "sdpa" if device == "cuda" else "blocked",
            "model": {"dim": width, "depth": 2, "heads": 4},
            "train": {"steps": 10**6, "batch_size": rows, "log_every": 10**6, "grad_clip": 1.0, "precision": precision},
            "machine": {"device": device, "threads": 1},
            "seed": seed,
        }
    )


def members(configs: Sequence[RunConfig], device: torch.device) -> list[Member]:
    """Return runs at step 0."""
    started = [Member(i, FusedRun(run, lambda step, metrics: False), device) for i, run in enumerate(configs)]
    for member in started:
        member.start()
    return started


def speedup(configs: Sequence[RunConfig], *, device: torch.device, turns: int) -> float:
    """Return how many times as fast a fused step of all runs is as their steps one after another."""
    alone, together = members(configs, device), FusedStep(members(configs, device))

    def one_after_another() -> None:
        for member in alone:
            member.trainer.take_step()

    ratios = []
    for turn in range(WARM_UP + turns):
        functions = (one_after_another, together.take) if turn % 2 else (together.take, one_after_another)
        seconds = {function: _seconds(function, device) for function in functions}
        ratios.append(seconds[one_after_another] / seconds[together.take])
    return median(ratios[WARM_UP:])


def _seconds(function: Callable[[], None], device: torch.device) -> float:
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    synchronise(device)
    start = clock()
    function()
    synchronise(device)
    return clock() - start


def measure(*, device: str, precision: str, seeds: int, widths: Sequence[int], turns: int) -> None:
    """Print the table, row by row."""
    torch.set_num_threads(1)
    print(f"{device_name(device)}, torch {torch.__version__}, {seeds} seeds, {precision}\n")
    print("| tokens in a batch |", *(f"width {width} |" for width in widths))
    print("|---|" + "---|" * len(widths))
    for rows, length in BATCHES:
        ratios = []
        for width in widths:
            size = {"width": width, "rows": rows, "length": length}
            runs = [config(**size, device=device, precision=precision, seed=seed) for seed in range(seeds)]
            ratios.append(speedup(runs, device=torch.device(device), turns=turns))
        print(f"| {rows * length:,} |", *(f"{ratio:.2f} |" for ratio in ratios), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--turns", type=int, default=15)
    measure(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()

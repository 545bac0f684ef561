"""What a card gains from several runs at a time: seeds trained as one model, and processes that share the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import Case, Setting, Values
from attnlab.study.execution.step_times import measure
from attnlab.training.device import set_up_run
from attnlab.training.fused.train import FusedRun, FusedStep, Member

SEEDS = 8
WIDTHS = (64, 128, 256, 512)
WIDTHS_OF_PROCESSES = (64, 256)


def cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size(WIDTHS, (32,)):
        for precision in setting.size(("fp32", "bf16"), ("fp32",)):
            yield Case(f"{SEEDS} seeds as one model, width {width}, {precision}", partial(fused, setting, width, precision))
    for width in setting.size(WIDTHS_OF_PROCESSES, (32,)):
        yield Case(f"processes, width {width}", partial(processes, setting, width))


def configuration(setting: Setting, width: int, precision: str, *, seed: int = 0) -> RunConfig:
    """Return a dense model that neither logs nor evaluates during the measurement."""
    rows, length = setting.size((16, 128), (2, 16))
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": length},
        "position": "learned",
        "backend": "sdpa",
        "model": {"dim": width, "depth": 2, "heads": 4},
        "train": {"steps": 10**6, "batch_size": rows, "log_every": 10**6, "grad_clip": 1.0, "precision": precision},
        "machine": {"threads": 1},
    }
    return setting.resolved(base, seed=seed)


def fused(setting: Setting, width: int, precision: str) -> Values:
    """Return the time of a step of the seeds one after another, of the same seeds as one model, and their ratio."""
    seeds = setting.size(SEEDS, 2)
    runs = [configuration(setting, width, precision, seed=seed) for seed in range(seeds)]
    alone, together = _members(runs), FusedStep(_members(runs))

    def one_after_another() -> None:
        for member in alone:
            member.trainer.take_step()

    apart, at_once = setting.interleaved([one_after_another, together.take])
    return {"apart_ms": 1e3 * apart, "together_ms": 1e3 * at_once, "times_as_fast": apart / at_once}


def _members(runs: Sequence[RunConfig]) -> list[Member]:
    device = set_up_run(runs[0])
    members = [Member(i, FusedRun(run, lambda step, metrics: False), device) for i, run in enumerate(runs)]
    for member in members:
        member.start()
    return members


def processes(setting: Setting, width: int) -> Values:
    """Return how many times as many steps a second several processes take on the card as one does."""
    config = configuration(setting, width, "bf16")
    rates = {}
    for number in setting.size((1, 2, 4, 8), (1, 2)):
        results = measure([config] * number, threads=1, seconds=setting.size(1.0, 0.05))
        if results is None:
            raise UserError(f"{number} processes: a run failed")
        rates[number] = sum(1 / seconds for seconds, _, _ in results)
    return {"steps_per_s": rates[1], **{f"times_{number}": rate / rates[1] for number, rate in rates.items() if number > 1}}

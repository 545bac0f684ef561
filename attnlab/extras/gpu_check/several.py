"""What a card gains from several processes that share it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values
from attnlab.study.execution.measurements import measure

WIDTHS = (64, 128, 256, 512)


def cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size(WIDTHS, (32,)):
        yield Case(f"processes, width {width}", partial(processes, setting, width))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    found = []
    for case, row in rows.items():
        factors = [f"{value:.2f}" for name, value in row.items() if name.startswith("times")]
        found.append((case, f"{' / '.join(factors)} x one after another"))
    return found


def configuration(setting: Setting, width: int) -> RunConfig:
    """Return a dense model that neither logs nor evaluates during the measurement."""
    rows, length = setting.size((16, 128), (2, 16))
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": length},
        "position": "learned",
        "backend": "sdpa",
        "model": {"dim": width, "depth": 2, "heads": 4},
        "train": {"steps": 10**6, "batch_size": rows, "log_every": 10**6, "grad_clip": 1.0, "precision": "bf16"},
        "machine": {"threads": 1},
    }
    return setting.resolved(base)


def processes(setting: Setting, width: int) -> Values:
    """Return how many times as many steps a second several processes take on the card as one does."""
    config = configuration(setting, width)
    rates = {}
    for number in setting.size((1, 2, 4, 8), (1, 2)):
        results = measure([config] * number, threads=1, seconds=setting.size(1.0, 0.05))
        if results is None:
            raise UserError(f"{number} processes: a run failed")
        rates[number] = sum(1 / seconds for seconds, _, _ in results)
    return {"steps_per_s": rates[1], **{f"times_{number}": rate / rates[1] for number, rate in rates.items() if number > 1}}

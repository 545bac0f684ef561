"""The cost metrics of a run, defined once.

A cost metric is a number per run that is reported next to the task's scores: parameters, arithmetic, memory, speed. To
add one, put it into the summary of a run (`attnlab.training.costs`, or `attnlab.training.trainer` for times) and add an entry
to `COST_METRICS`. The report's tables, plots and exported files, the table that `attnlab run` prints, the columns of
`attnlab runs`, the MLflow view and the documentation of `attnlab.load_runs` all read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Place = Literal[
    "cost table",  # the report's section on costs, and its cells.csv
    "verdict table",  # the report's main table
    "run table",  # the report's table of single runs
    "terminal",  # the table at the end of `attnlab run`
    "run list",  # the default columns of `attnlab runs`
    "mlflow columns",  # the preset view of the MLflow UI
]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class CostMetric:
    """One cost of a run.

    Attributes:
        name: Key in a run's summary, name of the metric in MLflow and of the column in `attnlab.load_runs`.
        heading: Column heading and axis label, with the unit if it is not obvious.
        unit: Unit of the value, "" for a count.
        description: One line for the documentation.
        better: Direction in which a run is cheaper: "lower" or "higher".
        measured: The value depends on the machine and scatters over seeds; otherwise it is counted, and exact.
        relative: Tables show the difference from the baseline in percent next to the value. For counted metrics.
        digits: Significant digits in tables; whole numbers are never cut.
        shown_in: Tables and views with a column or chart of this metric.
        plot: Name of a trade-off plot (metric of the task against this cost), "" for none. Of several metrics with one name,
            the report draws the first that every cell has: peak GPU memory is missing on a CPU.
    """

    name: str
    heading: str
    unit: str
    description: str
    better: Literal["lower", "higher"] = "lower"
    measured: bool = False
    relative: bool = False
    digits: int = 3
    shown_in: tuple[Place, ...] = ("cost table",)
    plot: str = ""

    def format(self, value: float) -> str:
        """Return `value` as text with `digits` significant digits."""
        return significant(value, self.digits)

    def format_range(self, ends: Sequence[float]) -> str:
        """Return the lowest and the highest value over seeds as text, as in "(800 to 12,600)"; "" if they agree as printed."""
        texts = [self.format(value) for value in ends]
        return f"({' to '.join(texts)})" if len(set(texts)) > 1 else ""


COST_METRICS = [  # in the order of the tables' columns
    CostMetric(
        "tokens_per_s",
        "tokens/s",
        "tokens/s",
        "training throughput, warm-up excluded",
        better="higher",
        measured=True,
        shown_in=("cost table", "verdict table", "run table", "terminal", "run list", "mlflow columns"),
        plot="speed",
    ),
    CostMetric(
        "saved_mib",
        "saved MiB",
        "MiB",
        "memory that one micro-batch keeps for the backward pass",
        shown_in=("cost table", "verdict table", "run table", "terminal", "mlflow columns"),
        plot="memory",
    ),
    CostMetric(
        "gpu_peak_mib",
        "GPU peak MiB",
        "MiB",
        "peak of the memory allocated on the GPU; CUDA only",
        measured=True,
        shown_in=("cost table", "verdict table", "terminal"),
        plot="memory",
    ),
    CostMetric(
        "gpu_reserved_mib",
        "GPU reserved MiB",
        "MiB",
        "peak of the memory reserved by PyTorch's allocator; CUDA only",
        measured=True,
        shown_in=(),
    ),
    CostMetric(
        "host_peak_mib",
        "host peak MiB",
        "MiB",
        "peak resident memory of the process",
        measured=True,
        plot="memory",
    ),
    CostMetric(
        "parameters",
        "parameters",
        "",
        "parameters of the whole model",
        relative=True,
        shown_in=("cost table", "verdict table", "mlflow columns"),
    ),
    CostMetric("attention_parameters", "of attention", "", "parameters of the attention variants alone", relative=True),
    CostMetric("flops_per_token", "FLOPs/token", "FLOPs", "2 x multiply-accumulate of a forward pass", relative=True),
    CostMetric(
        "cache_bytes",
        "cache bytes",
        "bytes",
        "keys and values that decoding keeps of one sequence of full length",
        relative=True,
    ),
    CostMetric(
        "state_bytes",
        "state bytes",
        "bytes",
        "recurrent states that decoding keeps of one sequence, the same at every length",
        relative=True,
    ),
    CostMetric("steps", "steps", "", "training steps that the run took"),
    CostMetric(
        "skipped_steps", "skipped", "", "steps of fp16 with gradients beyond its range, after which weights stayed the same"
    ),
    CostMetric("tokens", "tokens", "", "tokens trained on in the whole run"),
    CostMetric(
        "train_seconds",
        "train s",
        "s",
        "time of the training steps",
        measured=True,
        shown_in=("cost table", "run table", "terminal", "run list", "mlflow columns"),
    ),
    CostMetric(
        "wall_seconds",
        "wall s",
        "s",
        "time of the program of a study with `command`, from its start to its end",
        measured=True,
        shown_in=("cost table", "run table", "terminal", "run list", "mlflow columns"),
        plot="speed",
    ),
    CostMetric(
        "chain_seconds",
        "chain s",
        "s",
        "time of the training steps of a run and of the stages that it builds on",
        measured=True,
        shown_in=("cost table", "verdict table", "terminal"),
    ),
    CostMetric(
        "chain_flops",
        "chain FLOPs",
        "FLOPs",
        "training FLOPs of a run and of the stages that it builds on",
        shown_in=(),
    ),
    CostMetric("data_seconds", "data s", "s", "part of `train_seconds` spent waiting for batches", measured=True, shown_in=()),
]


PROGRAM_COSTS = ("wall_seconds", "host_peak_mib")  # of a study with `command`; the first one only there


def shown_in(place: Place) -> list[CostMetric]:
    """Return the cost metrics with a column or chart in `place`, in the order of the tables."""
    return [metric for metric in COST_METRICS if place in metric.shown_in]


def heading(name: str) -> str:
    """Return the heading of a metric, or its name if it is not a cost metric."""
    return next((metric.heading for metric in COST_METRICS if metric.name == name), name)


def significant(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits, all digits of a whole part, and thousands separators."""
    if abs(value) >= 10 ** (digits - 1) or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def describe_in(marker: str) -> Callable[[F], F]:
    """Return a decorator that replaces the docstring's line `marker` with a row for each cost metric.

    The rows form a reStructuredText "simple table" with a first column of 28 characters.
    """

    def decorate(function: F) -> F:
        lines = []
        for line in (function.__doc__ or "").splitlines():
            lines += _rows(line[: -len(marker)]) if line.strip() == marker else [line]
        function.__doc__ = "\n".join(lines)
        return function

    return decorate


def _rows(indent: str) -> list[str]:
    rows = []
    for metric in COST_METRICS:
        unit = f"{metric.unit}: " if metric.unit else ""
        rows.append(f"{indent}{f'``{metric.name}``':<30}{unit}{metric.description}")
    return rows

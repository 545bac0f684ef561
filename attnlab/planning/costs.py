"""The costs of the cells of a plan: parameters, FLOPs, data, evaluations, and memory on CUDA.

A model is constructed for its trace, once for each distinct shape. An error of a user's class in its construction refuses the
cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch

from attnlab._util.progress import Progress, no_progress, track
from attnlab._util.raise_site import describe_error
from attnlab.config.grid import Cell
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.base import model_class
from attnlab.models.parts import parts
from attnlab.tasks import SPLITS, Task
from attnlab.training import device as training_device
from attnlab.training.device import format_bytes

if TYPE_CHECKING:
    from attnlab.training.weights import WeightMatch

# Sections and fields of a run that affect no cost of its model, but for the precision, which decides the bytes of its cache.
COSTLESS = {"train", "evaluate", "machine", "seed"}
MIB = 2**20
OVERHEAD = 1024  # MiB for the CUDA context, workspaces of libraries and fragmentation


class BuildError(UserError):
    """The model of a configuration cannot be constructed or applied; the message is the reason for a refusal."""


@contextmanager
def build_errors(config: RunConfig, task: Task) -> Iterator[None]:
    """Turn every exception of the model's classes into a ``BuildError`` that names the line in the user's file."""
    try:
        yield
    except Exception as error:  # variants, position schemes and models are user code, which may raise anything
        classes = [cls for part in parts(config, task) for _, cls in part.classes]
        raise BuildError(one_line(describe_error(error, *classes, model_class(config, task)))) from error


class Traces:
    """The parameters and FLOPs of models. Configurations that differ only in ``COSTLESS`` fields share one trace.

    Each precision has a trace. One instance serves one plan, because a user's file may change before the next plan.
    """

    def __init__(self) -> None:
        self._known: MutableMapping[tuple[object, ...], dict[str, int] | BuildError] = {}
        self._lengths: dict[tuple[str, str], float | None] = {}

    def figures(self, config: RunConfig, task: Any) -> dict[str, int]:
        """Return ``attnlab.training.costs.plan_figures`` of a configuration.

        Raises:
            BuildError: the model cannot be constructed or applied.
        """
        from attnlab.training.costs import plan_figures

        return self._trace("figures", config, task, lambda: plan_figures(config, task))

    def parameters(self, config: RunConfig, task: Any) -> int:
        """Return the number of parameters, which needs no forward pass; raises as ``figures`` does."""
        from attnlab.training.costs import plan_parameters

        return self._trace("parameters", config, task, lambda: {"parameters": plan_parameters(config, task)})["parameters"]

    def mean_length(self, config: RunConfig, task: Any, split: str) -> float | None:
        """Return ``Task.mean_length``, which may read the prepared data, once for each task and split."""
        key = config.task.model_dump_json(), split
        if key not in self._lengths:
            self._lengths[key] = task.mean_length(split)
        return self._lengths[key]

    def decoding_flops(self, config: RunConfig, task: Any, *, tokens: int, beam: int) -> int:
        """Return ``attnlab.training.costs.decoding_flops``; raises as ``figures`` does."""
        from attnlab.training.costs import decoding_flops

        def trace() -> dict[str, int]:
            return {"flops": decoding_flops(config, task, tokens=tokens, beam=beam)}

        return self._trace(f"decoding {tokens} {beam}", config, task, trace)["flops"]

    def _trace(self, kind: str, config: RunConfig, task: Any, trace: Callable[[], dict[str, int]]) -> dict[str, int]:
        shape = task.kind, task.role, task.length, task.vocabulary, task.classes
        key = kind, shape, config.train.precision, config.model_dump_json(exclude=COSTLESS)
        if key not in self._known:
            try:
                with build_errors(config, task):
                    self._known[key] = trace()
            except BuildError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, BuildError):
            raise known
        return known


@dataclass(frozen=True)
class EvaluationSchedule:
    """The length of a run, and the steps at which ``valid`` is evaluated.

    Attributes:
        steps: of the whole run.
        every: steps between two evaluations.
        epochs: True when the number of steps follows from a number of epochs.
    """

    steps: int
    every: int
    epochs: bool = False

    @property
    def early(self) -> int:
        """The number of evaluations before the last one."""
        return (self.steps - 1) // self.every

    @property
    def last(self) -> int:
        """The step of the last evaluation before the end of the run; 0 when there is none."""
        return self.early * self.every


def evaluation_schedule(config: RunConfig, task: Any) -> EvaluationSchedule:
    """Return the schedule of a run's evaluations on ``valid``."""
    from attnlab.training.train import total_steps

    total, every = total_steps(config.train, task), config.train.eval_every
    if every is None and config.train.epochs is not None:
        every = task.steps_per_epoch(config.train.batch_size)
    return EvaluationSchedule(total, every or total, epochs=config.train.epochs is not None)


def evaluation_sample(config: RunConfig, task: Any) -> int | None:
    """Return ``evaluate.sample`` with ``auto`` replaced by a number; None if every evaluation reads the same part of ``valid``.

    That is so if there is no evaluation before the last step, or if the sample of the task is all that would be read anyway.
    """
    options = config.evaluate
    if options.sample != "auto":
        return options.sample
    sample = task.valid_sample
    if sample is None or (options.valid_limit is not None and options.valid_limit <= sample):
        return None
    with suppress(Exception):  # any exception: the task may be the user's own; the plan reports it where it needs the answer
        if evaluation_schedule(config, task).early == 0:
            return None
        protocol: dict[str, Any] = {"protocol": options.protocol, "stride": options.stride}
        whole = task.eval_tokens("valid", limit=options.valid_limit, **protocol)
        if whole is not None and whole == task.eval_tokens("valid", limit=sample, **protocol):
            return None
    return sample


def data_sizes(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the number of items of each split as text, by the name of the cell; nothing of tasks that do not know it."""
    sizes: dict[str, str] = {}
    for cell in cells:
        with suppress(Exception):  # any exception: the task may be the user's own, and later steps report its errors
            task, evaluate = cell.task, cell.config.evaluate
            limits = {"valid": evaluate.valid_limit, "test": evaluate.test_limit if evaluate.test else 0}
            noun = getattr(task, "text_unit", "row")
            counts = {split: size for split in SPLITS if (size := task.split_size(split)) is not None}
            texts = [_size_text(split, size, limits.get(split), noun) for split, size in counts.items()]
            texts += [f"{task.classes} classes"] if task.classes else []
            sizes[cell.name] = ", ".join(texts)
    return sizes


def _size_text(split: str, size: int, limit: int | None, noun: str) -> str:
    scored = "" if limit == 0 or split == "train" else " (all scored)" if (limit or size) >= size else f" ({limit:,} scored)"
    return f"{split} {size:,} {noun}s{scored}"


def data_notes(cells: Sequence[Cell]) -> dict[str, tuple[str, ...]]:
    """Return the notes of each cell's task on its data, by the name of the cell.

    Raises:
        UserError: the method ``data_notes`` of a user's task failed.
    """
    notes: dict[tuple[str | None, str], tuple[str, ...]] = {}  # of several cells: by their data and the options of their task
    keys = {cell.name: (cell.config.data, cell.config.task.model_dump_json()) for cell in cells}
    for cell in cells:
        if cell.refusal is None and (key := keys[cell.name]) not in notes:
            try:
                notes[key] = tuple(cell.task.data_notes())
            except UserError as error:
                raise UserError(error.message, error.where or cell.where("task")) from error
            except Exception as error:  # any exception: the task may be the user's own
                message = f"task {cell.config.task.label}: data_notes() failed: {type(error).__name__}: {error}"
                raise UserError(message, cell.where("task")) from error
    return {cell.name: notes[keys[cell.name]] for cell in cells if cell.refusal is None}


def with_costs(cell: Cell, traces: Traces) -> Cell:
    """Return the cell of a plan with its costs; it is refused if its model cannot be built.

    Raises:
        UserError: an error of its task.
    """
    if cell.stage is not None and cell.refusal is None:
        cell = _from_stage(cell, with_costs(cell.stage, traces))
    if cell.refusal is not None:
        return cell
    from attnlab.training.train import total_steps

    try:
        figures = traces.figures(cell.config, cell.task)
    except BuildError as error:
        return replace(cell, refusal=error.message)
    try:
        steps = total_steps(cell.config.train, cell.task)
    except UserError as error:
        raise UserError(error.message, error.where or cell.where("task")) from error
    except Exception as error:  # a user's task may raise anything
        message = f"task {cell.config.task.label}: {describe_error(error, type(cell.task))}"
        raise UserError(message, cell.where("task")) from error
    rows, flops = steps * cell.config.train.batch_size, figures["flops_per_token"]
    train_flops = 3 * flops * _tokens(cell, "train", rows, traces)
    try:
        eval_flops = _eval_flops(cell, flops, traces)
    except BuildError as error:
        return replace(cell, refusal=error.message)
    shown = {field.name for field in fields(Cell)} & figures.keys()  # a cost metric need not be a figure of the plan
    costs = {name: figures[name] for name in shown}
    unknown = traces.mean_length(cell.config, cell.task, "train") is None
    known = {"steps": steps, "train_flops": train_flops, "eval_flops": eval_flops, "has_unknown_lengths": unknown}
    return replace(cell, **costs, **known)


def _tokens(cell: Cell, split: str, rows: int, traces: Traces) -> int:
    """Return the tokens of so many rows of a split; an encoder-decoder counts its source and its target."""
    model, task = model_class(cell.config, cell.task), cell.task
    full = rows * model.example_batch(task, 1, device=torch.device("cpu")).tokens
    mean = _mean_length(cell, split, traces)
    return full if mean == task.length else round(full * mean / task.length)


def _from_stage(cell: Cell, stage: Cell) -> Cell:
    """Return a cell with the stage that it starts from; it is refused if the stage is, or if their models share no matrix."""
    if stage.refusal is not None:
        return replace(cell, stage=stage, refusal=f"its stage {stage.name!r} is refused: {stage.refusal}")
    try:
        matching = match_models(stage.config, stage.task, cell.config, cell.task)
    except BuildError as error:
        return replace(cell, stage=stage, refusal=error.message)
    if matching.is_empty:
        reason = f"no matrix of the stage {stage.name!r} has the name and the shape of one of its own"
        return replace(cell, stage=stage, refusal=f"init: {reason}")
    return replace(cell, stage=stage, taken=str(matching))


def match_models(stage: RunConfig, stage_task: Any, config: RunConfig, task: Any) -> WeightMatch:
    """Return which tensors of a model come from its stage's model, without allocating either.

    Raises:
        BuildError: the model of one of the configurations cannot be constructed.
    """
    from attnlab.models.build import build
    from attnlab.training.weights import match_shapes, shapes_of

    shapes = []
    for model_config, model_task in ((stage, stage_task), (config, task)):
        with build_errors(model_config, model_task), torch.device("meta"):
            shapes.append(shapes_of(build(model_config, model_task)))
    return match_shapes(*shapes)


def _mean_length(cell: Cell, split: str, traces: Traces) -> float:
    """Return the mean tokens of a row of a split on one side, its full length if the task does not know it yet."""
    try:
        mean = traces.mean_length(cell.config, cell.task, split)
    except UserError as error:
        raise UserError(error.message, error.where or cell.where("task")) from error
    return cell.task.length if mean is None else min(mean, cell.task.length)


def _eval_flops(cell: Cell, flops_per_token: int, traces: Traces) -> int | None:
    """Return the FLOPs of all evaluations of a run, decoding included; None when the task does not estimate their tokens."""
    config, times = cell.config.evaluate, evaluation_schedule(cell.config, cell.task).early + 1
    reads = [("valid", config.valid_limit, times)]
    if config.sample_limit is not None:  # after the last step, the sample is read and then the whole
        reads = [("valid", config.sample_limit, times), ("valid", config.valid_limit, 1)]
    if config.test:
        reads.append(("test", config.test_limit, 1))
    total = 0
    for split, limit, count in reads:
        tokens = cell.task.eval_tokens(split, limit=limit, protocol=config.protocol, stride=config.stride)
        if tokens is None:
            return None
        rows = tokens // cell.task.length
        scored = flops_per_token * _tokens(cell, split, rows, traces)
        total += count * (scored + rows * _decoding_flops(cell, split, traces))
    return total


def _decoding_flops(cell: Cell, split: str, traces: Traces) -> int:
    """Return the FLOPs with which an evaluation decodes one row; 0 for a task that generates nothing.

    Translations are taken to be as long as their references.
    """
    task = cell.task
    if task.kind != "encoder_decoder" or type(task).generated_scores is Task.generated_scores:
        return 0
    options = task.decoding_options()
    tokens = max(1, min(round(_mean_length(cell, split, traces)), int(options.get("max_length", task.length))))
    return traces.decoding_flops(cell.config, task, tokens=tokens, beam=int(options.get("beam", 1)))


def cuda_peaks(cells: Sequence[Cell], *, progress: Progress = no_progress) -> dict[str, float | str]:
    """Return cell name -> estimated peak memory of a training step in MiB, or the reason why there is no estimate.

    Cells that differ only in fields without an effect on memory are estimated once.
    """
    peaks: dict[str, float | str] = {}
    known: dict[str, float | str] = {}
    for cell in track(cells, "estimating CUDA memory", progress):
        if cell.refusal is None or _lacks_device(cell):
            shape = _shape(cell)
            key = shape.to_json()
            if key not in known:
                known[key] = _estimate(shape)
            peaks[cell.name] = known[key]
    return peaks


def requests_cuda(cell: Cell) -> bool:
    """Return True when the cell is for a CUDA device, whether this machine has one or not."""
    return cell.config.machine.device.startswith("cuda")


def _lacks_device(cell: Cell) -> bool:
    """Return True when the cell is refused because this machine has no CUDA device, the first rule of ``planning.support``."""
    device = cell.config.machine.device
    return device.startswith("cuda") and cell.refusal == training_device.unsupported(device)


def _shape(cell: Cell) -> RunConfig:
    """Return the configuration on CUDA, reduced to the fields that affect the memory of a step."""
    from attnlab.training.costs import one_step

    return one_step(cell.config).model_copy(update={"backend": cell.cuda_backend})


def _estimate(config: RunConfig) -> float | str:
    from attnlab.registry import TASKS
    from attnlab.training.cuda_memory import cuda_peak_mib

    try:
        return cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    except Exception as error:  # a user's variant may read values of a tensor, which fake tensors lack
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"


def memory_notes(cells: Sequence[Cell], peaks: Mapping[str, float | str]) -> Iterator[str]:
    """Yield notes on cells without an estimate, and on cells that do not fit into the memory of their device."""
    for cell in cells:
        peak, device = peaks.get(cell.name), cell.config.machine.device
        if isinstance(peak, str):
            yield f"{cell.name!r} has no estimate of its memory on CUDA: {peak}"
        elif peak is not None and device.startswith("cuda") and torch.cuda.is_available():
            properties = torch.cuda.get_device_properties(torch.device(device))
            if peak + OVERHEAD > properties.total_memory / MIB:
                need, has = format_bytes((peak + OVERHEAD) * MIB), format_bytes(properties.total_memory)
                yield f"{cell.name!r} will not fit: about {need} with CUDA's own, and {properties.name} has {has}"

"""Trained models of runs: loading them, and sampling text from a language model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlab._util.files import describe_error
from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.classifier import Classifier
from attnlab.models.language_model import LanguageModel
from attnlab.registry import TASKS, load_sources
from attnlab.tasks import IGNORED, Task
from attnlab.tasks.validation import prepare_task
from attnlab.training import checkpoint
from attnlab.training import device as machine

if TYPE_CHECKING:
    from attnlab.tasks import Batch

MODEL_FILES = ("model.pt", "config.json")
PROMPT_BYTES = 256
PROMPT_POSITIONS = 64  # positions in the validation split that a seed chooses from


@dataclass(frozen=True)
class Sample:
    """A sampled text with its prompt and its model; safe to print to a terminal."""

    model: str
    origin: str
    prompt: str
    text: str


def generate(
    run: str,
    *,
    prompt: str | None = None,
    temperature: float = 0.5,
    length: int = 600,
    seed: int = 0,
    root: str | Path | None = None,
) -> Sample:
    """Sample from a run's model.

    Args:
        run: an MLflow run's id or its beginning, a run's name, or a folder with `model.pt` and `config.json`.
        prompt: text to continue; default 256 bytes of the task's validation split, chosen by `seed`.
        temperature: divisor of the logits; 0 takes the most likely token.
        length: the number of tokens (bytes) to sample.

    Raises:
        UserError: the run is unknown, it left no model, its model is not a language model, or its task has no text.
    """
    name, folder = find_run(run, root=root)
    model, config, task, device = _load_language_model(folder)
    if prompt == "":
        raise UserError("expected a prompt of at least one character, got an empty one", "--prompt")
    for method in ("encode", "decode"):
        if getattr(type(task), method) is getattr(Task, method):
            raise UserError(f"task {config.task.label} has no text: expected a method {method}, got none")
    if prompt is None:
        ids, origin = _from_validation(prepare_task(task, config), seed=seed)
    else:
        ids, origin = _encode(task, prompt, config), "as given"
    tokens = sample(model, ids, config=config, task=task, device=device, temperature=temperature, length=length, seed=seed)
    return Sample(name, origin, printable(task.decode(ids)), printable(task.decode(tokens)))


def _encode(task: Task, prompt: str, config: RunConfig) -> list[int]:
    try:
        return task.encode(prompt)
    except Exception as error:  # any exception: the task may be the user's own
        message = f"task {config.task.label} cannot read the prompt: {type(error).__name__}: {error}"
        raise UserError(message, "--prompt") from error


def find_run(run: str, *, root: str | Path | None = None) -> tuple[str, Path]:
    """Return a description of a run and the folder that holds its `model.pt`.

    Raises:
        UserError: no run or several runs match, or the run left no model.
    """
    path = Path(run)
    if path.is_dir():
        _require_model(path, run)
        return str(path), path
    from attnlab.tracking.client import connect, runs_folder, search_studies
    from attnlab.tracking.runs import load_runs

    matches: list[dict[Any, Any]] = []
    for experiment in search_studies(connect(runs_folder(root))):
        frame = load_runs(experiment.name, root)
        records = frame.to_dict("records") if not frame.empty else []
        matches += [record for record in records if record["run_id"].startswith(run) or record["name"] == run]
    if not matches:
        raise UserError(f"no run and no folder is named {run!r}: `attnlab runs STUDY` lists the runs")
    if len(matches) > 1:
        listed = "; ".join(f"{match['run_id'][:8]} {match['name']} of {match['study']}" for match in matches[:5])
        raise UserError(f"{len(matches)} runs match {run!r} ({listed}): give the beginning of an id")
    match = matches[0]
    folder = Path(match["folder"])
    _require_model(folder, f"{match['name']} ({match['state']})")
    return f"{match['name']} of {match['study']}, MLflow run {match['run_id']}", folder


def _require_model(folder: Path, run: str) -> None:
    for name in MODEL_FILES:
        if not (folder / name).is_file():
            raise UserError(f"{run} left no model: expected {name} in {folder}")


@dataclass(frozen=True)
class TrainedModel:
    """A run's model with its trained weights, in evaluation mode on the CPU, with the configuration and the task it needs."""

    config: RunConfig
    model: LanguageModel | Classifier
    task: Task


def load_model(folder: Path, *, backend: str | None = None) -> TrainedModel:
    """Build the model of a run from the `config.json` and `model.pt` in its folder.

    Args:
        folder: of the run; both files exist.
        backend: computes the same mathematics as the configured one; default: as configured.

    Raises:
        UserError: a file of the user's that the run imports has changed, or `model.pt` does not fit the configuration.
    """
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    if backend is not None:
        config = config.model_copy(update={"backend": backend})
    load_sources(config.sources)
    task: Task = TASKS.get(config.task.name)(**config.task.options)
    model = build(config, task)
    try:
        model.load_state_dict(checkpoint.load(folder / "model.pt")["model"])
    except Exception as error:  # any exception: the file may be damaged or hostile
        raise UserError(f"{folder / 'model.pt'} is no model of this run: {describe_error(error)}") from error
    return TrainedModel(config, model.eval(), task)


def has_model(folder: Path) -> bool:
    """Return whether a run left its trained weights in `folder`."""
    return all((folder / name).is_file() for name in MODEL_FILES)


def _load_language_model(folder: Path) -> tuple[LanguageModel, RunConfig, Task, torch.device]:
    """Load a language model on the device that it was trained on if this machine has one, else on the CPU."""
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    available = torch.cuda.is_available() or config.machine.device == "cpu"
    device = torch.device(machine.resolve_device(config.machine.device if available else "cpu"))
    needs_cuda = config.backend == "xformers"  # on the CPU, the reference backend computes the same mathematics
    trained = load_model(folder, backend="reference" if device.type == "cpu" and needs_cuda else None)
    if isinstance(trained.model, Classifier):
        raise UserError(f"expected a language model, got a classifier of {config.task.label}")
    return trained.model.to(device), trained.config, trained.task, device


def _from_validation(task: Task, *, seed: int) -> tuple[list[int], str]:
    """Return 256 bytes from one of the first positions in the validation split, chosen by `seed`."""
    needed = -(-PROMPT_BYTES // task.length)  # rows
    batches = islice(task.eval_batches("valid", batch_size=1), needed + PROMPT_POSITIONS - 1)
    rows = [_real(batch) for batch in batches]
    start = derive_seed(seed, "prompt") % max(1, len(rows) - needed + 1)
    ids = torch.cat(rows[start : start + needed])[:PROMPT_BYTES].tolist()
    return ids, f"{len(ids)} bytes of the validation split, from byte {start * task.length:,}"


def _real(batch: Batch) -> torch.Tensor:
    """Return the tokens (n,) of the batch's only row, without padding."""
    predicted = (batch.targets[0] != IGNORED).nonzero()
    return batch.inputs[0, : int(predicted[-1]) + 2]  # the last token that predicts, and its target where the row has it


@torch.inference_mode()
def sample(
    model: LanguageModel,
    ids: list[int],
    *,
    config: RunConfig,
    task: Task,
    device: torch.device,
    temperature: float,
    length: int,
    seed: int,
) -> list[int]:
    """Draw `length` tokens after `ids`.

    A model with memory reads segment by segment, as in training: a full segment leaves the memory of the next one. A
    model without memory sees a sliding window of the last `task.length` tokens.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "sampling"))
    memory: list[torch.Tensor] | None = None
    recent = list(ids)
    drawn: list[int] = []
    while len(drawn) < length:
        while config.model.mem_len and len(recent) > task.length:
            segment, recent = recent[: task.length], recent[task.length :]
            _, memory = model(torch.tensor([segment], device=device), memory)
        logits, _ = model(torch.tensor([recent[-task.length :]], device=device), memory)
        token = _draw(logits[0, -1].float().cpu(), temperature, generator)
        recent.append(token)
        drawn.append(token)
    return drawn


def _draw(logits: torch.Tensor, temperature: float, generator: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))


def printable(text: str) -> str:
    """Replace control characters, because a model may sample those that control a terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

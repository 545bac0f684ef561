"""Sampling from a trained language model, one token at a time."""

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
from attnlab.tasks.verification import verified
from attnlab.training import checkpoint
from attnlab.training import device as machine

if TYPE_CHECKING:
    from attnlab.tasks import Batch

SEED_BYTES = 256
PLACES = 64  # of the validation split that a seed may come from


@dataclass(frozen=True)
class Sample:
    """What was sampled, and from what: all of it safe to print to a terminal."""

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
        prompt: text to go on from; default 256 bytes of the task's validation split, chosen by `seed`.
        temperature: what the logits are divided by; 0 takes the likeliest token each time.
        length: how many tokens (bytes) to sample.

    Raises:
        UserError: there is no such run, it left no model, its model is no language model, or its task has no text.
    """
    name, folder = find(run, root=root)
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    model, task, device = load(folder, config)
    if prompt == "":
        raise UserError("expected a prompt of at least one character, got an empty one", "--prompt")
    for method in ("encode", "decode"):
        if getattr(type(task), method) is getattr(Task, method):
            raise UserError(f"task {config.task.label} has no text: expected a method {method}, got none")
    if prompt is None:
        ids, origin = _from_validation(verified(task, config), seed=seed)
    else:
        ids, origin = _encoded(task, prompt, config), "as given"
    tokens = sample(model, ids, config=config, task=task, device=device, temperature=temperature, length=length, seed=seed)
    return Sample(name, origin, printable(task.decode(ids)), printable(task.decode(tokens)))


def _encoded(task: Task, prompt: str, config: RunConfig) -> list[int]:
    try:
        return task.encode(prompt)
    except Exception as error:  # a task of someone else's: it raises what it likes at text that it does not know
        message = f"task {config.task.label} cannot read the prompt: {type(error).__name__}: {error}"
        raise UserError(message, "--prompt") from error


def find(run: str, *, root: str | Path | None = None) -> tuple[str, Path]:
    """Return what to call a run and the folder that holds its `model.pt`."""
    path = Path(run)
    if path.is_dir():
        _require_model(path, run)
        return str(path), path
    from attnlab.tracking.client import connect, runs_folder
    from attnlab.tracking.runs import load_runs

    client = connect(runs_folder(root))
    found: list[dict[Any, Any]] = []
    for experiment in client.search_experiments():
        if experiment.name != "Default":
            frame = load_runs(experiment.name, root)
            records = frame.to_dict("records") if not frame.empty else []
            found += [each for each in records if each["run_id"].startswith(run) or each["name"] == run]
    if not found:
        raise UserError(f"no run, and no folder, goes by {run!r}: `attnlab runs STUDY` lists them")
    if len(found) > 1:
        listed = "; ".join(f"{each['run_id'][:8]} {each['name']} of {each['study']}" for each in found[:5])
        raise UserError(f"{run!r} may be {len(found)} runs ({listed}): give the beginning of an id")
    only = found[0]
    folder = Path(only["folder"])
    _require_model(folder, f"{only['name']} ({only['state']})")
    return f"{only['name']} of {only['study']}, MLflow run {only['run_id']}", folder


def _require_model(folder: Path, what: str) -> None:
    for name in ("model.pt", "config.json"):
        if not (folder / name).is_file():
            raise UserError(f"{what} left no model: expected {name} in {folder}")


def load(folder: Path, config: RunConfig) -> tuple[LanguageModel, Task, torch.device]:
    """Build a run's model with its trained weights, on its device where that is here, else on the CPU.

    Raises:
        UserError: its model is no language model, or the file is not what a run left.
    """
    load_sources(config.sources)
    task: Task = TASKS.get(config.task.name)(**config.task.options)
    here = torch.cuda.is_available() or config.machine.device == "cpu"
    device = torch.device(machine.resolve_device(config.machine.device if here else "cpu"))
    if device.type == "cpu" and config.backend == "xformers":  # the same mathematics, without its kernels
        config = config.model_copy(update={"backend": "reference"})
    model = build(config, task)
    if isinstance(model, Classifier):
        raise UserError(f"expected a language model, got a classifier of {config.task.label}")
    try:
        model.load_state_dict(checkpoint.load(folder / "model.pt")["model"])
    except Exception as error:  # whatever a damaged or a hostile file makes the libraries raise
        raise UserError(f"{folder / 'model.pt'} is no model of this run: {describe_error(error)}") from error
    return model.to(device).eval(), task, device


def _from_validation(task: Task, *, seed: int) -> tuple[list[int], str]:
    """256 bytes from one of the first places in the validation split; `seed` chooses which."""
    needed = -(-SEED_BYTES // task.length)  # rows
    batches = islice(task.eval_batches("valid", batch_size=1), needed + PLACES - 1)
    rows = [_real(batch) for batch in batches]
    start = derive_seed(seed, "prompt") % max(1, len(rows) - needed + 1)
    ids = torch.cat(rows[start : start + needed])[:SEED_BYTES].tolist()
    return ids, f"{len(ids)} bytes of the validation split, from byte {start * task.length:,}"


def _real(batch: Batch) -> torch.Tensor:
    """(n,) of the batch's only row: up to the last token that it predicts from; what follows is padding."""
    wanted = (batch.targets[0] != IGNORED).nonzero()
    return batch.inputs[0, : int(wanted[-1]) + 2]  # that token, and the one predicted where the row goes on


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

    A model with memory reads segment by segment, as it was trained: what a full segment leaves is the next
    one's memory. One without sees the last `task.length` tokens, sliding.
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
    """The text with control characters replaced: a model may sample the ones that command a terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)

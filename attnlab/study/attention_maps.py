"""Attention maps: what each trained model of a study attends to in one input of the test split, the same for all.

Made after training from the weights that a run left, so that no run pays for it. The softmax weights are those of the
`reference` backend, which is the same mathematics as the others. A variant that does not compute one matrix of weights a
layer (sparse ones compute theirs in pieces, others have none) is recorded as such.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.nn import attention
from attnlab.registry import TASKS, load_sources
from attnlab.tasks.verification import verified
from attnlab.tracking.artifacts import AttentionMap, log_attention_map
from attnlab.training import checkpoint
from attnlab.training.evaluate import forward

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task


def record_attention_maps(study: str, *, length: int = 48, root: str | Path | None = None) -> list[tuple[str, str]]:
    """Record the maps of the first completed run of each cell; return (cell, what was recorded).

    Args:
        study: its name; searched runs are passed over, as the report does.
        length: of the input: so many tokens of the first item of the test split.
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.

    Raises:
        UserError: there is no such study, or its data cannot be had.
    """
    from attnlab.tracking.runs import load_runs

    runs = load_runs(study, root)
    done = runs.loc[(runs["state"] == "completed") & (runs["phase"] != "search")].sort_values(by="seed")
    found = []
    for record in done.drop_duplicates("cell").to_dict("records"):
        made = _map(Path(record["folder"]), length=length)
        log_attention_map(str(record["run_id"]), made, root=root)
        found.append((str(record["cell"]), made.reason or "recorded: depth {}, heads {}".format(*made.weights.shape)))
    return found


def _map(folder: Path, *, length: int) -> AttentionMap:
    if not (folder / "model.pt").is_file() or not (folder / "config.json").is_file():
        return AttentionMap(reason="its trained weights are not on this machine")
    config = RunConfig.from_json((folder / "config.json").read_text(encoding="utf-8"))
    load_sources(config.sources)
    task: Task = verified(TASKS.get(config.task.name)(**config.task.options), config)
    model = build(config.replace({"backend": "reference"}), task).eval()
    model.load_state_dict(checkpoint.load(folder / "model.pt")["model"])
    batch = _first(task, config, length)
    with torch.inference_mode(), attention.record_attention_weights() as weights:
        forward(model, batch, None)
    words = [] if model.backbone.class_token is None else ["[class]"]
    words += [_word(task, token) for token in batch.inputs[0].tolist()]
    whole = (1, config.model.heads, len(words), len(words))  # less: a part of the heads; more: a sequence that was filled up
    if len(weights) != config.model.depth or any(each.shape != whole for each in weights):
        return AttentionMap(
            reason=f"{config.variant.name} passes no whole matrix of weights a layer through the reference backend"
        )
    return AttentionMap(torch.cat(weights).half().numpy(), tuple(words))


def _word(task: Task, token: int) -> str:
    """How a token is shown: as text, or as its number where the task, which may be anyone's, has no text."""
    try:
        return task.decode([token])
    except NotImplementedError:
        return f"{token} "  # a space: the page joins words of one character, as letters are


def _first(task: Task, config: RunConfig, length: int) -> Batch:
    """The first tokens of the first item of the test split, as a batch of one row."""
    how: dict[str, Any] = {"protocol": config.evaluate.protocol, "stride": config.evaluate.stride}
    batch = next(iter(task.eval_batches("test", batch_size=1, **how)))
    mask = None if batch.mask is None else batch.mask[:1, :length]
    targets = batch.targets[:1, :length] if batch.targets.ndim == 2 else batch.targets[:1]
    return type(batch)(batch.inputs[:1, :length], targets, mask, batch.fresh)

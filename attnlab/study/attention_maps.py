"""Attention maps of a study's trained models, all on the same input from the test split.

The maps are computed after training, from the weights that a run left. The softmax weights are those of the `reference`
backend, which computes the same mathematics as the others. A variant without one matrix of weights per layer (sparse ones
compute theirs in blocks, others have none) is recorded with that reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnlab.config.run import RunConfig
from attnlab.nn import attention
from attnlab.study.trained import has_model, load_model
from attnlab.tasks.validation import prepare_task
from attnlab.tracking.artifacts import AttentionMap, log_attention_map
from attnlab.training.evaluate import forward

if TYPE_CHECKING:
    from attnlab.tasks import Batch, Task


def record_attention_maps(study: str, *, length: int = 48, root: str | Path | None = None) -> list[tuple[str, str]]:
    """Record the maps of the first completed run of each cell; return pairs of a cell and a description of its record.

    Args:
        study: its name; the trials of a search are left out, as in the report.
        length: the number of tokens, taken from the first item of the test split.
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.

    Raises:
        UserError: the study is unknown, its data are missing, or a model does not fit its run.
    """
    from attnlab.tracking.runs import load_runs

    runs = load_runs(study, root)
    done = runs.loc[(runs["state"] == "completed") & (runs["phase"] != "search")].sort_values(by="seed")
    recorded = []
    for record in done.drop_duplicates("cell").to_dict("records"):
        attention_map = _compute_map(Path(record["folder"]), length=length)
        log_attention_map(str(record["run_id"]), attention_map, root=root)
        recorded.append((str(record["cell"]), attention_map.reason or _describe_shape(attention_map)))
    return recorded


def _describe_shape(attention_map: AttentionMap) -> str:
    depth, heads = attention_map.weights.shape[:2]
    return f"recorded: depth {depth}, heads {heads}"


def _compute_map(folder: Path, *, length: int) -> AttentionMap:
    if not has_model(folder):
        return AttentionMap(reason="its trained weights are not on this machine")
    trained = load_model(folder, backend="reference")
    config, model, task = trained.config, trained.model, prepare_task(trained.task, trained.config)
    batch = _first_tokens(task, config, length)
    with torch.inference_mode(), attention.record_attention_weights() as weights:
        forward(model, batch, None)
    words = [] if model.backbone.class_token is None else ["[class]"]
    words += [_word(task, token) for token in batch.inputs[0].tolist()]
    complete = (1, config.model.heads, len(words), len(words))  # smaller: some heads only; larger: a padded sequence
    if len(weights) != config.model.depth or any(layer.shape != complete for layer in weights):
        return AttentionMap(
            reason=f"{config.variant.name} passes no whole matrix of weights a layer through the reference backend"
        )
    return AttentionMap(torch.cat(weights).half().numpy(), tuple(words))


def _word(task: Task, token: int) -> str:
    """Return a token as text, or as its number where the task has no text."""
    try:
        return task.decode([token])
    except NotImplementedError:
        return f"{token} "  # with a space: the page joins words of one character without one


def _first_tokens(task: Task, config: RunConfig, length: int) -> Batch:
    """Return the first tokens of the first item of the test split, as a batch of one row."""
    protocol: dict[str, Any] = {"protocol": config.evaluate.protocol, "stride": config.evaluate.stride}
    batch = next(iter(task.eval_batches("test", batch_size=1, **protocol)))
    mask = None if batch.mask is None else batch.mask[:1, :length]
    targets = batch.targets[:1, :length] if batch.targets.ndim == 2 else batch.targets[:1]
    return type(batch)(batch.inputs[:1, :length], targets, mask, batch.fresh)

"""Attention maps of a study's trained models, all on the same input from the test split.

The maps are computed after training, from the weights that a run left. The softmax weights come from the `reference`
backend, which computes the same mathematics as the others. A variant without one matrix of weights per layer (sparse ones
compute theirs in blocks, others have none) is recorded with that reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attnlab._util.run_state import NOT_COMPARED, RunState
from attnlab.config.run import PARTS, RunConfig
from attnlab.errors import UserError
from attnlab.stats.sweep import best_values
from attnlab.tasks import Batch, Task
from attnlab.tracking.artifacts import AttentionMap, log_attention_maps
from attnlab.trained.model import TrainedModel, load_model
from attnlab.training import weights


@dataclass(frozen=True)
class RecordedMap:
    """The outcome for one cell.

    Attributes:
        outcome: the size of the maps, the reason why the model has none, or the error.
        failed: the model could not be loaded, or the data could not be read. Earlier maps of the cell are kept.
    """

    cell: str
    outcome: str
    failed: bool = False


def record_attention_maps(
    study: str, *, length: int = 48, root: str | Path | None = None, imports: Sequence[str | Path] = ()
) -> list[RecordedMap]:
    """Record the maps of the first completed run of each cell, of a sweep at the cell's best value; return the outcomes.

    Args:
        study: its name; the trials of a search are left out, as in the report.
        length: the number of tokens, taken from the first item of the test split.
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.
        imports: as for `attnlab.load_model`.

    Raises:
        UserError: the study is unknown.
    """
    from attnlab.tracking.runs import load_runs

    runs = load_runs(study, root)
    done = runs.loc[(runs["state"] == RunState.COMPLETED) & ~runs["phase"].isin(list(NOT_COMPARED))].sort_values(by="seed")
    recorded = []
    for record in _at_best_values(done.to_dict("records"), study, root):
        cell = str(record["cell"])
        try:
            maps = compute_maps(Path(record["folder"]), length=length, imports=imports)
        except UserError as error:  # the other cells continue
            recorded.append(RecordedMap(cell, str(error), failed=True))
            continue
        log_attention_maps(str(record["run_id"]), maps, root=root)
        recorded += [RecordedMap(cell, _describe(map_)) for map_ in maps]
    return recorded


def _at_best_values(runs: list[dict[Any, Any]], study: str, root: str | Path | None) -> list[dict[Any, Any]]:
    """Return the first run of each cell; of a cell with a sweep, the first at its best value."""
    from attnlab.tracking.client import connect, runs_folder
    from attnlab.tracking.runs import find_experiment

    path = next((path for run in runs if run["phase"] == "sweep" for path in run["params"]), None)
    if path is not None:
        spec = find_experiment(connect(runs_folder(root)), study).comparisons[-1]
        best = best_values(runs, path=path, metric=spec["metric"], direction=spec["direction"])
        chosen = {cell.cell: cell.value for cell in best}
        runs = [run for run in runs if run["params"].get(path) == chosen.get(run["cell"])]
    first: dict[str, dict[Any, Any]] = {}
    for run in runs:
        first.setdefault(run["cell"], run)
    return list(first.values())


def _describe(map_: AttentionMap) -> str:
    if map_.reason:
        return map_.reason
    depth, heads = map_.weights.shape[:2]
    return f"{map_.part} recorded: depth {depth}, heads {heads}".strip()


def compute_maps(folder: Path, *, length: int, imports: Sequence[str | Path] = ()) -> list[AttentionMap]:
    """Return the attention map of a trained model, or the maps of the parts of an encoder-decoder.

    Args:
        folder: of the run.
        length: the largest number of tokens of the input.
        imports: as for `attnlab.load_model`.
    """
    if not weights.exist(folder):
        return [AttentionMap(reason="its trained weights are not on this machine")]
    trained = load_model(folder, backend="reference", device="cpu", imports=imports)
    data = trained.read_data()
    if data.kind == "encoder_decoder":
        source, target = _first_pair(data, length)
        return [_compute_part(trained, source, target, part) for part in PARTS]
    return [_compute_map(trained, _first_batch(data, trained.config), length)]


def _compute_part(trained: TrainedModel, source: Tensor, target: Tensor, part: str) -> AttentionMap:
    """Return the map of one part of an encoder-decoder for a pair of sentences."""
    try:
        layers = trained.attention_weights(source, target=target, part=part)
    except UserError as error:
        return AttentionMap(reason=error.message, part=part)
    queries, keys = (source if part == "encoder" else target), (target if part == "decoder" else source)
    words = tuple(tuple(trained.words(tokens)) for tokens in (queries, keys))
    return AttentionMap(layers[:, 0].half().numpy(), words[0], part=part, keys=words[1])


def _first_pair(data: Task, length: int) -> tuple[Tensor, Tensor]:
    """Return source tokens (s,) and decoder inputs (t,) of the first pair of `test` with at most `length` tokens a side.

    Without such a pair, the beginnings of both sides of the first one.
    """
    pairs = []
    for batch in data.eval_batches("test", batch_size=1):
        for row in batch.split(len(batch.inputs)):
            assert row.source is not None, "the batch of an encoder-decoder has a source"
            sides = ((row.source[0], row.source_mask), (row.inputs[0], row.mask))
            source, target = (tokens if mask is None else tokens[mask[0]] for tokens, mask in sides)
            if max(len(source), len(target)) <= length:
                return source, target
            pairs.append((source[:length], target[:length]))
    return pairs[0]


def _compute_map(trained: TrainedModel, batch: Batch, length: int) -> AttentionMap:
    tokens, mask = batch.inputs[:1, :length], None
    if trained.task.kind in ("classifier", "masked_language_model") and batch.mask is not None:
        mask = batch.mask[:1, :length]
    try:
        layers = trained.attention_weights(tokens, mask)
    except UserError as error:
        return AttentionMap(reason=error.message)
    return AttentionMap(layers[:, 0].half().numpy(), tuple(trained.words(tokens)))


def _first_batch(data: Task, config: RunConfig) -> Batch:
    """Return a batch of the first item of the test split."""
    evaluate = config.evaluate
    protocol: dict[str, Any] = {"protocol": evaluate.protocol, "stride": evaluate.stride}
    return next(iter(data.eval_batches("test", batch_size=1, **protocol)))

"""One run: a resolved configuration in, a result out. Knows neither Optuna nor MLflow.

What has an end is not trained again, what has a checkpoint is gone on from, and memory that runs out is a result.
The steps themselves are in ``loop``.
"""

import logging
from pathlib import Path
from typing import Any

from attnlab._util.files import replacing
from attnlab.config.run import RunConfig
from attnlab.registry import load_sources
from attnlab.training import checkpoint, out_of_memory
from attnlab.training import costs as measure
from attnlab.training import device as machine
from attnlab.training import result as results
from attnlab.training.distributed.group import Group
from attnlab.training.optim import total_steps
from attnlab.training.result import Report, Result
from attnlab.training.trainer import Trainer

__all__ = ["Report", "Result", "total_steps", "train", "train_rank"]

logger = logging.getLogger(__name__)


def train(config: RunConfig, *, report: Report | None = None, folder: Path | None = None) -> Result:
    """Train, evaluate on ``valid`` on the way, and on ``test`` once at the end.

    Args:
        config: resolved by ``attnlab.plan``.
        report: called with (step, metrics) as curves grow; returning True ends the run as ``pruned``.
        folder: where checkpoints go, and at the end ``model.pt``, ``config.json`` and ``result.json``. A checkpoint
            found there is gone on from; a run that has its result there is not trained again: its whole history is
            reported and the result returned. None: nothing is written. One process at a time may use a folder.
    """
    report = report or (lambda step, metrics: False)
    if folder is not None:
        earlier = results.kept(folder, config=config)
        if earlier is not None:
            for step, metrics in earlier[1]:
                report(step, metrics)
            checkpoint.remove(folder)
            return earlier[0]
        checkpoint.remove_halves(folder)
    if config.machine.processes_per_run > 1:
        from attnlab.training.distributed.launch import train_on_ranks

        return train_on_ranks(config, report=report, folder=folder)
    return train_rank(config, group=Group(), report=report, folder=folder)


def train_rank(config: RunConfig, *, group: Group, report: Report, folder: Path | None) -> Result:
    """One rank's part of ``train``; the first writes, evaluates and reports."""
    load_sources(config.sources)
    device = machine.set_up(config.machine, rank=group.rank)
    run: Trainer | None = None
    try:
        run = _begin(config, group=group, folder=folder, device=device, report=report)
        result = run.fit()
    except Exception as error:
        if not out_of_memory.is_out_of_memory(error):
            raise
        peaks, step = measure.peaks(device), run.step if run else 0
        costs = {**run.fixed_costs, **peaks} if run else peaks
        return Result("out_of_memory", costs, step, out_of_memory.reason(error, step=step, peaks=peaks))
    if folder is not None and group.first:
        _keep(run, result, folder)
    return result


def _begin(config: RunConfig, *, folder: Path | None, **context: Any) -> Trainer:
    """A run at the newest of its checkpoints that can be gone on from, or at its beginning."""
    for path, state in checkpoint.kept(folder, config=config) if folder is not None else ():
        run = Trainer(config, folder=folder, **context)
        try:
            run.restore(state)
        except Exception as error:  # other code wrote it, under the same version
            if out_of_memory.is_out_of_memory(error):
                raise
            checkpoint.warn_unusable(path, error)
            continue
        logger.info("resuming from step %d (%s)", run.step, path.name)
        run.report_again()
        return run
    if folder is not None and checkpoint.any_in(folder):
        logger.warning("no usable checkpoint in %s: starting from step 0", folder)
    return Trainer(config, folder=folder, **context)


def _keep(run: Trainer, result: Result, folder: Path) -> None:
    """Write down how the run ended. The order is what makes a power cut harmless.

    Until the result is written the last checkpoint is there to go on from, to the same bits; from then on nothing
    else in the folder counts.
    """
    if result.state == "completed":
        checkpoint.save({"model": run.model.state_dict()}, folder / "model.pt")
        with replacing(folder / "config.json") as half:
            half.write_text(run.config.to_json(), encoding="utf8")
    results.keep(result, run.history, config=run.config, folder=folder)
    checkpoint.remove(folder)

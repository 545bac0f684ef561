"""One run: a resolved configuration in, a result out. It knows neither Optuna nor MLflow.

Finished runs are skipped, interrupted runs resume from their latest usable checkpoint, and running out of memory is
recorded as a result. The training loop is in ``trainer``.
"""

import logging
from pathlib import Path
from typing import Any

from attnlab._util.user_code import load_sources
from attnlab.config.run import RunConfig
from attnlab.training import checkpoint, costs, weights
from attnlab.training.device import describe_out_of_memory, is_out_of_memory, set_up_run
from attnlab.training.distributed import Group, train_on_ranks
from attnlab.training.optim import total_steps
from attnlab.training.result import Report, Result, load_result, save_result
from attnlab.training.trainer import Trainer

__all__ = ["Report", "Result", "total_steps", "train", "train_rank"]

logger = logging.getLogger(__name__)


def train(
    config: RunConfig,
    *,
    report: Report | None = None,
    folder: Path | None = None,
    figures: dict[str, int] | None = None,
) -> Result:
    """Train a run, evaluate it on ``valid`` during training and once on ``test`` at the end.

    Args:
        config: a configuration that ``attnlab.plan`` resolved.
        report: called with (step, metrics) for every point of the curves; returning True ends the run as ``pruned``.
        folder: stores checkpoints and finally ``model.safetensors``, ``config.json`` and ``result.json``. Training resumes
            from a checkpoint in it; if it holds the run's result, the whole history is reported and the result returned
            without training. Only one process at a time may use a folder. None writes nothing.
        figures: the ``costs.plan_figures`` of the configuration, when they are known.

    Returns:
        The state in which the run ended, its final metrics and its last step.
    """
    report = report or (lambda step, metrics: False)
    if folder is not None and (result := _recorded_result(config, report=report, folder=folder)) is not None:
        return result
    if config.machine.processes_per_run > 1:
        return train_on_ranks(train_rank, config, report=report, folder=folder)
    return train_rank(config, group=Group(), report=report, folder=folder, figures=figures)


def _recorded_result(config: RunConfig, *, report: Report, folder: Path) -> Result | None:
    """Return the result of a run that was trained before, after reporting its history; None when it is to be trained.

    Files that an earlier attempt left and that are no longer needed are removed.
    """
    recorded = load_result(folder, config=config)
    if recorded is not None and weights.is_outdated_result(recorded[0], config.init, folder):
        logger.warning("training again, because the result in %s began with other weights of its stage", folder)
        recorded = None
    if recorded is None:
        checkpoint.remove_partial(folder)
        return None
    result, history = recorded
    logger.info("this run was trained before and its result is in %s: not trained again", folder)
    for step, metrics in history:
        report(step, metrics)
    checkpoint.remove(folder)
    return result


def train_rank(
    config: RunConfig,
    *,
    group: Group,
    report: Report,
    folder: Path | None,
    figures: dict[str, int] | None = None,
) -> Result:
    """Run one rank's part of ``train``; rank 0 also writes, evaluates and reports."""
    load_sources(config.sources)
    device = set_up_run(config, rank=group.rank)
    trainer: Trainer | None = None
    try:
        trainer = _start(config, group=group, folder=folder, device=device, report=report, figures=figures)
        weights.distinct_tensors(trainer.model)  # a model that cannot be saved fails here, not after training
        result = trainer.fit()
        if trainer.start is not None:
            result.tags |= trainer.start.tags
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        peaks, step = costs.peaks(device), trainer.step if trainer else 0
        summary = {**trainer.fixed_costs, **peaks} if trainer else peaks
        return Result("out_of_memory", summary, step, describe_out_of_memory(error, step=step, peaks=peaks))
    if folder is not None and group.rank == 0:
        _save(trainer, result, folder)
    return result


def _start(config: RunConfig, *, folder: Path | None, **context: Any) -> Trainer:
    """Return a trainer at the latest usable checkpoint of the run, or at step 0."""
    for path, state in checkpoint.load_usable(folder, config=config) if folder is not None else ():
        trainer = Trainer(config, folder=folder, **context)
        try:
            trainer.restore(state)
            if trainer.start is not None and weights.is_outdated(trainer.start.weights, config.init, path.parent):
                raise ValueError("it began with other weights of its stage")
        except Exception as error:  # written by other code of the same version
            if is_out_of_memory(error):
                raise
            checkpoint.warn_unusable(path, error)
            continue
        logger.info("resuming from step %d (%s)", trainer.step, path.name)
        trainer.replay_history()
        return trainer
    if folder is not None and checkpoint.exists(folder):
        logger.warning("no usable checkpoint in %s: starting from step 0", folder)
    trainer = Trainer(config, folder=folder, **context)
    if config.init is not None:
        trainer.start = weights.take_over(trainer.model, config.init, folder)
        logger.info("starting from the stage %s: %s", config.init.stage, trainer.start.taken)
    return trainer


def _save(trainer: Trainer, result: Result, folder: Path) -> None:
    """Write the model, the scores of the test's items and the result, then remove the checkpoints.

    The order makes a power cut harmless: until the result is written, the run resumes from its last checkpoint to the same
    bits; from then on the other files are not read.
    """
    if result.state == "completed":
        weights.save(trainer.model, trainer.config, folder, kept=trainer.task.kept_state())
        trainer.items.save(folder)
    save_result(result, trainer.history, config=trainer.config, folder=folder)
    checkpoint.remove(folder)

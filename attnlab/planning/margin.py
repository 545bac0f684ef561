"""Check that a margin in per cent of steps can be estimated from the runs that are planned."""

from collections.abc import Mapping, Sequence

from attnlab.config.study import StudyConfig
from attnlab.config.tasks import task_axis
from attnlab.errors import UserError
from attnlab.planning.matching import CellPair
from attnlab.training.optim import total_steps
from attnlab.training.slope import MIN_POINTS


def check_margin(study: StudyConfig, resolved: Sequence[CellPair], *, margins: Mapping[str, float | str | None]) -> None:
    """Raise ``UserError`` if a margin is a share of steps and a baseline is evaluated too seldom to estimate it.

    Args:
        margins: label of the task's value -> margin; "" -> margin in a study of one task.
    """
    shares = [margin for margin in margins.values() if isinstance(margin, str)]
    if not shares:
        return
    place, axis = study.where("margin"), task_axis(study)
    if not study.baselines:
        raise UserError(f"margin: {shares[0]} is estimated from the baseline: expected a 'baseline', got none", place)
    for cell, resolution in resolved:
        margin = margins[str(cell.axes[axis]) if axis else ""]
        if not isinstance(margin, str):
            continue
        if resolution.refusal is not None or not study.baselines[0].items() <= cell.axes.items():
            continue
        train = resolution.config.train
        steps = total_steps(train, resolution.task)
        every = train.eval_every or (resolution.task.steps_per_epoch(train.batch_size) if train.epochs else steps)
        points = len({*range(every, steps + 1, every), steps} - set(range((steps + 1) // 2)))
        if points < MIN_POINTS:
            message = (
                f"margin: {margin} is estimated from the baseline's validation curve: expected at least {MIN_POINTS} "
                f"evaluations in the second half of training, got {points} of {cell.name!r}"
            )
            raise UserError(f"{message}; set train.eval_every to at most {max(1, steps // 4)}", place)

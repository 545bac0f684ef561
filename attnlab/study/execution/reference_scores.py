"""Reference scores of a study's tasks, computed after its runs. A failure is logged and does not stop the study."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnlab.config.comparability import text_identity
from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.errors import one_line
from attnlab.tasks.reference_scores.base import Reference, compute_score
from attnlab.tracking.artifacts import ReferenceScore

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tasks import Task


logger = logging.getLogger(__name__)


def compute_reference_scores(plan: Plan) -> list[ReferenceScore]:
    """Compute every reference score that the study requests, once for each of its tests."""
    requested = plan.study.reference_scores
    if requested is False:
        return []
    scores: dict[str, ReferenceScore] = {}
    for config, metric in _tests(plan):
        try:
            task = _task(config)
            references = task.reference_scores() if metric == task.metric else {}
        except Exception as error:  # any exception: the task may be the user's own
            logger.warning("reference scores of %s: %s", config.task.label, _why(error))
            continue
        for name, reference in references.items():
            if requested is True or name in requested:
                score = _score(name, reference, config, task)
                if score is not None:
                    scores[score.tag] = score
    return list(scores.values())


def _tests(plan: Plan) -> Iterator[tuple[RunConfig, str]]:
    """Yield a configuration and the metric for each task and limit that the runs are tested on.

    There is none for runs that do not read `test`.
    """
    cells = [cell for cell in plan.cells if cell.refusal is None and cell.config.evaluate.test]
    tests = {(cell.config.task.label, cell.config.evaluate.test_limit): cell for cell in cells}
    yield from ((cell.config, plan.metric_of(cell)[0]) for cell in tests.values())


def _task(config: RunConfig) -> Task:
    from attnlab.registry import TASKS
    from attnlab.tasks.validation import prepare_task

    return prepare_task(TASKS.get(config.task.name)(**config.task.options), config)


def _score(name: str, reference: Reference, config: RunConfig, task: Task) -> ReferenceScore | None:
    options = {
        option: value
        for option, value in config.task.options.items()
        if reference.options is None or option in reference.options
    }
    deciding, limit = Named(name=config.task.name, options=options), config.evaluate.test_limit
    files = sorted({**config.sources, **config.packages}.values())
    key = {"baseline": name, "task": deciding.model_dump(), "data": text_identity(config.data), "files": files}
    label = f"reference score {name} of {deciding.label}"
    try:
        score = compute_score(
            reference, limit, key=key, on_start=lambda: logger.info("computing the %s (cached afterwards)", label)
        )
    except KeyboardInterrupt as error:
        error.args = (
            "interrupted while computing a reference score: all runs are recorded (--no-reference-scores skips this step)",
        )
        raise
    except Exception as error:  # no memory, no scikit-learn, an error in a user's own method
        logger.warning("%s: %s", label, _why(error))
        return None
    test = (deciding.label, text_identity(config.data) or "", limit, task.metric)
    return ReferenceScore(name, *test, score.value, score.seconds, one_line(reference.about)[:500])


def _why(error: Exception) -> str:
    return f"none, {one_line(f'{type(error).__name__}: {error}')}"

"""The trivial baselines of a study's tasks, computed when its runs are done. One that fails costs the study nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.errors import one_line
from attnlab.tasks.reference_scores.base import Reference, scored
from attnlab.tracking.artifacts import ReferenceScore

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tasks import Task


logger = logging.getLogger(__name__)


def compute_reference_scores(plan: Plan) -> list[ReferenceScore]:
    """Every baseline that the study asks for, of each of its tests once."""
    asked = plan.study.reference_scores
    if asked is False:
        return []
    found: dict[str, ReferenceScore] = {}
    for config in _tests(plan):
        try:
            task = _task(config)
            named = task.reference_scores() if plan.metric == task.metric else {}
        except Exception as error:  # a task of someone else's: whatever it raises
            logger.warning("reference scores of %s: %s", config.task.label, _why(error))
            continue
        for name, baseline in named.items():
            if asked is True or name in asked:
                score = _score(name, baseline, config, task)
                if score is not None:
                    found[score.tag] = score
    return list(found.values())


def _tests(plan: Plan) -> Iterator[RunConfig]:
    """A configuration for each task and limit that the study's runs are tested on. Where none reads `test`, neither do we."""
    configs = [cell.config for cell in plan.cells if cell.refusal is None and cell.config.evaluate.test]
    yield from {(config.task.label, config.evaluate.test_limit): config for config in configs}.values()


def _task(config: RunConfig) -> Task:
    from attnlab.registry import TASKS
    from attnlab.tasks.verification import verified

    return verified(TASKS.get(config.task.name)(**config.task.options), config)


def _score(name: str, baseline: Reference, config: RunConfig, task: Task) -> ReferenceScore | None:
    options = {
        option: value for option, value in config.task.options.items() if baseline.options is None or option in baseline.options
    }
    deciding, limit = Named(name=config.task.name, options=options), config.evaluate.test_limit
    files = sorted({**config.sources, **config.packages}.values())
    key = {"baseline": name, "task": deciding.model_dump(), "data": config.data, "files": files}
    label = f"reference score {name} of {deciding.label}"
    try:
        score = scored(baseline, limit, key=key, begin=lambda: logger.info("computing the %s (cached afterwards)", label))
    except KeyboardInterrupt as error:
        error.args = ("interrupted while a baseline was computed: all runs are recorded (--no-reference-scores leaves it out)",)
        raise
    except Exception as error:  # no memory, no scikit-learn, a fault in a user's own
        logger.warning("%s: %s", label, _why(error))
        return None
    test = (deciding.label, config.data, limit, task.metric)
    return ReferenceScore(name, *test, score.value, score.seconds, one_line(baseline.about)[:500])


def _why(error: Exception) -> str:
    return f"none, {one_line(f'{type(error).__name__}: {error}')}"

"""Reference scores of a study's tasks, computed after its runs. A failure is logged and does not stop the study."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from attnlab._util.user_code import load_sources
from attnlab.config.comparability import text_identity
from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.errors import one_line
from attnlab.tasks.reference_scores import Reference, compute_score
from attnlab.tracking.artifacts import ReferenceScore

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tasks import Task

logger = logging.getLogger(__name__)


def compute_reference_scores(plan: Plan) -> list[ReferenceScore]:
    """Compute the reference scores that a study requests, once for each task and limit that its runs are tested on."""
    requested = plan.study.reference_scores
    cells = [cell for cell in plan.cells if cell.refusal is None and cell.config.evaluate.test]
    tests = {(cell.config.task.label, cell.config.evaluate.test_limit): cell for cell in cells}
    scores: dict[str, ReferenceScore] = {}
    for cell in tests.values():
        try:
            task = _task(cell.config)
            references = task.reference_scores() if plan.metric_of(cell)[0] == task.metric else {}
        except Exception as error:  # any exception: the task may be the user's own
            logger.warning("reference scores of %s: %s", cell.config.task.label, _why(error))
            continue
        for name, reference in references.items():
            if requested is True or name in requested:  # type: ignore[operator]
                score = _score(name, reference, cell.config, task)
                if score is not None:
                    scores[score.tag] = score
    return list(scores.values())


def _task(config: RunConfig) -> Task:
    from attnlab.registry import TASKS
    from attnlab.tasks.validation import prepare_task

    load_sources(config.sources)
    return prepare_task(TASKS.get(config.task.name)(**config.task.options), config)


def _score(name: str, reference: Reference, config: RunConfig, task: Task) -> ReferenceScore | None:
    deciding = {o: value for o, value in config.task.options.items() if reference.options is None or o in reference.options}
    named, limit = Named(name=config.task.name, options=deciding), config.evaluate.test_limit
    files = sorted({**config.sources, **config.packages}.values())
    key = {"name": name, "task": named.model_dump(), "data": text_identity(config.data), "files": files}
    try:
        score = compute_score(reference, limit, key=key)
    except Exception as error:  # no memory, no scikit-learn, an error in a user's own method
        logger.warning("reference score %s of %s: %s", name, named.label, _why(error))
        return None
    test = (named.label, text_identity(config.data) or "", limit, task.metric)
    return ReferenceScore(name, *test, score.value, score.seconds, one_line(reference.about)[:500])


def _why(error: Exception) -> str:
    return f"none, {one_line(f'{type(error).__name__}: {error}')}"

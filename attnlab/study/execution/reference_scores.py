"""Reference scores of a study's tasks, computed while its runs train. A failure is logged and does not stop the study."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from logging.handlers import QueueHandler
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from attnlab._util.process import fork_with_pipe
from attnlab._util.user_code import load_sources
from attnlab.config.comparability import text_identity
from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.errors import one_line
from attnlab.study.execution.child import die_with_parent, output_to
from attnlab.study.execution.job import PRELOAD
from attnlab.tasks.reference_scores import Reference, compute_score
from attnlab.tracking.artifacts import ReferenceScore

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tasks import Task

logger = logging.getLogger(__name__)
PATIENCE = 0.5  # seconds of waiting that need no line
INTERRUPTED = "interrupted while computing a reference score: all runs are recorded (--no-reference-scores skips this step)"
Test = tuple[RunConfig, str]  # a configuration that is tested, and the metric by which the study compares it


class BackgroundScores:
    """The reference scores of a plan, computed while its runs train, in a process of the lowest priority."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: Any = None
        self._pipe: Connection | None = None

    def start(self) -> None:
        """Start the process, unless it has been started or no score is requested."""
        if self._process is not None or self._plan.study.reference_scores is False:
            return
        arguments = _tests(self._plan), self._plan.study.reference_scores, dict(os.environ)
        self._process, self._pipe = fork_with_pipe(
            _compute_for_parent, *arguments, name="attnlab-reference-scores", preload=PRELOAD
        )

    def result(self) -> list[ReferenceScore]:
        """Return the scores, as soon as they are computed; in this process if none has been started or it has ended."""
        try:
            if self._pipe is not None and not self._pipe.poll(PATIENCE):
                logger.info("computing reference scores (cached afterwards)")
            while self._pipe is not None:
                message = self._pipe.recv()
                if isinstance(message, list):
                    return message
                logger.handle(message)
        except (EOFError, OSError):
            logger.info("the process that computed the reference scores ended: computing them again")
        except KeyboardInterrupt as error:
            error.args = (INTERRUPTED,)
            raise
        return compute_reference_scores(self._plan)

    def close(self) -> None:
        """End the process, if it still runs."""
        if self._process is not None and self._pipe is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join()


def _compute_for_parent(
    tests: Sequence[Test], requested: bool | Collection[str], environment: dict[str, str], pipe: Any
) -> None:
    """Send warnings, and at the end the list of scores. The runs come first: they get the processor, and the memory."""
    os.setpgid(0, 0)
    threading.Thread(target=die_with_parent, args=(pipe,), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)  # the server may have an older environment
    os.nice(19)
    with suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    output_to(Path(os.devnull))
    root = logging.getLogger("attnlab")
    root.addHandler(QueueHandler(SimpleNamespace(put_nowait=pipe.send)))  # type: ignore[arg-type]
    root.setLevel(logging.WARNING)
    for config, _ in tests:
        load_sources(config.sources)
    pipe.send(_compute(tests, requested))


def compute_reference_scores(plan: Plan) -> list[ReferenceScore]:
    """Compute every reference score that the study requests, once for each of its tests."""
    requested = plan.study.reference_scores
    return [] if requested is False else _compute(_tests(plan), requested)


def _compute(tests: Sequence[Test], requested: bool | Collection[str]) -> list[ReferenceScore]:
    scores: dict[str, ReferenceScore] = {}
    for config, metric in tests:
        try:
            task = _task(config)
            references = task.reference_scores() if metric == task.metric else {}
        except Exception as error:  # any exception: the task may be the user's own
            logger.warning("reference scores of %s: %s", config.task.label, _why(error))
            continue
        for name, reference in references.items():
            if requested is True or name in requested:  # type: ignore[operator]
                score = _score(name, reference, config, task)
                if score is not None:
                    scores[score.tag] = score
    return list(scores.values())


def _tests(plan: Plan) -> list[Test]:
    """Return a configuration and the metric for each task and limit that the runs are tested on.

    There is none for runs that do not read `test`.
    """
    cells = [cell for cell in plan.cells if cell.refusal is None and cell.config.evaluate.test]
    tests = {(cell.config.task.label, cell.config.evaluate.test_limit): cell for cell in cells}
    return [(cell.config, plan.metric_of(cell)[0]) for cell in tests.values()]


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
        error.args = (INTERRUPTED,)
        raise
    except Exception as error:  # no memory, no scikit-learn, an error in a user's own method
        logger.warning("%s: %s", label, _why(error))
        return None
    test = (deciding.label, text_identity(config.data) or "", limit, task.metric)
    return ReferenceScore(name, *test, score.value, score.seconds, one_line(reference.about)[:500])


def _why(error: Exception) -> str:
    return f"none, {one_line(f'{type(error).__name__}: {error}')}"

"""Check a task against its contract."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from attnlab.errors import UserError
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.testing.contract import CheckResult, CheckResults, run_checks, select_checks, validate_options
from attnlab.testing.task_checks import TASK_CHECKS, TaskTarget


def check_task(
    task: str | type[Task],
    *,
    options: dict[str, Any] | None = None,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
    report: Callable[[CheckResult], None] | None = None,
) -> CheckResults:
    """Check a task against the contract of ``attnlab.tasks.Task``. Its data are fetched and prepared.

    Args:
        task: a registered name, a path as in a study (``file.py:Class``), or the class itself.
        options: keyword arguments of its constructor.
        only: names of checks (keys of ``TASK_CHECKS``). None: all.
        start: called with the name of each check before it runs.
        report: called with each result as soon as the check has finished.

    Returns:
        One result per check. If ``shapes`` fails, the remaining checks, which depend on it, are left out.

    Raises:
        UserError: a name is unknown, the constructor does not take the options, or the data are not available.

    Examples:
        >>> from attnlab.testing import check_task
        >>> [result.status for result in check_task("pydocs", options={"length": 24}, only=["targets", "exact bytes"])]
        ['passed', 'passed']
    """
    cls = TASKS.get(task) if isinstance(task, str) else task
    if not (isinstance(cls, type) and issubclass(cls, Task)):
        raise UserError(f"expected a subclass of attnlab.tasks.Task, got {getattr(cls, '__qualname__', cls)}")
    options = validate_options(cls, options or {})
    return run_checks(select_checks(TASK_CHECKS, only), TaskTarget(cls, options), start=start, report=report, classes=(cls,))

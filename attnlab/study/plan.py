"""Plan a study with what its record and this machine say: settings that `auto` leaves to the plan."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.progress import Progress, no_progress
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.planning.machine import AutoMachine, StepTime
    from attnlab.planning.plan import Plan


def plan(
    source: str | Path | dict[str, Any],
    *,
    sets: dict[str, Any] | None = None,
    only: dict[str, Any] | None = None,
    root: str | Path | None = None,
    progress: Progress = no_progress,
) -> Plan:
    """Read a study, resolve its cells and estimate their cost. Trains nothing and downloads nothing.

    Fields that are ``auto`` have the values of the study's recorded runs. Those of ``machine`` are otherwise measured on this
    machine, in a few seconds, once: the user's state folder keeps the measurement.

    Args:
        source: a YAML file, or its content as a dict.
        sets: dotted path -> value, over the base of the study.
        only: axis -> a value, several with commas between, or a list: the cells to keep.
        root: the folder of runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        progress: called with a label, the number of completed cells and their total.

    Raises:
        UserError: a mistake in the study, with ``file:line:column``.
    """
    from attnlab.planning.plan import plan as make_plan

    recorded = partial(_recorded_machine, root=root)
    return make_plan(source, sets=sets, only=only, progress=progress, recorded_machine=recorded, measure=_measure)


def _recorded_machine(name: str, *, root: str | Path | None) -> AutoMachine:
    """Return what the study recorded. If that is nothing, start the server that measurements are forked from.

    Its imports take seconds, most of which then pass while the plan traces its cells.
    """
    from attnlab._util.process import start_fork_server
    from attnlab.study.execution.job import PRELOAD
    from attnlab.study.record import recorded_machine

    recorded = recorded_machine(name, root=root)
    if not recorded:
        with suppress(UserError):  # this process may start none
            start_fork_server(PRELOAD)
    return recorded


def _measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> Sequence[Sequence[StepTime]] | None:
    from attnlab.study.execution.measurements import measure_steps

    return measure_steps(configs, paths)

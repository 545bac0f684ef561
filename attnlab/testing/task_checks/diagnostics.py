"""Diagnostics: the solution agrees with the targets, at every level, and no constant answer beats chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attnlab.errors import UserError
from attnlab.registry import check_options
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics.base import Diagnostic, level_label
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.task_checks.target import TaskTarget

ROWS = 200  # of a level whose commonest target is compared with chance
SOLVED = 20  # of these, rows that are solved
DEVIATIONS = 4  # standard errors by which a constant answer may be above chance


def solution(target: TaskTarget) -> str:
    """At every level there are rows, ``solve`` gives their targets, and no constant answer is above ``chance``."""
    cls = target.cls
    if not issubclass(cls, Diagnostic):
        raise NotDeclared("no diagnostic")
    for options in (target.options, *cls.levels):
        task, case = _build(cls, options), level_label(options)
        try:
            inputs, targets = task.rows("test", ROWS)
        except UserError as error:
            raise Failure(f"{case}: {error.message}", "Refuse such options in the constructor.") from error
        for row in range(SOLVED):
            _check_solution(task, inputs[row].tolist(), targets[row], f"{case}, row {row} of test")
        _check_chance(task, inputs, targets, case)
    return f"{1 + len(cls.levels)} sizes: solve() gives the targets, chance {target.construct().chance():.3g}"  # type: ignore[attr-defined]


def _build(cls: type[Diagnostic], options: Mapping[str, Any]) -> Diagnostic:
    try:
        check_options(cls, dict(options), what=cls.__name__)
        return cls(**options)
    except UserError as error:
        raise Failure(f"level {level_label(options)}: {error.message}", "`levels` are options of the constructor.") from error


def _check_solution(task: Diagnostic, inputs: list[int], targets: np.ndarray, case: str) -> None:
    """Raise ``Failure`` unless the solution of a row has its targets."""
    solved = task.solve(inputs)
    if len(solved) != len(inputs):
        raise Failure(f"{case}: solve() returns {len(solved)} numbers", f"Return one for each of the {len(inputs)} inputs.")
    for position in np.flatnonzero(targets != IGNORED):
        if solved[position] != targets[position]:
            raise Failure(
                f"{case}, position {position}: solve() returns {solved[position]}, the target is {targets[position]}",
                "draw() and solve() define the same targets; the second one from the inputs alone.",
            )


def _check_chance(task: Diagnostic, inputs: np.ndarray, targets: np.ndarray, case: str) -> None:
    """Raise ``Failure`` if the commonest target is above chance by more than the rows of the test explain."""
    chance = task.chance()
    if not 0 <= chance < 1:
        raise Failure(f"{case}: chance() is {chance:g}", "Return the accuracy of the best guess, from 0 to 1.")
    _, first = np.unique(inputs, axis=0, return_index=True)
    scored = targets[first][targets[first] != IGNORED]
    token, share = int(np.bincount(scored).argmax()), float(np.bincount(scored).max() / len(scored))
    if share > chance + DEVIATIONS * (max(chance, 1 / len(first)) / len(first)) ** 0.5:
        raise Failure(
            f"{case}: the answer {token} alone has an accuracy of {share:.3g}, chance() is {chance:.3g}",
            "chance() is the best accuracy without the ability, at least that of the commonest target.",
        )


CHECKS = (Check("solution", solution),)

"""The diagnostics of a profile, with their levels and the length of training."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attnlab.errors import UserError
from attnlab.registry import TASKS, check_options
from attnlab.tasks import SPLITS
from attnlab.tasks.diagnostics.base import Diagnostic, level_label

STOP_AT = 0.995  # accuracy on valid
THRESHOLD = 0.9  # of a diagnostic that is not judged by a solve rate elsewhere


@dataclass(frozen=True)
class Ability:
    """A diagnostic with levels of increasing difficulty.

    Attributes:
        task: A name, ``file.py:Class`` or ``package.module:Class``.
        levels: The options of each level.
        steps: Maximum number of training steps of a run, which may end when it has solved its level.
    """

    task: str
    levels: tuple[Mapping[str, Any], ...]
    steps: int = Diagnostic.steps

    @property
    def cls(self) -> Any:
        """The class of the task."""
        return TASKS.get(self.task)

    @property
    def name(self) -> str:
        """The name of the task, of a path that of its class."""
        return self.task.rpartition(":")[2]

    @property
    def threshold(self) -> float:
        """The score that solves the task."""
        return THRESHOLD if self.cls.threshold is None else float(self.cls.threshold)

    @property
    def stop_at(self) -> float | None:
        """The score on ``valid`` at which a run stops, because it has solved its level; None: it never stops early."""
        return max(STOP_AT, self.threshold) if self.cls.metric == "accuracy" else None

    @property
    def about(self) -> str:
        """The first line of the documentation of the task."""
        return (inspect.getdoc(self.cls) or "").partition("\n")[0].replace("``", "`")

    @property
    def level_names(self) -> list[str]:
        """The names of the levels in a study, such as ``pairs-8-length-64``."""
        return ["-".join(f"{option}-{value}" for option, value in level.items()) or "default" for level in self.levels]


# Sizes at which a run takes seconds in one thread, smaller than the levels of the tasks themselves.
ABILITIES = (
    Ability(
        "mqar", ({"pairs": 2, "length": 8, "keys": 8}, {"pairs": 4, "length": 16, "keys": 16}, {"pairs": 8, "length": 32}), 700
    ),
    Ability("induction", ({"length": 16}, {"length": 32}, {"length": 64}), 300),
    Ability("selective_copy", ({"tokens": 4, "length": 16}, {"tokens": 4, "length": 32}, {"tokens": 8, "length": 32}), 500),
    Ability("copy", ({"length": 8}, {"length": 16}, {"length": 32}), 400),
    Ability("compression", ({"tokens": 4}, {"tokens": 8}, {"tokens": 16}), 400),
    Ability("memorisation", tuple({"keys": keys, "length": 16} for keys in (64, 256, 1024)), 400),
    Ability("parity", ({"length": 12}, {"length": 24}, {"length": 48}), 400),
    Ability("group", tuple({"group": "s3", "length": length} for length in (4, 8, 16)), 400),
    Ability("addition", ({"length": 8}, {"length": 11}, {"length": 14}), 1_200),
    Ability("flip_flop", ({"length": 16}, {"length": 32}, {"length": 64, "ignore": 0.9}), 300),
)
QUICK = ("mqar", "parity")
QUICK_LEVELS = 2


def select_abilities(tasks: Sequence[str] | None = None, *, quick: bool = False) -> list[Ability]:
    """Return the abilities of a profile.

    Args:
        tasks: The diagnostics; None: the profile's diagnostics. One that is not among them has its own levels.
        quick: Instead of ``tasks``: two diagnostics, at their first two levels.

    Raises:
        UserError: both arguments, a task that does not exist, or one that is no diagnostic with levels.
    """
    known = {ability.task: ability for ability in ABILITIES}
    if quick:
        if tasks is not None:
            raise UserError(f"expected either a quick profile or tasks, got both: {', '.join(tasks)}", "tasks")
        return [replace(known[task], levels=known[task].levels[:QUICK_LEVELS]) for task in QUICK]
    return [known.get(task) or _own_levels(task) for task in dict.fromkeys(known if tasks is None else tasks)]


def _own_levels(task: str) -> Ability:
    cls = TASKS.get(task)
    if not issubclass(cls, Diagnostic) or not cls.levels:
        names = ", ".join(ability.task for ability in ABILITIES)
        raise UserError(f"expected diagnostics with levels, such as {names}, got {task!r}", "tasks")
    for level in cls.levels:
        _require_rows(cls, level, task=task)
    return Ability(task, cls.levels, cls.steps)


def _require_rows(cls: type[Diagnostic], level: Mapping[str, Any], *, task: str) -> None:
    """Raise ``UserError`` for a level that cannot be trained, before the levels before it are."""
    try:
        check_options(cls, dict(level), what=cls.__name__)
        built = cls(**level)
        for split in SPLITS:
            built.rows(split, 1)
    except UserError as error:
        raise UserError(f"{task}, level {level_label(level)}: {error.message}", "tasks") from error

"""The instructions of one run for the process that trains it."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from attnlab._util.run_state import Reset
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig

TRAIN = "attnlab.training.train:train"
PRELOAD = "attnlab.study.execution.preload"
PRELOAD_OF_COMMANDS = "attnlab.study.execution.child"  # without torch, whose memory would count as the program's


@dataclass(frozen=True, kw_only=True)
class Job:
    """The instructions for a child process.

    Args:
        settings: the configuration of attnlab's training, or of a program.
        folder: for checkpoints and the child's output (``log.txt``).
        metric: by which the study compares its cells.
        threads: CPU threads, where the configuration leaves their number open.
        figures: the costs of the model as the plan traced them; None: the run traces them itself.
        train: ``"module:function"``, called as ``function(config, report=..., folder=...)``; not of a program. attnlab's own
            also gets the ``figures``.
        pruning_metric: the curve by which a trial is judged; after each of its points the child waits for an answer.
        memory_limit: in bytes; None for no limit.
        reset: the files of an earlier attempt that are removed from the folder before training.
        environment: the environment variables of the child.
    """

    settings: RunConfig | CommandConfig
    folder: Path
    metric: str = ""
    threads: int = 1
    figures: dict[str, int] | None = None
    train: str = TRAIN
    pruning_metric: str | None = None
    memory_limit: int | None = None
    reset: Reset = Reset.NONE
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def preload(self) -> str:
        """The module that the server of the run's process has imported."""
        return PRELOAD_OF_COMMANDS if isinstance(self.settings, CommandConfig) else PRELOAD

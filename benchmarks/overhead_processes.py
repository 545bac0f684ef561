"""The processes that ``overhead`` times: ``python -m benchmarks.overhead_processes bare|starts STUDY.yaml MARKS.jsonl``.

The server that runs are forked from preloads this module, which records the start time and modules of each forked process.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

_process_start: dict[str, Any] = {}


def _record_start() -> None:
    _process_start.update(at=time.monotonic(), modules=frozenset(sys.modules))


os.register_at_fork(after_in_child=_record_start)


def bare(study: Path, marks: Path) -> None:
    """Train the study's runs one after the other in this process, without records, logs or checkpoints."""
    import attnlab
    from attnlab.training.train import train as train_one

    for run in attnlab.plan(study).runs:
        began = time.monotonic()
        train_one(run.config)
        _write(marks, seconds=time.monotonic() - began)


def starts(study: Path, marks: Path) -> None:
    """Run the study with ``attnlab.run``; record each run's request, process start and first step."""
    import attnlab
    from attnlab.study.execution.child import Worker
    from attnlab.study.execution.job import Job
    from attnlab.study.execution.progress import ProgressDisplay

    def start(job: Job) -> Worker:
        _write(marks, key=job.folder.name, asked=time.monotonic())
        return Worker(job)

    os.environ["OVERHEAD_MARKS"] = str(marks)
    preload = "benchmarks.overhead_preload"
    with (
        patch("attnlab.study.execution.job.PRELOAD", preload),
        patch("attnlab.study.run.PRELOAD", preload),
        patch("attnlab.study.execution.runner.Worker", start),
    ):
        attnlab.run(
            study,
            workers=1,
            display=ProgressDisplay(quiet=True),
            reference_scores=False,
            train="benchmarks.overhead_processes:train",
        )


def train(config: Any, *, report: Any, folder: Path) -> Any:
    """Call ``attnlab.training.train.train`` in a run's process and record the time of the first step.

    ``torch_again`` lists the modules of torch that this process itself imported, including ``torch`` if it did.
    """
    from attnlab.training import trainer
    from attnlab.training.train import train as train_one

    def fit(self: trainer.Trainer, fit_original: Callable[[trainer.Trainer], Any] = trainer.Trainer.fit) -> Any:
        new = sorted(name for name in sys.modules.keys() - _process_start["modules"] if name.partition(".")[0] == "torch")
        path = Path(os.environ["OVERHEAD_MARKS"])
        _write(path, key=folder.name, born=_process_start["at"], steps=time.monotonic(), torch_again=new)
        return fit_original(self)

    with patch.object(trainer.Trainer, "fit", fit):
        return train_one(config, report=report, folder=folder)


def _write(marks: Path, **mark: Any) -> None:
    with marks.open("a", encoding="utf-8") as file:
        file.write(json.dumps(mark) + "\n")


if __name__ == "__main__":
    {"bare": bare, "starts": starts}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))

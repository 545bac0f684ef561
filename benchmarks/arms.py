"""What ``overhead`` times, each in a fresh process: ``python -m benchmarks.arms bare|starts STUDY.yaml MARKS.jsonl``.

It is also preloaded into the server that runs are forked from, and notes there what a run's process is born with.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

_born: dict[str, Any] = {}


def _note_birth() -> None:
    _born.update(at=time.monotonic(), modules=frozenset(sys.modules))


os.register_at_fork(after_in_child=_note_birth)


def bare(study: Path, marks: Path) -> None:
    """The study's runs one after the other in this process: nothing is kept, logged or resumed."""
    import attnlab
    from attnlab.training.train import train as train_one

    for run in attnlab.plan(study).runs:
        began = time.monotonic()
        train_one(run.config)
        _write(marks, seconds=time.monotonic() - began)


def starts(study: Path, marks: Path) -> None:
    """The study by ``attnlab.run``, each run noting when it was asked for, when its process was there and when it steps."""
    import attnlab
    from attnlab.study.execution import runner, worker
    from attnlab.study.execution.progress import ProgressDisplay

    def start(job: worker.Job) -> worker.Worker:
        _write(marks, key=job.folder.name, asked=time.monotonic())
        return worker.start(job)

    os.environ["OVERHEAD_MARKS"] = str(marks)
    with patch.object(worker, "PRELOAD", [*worker.PRELOAD, "benchmarks.arms"]), patch.object(runner, "start", start):
        attnlab.run(study, display=ProgressDisplay(quiet=True), reference_scores=False, train="benchmarks.arms:train")


def train(config: Any, *, report: Any, folder: Path) -> Any:
    """``attnlab.training.train.train`` in a run's process, which notes when it takes its first step.

    ``torch_again`` lists the modules of torch that this process imported itself, ``torch`` among them if it did that.
    """
    from attnlab.training import trainer
    from attnlab.training.train import train as train_one

    def fit(self: trainer.Trainer, go_on: Callable[[trainer.Trainer], Any] = trainer.Trainer.fit) -> Any:
        new = sorted(name for name in sys.modules.keys() - _born["modules"] if name.partition(".")[0] == "torch")
        path = Path(os.environ["OVERHEAD_MARKS"])
        _write(path, key=folder.name, born=_born["at"], steps=time.monotonic(), torch_again=new)
        return go_on(self)

    with patch.object(trainer.Trainer, "fit", fit):
        return train_one(config, report=report, folder=folder)


def _write(marks: Path, **what: Any) -> None:
    with marks.open("a") as file:
        file.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    {"bare": bare, "starts": starts}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))

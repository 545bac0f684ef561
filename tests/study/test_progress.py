"""Test that the progress of a study counts the runs of all its parents."""

import io
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import run
from tests.study.test_study import study
from tests.support.postgres import Server


def test_the_progress_counts_the_runs_of_other_parents(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first parent has trained one run of six, a second one trains two and is interrupted."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", postgres.store())
    storage, outputs = postgres.database(), (io.StringIO(), io.StringIO())

    def parent(display: ProgressDisplay) -> None:
        definition = study(grid={"variant": ["dense", "no_wo"]}, seeds=[0, 1, 2])
        options: dict[str, Any] = {"storage": storage, "train": "tests.support.study_fakes:good", "reference_scores": False}
        run(definition, root=tmp_path, display=display, **options)

    class Second(ProgressDisplay):
        ended = 0

        def end_run(self, *args: Any, **options: Any) -> None:
            super().end_run(*args, **options)
            self.ended += 1

        def start_run(self, name: str, *, total: int | None = None) -> None:
            if self.ended == 2:
                raise KeyboardInterrupt
            super().start_run(name, total=total)

    class First(ProgressDisplay):
        def end_run(self, *args: Any, **options: Any) -> None:
            super().end_run(*args, **options)
            if not outputs[1].getvalue():
                with pytest.raises(KeyboardInterrupt):
                    parent(Second(outputs[1]))

    parent(First(outputs[0]))
    counts = [re.findall(r"\[(\d)/6\] .*: completed", output.getvalue()) for output in outputs]
    assert counts == [["1", "4", "5", "6"], ["2", "3"]]

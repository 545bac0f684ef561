"""A test of a sweep with real training, from its file to its table: a study that is killed in its extension resumes."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.tracking.runs import load_runs
from tests.support.empty_store import copy_store
from tests.support.paths import ROOT
from tests.support.processes import MARK, Marked

STUDY = """\
study: swept
base:
  task: {name: pydocs, length: 8}
  position: none
  model: {dim: 4, depth: 1, heads: 1}
  train: {steps: 4, batch_size: 1}
  evaluate: {valid_limit: 100, test_limit: 100}
  machine: {device: cpu, threads: 1}
grid:
  variant: [dense, no_wo]
sweep: {train.lr: [1e-3, 1e-2, 0.1], extensions: 1}
seeds: [0, 1]
baseline: {variant: dense}
reference_scores: false
"""
RUN = ["run", "swept.yaml", "--no-report", "--workers", "2"]
EXTENDED = "sweep: train.lr 1.0 added, 4 more runs"  # with four steps, 0.1 is the best learning rate


Finished = tuple[list[list[str]], dict[str, Any]]


def start(folder: Path, root: Path) -> "subprocess.Popen[str]":
    """Run the study in a process of its own, which is killed with all its children."""
    words = [sys.executable, "-m", "attnlab", *RUN]
    environment = os.environ | {"ATTNLAB_RUNS": str(root), "PYTHONPATH": str(ROOT), MARK: str(folder)}
    return subprocess.Popen(
        words, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def killed_in_the_extension(folder: Path, root: Path) -> None:
    """Start the study, and kill it when the second run of its extension has started."""
    process, started = start(folder, root), 0
    assert process.stdout is not None
    extended = False
    for line in process.stdout:
        extended |= EXTENDED in line
        started += extended and line.rstrip().endswith("started")
        if started == 2:
            break
    Marked(str(folder)).kill_all()
    process.communicate()
    assert process.returncode == -signal.SIGKILL and extended and started == 2


def finished(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Finished:
    """Run the study to its end in this process; return the rows of its table, and the scores of its runs by name."""
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    assert main.main(RUN) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("swept: bits_per_byte"))
    heading = next(line for line in lines[first + 1 :] if line.startswith("cell "))
    measured = len(heading.partition("tokens/s")[0])  # the columns from here on differ between any two studies
    table = [line[:measured].split() for line in lines[first:] if line.startswith(("dense", "no_wo"))]
    runs = load_runs("swept", root).to_dict("records")
    assert {run["state"] for run in runs} == {"completed"} and {run["phase"] for run in runs} == {"sweep"}
    return table, {run["name"]: (run["params"], run["bits_per_byte"], run["valid_bits_per_byte"]) for run in runs}


def test_a_study_that_is_killed_in_its_extension_resumes_to_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "swept.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    roots = [copy_store(tmp_path / name) for name in ("undisturbed", "killed")]
    killed_in_the_extension(tmp_path, roots[1])
    undisturbed, resumed = (finished(root, monkeypatch, capsys) for root in roots)
    assert resumed == undisturbed
    table, runs = resumed
    rates = (1e-3, 1e-2, 0.1, 1.0)
    names = {f"{cell} lr={rate} s{seed}" for cell in ("dense", "no_wo") for rate in rates for seed in (0, 1)}
    assert runs.keys() == names and [cells[0] for cells in table] == ["dense", "no_wo"]

"""Tests that the commands of a page make the page again."""

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml

from attnlab import load_runs
from attnlab.cli import main
from attnlab.report.methods import StudyInfo, load_study_info, needed_calls, reproduction
from attnlab.report.write import write_report as report
from attnlab.stats.sequential import Looks
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.calls import Call
from tests.study.test_study import QUIET, study
from tests.support.empty_store import copy_store
from tests.support.paths import ROOT
from tests.support.specs import changed
from tests.support.synthetic import INFO

STUDY = """\
study: tiny
base:
  task: {name: pydocs, length: 16}
  model: {dim: 8, depth: 1, heads: 2}
  train: {steps: 4, batch_size: 2}
  evaluate: {valid_limit: 200, test_limit: 200}
  machine: {device: cpu}
grid:
  variant: [dense, basic]
seeds: [0, 1, 2]
baseline: {variant: dense}
reference_scores: false
"""


def _go(root: Path, **changes: Any) -> StudyResult:
    return run(study(**changes), root=root, display=QUIET, train="tests.support.study_fakes:settling")


def _info(*calls: Call, **changes: Any) -> StudyInfo:
    return replace(INFO, calls=calls, **changes)


RUN = Call("attnlab run a/x.yaml --set seeds=[0,1]", "x.yaml", "study: x\n", time=1_000)
LATER = replace(RUN, command="attnlab run a/x.yaml", time=5_000)
STARTED = [{"started": pandas.Timestamp(seconds, unit="s", tz="UTC")} for seconds in (2, 6)]


def test_the_last_call_suffices_unless_the_page_depends_on_earlier_ones() -> None:
    assert needed_calls(_info(RUN, LATER), STARTED) == [LATER]
    assert needed_calls(_info(RUN, replace(LATER, partial=True)), STARTED)[0] == RUN
    looks = changed(INFO.spec, looks=Looks(2, 4))
    in_python = replace(RUN, command=f"{RUN.command} --until-conclusive --max-seeds 4")
    assert needed_calls(_info(RUN, LATER, spec=looks), STARTED) == [in_python]
    adaptive = replace(LATER, command=f"{LATER.command} --until-conclusive")
    assert needed_calls(_info(RUN, adaptive, spec=looks), STARTED) == [adaptive]
    assert needed_calls(_info(adaptive, LATER, spec=looks), STARTED) == [adaptive, LATER]
    auto = replace(LATER, text="study: x\nseeds: auto\n")
    assert needed_calls(_info(RUN, auto, spec=looks), STARTED) == [auto]
    assert needed_calls(_info(replace(RUN, time=0), RUN, replace(LATER, partial=True)), STARTED) == [
        RUN,
        replace(LATER, partial=True),
    ]


def test_commands_have_no_path_of_one_machine_and_no_shared_queue() -> None:
    call = replace(RUN, command="attnlab run /home/someone/x.yaml --storage '***' --workers 2 --storage=b")
    made = reproduction(_info(call), [])
    assert list(made.commands) == ["attnlab run x.yaml --workers 2", f"attnlab report {INFO.spec.study}"]
    assert "cat > x.yaml <<" in made.script and "/home" not in made.script
    assert "mkdir -p a\ncat > a/x.yaml" in reproduction(_info(RUN), []).script


def test_several_study_files_are_numbered() -> None:
    made = reproduction(_info(RUN, replace(LATER, text="study: y\n", partial=True)), STARTED)
    assert [text for _, text in made.files] == ["study: x", "study: y"]
    assert [line.partition("#")[2] for line in made.commands] == [" with study file 1", " with study file 2", ""]
    assert made.script.count("cat > a/x.yaml") == 2


def test_the_file_of_a_run_from_a_dictionary_has_its_assignments(root: Path) -> None:
    run(study(), sets={"train.lr": 0.125, "seeds": [7]}, root=root, display=QUIET, train="tests.support.study_fakes:good")
    info = load_study_info(load_runs("small", root), root=root)
    assert "lr: 0.125" in info.yaml and "- 7" in info.yaml and info.calls[0].command == "attnlab run small.yaml"


def test_the_command_line_may_name_the_study(root: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(study()))
    named = {"sets": {"study": "other"}, "root": root}
    run(tmp_path / "small.yaml", **named, display=QUIET, train="tests.support.study_fakes:good")
    page = (report("other", root, tmp_path / "page") / "README.md").read_text()
    assert page.startswith("# other\n") and "attnlab report other" in page


def test_the_commands_of_a_page_make_the_page_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    (first / "my studies").mkdir(parents=True)
    copy_store(again / "runs")
    file = first / "my studies" / "tiny.yaml"
    run_file = ["run", str(file.relative_to(first)), "--set", "train.lr=0.01"]
    monkeypatch.chdir(first)
    monkeypatch.delenv("ATTNLAB_RUNS")
    monkeypatch.setattr("sys.argv", ["attnlab", *run_file])  # the page quotes the command
    file.write_text(STUDY)
    assert main.main(run_file) == 0
    file.write_text(STUDY.replace("[0, 1, 2]", "[0, 2]"))
    assert main.main(run_file) == 0

    page = (first / "runs/reports/tiny/README.md").read_text()
    commands = re.search(r"## Reproduction\n\n```\n(.*?)\n```", page, re.DOTALL)
    assert commands is not None
    script = (first / "runs/reports/tiny/reproduce.sh").read_text()
    assert [line.partition("   #")[0] for line in commands[1].splitlines()] == [
        line for line in script.splitlines() if line.startswith("attnlab ")
    ]
    _shell(again, script)
    tables = [_table(folder / "runs/reports/tiny/cells.csv") for folder in (first, again)]
    assert tables[0] == tables[1] and len(tables[0]) == 2 and tables[0][1]["n"] == "2"


def _shell(folder: Path, script: str) -> None:
    bin_folder = folder.parent / "bin"
    bin_folder.mkdir()
    (bin_folder / "attnlab").write_text(f'#!/bin/sh\nexec {sys.executable} -m attnlab "$@"\n')
    (bin_folder / "attnlab").chmod(0o755)
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    subprocess.run(["sh", "-c", script], cwd=folder, env=environment, check=True, capture_output=True)


def _table(path: Path) -> list[dict[str, str]]:
    measured = ("tokens_per_s", "host_peak_mib", "gpu_peak_mib", "train_seconds", "seconds")
    return [{k: v for k, v in row.items() if k not in measured} for row in csv.DictReader(path.open(encoding="utf-8"))]

"""Tests that the commands of a page make the page again."""

import csv
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from attnlab.cli import main
from attnlab.report.methods import reproduction
from attnlab.report.write import write_report as report
from attnlab.study.comparison import load_info
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.tracking.experiment import Call
from tests.study.test_study import QUIET, study
from tests.support.empty_store import copy_store
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


RUN = Call("attnlab run a/x.yaml --set 'seeds=[0,1]'", "x.yaml", "study: x\n")


def test_the_commands_are_those_of_all_calls_and_the_file_is_the_last_ones() -> None:
    later = Call("attnlab run a/x.yaml --only variant=dense", "x.yaml", "study: x\nmargin: 1\n")
    made = reproduction(replace(INFO, calls=(RUN, later, RUN, later)), [])
    assert list(made.commands) == [RUN.command, later.command, f"attnlab report {INFO.spec.study}"]
    assert (made.file, made.text) == ("x.yaml", "study: x\nmargin: 1")
    made = reproduction(replace(INFO, calls=(), command="attnlab run x.yaml", yaml="study: x\n"), [])
    assert made.commands[0] == "attnlab run x.yaml" and made.text == "study: x"


def test_commands_have_no_path_of_one_machine_and_no_shared_queue() -> None:
    call = replace(RUN, command="attnlab run /home/someone/x.yaml --storage '***' --workers 2 --storage=b")
    made = reproduction(replace(INFO, calls=(call,)), [])
    assert list(made.commands) == ["attnlab run x.yaml --workers 2", f"attnlab report {INFO.spec.study}"]


def test_the_file_of_a_run_from_a_dictionary_has_its_assignments(root: Path) -> None:
    run(study(), sets={"train.lr": 0.125, "seeds": [7]}, root=root, display=QUIET, train="tests.support.study_fakes:good")
    info = load_info("small", root)[0]
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
    (again / "my studies").mkdir()
    (again / "my studies" / "tiny.yaml").write_text(file.read_text())
    monkeypatch.chdir(again)
    for line in commands[1].splitlines():
        if line.startswith("attnlab "):
            monkeypatch.setattr("sys.argv", shlex.split(line))
            assert main.main(sys.argv[1:]) == 0
    tables = [_table(folder / "runs/reports/tiny/cells.csv") for folder in (first, again)]
    assert tables[0] == tables[1] and len(tables[0]) == 2 and tables[0][1]["n"] == "2"


def _table(path: Path) -> list[dict[str, str]]:
    measured = ("tokens_per_s", "host_peak_mib", "gpu_peak_mib", "train_seconds", "seconds")
    return [{k: v for k, v in row.items() if k not in measured} for row in csv.DictReader(path.open(encoding="utf-8"))]

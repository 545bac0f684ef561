"""With `--json`, standard output is one object: what the tables say, from the same records."""

import json
import math
import os
import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.cli._json import exit_code, study_answer
from attnlab.cli.list import HEADINGS
from attnlab.cli.main import main
from attnlab.config.question import EstimandConfig
from attnlab.config.run import RunConfig
from attnlab.report.conclusion import verdict_rows
from attnlab.stats.compared import compare_cells
from attnlab.study.run import run
from attnlab.tracking.relocation import relocate_artifacts
from attnlab.tracking.tags import to_yaml
from attnlab.training.train import Result
from tests.report.test_factorial import SPEC
from tests.report.test_factorial import runs as factorial_runs
from tests.study.test_study import QUIET, study
from tests.support.empty_store import copy_store
from tests.support.specs import comparison_spec
from tests.support.study_fakes import settling

QUICK = ("--no-check", "--no-report", "--no-reference-scores")
Out = pytest.CaptureFixture[str]
GRID = {"variant": ["dense", "no_wo", "narrow", "wide"], "position": ["learned"]}
SKIP = [{"where": {"variant": "wide"}, "because": "too few"}]
CONFIG = study(grid=GRID, skip=SKIP, seeds=[0, 1, 2, 3], baseline={"variant": "dense"}, margin=0.2, question="Why?")


def settling_at_a_cost(config: RunConfig, **options: Any) -> Result:
    result = settling(config, **options)
    return replace(result, summary={**result.summary, "train_seconds": 4.0})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_store(tmp_path_factory.mktemp("json") / "runs")
    run(CONFIG, root=folder, display=QUIET, train=f"{__name__}:settling_at_a_cost", reference_scores=False)
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study, which was run and not looked at."""
    relocate_artifacts(Path(shutil.copytree(trained, tmp_path / "runs")), writable=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", "runs")
    monkeypatch.setattr("attnlab.study.run.run", partial(run, display=QUIET, train=f"{__name__}:settling_at_a_cost"))
    (tmp_path / "small.yaml").write_text(to_yaml(CONFIG))
    return tmp_path


def call(capsys: Out, *words: str, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_an_answer_has_the_verdicts_costs_and_what_was_left_out(here: Path, capsys: Out) -> None:
    answer = call(capsys, "run", "small.yaml", *QUICK)
    assert (answer["study"], answer["question"]) == ("small", "Why?")
    assert answer["skipped"] == [{"cell": "wide learned", "because": "too few"}]
    assert answer["runs"] == {"completed": 12} and answer["failed"] == [] == answer["notes"]
    frame = attnlab.verdicts("small")
    assert len(answer["cells"]) == len(frame) == 3
    for row, expected in zip(answer["cells"], frame.to_dict("records"), strict=True):
        same = {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in expected.items()}
        assert {name: row[name] for name in same} == same
        assert (row["metric"], row["direction"], row["estimand"], row["task"]) == ("bits_per_byte", "min", "mean", "")
        assert row["costs"]["train_seconds"] == 4
    verdicts = {row["cell"]: row["verdict"] for row in answer["cells"]}
    assert verdicts["dense learned"] == "" and "worse" in verdicts.values()
    again = call(capsys, "verdict", "small")
    assert [row["difference"] for row in again["cells"]] == [row["difference"] for row in answer["cells"]]


def test_a_script_can_ask_whether_all_cells_are_better(here: Path, capsys: Out) -> None:
    """Cells of earlier calls do not count."""
    words = ["run", "small.yaml", *QUICK, "--only", "position=learned", "--set", "baseline={variant: no_wo}"]
    assert main([*words, "--only", "variant=no_wo,narrow", "--exit-verdict"]) == 0
    grid = {"variant": ["dense", "no_wo", "narrow", {"name": "no_wo", "with": "gate"}], "position": ["learned"]}
    config = {**CONFIG, "grid": grid, "skip": []}
    Path("small.yaml").write_text(to_yaml(config), encoding="utf-8")
    answer = call(capsys, *words, "--only", "variant=no_wo,no_wo with gate", "--exit-verdict", code=10)
    verdicts = {row["cell"]: row["verdict"] for row in answer["cells"]}
    assert verdicts["narrow learned"] == "better" != verdicts["no_wo with gate learned"]
    assert main(words) == 0, "without the option, an answer of any kind is a success"
    assert main(["verdict", "small", "--exit-verdict"]) == 10
    assert main(["run", "small.yaml", "--exit-verdict", "--set", "baseline=null"]) == 2


def test_a_control_need_not_be_better() -> None:
    spec = comparison_spec("s", ["variant"], "loss", "min", baseline={"variant": "a"}, control={"variant": "c"})
    shifts = {"a": 0.0, "b": -1.0, "c": 1.0}
    runs = [
        {
            "cell": name,
            "variant": name,
            "state": "completed",
            "seed": seed,
            "loss": seed + shift + 0.01 * (seed * 7 % 4) * shift,
        }
        for name, shift in shifts.items()
        for seed in range(5)
    ]
    compared = compare_cells(runs, spec)
    assert [(row["verdict"], row["control"]) for row in verdict_rows(compared)] == [
        ("", False),
        ("better", False),
        ("worse", True),
    ]
    assert exit_code(Namespace(exit_verdict=True), compared) == 0
    assert exit_code(Namespace(exit_verdict=True), compared, {"c"}) == 10, "nothing else is compared"


def test_effects_and_solve_rates_say_what_they_are() -> None:
    answer = study_answer(compare_cells(factorial_runs().to_dict("records"), SPEC), [])
    row = next(row for row in answer["effects"] if row["effect"] == "rotary instead of learned")
    assert row["verdict"] == "better" and row["low"] < row["difference"] < row["high"] < 0
    runs = [{"cell": "a", "variant": "a", "state": "completed", "seed": seed, "loss": 2.0} for seed in range(5)]
    rate = EstimandConfig(name="solve_rate", threshold=3)
    (cell,) = verdict_rows(compare_cells(runs, comparison_spec("s", ["variant"], "loss", "min", estimand=rate)))
    assert (cell["estimand"], cell["metric"], cell["direction"], cell["value"]) == ("solve_rate", "loss", "max", 1)


def test_only_the_object_is_on_standard_output(here: Path) -> None:
    """Not what other code writes, nor a character that the locale cannot encode."""
    Path("noisy.py").write_text("import os\nos.write(1, b'raw')\nprint('printed')\n", encoding="utf-8")
    command = [sys.executable, "-m", "attnlab", "list", "--imports", "noisy.py", "--json"]
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout)["kinds"] and b"raw" in done.stderr and b"printed" in done.stderr


def test_a_plan_has_costs_and_refusals(here: Path, capsys: Out) -> None:
    answer = call(capsys, "plan", "small.yaml", "--set", "model.heads=3", "--set", "model.dim=9")
    assert answer["planned_runs"] == 12 and [cell["cell"] for cell in answer["cells"]][0] == "dense learned"
    assert answer["cells"][0]["axes"] == {"variant": "dense", "position": "learned"}
    assert all(cell["parameters"] > 0 and cell["refused"] is None for cell in answer["cells"])
    refused = {**CONFIG, "grid": {"variant": ["dense", "none"], "position": ["rotary"]}, "skip": [], "study": "odd"}
    Path("odd.yaml").write_text(to_yaml(refused), encoding="utf-8")
    cells = call(capsys, "plan", "odd.yaml", "--set", "model.dim=6")["cells"]
    assert [bool(cell["refused"]) for cell in cells] == [True, False] and "rotary" in cells[0]["refused"]


def test_lists_and_checks_are_objects(here: Path, capsys: Out) -> None:
    for kind, headings in HEADINGS.items():
        assert all(list(row) == headings.split(", ") for row in call(capsys, "list", kind)[kind])
    assert {row["kind"] for row in call(capsys, "list")["kinds"]} == {*HEADINGS, "backends"}
    checked = call(capsys, "check", "no_wo", "--only", "shapes")
    assert checked["name"] == "no_wo" and [one["status"] for one in checked["checks"]] == ["passed"]


def test_an_error_leaves_standard_output_empty(here: Path, capsys: Out) -> None:
    assert main(["verdict", "smal", "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("attnlab: ") and shown.err.count("\n") == 1

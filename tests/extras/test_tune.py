"""Tests of ``attnlab tune``: it measures training steps of a study, and prints lines that the study reads."""

import json
from pathlib import Path

import pytest
import yaml

from attnlab.cli import main
from attnlab.config.reader import read_study
from attnlab.extras import tune

STUDY = {
    "study": "s",
    "base": {
        "task": {"name": "pydocs", "length": 16},
        "model": {"dim": 16, "depth": 1, "heads": 2},
        "train": {"steps": 5},
        "machine": {"device": "cpu"},
    },
    "grid": {"variant": ["dense"]},
}


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ({("fp32", 1): 1.0, ("fp32", 2): 1.8, ("bf16", 1): 1.2, ("bf16", 2): 1.85}, ("fp32", 2)),  # bf16 gains 3 %
        ({("fp32", 1): 1.0, ("fp32", 2): 1.8, ("bf16", 2): 3.0}, ("bf16", 2)),
        ({("fp32", 1): 1.0, ("fp32", 2): 0.9}, ("fp32", 1)),
    ],
)
def test_the_simplest_of_the_fastest_settings_is_chosen(rates: dict[tuple[str, int], float], chosen: tuple[str, int]) -> None:
    assert tune.fastest(rates) == chosen


def test_the_printed_lines_are_lines_of_a_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text(json.dumps(STUDY))
    monkeypatch.setattr(tune, "steps_per_second", lambda config, workers: 10.0 * workers)
    assert main.main(["tune", str(tmp_path / "s.yaml")]) == 0
    lines = capsys.readouterr().out.partition("base:")[2].partition("\n\n")[0]
    sets = yaml.safe_load(f"base:{lines}")["base"]
    read_study({**STUDY, "base": {**STUDY["base"], **sets}})  # type: ignore[dict-item]
    assert not (tmp_path / "runs").exists()


def test_steps_are_measured_in_processes() -> None:
    from attnlab.planning.plan import plan

    config = plan(STUDY).cells[0].config
    rate = tune.steps_per_second(config.replace({"machine.threads": 1}), 2, seconds=0.05)
    assert rate is not None and rate > 0

"""Tests of margins, thresholds and stop_at against the range of the metric."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.planning.plan import plan

BITS, SHARE = {"name": "pydocs", "length": 24}, {"name": "parity", "length": 24}
COMMAND = {"study": "s", "command": "python -c pass {kind} {seed}", "grid": {"kind": ["a", "b"]}, "baseline": {"kind": "a"}}


def notes_of(task: dict[str, Any], train: dict[str, Any] | None = None, **parts: Any) -> list[str]:
    model = {"dim": 12, "depth": 1, "heads": 2}
    base = {"task": task, "model": model, "train": {"steps": 100, "lr": 1e-3, **(train or {})}}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense", "no_wo"]}, "baseline": {"variant": "dense"}}
    return plan({**study, **parts}).notes


@pytest.mark.parametrize(
    ("task", "margin", "estimand", "said"),
    [
        (SHARE, 0.5, "mean", "all of the way"),
        (SHARE, 0.2, "mean", "40 % of the way"),
        (SHARE, 0.05, "mean", None),
        (SHARE, 0.6, None, "solve rate"),
        (SHARE, 0.3, None, None),
        (BITS, 9.0, None, "all of the way"),
        (BITS, 0.5, None, "6 % of the way"),
        (BITS, 0.05, None, None),
    ],
)
def test_a_margin_as_wide_as_the_range_is_noted(
    task: dict[str, Any], margin: float, estimand: str | None, said: str | None
) -> None:
    notes = [note for note in notes_of(task, margin=margin, estimand=estimand) if note.startswith("margin")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_a_margin_of_the_whole_range_is_refused() -> None:
    with pytest.raises(UserError) as error:
        notes_of(SHARE, margin=1.0, estimand="mean")
    assert error.value.where == "margin" and "accuracy" in error.value.message


@pytest.mark.parametrize(
    ("task", "train", "threshold", "outcome"),
    [
        (SHARE, {"stop_at": 1.5, "eval_every": 10}, 0.9, "base.train.stop_at"),
        (BITS, {"stop_at": -1.0, "eval_every": 10}, None, "base.train.stop_at"),
        (SHARE, {}, 90.0, "estimand"),
        (SHARE, {}, 0.5, "guess"),
        (SHARE, {}, 0.9, None),
        (SHARE, {"stop_at": 1.0, "eval_every": 10}, 1.0, None),
        (BITS, {"stop_at": 8.5, "eval_every": 10}, None, "guess"),
        (BITS, {"stop_at": 2.5, "eval_every": 10}, None, None),
    ],
)
def test_scores_that_no_run_or_every_run_reaches(
    task: dict[str, Any], train: dict[str, Any], threshold: float | None, outcome: str | None
) -> None:
    estimand = threshold and {"name": "solve_rate", "threshold": threshold}
    if outcome in (None, "guess"):
        notes = notes_of(task, train, estimand=estimand)
        assert any("by a guess" in note for note in notes) == (outcome == "guess")
        return
    with pytest.raises(UserError) as error:
        notes_of(task, train, estimand=estimand)
    assert error.value.where == outcome


@pytest.mark.parametrize(
    ("metric", "margin", "noted"),
    [
        ("accuracy", 0.5, True),
        ("val_f1", 1.0, True),
        ("accuracy", 0.01, False),
        ("bits_per_byte", 0.5, False),
        ("wall", 3.0, False),
    ],
)
def test_the_margin_of_a_program_s_share_is_noted(
    metric: str, margin: float, noted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the files of a checkout would count
    notes = plan({**COMMAND, "metric": {"name": metric, "direction": "max"}, "margin": margin}).notes
    assert any(note.startswith("margin:") for note in notes) == noted

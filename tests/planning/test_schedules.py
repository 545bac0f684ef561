"""Tests of the notes of a plan on warm-ups that do not end within a run, and on evaluations that decide nothing."""

from typing import Any

import pytest

from attnlab.planning.plan import plan

TASK = {"name": "pydocs", "length": 24}


def notes_of(word: str, *, train: dict[str, Any], **parts: Any) -> list[str]:
    base = {"task": TASK, "model": {"dim": 12, "depth": 1, "heads": 2}, "train": {"lr": 1e-3, **train}, **parts.pop("base", {})}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense", "no_wo"]}, "baseline": {"variant": "dense"}, **parts}
    return [note for note in plan(study).notes if word in note]


@pytest.mark.parametrize(
    ("warmup", "steps", "said"),
    [
        (2000, 300, "0.15 of train.lr"),
        (300, 300, "as long as the run"),
        (0.999, 300, "as long as the run"),
        (1, 300, "one step"),
        (299, 300, None),
        (0, 300, None),
        (0.1, 300, None),
        (0.5, 1, None),
    ],
)
def test_a_warmup_that_does_not_end_is_noted(warmup: float, steps: int, said: str | None) -> None:
    notes = notes_of("train.warmup", train={"steps": steps, "warmup": warmup})
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]


def test_levels_with_unequal_peak_rates_are_noted() -> None:
    over = {"train.steps": [200, 600, 1800]}
    (note,) = notes_of("train.warmup", train={"warmup": 1000}, over=over)
    assert "200, 600" in note and "0.2, 0.6" in note and "trend" in note
    assert not notes_of("train.warmup", train={"warmup": 100}, over=over)


def test_the_cells_that_it_concerns_are_named() -> None:
    (note,) = notes_of("train.warmup", train={"warmup": 50}, grid={"variant": ["dense", "no_wo"], "train.steps": [40, 400]})
    assert note.startswith("'dense steps=40', 'no_wo steps=40': ")


def test_the_warmup_of_a_stage_and_that_of_a_search_count() -> None:
    stages = {"first": {"train": {"steps": 20}}}
    (note,) = notes_of("train.warmup", train={"steps": 100, "warmup": 30}, stages=stages, base={"init": {"from": "first"}})
    assert "stage first" in note and "0.67" in note
    search = {"trials": 3, "space": {"train.warmup": {"low": 0, "high": 500}}}
    assert notes_of("train.warmup", train={"steps": 100}, search=search, confirm={"seeds": [1, 2]})


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"eval_every": 100, "patience": 2}, "no effect"),
        ({"eval_every": 100, "stop_at": 2.0}, "no effect"),
        ({"eval_every": 200, "checkpoint_selection": "best"}, "no effect"),
        ({"eval_every": 25, "patience": 5}, "ends no run"),
        ({"eval_every": 10, "patience": 1, "warmup": 50}, "step 20"),
        ({"eval_every": 25, "patience": 2, "warmup": 10}, None),
        ({"eval_every": 25, "checkpoint_selection": "best"}, None),
        ({}, None),
    ],
)
def test_evaluations_that_decide_nothing_are_noted(train: dict[str, Any], said: str | None) -> None:
    notes = [note for note in notes_of("train.", train={"steps": 100, **train}) if not note.startswith("train.stop_at ends")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]

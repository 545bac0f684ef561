"""Tests of the notes of a plan on warm-ups that do not end within a run."""

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
        (300, 300, "1 of train.lr"),
        (1, 300, None),
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
    assert note.startswith("train.warmup: 'dense steps=40', 'no_wo steps=40': ")

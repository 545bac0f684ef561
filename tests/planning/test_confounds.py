"""Tests of the notes of a plan on cells that differ from their baseline in more than their subject."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.planning.plan import plan

LOW, HIGH = {"train.lr": 1e-3}, {"train.lr": 3e-3}
BASELINE = {"arm": "dense"}


def notes_of(levels: dict[str, dict[str, Any]] | None = None, **parts: Any) -> list[str]:
    base = {
        "task": {"name": "pydocs", "length": 24},
        "model": {"dim": 12, "depth": 1, "heads": 2},
        "train": {"steps": 100, "lr": 1e-3},
        **parts.pop("base", {}),
    }
    grid = {"grid": {"arm": levels}, "baseline": BASELINE} if levels else {}
    return plan({"study": "s", "base": base, **grid, **parts}).notes


@pytest.mark.parametrize(
    ("mine", "fields"),
    [
        ({"variant": "no_wo", "train.lr": 3e-3, "model.dropout": 0.1}, ["train.lr 0.003, not 0.001", "model.dropout"]),
        ({"variant": "no_wo", "model.initialization": "gpt2"}, ["model.initialization gpt2, not default"]),
        ({"variant": "no_wo", "train": {"steps": 200}}, ["train.steps 200, not 100"]),
        ({"variant": "no_wo", "train.lr": 1e-3}, []),
        ({"variant": "no_wo", "train.log_every": 5}, []),
        ({"train.lr": 3e-3, "train.warmup": 10}, []),  # the rate is the subject
    ],
)
def test_a_private_rate_is_noted(mine: dict[str, Any], fields: list[str]) -> None:
    notes = [
        note for note in notes_of({"dense": {"variant": "dense"}, "mine": {"variant": "dense", **mine}}) if "'mine'" in note
    ]
    if "variant" not in mine:
        notes = notes_of({"dense": LOW, "mine": mine}, base={"variant": "dense"})
    assert len(notes) == bool(fields)
    assert all(field in notes[0] for field in fields)


ADAMW, MUON = {"train.optimizer": "adamw"}, {"train.optimizer": "muon"}


@pytest.mark.parametrize(
    ("parts", "noted"),
    [
        ({"levels": {"dense": {**ADAMW, **LOW}, "low": {**MUON, **LOW}, "high": {**MUON, **HIGH}}}, ["'low'", "'high'"]),
        ({"levels": {"dense": {**ADAMW, **LOW}, "low": {**MUON, **LOW}}}, []),
        ({"levels": {"dense": {**ADAMW, **LOW}, "more": {**ADAMW, **HIGH}, "low": {**MUON, **LOW}}}, []),  # the rival has fewer
        (
            {"lr": [1e-3, 3e-3], "skip": [{"where": {**ADAMW, "train.lr": 3e-3}, "because": "slow"}]},
            ["'optimizer=muon lr=0.001'"],
        ),
        (
            {
                "lr": [1e-3, 3e-3],
                "skip": [{"where": {**ADAMW, "train.lr": 3e-3}, "because": "slow"}],
                "baseline": {"train.optimizer": "muon"},
            },
            ["'optimizer=adamw lr=0.001'", "adamw is tried at 1 learning rate and muon at 2"],
        ),
        ({"lr": [1e-3, 3e-3]}, []),
        ({"sweep": {"train.lr": [1e-3, 2e-3, 4e-3]}}, []),
    ],
)
def test_a_baseline_with_fewer_learning_rates_than_its_rival_is_noted(parts: dict[str, Any], noted: list[str]) -> None:
    levels, rates = parts.pop("levels", None), parts.pop("lr", None)
    if levels is None:
        axes = {"train.optimizer": ["adamw", "muon"], **({"train.lr": rates} if rates else {})}
        parts = {"grid": axes, "baseline": {"train.optimizer": "adamw"}, **parts}
    notes = [note for note in notes_of(levels, base={"variant": "dense"}, **parts) if "learning rate" in note]
    assert len(notes) == bool(noted)
    assert all(name in note for name in noted for note in notes)


def test_axes_and_levels_of_over_are_no_private_rates() -> None:
    axes = {"grid": {"variant": ["dense", "no_wo"], "rate": {"low": LOW, "high": HIGH}}, "baseline": {"variant": "dense"}}
    assert notes_of(**axes) == []
    over = {"over": {"width": {"12": {"model.dim": 12, **LOW}, "24": {"model.dim": 24, **HIGH}}}}
    assert notes_of(grid={"variant": ["dense", "no_wo"]}, baseline={"variant": "dense"}, **over) == []


def test_fewer_steps_that_match_the_costs_are_no_private_steps() -> None:
    levels = {"dense": {"variant": "dense"}, "mine": {"variant": "dense", "model.depth": 2, "train.steps": 50}}
    (note,) = notes_of(levels)
    flops = {cell.name: cell.flops_per_token or 0 for cell in plan_of(levels).cells}
    levels["mine"]["train.steps"] = round(100 * flops["dense"] / flops["mine"])
    assert "train.steps 50" in note and notes_of(levels) == []


def plan_of(levels: dict[str, Any]) -> Any:
    base = {"task": {"name": "pydocs", "length": 24}, "model": {"dim": 12, "depth": 1, "heads": 2}, "train": {"steps": 100}}
    return plan({"study": "s", "base": base, "grid": {"arm": levels}, "baseline": BASELINE})


@pytest.mark.parametrize(
    ("bad", "noted"), [({"variant": "none", "train.lr": 1e-6}, True), ({"train.steps": 3}, True), ({"variant": "none"}, False)]
)
def test_a_control_that_is_crippled_is_noted(bad: dict[str, Any], noted: bool) -> None:
    levels = {"dense": {"variant": "dense"}, "mine": {"variant": "no_wo"}, "bad": {"variant": "dense", **bad}}
    notes = notes_of(levels, control={"arm": "bad"}, margin=0.02)
    assert [note for note in notes if "the control is trained" in note] == notes and len(notes) == noted


def test_a_factor_with_a_private_rate_is_noted() -> None:
    on = {"variant": {"name": "dense", "with": ["gate"]}}
    for extra, noted in ((HIGH, True), ({}, False)):
        notes = notes_of(factors={"gate": {**on, **extra}, "rate": {"model.depth": 2}}, base={"variant": "dense"})
        assert any("'gate'" in note for note in notes) == noted


def test_a_stage_of_some_cells_is_noted() -> None:
    stages, base = {"first": {"train": {"steps": 100}}}, {"init": {"from": "first"}}
    levels = {"dense": {"variant": "dense"}, "mine": {"variant": "dense", "init": None}}
    assert sum("from scratch" in note and "0.5 times" in note for note in notes_of(levels, stages=stages, base=base)) == 1
    both = {"dense": {"variant": "dense"}, "mine": {"variant": "no_wo"}}
    assert not any("times" in note for note in notes_of(both, stages=stages, base=base))


def test_a_stage_that_reads_the_test_text_is_noted(tmp_path: Path) -> None:
    texts = [" ".join(f"word{n * factor % 99991}" for n in range(1, 2_000)) for factor in (7919, 104_729, 611_953)]
    files = {name: str(tmp_path / f"{name}.txt") for name in ("train", "test", "other")}
    for name, contents in zip(files, texts, strict=True):
        Path(files[name]).write_text(contents, encoding="utf-8")
    task = {"name": "text", "path": files["train"], "test": files["test"], "length": 24}
    for path, noted in ((files["test"], True), (files["other"], False), (files["train"], False)):
        stages = {"first": {"task": {"name": "text", "path": path, "length": 24}, "train": {"steps": 5}}}
        levels = {"dense": {"variant": "dense"}, "mine": {"variant": "no_wo"}}
        notes = notes_of(levels, stages=stages, base={"task": task, "init": {"from": "first"}})
        assert any("test text" in note for note in notes) == noted

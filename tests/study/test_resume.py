"""Tests of resumption: an interrupted run gives the results of an uninterrupted one; a finished run is not trained again."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.training import checkpoint, costs, trainer
from attnlab.training import weights as saved
from attnlab.training.result import remove_result
from attnlab.training.selection import Selection
from attnlab.training.train import Result
from attnlab.training.trainer import Trainer
from tests.support.small_runs import Point, recorded, tiny
from tests.support.surroundings import Program

DROPOUT = {f"model__{kind}dropout": 0.2 for kind in ("", "attention_", "embedding_", "word_")}
PACE = {"train__checkpoint_every": 5, "train__warmup": 0.3, "train__weight_decay": 0.1}  # evaluated every 4, logged every 3
EAGER = {"train__lr": 3.0}  # too high: the loss never again equals that after the first step
XL = {"variant": "transformer_xl", "position": "relative", "model__mem_len": 17}
LENGTHS = {"evaluate__lengths": [11, 24, 48]}
REVIEWS = {
    "task": {"name": "tests.support.small_runs:Reviews"},
    "position": "learned",
    "train__steps": None,
    "train__eval_every": None,
}
RUNS = {
    "a language model": {**DROPOUT, **PACE, "train__gradient_accumulation": 2, "train__checkpoint_selection": "best"},
    "one with memory": {
        **XL,
        **PACE,
        **LENGTHS,
        "model__dropout": 0.2,
        "train__gradient_accumulation": 2,
        "train__precision": "bf16",
    },
    "a classifier": {
        **REVIEWS,
        **DROPOUT,
        **PACE,
        "train__epochs": 2.5,
        "train__checkpoint_selection": "best",
        "model__pool": "class",
    },
    "one without attention": {**REVIEWS, **PACE, "variant": "lstm", "train__epochs": 2.5, "model__dropout": 0.2},
    "one that stops early": {
        **DROPOUT,
        **EAGER,
        "train__eval_every": 1,
        "train__patience": 3,
        "train__checkpoint_selection": "best",
    },
    "one that reaches its score": {**DROPOUT, "train__eval_every": 2, "train__stop_at": 8.2},
    "one that diverges": {"train__lr": 1e30, "train__grad_clip": None, "train__checkpoint_every": 1},
}
Whole = tuple[Result, list[Point], dict[str, torch.Tensor]]


class Cut(BaseException):
    """A simulated power failure."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip counting fixed costs, which are the same each time and take longer to count than these runs."""
    monkeypatch.setattr(costs, "fixed_costs", lambda *_: {})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return saved.load(folder)[1] if saved.exist(folder) else {}


def undisturbed(config: RunConfig, folder: Path) -> Whole:
    return *recorded(config, folder), weights(folder)


def same(whole: Whole, other: Whole) -> bool:
    """Compare bit by bit: the result, every point of the curves, the weights."""
    tensors = whole[2].keys() == other[2].keys() and all(torch.equal(whole[2][name], other[2][name]) for name in whole[2])
    return tensors and repr(whole[:2]) == repr(other[:2])  # as text, where NaN equals NaN


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_that_is_cut_off_at_every_step(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(**RUNS[kind])
    whole = undisturbed(config, tmp_path / "whole")
    step = Trainer.take_step

    def cut_from(last: int) -> Callable[[Trainer], None]:
        def cut(self: Trainer) -> None:
            step(self)
            if self.step >= last:
                raise Cut

        return cut

    for reached in itertools.count(1):  # each interruption is one step later
        monkeypatch.setattr(Trainer, "take_step", cut_from(reached))
        with suppress(Cut):
            assert same(whole, undisturbed(config, tmp_path / "again"))
            break
    assert reached == whole[0].step + 1 or whole[0].state == "diverged"


@pytest.mark.parametrize("kind", ["one that stops early", "one that reaches its score"])
def test_a_run_that_is_cut_off_after_its_last_evaluation_is_not_trained_further(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(**RUNS[kind])
    whole = undisturbed(config, tmp_path / "whole")

    def cut(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(Selection, "load_best", cut)
        recorded(config, tmp_path / "again")
    assert same(whole, undisturbed(config, tmp_path / "again"))


def test_the_runs_to_be_interrupted_end_as_named(tmp_path: Path) -> None:
    ends = {kind: recorded(tiny(**RUNS[kind]))[0] for kind in RUNS}
    assert ends["one that stops early"].state == "completed" and 4 <= ends["one that stops early"].step < 12
    assert ends["one that stops early"].summary["steps"] == ends["one that stops early"].step
    reached = ends["one that reaches its score"]
    assert (reached.state, reached.step) == ("completed", 6) and 8.1 < reached.summary["valid_bits_per_byte"] < 8.2
    assert ends["one that diverges"].state == "diverged"
    assert [end.step for end in ends.values()][:4] == [12, 12, 12, 12]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_power_cut_at_every_change_of_the_folder(after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(**RUNS["a language model"])
    whole = undisturbed(config, tmp_path / "whole")
    dead, left = False, 0
    real = {name: getattr(os, name) for name in ("replace", "unlink")}

    def failing(name: str) -> Callable[..., None]:
        def act(*words: Any, **more: Any) -> None:
            nonlocal dead, left
            left -= 1
            try:
                if not dead and (left or after):
                    real[name](*words, **more)
            finally:
                dead = dead or left == 0
                if dead:
                    raise Cut

        return act

    for name in real:
        monkeypatch.setattr(os, name, failing(name))
    for changes in itertools.count(1):
        folder = tmp_path / str(changes)
        dead, left = False, changes
        try:
            recorded(config, folder)
            break
        except Cut:
            dead, left = False, 0
        assert same(whole, undisturbed(config, folder)), f"cut at change {changes}"
        assert sorted(os.listdir(folder)) == ["config.json", "items.npz", "model.safetensors", "result.json", "task.json"], (
            f"cut at change {changes}"
        )
    assert changes > 12


def damaged(path: Path, damage: str) -> None:
    if "program" in damage:
        program = {"step": 6, "model": Program(path.with_name("it_was_run"))}
        return torch.save(program, path, _use_new_zipfile_serialization=damage == "a program")
    contents = bytearray(path.read_bytes())
    n = len(contents)
    if damage == "flipped":
        contents[n // 2] ^= 1
    elif damage == "garbage":
        contents = bytearray(b"no such thing" * 99)
    else:
        del contents[{"empty": 0, "one byte": 1, "a half": n // 2, "all but one byte": n - 1}[damage] :]
    path.write_bytes(contents)


def rewritten(path: Path, damage: str) -> None:
    state = checkpoint.load(path)
    if damage == "another configuration":
        state["writer"]["fingerprint"] = "0" * 16
    elif damage == "another torch":
        state["writer"]["torch"] = "1.0"
    elif damage == "other names":
        state["model"] = {f"x.{name}": weight for name, weight in state["model"].items()}
    elif damage == "another optimizer":
        state["optimizer"]["param_groups"].pop()
    else:
        state = {"step": 3}
    checkpoint.save(state, path)


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Whole, Path]:
    """Return a run cut off after step 8: its configuration, uninterrupted results, and a folder with checkpoints 6 and 8."""
    config = tiny(train__checkpoint_every=2, model__dropout=0.2)
    folder = tmp_path_factory.mktemp("cut")
    keep, calls = checkpoint.save_newest, itertools.count(1)

    def cut(*words: Any, **more: Any) -> None:
        keep(*words, **more)
        if next(calls) == 4:
            raise Cut

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Cut):
        patch.setattr(checkpoint, "save_newest", cut)
        patch.setattr(costs, "fixed_costs", lambda *_: {})
        recorded(config, folder / "cut")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "fixed_costs", lambda *_: {})
        return config, undisturbed(config, folder / "whole"), folder / "cut"


DAMAGE = ["a program", "a program in the old format", "flipped", "garbage", "empty", "one byte", "a half", "all but one byte"]
REWRITING = ["another configuration", "another torch", "other names", "another optimizer", "hardly anything"]


@pytest.mark.parametrize("damage", DAMAGE + REWRITING)
def test_a_checkpoint_that_cannot_be_trusted(
    damage: str, cut_off: tuple[RunConfig, Whole, Path], tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    config, whole, source = cut_off
    harm = damaged if damage in DAMAGE else rewritten
    for both in (False, True):
        folder = Path(shutil.copytree(source, tmp_path / str(both)))
        (folder / ".checkpoint.pt.x.half").write_bytes(b"left behind")
        harm(folder / checkpoint.NEWEST, damage)
        if both:
            harm(folder / checkpoint.PREVIOUS, damage)
        assert same(whole, undisturbed(config, folder))
        *skipped, last = log.messages  # a line for each skipped checkpoint, and one for the step that the run starts from
        for line, name in zip(skipped, [checkpoint.NEWEST, checkpoint.PREVIOUS][: 1 + both], strict=True):
            assert line.startswith(f"skipping unusable checkpoint {folder / name}: ")
        assert ("starting from step 0" if both else "resuming from step 6 (checkpoint.old.pt)") in last
        log.clear()
        assert sorted(os.listdir(folder)) == ["config.json", "items.npz", "model.safetensors", "result.json", "task.json"]


@pytest.mark.parametrize("end", ["completed", "diverged", "pruned"])
def test_a_run_with_a_result_is_not_trained_again(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(**(RUNS["one that diverges"] if end == "diverged" else {}))
    result, points = recorded(config, tmp_path, prune_at=6 if end == "pruned" else None)
    assert result.state == end
    with monkeypatch.context() as patch:
        patch.setattr("attnlab.training.train.Trainer", None)
        assert repr(recorded(config, tmp_path)) == repr((result, points)), "the same end and the whole curve"
    remove_result(tmp_path)
    assert recorded(config, tmp_path, prune_at=3)[0].state == ("pruned" if end != "diverged" else "diverged")


@pytest.fixture(scope="module")
def result_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The result file of a run of ``tiny``."""
    folder = tmp_path_factory.mktemp("result")
    recorded(tiny(), folder)
    return (folder / "result.json").read_text(encoding="utf-8")


def take_that_of_another_run(record: dict[str, Any]) -> None:
    record["fingerprint"] = "0" * 16


def lose_the_history(record: dict[str, Any]) -> None:
    del record["history"]


CHANGES = [take_that_of_another_run, lose_the_history]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_result_that_was_changed_is_trained_again(
    change: Callable[[dict[str, Any]], None], result_text: str, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    record = json.loads(result_text)
    change(record)
    (tmp_path / "result.json").write_text(json.dumps(record), encoding="utf-8")
    result, points = recorded(tiny(), tmp_path)
    assert (result.state, result.step) == ("completed", 12) and points
    assert result.summary["bits_per_byte"] == json.loads(result_text)["result"]["summary"]["bits_per_byte"]
    (line,) = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    assert "result.json" in line and "\n" not in line and "train" in line
    log.clear()
    assert repr(recorded(tiny(), tmp_path)) == repr((result, points)) and not any(
        record.levelname == "WARNING" for record in log.records
    ), "the new one is trusted"


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"3", b'{"fingerprint": "0", "result": {}, "history": []}', b"\xff\xfe"])
def test_a_file_that_is_no_result_is_trained_again(text: bytes, tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    (tmp_path / "result.json").write_bytes(text)
    result, _ = recorded(tiny(), tmp_path)
    assert (result.state, result.step) == ("completed", 12)
    assert "result.json" in log.messages[0] and log.records[0].levelname == "WARNING"


@pytest.mark.parametrize(("seconds", "every", "steps"), [(0, None, [3, 6, 9]), (600, None, []), (0, 5, [5, 10])])
def test_a_long_run_is_saved_by_the_clock_unless_the_study_says_how_often(
    seconds: float, every: int | None, steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(train__eval_every=None, train__checkpoint_every=every, model__dropout=0.2)
    saved_at, save, step = [], checkpoint.save_newest, Trainer.take_step
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", seconds)
    monkeypatch.setattr(
        checkpoint, "save_newest", lambda state, *words, **more: (saved_at.append(state["step"]), save(state, *words, **more))
    )
    whole = undisturbed(config, tmp_path / "whole")
    assert saved_at == steps and not checkpoint.exists(tmp_path / "whole")

    def cut(self: Trainer) -> None:
        step(self)
        if self.step == 11:
            raise Cut

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(Trainer, "take_step", cut)
        recorded(config, tmp_path / "again")
    assert checkpoint.exists(tmp_path / "again") == bool(steps)
    monkeypatch.setattr(trainer, "CHECKPOINT_SECONDS", 1e9)  # other clocks, the same bits
    assert same(whole, undisturbed(config, tmp_path / "again"))


def test_running_out_of_memory_leaves_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny(train__checkpoint_every=5)
    whole = undisturbed(config, tmp_path / "whole")
    step = Trainer.take_step

    def hungry(self: Trainer) -> None:
        if self.step == 7:
            torch.empty(2**60)
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", hungry)
        assert recorded(config, tmp_path / "again")[0].state == "out_of_memory"
    assert checkpoint.load(tmp_path / "again" / checkpoint.NEWEST)["step"] == 5
    assert same(whole, undisturbed(config, tmp_path / "again"))

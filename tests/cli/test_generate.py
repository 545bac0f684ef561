"""Sampling: where models are found, what is fed to them, what is printed."""

import os
from pathlib import Path

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.study import trained
from attnlab.tasks import Task
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.text import Text
from attnlab.training import checkpoint
from tests.support.surroundings import Program


def config(memory: int = 0) -> RunConfig:
    return RunConfig.model_validate(
        {
            "task": {"name": "pydocs", "length": 13, "sampling": "contiguous"},
            "variant": "dense",
            "position": "relative" if memory else "learned",
            "backend": "reference",
            "model": {"dim": 12, "depth": 2, "heads": 3, "memory": memory},
            "train": {"steps": 1},
            "machine": {"device": "cpu"},
        }
    )


def left_by_a_run(folder: Path, *, memory: int = 0) -> Path:
    """What `train` leaves in a run's folder, without training."""
    given = config(memory)
    model = build(given, PyDocs(length=13, sampling="contiguous"))
    checkpoint.save({"model": model.state_dict()}, folder / "model.pt")
    (folder / "config.json").write_text(given.to_json())
    return folder


def test_a_sample_is_a_function_of_its_seed(tmp_path: Path) -> None:
    folder = str(left_by_a_run(tmp_path))
    one, same, other = (trained.generate(folder, length=24, seed=seed) for seed in (1, 1, 2))
    assert one == same and one.text != other.text
    assert "256 bytes of the validation split" in one.origin and len(one.prompt) > 100


def test_a_prompt_is_gone_on_from(tmp_path: Path) -> None:
    folder = str(left_by_a_run(tmp_path))
    found = trained.generate(folder, prompt="naïve ", length=9, temperature=0)
    assert found.prompt == "naïve " and found.origin == "as given"
    with pytest.raises(UserError, match="at least one character"):
        trained.generate(folder, prompt="")


def test_a_prompt_in_another_encoding_is_its_bytes(tmp_path: Path) -> None:
    latin = os.fsdecode(b"na\xefve ")  # as Python hands on what a terminal sends
    assert PyDocs().encode(latin) == list(b"na\xefve ")
    assert trained.generate(str(left_by_a_run(tmp_path)), prompt=latin, length=2).prompt == "na\N{REPLACEMENT CHARACTER}ve "


@pytest.mark.parametrize("size", [2, 14, 20, 200, 256, 400])
def test_the_default_prompt_is_of_the_text_alone(size: int, tmp_path: Path) -> None:
    """Rows that run past a short validation split are filled up with zeros."""
    text = bytes(range(1, 251)) * 32
    (tmp_path / "text").write_bytes(text[: size * 20])
    task = Text(path=str(tmp_path / "text"), length=13)
    valid = task.split("valid").tolist()
    assert len(valid) == size
    for seed in range(5):
        ids, origin = trained._from_validation(task, seed=seed)
        begin = int(origin.rpartition(" ")[2])
        assert ids == valid[begin : begin + len(ids)] and len(ids) >= min(size, 256) - 13


@pytest.mark.parametrize("harm", ["a program", "cut short", "of another model"])
def test_a_file_that_is_no_model_is_one_line(harm: str, tmp_path: Path) -> None:
    path = left_by_a_run(tmp_path) / "model.pt"
    if harm == "a program":
        torch.save({"model": Program(tmp_path / "it_was_run")}, path)
    elif harm == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        checkpoint.save({"model": {"x": torch.zeros(1)}}, path)
    with pytest.raises(UserError, match=r"model\.pt is no model of this run: \w") as caught:
        trained.generate(str(tmp_path), length=1)
    assert "\\n" not in str(caught.value) and not (tmp_path / "it_was_run").exists()


@pytest.mark.parametrize("memory", [0, 7])
def test_the_likeliest_tokens_are_those_of_the_model_read_as_in_training(tmp_path: Path, memory: int) -> None:
    folder = left_by_a_run(tmp_path, memory=memory)
    model, task, device = trained.load(folder, config(memory))
    ids = list(range(40, 71))  # 31 tokens: two whole segments of 13, and 5
    drawn = trained.sample(model, ids, config=config(memory), task=task, device=device, temperature=0, length=3, seed=0)
    with torch.inference_mode():
        for i, token in enumerate(drawn):
            so_far = ids + drawn[:i]
            kept = None
            if memory:
                _, kept = model(torch.tensor([so_far[:13]]))
                _, kept = model(torch.tensor([so_far[13:26]]), kept)
                logits, _ = model(torch.tensor([so_far[26:]]), kept)
            else:
                logits, _ = model(torch.tensor([so_far[-13:]]))
            assert int(logits[0, -1].argmax()) == token


def test_bytes_that_are_no_text_can_be_printed() -> None:
    assert trained.printable("a\n\tb\x1b[2J\x07é") == "a\n\tb\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}é"


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"left no model: expected model\.pt"):
        trained.generate(str(tmp_path))


class Silent(PyDocs):
    """A task without text, as anyone's may be."""

    encode = Task.encode


class Wordy(PyDocs):
    """A task that knows few words."""

    def encode(self, text: str) -> list[int]:
        return [["no", "yes"].index(text)]


@pytest.mark.parametrize(
    ("name", "words"),
    [("Silent", "has no text: expected a method encode, got none"), ("Wordy", "cannot read the prompt: ValueError: 'x' is")],
)
def test_a_task_without_this_text_is_said(name: str, words: str, tmp_path: Path) -> None:
    folder = left_by_a_run(tmp_path)
    given = config().replace({"task.name": f"test_generate:{name}"})
    (folder / "config.json").write_text(given.to_json())
    with pytest.raises(UserError, match=f"task {name} .*{words}"):
        trained.generate(str(folder), prompt="x", length=1)

"""Tests of sampling from a trained model: its folder, the prompt, the drawn tokens, and errors."""

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


def config(mem_len: int = 0) -> RunConfig:
    return RunConfig.model_validate(
        {
            "task": {"name": "pydocs", "length": 13, "sampling": "contiguous"},
            "variant": "dense",
            "position": "relative" if mem_len else "learned",
            "backend": "reference",
            "model": {"dim": 12, "depth": 2, "heads": 3, "mem_len": mem_len},
            "train": {"steps": 1},
            "machine": {"device": "cpu"},
        }
    )


def save_run(folder: Path, *, mem_len: int = 0) -> Path:
    """Write the files that `train` leaves in a run's folder, without training, and return the folder."""
    run_config = config(mem_len)
    model = build(run_config, PyDocs(length=13, sampling="contiguous"))
    checkpoint.save({"model": model.state_dict()}, folder / "model.pt")
    (folder / "config.json").write_text(run_config.to_json())
    return folder


def test_a_sample_is_a_function_of_its_seed(tmp_path: Path) -> None:
    folder = str(save_run(tmp_path))
    first, same, different = (trained.generate(folder, length=24, seed=seed) for seed in (1, 1, 2))
    assert first == same and first.text != different.text
    assert "256 bytes of the validation split" in first.origin and len(first.prompt) > 100


def test_a_prompt_is_continued(tmp_path: Path) -> None:
    folder = str(save_run(tmp_path))
    sample = trained.generate(folder, prompt="naïve ", length=9, temperature=0)
    assert sample.prompt == "naïve " and len(sample.text) <= 9
    with pytest.raises(UserError) as raised:
        trained.generate(folder, prompt="")
    assert raised.value.where == "--prompt"


def test_a_prompt_in_another_encoding_is_read_as_bytes(tmp_path: Path) -> None:
    latin = os.fsdecode(b"na\xefve ")  # as Python decodes the bytes of a terminal
    assert PyDocs().encode(latin) == list(b"na\xefve ")
    assert trained.generate(str(save_run(tmp_path)), prompt=latin, length=2).prompt == "na\N{REPLACEMENT CHARACTER}ve "


@pytest.mark.parametrize("size", [2, 14, 20, 200, 256, 400])
def test_the_default_prompt_holds_no_padding(size: int, tmp_path: Path) -> None:
    """Rows that extend past a short validation split are padded with zeros."""
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
def test_an_unusable_model_file_is_one_line(harm: str, tmp_path: Path) -> None:
    path = save_run(tmp_path) / "model.pt"
    if harm == "a program":
        torch.save({"model": Program(tmp_path / "it_was_run")}, path)
    elif harm == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    else:
        checkpoint.save({"model": {"x": torch.zeros(1)}}, path)
    with pytest.raises(UserError, match=r"model\.pt") as raised:
        trained.generate(str(tmp_path), length=1)
    assert "\\n" not in str(raised.value) and not (tmp_path / "it_was_run").exists()


@pytest.mark.parametrize("mem_len", [0, 7])
def test_at_temperature_0_tokens_are_the_most_likely_ones_in_segments_as_in_training(tmp_path: Path, mem_len: int) -> None:
    folder = save_run(tmp_path, mem_len=mem_len)
    model, _, task, device = trained._load_language_model(folder)
    ids = list(range(40, 71))  # 31 tokens: two whole segments of 13, and 5
    drawn = trained.sample(model, ids, config=config(mem_len), task=task, device=device, temperature=0, length=3, seed=0)
    with torch.inference_mode():
        for i, token in enumerate(drawn):
            so_far = ids + drawn[:i]
            if mem_len:
                _, memory = model(torch.tensor([so_far[:13]]))
                _, memory = model(torch.tensor([so_far[13:26]]), memory)
                logits, _ = model(torch.tensor([so_far[26:]]), memory)
            else:
                logits, _ = model(torch.tensor([so_far[-13:]]))
            assert int(logits[0, -1].argmax()) == token


def test_control_characters_are_replaced() -> None:
    assert trained.printable("a\n\tb\x1b[2J\x07é") == "a\n\tb\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}é"


def test_a_folder_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.pt"):
        trained.generate(str(tmp_path))


class Silent(PyDocs):
    """A task that does not define `encode`."""

    encode = Task.encode


class Wordy(PyDocs):
    """A task whose `encode` knows two words."""

    def encode(self, text: str) -> list[int]:
        return [["no", "yes"].index(text)]


@pytest.mark.parametrize(
    ("name", "words"),
    [("Silent", "encode"), ("Wordy", "ValueError: 'x' is")],
)
def test_a_task_that_cannot_encode_the_prompt_is_an_error(name: str, words: str, tmp_path: Path) -> None:
    folder = save_run(tmp_path)
    run_config = config().replace({"task.name": f"tests.study.test_trained:{name}"})
    (folder / "config.json").write_text(run_config.to_json())
    with pytest.raises(UserError, match=f"task {name} .*{words}"):
        trained.generate(str(folder), prompt="x", length=1)

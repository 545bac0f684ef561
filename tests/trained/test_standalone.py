"""Tests of a trained model as one folder: it encodes, decodes and predicts as in training, without its data."""

import csv
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.training.train import train
from tests.models.test_masked_language_model import config as masked_config
from tests.support.documents import use_small_corpus
from tests.support.small_runs import tiny
from tests.support.small_translations import pairs
from tests.support.small_translations import write as write_pairs

WORDS = {"billing": ["charged", "twice", "invoice", "refund"], "login": ["password", "reset", "account", "locked"]}
TEXT = "charged invoice password"


def tickets(path: Path, rows: int, *, extra: str = "") -> None:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for i in range(rows):
            label = ("billing", "login")[i % 2]
            writer.writerow([" ".join([*rng.choices(WORDS[label], k=7), extra or rng.choice(["a", "b"]), str(i)]), label])


def classifier(task: dict[str, Any], **changes: Any) -> RunConfig:
    named = {"position": "learned", "model__pool": "mean", "evaluate": {}, "train__steps": 30, "train__eval_every": None}
    return tiny(task=task, **{**named, **changes})


def csv_config(folder: Path) -> RunConfig:
    tickets(folder / "tickets.csv", 200)
    return classifier({"name": "csv", "path": str(folder / "tickets.csv"), "length": 13})


def imdb_config(folder: Path, **options: Any) -> RunConfig:
    return classifier({"name": "imdb", "length": 13, "vocabulary": 60, **options}, train__steps=2)


def text_config(folder: Path, **options: Any) -> RunConfig:
    (folder / "text.txt").write_bytes(b"".join(b"line %d of the text, charged twice\n" % i for i in range(900)))
    task = {"name": "text", "path": str(folder / "text.txt"), "length": 13, **options}
    return tiny(task=task, train__steps=2, train__eval_every=None)


def translation_config(folder: Path) -> RunConfig:
    options: dict[str, Any] = {"vocabulary": 90, "length": 24, "beam": 2}
    for split, begin, end in (("train", 0, 40), ("valid", 40, 50), ("test", 50, 70)):
        options |= write_pairs(folder, split, pairs(70)[begin:end])
    part = {"variant": "dense", "position": "learned"}
    model = {"dim": 12, "depth": 1, "heads": 2, "encoder": part, "decoder": part, "cross": {**part, "position": "none"}}
    fields = {"task": {"name": "translation", **options}, **part, "backend": "reference", "model": model}
    return RunConfig.model_validate({**fields, "train": {"steps": 1, "batch_size": 2}, "machine": {"device": "cpu"}})


CONFIGS: dict[str, Callable[[Path], RunConfig]] = {
    "csv": csv_config,
    "imdb": imdb_config,
    "imdb wordpiece": lambda folder: imdb_config(folder, tokens="wordpiece", vocabulary=120),
    "text": text_config,
    "text bpe": lambda folder: text_config(folder, tokens="bpe", vocabulary=270),
    "translation": translation_config,
    "masked_text": lambda folder: masked_config(train__steps=1),
    "mqar": lambda folder: tiny(task={"name": "mqar", "pairs": 2, "length": 8}, train__steps=1, evaluate={}),
}


def outputs(task: Task) -> dict[str, Any]:
    """Return what a model needs of its task."""
    shape = {name: getattr(task, name) for name in ("kind", "role", "length", "vocabulary", "unit", "classes", "segments")}
    if type(task).encode is Task.encode:
        return shape
    ids = task.encode(TEXT)
    decodes = type(task).decoding_options is not Task.decoding_options
    return {**shape, "ids": ids, "text": task.decode(ids), "decoding": task.decoding_options() if decodes else {}}


@pytest.mark.usefixtures("small_reviews")
@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_model_needs_its_folder_alone(name: str, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "masked_text":
        use_small_corpus(monkeypatch)
    config = CONFIGS[name](folders)
    train(config, folder=folders / "run")
    before = outputs(TASKS.get(config.task.name)(**config.task.options))
    elsewhere = folders / "elsewhere"
    shutil.move(folders / "run", elsewhere)
    for path in folders.iterdir():
        if path != elsewhere:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    loaded = attnlab.load_model(elsewhere)
    assert outputs(loaded.task) == before
    if name != "mqar":
        logits = loaded("Ein Hund", target="A dog") if name == "translation" else loaded(TEXT)
        assert logits.isfinite().all()


@pytest.mark.parametrize("change", ["cut", "more", "gone"])
def test_predictions_do_not_depend_on_the_data_as_they_are_now(change: str, folders: Path) -> None:
    train(csv_config(folders), folder=folders / "run")
    texts = [" ".join(words) for words in WORDS.values()]
    before = attnlab.load_model(folders / "run").predict(texts)
    assert [prediction.label for prediction in before] == ["billing", "login"]
    path = folders / "tickets.csv"
    path.unlink() if change == "gone" else tickets(path, {"cut": 80, "more": 300}[change], extra="zebra")
    assert attnlab.load_model(folders / "run").predict(texts) == before


@pytest.mark.usefixtures("small_reviews")
@pytest.mark.parametrize("name", ["csv", "imdb", "imdb wordpiece"])
def test_a_prediction_is_what_the_evaluation_computes(name: str, folders: Path) -> None:
    config = CONFIGS[name](folders)
    train(config, folder=folders / "run")
    loaded = attnlab.load_model(folders / "run")
    long = " ".join([TEXT, "reset"] * 9)
    predictions = loaded.predict([TEXT, long])
    for text, prediction in zip([TEXT, long], predictions, strict=True):
        ids = torch.tensor(loaded.task.encode(text)[: loaded.task.length])
        shares = loaded(ids).softmax(-1)[0]
        assert list(prediction.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-5)
        assert prediction.label == list(prediction.probabilities)[int(shares.argmax())]
        assert sum(prediction.probabilities.values()) == pytest.approx(1)


def test_only_a_classifier_predicts_labels(folders: Path) -> None:
    train(text_config(folders), folder=folders / "run")
    with pytest.raises(UserError, match="classifier"):
        attnlab.load_model(folders / "run").predict(["a text"])


def test_data_that_have_changed_are_not_read(folders: Path) -> None:
    config = text_config(folders)
    config = config.replace({"data": TASKS.get("text")(**config.task.options).identity()})
    train(config, folder=folders / "run")
    loaded = attnlab.load_model(folders / "run")
    assert loaded.read_data().identity() == config.data
    (folders / "text.txt").write_bytes(b"another text of some length\n" * 500)
    with pytest.raises(UserError, match="changed"):
        loaded.read_data()

"""Tests of ``tokens``: files of token numbers, their types, their vocabulary, and exact bits per byte."""

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab._util.metrics import merge
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.tasks import IGNORED, reference_scores
from attnlab.tasks.tokens import Tokens
from attnlab.training.train import train
from tests.support.studies import STUDY, misplanned, write

VOCABULARY = 307
SPLITS = ("train", "valid", "test")
NUMBERS = np.random.default_rng(0).integers(0, VOCABULARY, size=2_000)
SPELLED = [f"w{i}" * (i % 4) for i in range(VOCABULARY)]  # the text of each token; every fourth has none


@pytest.fixture
def corpus(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folders)
    np.save("train.npy", NUMBERS.astype("uint16"))
    np.save("valid.npy", NUMBERS[:101].astype("uint16"))
    np.save("test.npy", NUMBERS[::-1][:97].astype("uint16"))
    (folders / "bytes.txt").write_text("".join(f"{len(text.encode())}\n" for text in SPELLED), encoding="utf-8")
    return folders


def tokens(**options: Any) -> Tokens:
    return Tokens(**{"path": "train.npy", "vocabulary": VOCABULARY, "length": 16, **options})


def test_the_splits_come_from_the_end(corpus: Path) -> None:
    task = tokens()
    assert task.cuts() == (1800, 1900, 2000) and task.steps_per_epoch(4) == 1799 // 64  # without the data
    assert [task.split(split).tolist() for split in SPLITS] == [
        NUMBERS[:1800].tolist(),
        NUMBERS[1800:1900].tolist(),
        NUMBERS[1900:].tolist(),
    ]
    assert isinstance(task.split("train"), np.memmap) and task.split("train").dtype == "uint16"
    batch = task.train_batch(3, seed=1, batch_size=5)
    assert batch.inputs.dtype == torch.int64 and torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert torch.equal(tokens().train_batch(3, seed=1, batch_size=5).inputs, batch.inputs)
    counts = [int((batch.targets != IGNORED).sum()) for batch in task.eval_batches("test", batch_size=3)]
    assert sum(counts) == 99


def test_files_of_their_own_and_their_identity(corpus: Path) -> None:
    options = {"valid": "valid.npy", "test": "test.npy", "token_bytes": "bytes.txt"}
    task = tokens(**options)
    assert [len(task.split(split)) for split in SPLITS] == [2000, 101, 97]
    assert task.split("test").tolist() == NUMBERS[::-1][:97].tolist()
    identities = {task.identity(), tokens().identity(), tokens(valid="valid.npy").identity()}
    identities |= {tokens(path="valid.npy").identity(), tokens(**options | {"valid": "test.npy"}).identity()}
    (corpus / "bytes.txt").write_text("1\n" * VOCABULARY, encoding="utf-8")
    identities.add(tokens(**options).identity())
    assert len(identities) == 6 and task.identity() in identities  # read before the change


def nats_of(task: Tokens, **protocol: Any) -> tuple[dict[str, float], list[int]]:
    """Return the scores of a fixed random model on ``test``, and every counted target."""
    torch.manual_seed(0)
    table = torch.randn(VOCABULARY, VOCABULARY)  # logits of the next token by the current one
    scores, counted = [], []
    for batch in task.eval_batches("test", batch_size=3, **protocol):
        scores.append(task.score(table[batch.inputs], batch))
        counted += batch.targets[batch.targets != IGNORED].tolist()
    return {name: mean.value for name, mean in merge(scores).items()}, counted


@pytest.mark.parametrize("protocol", [{}, {"limit": 41}, {"protocol": "sliding", "stride": 5}])
def test_bits_per_byte_are_the_bits_of_all_tokens_over_the_bytes_of_their_text(protocol: dict[str, Any], corpus: Path) -> None:
    task = tokens(test="test.npy", token_bytes="bytes.txt")
    assert (task.metric, task.direction) == ("bits_per_byte", "min")
    scores, counted = nats_of(task, **protocol)
    text = "".join(SPELLED[token] for token in counted)
    assert sorted(counted) == sorted(task.split("test")[1 : protocol.get("limit")].tolist())
    assert scores["bits_per_byte"] * len(text.encode()) == pytest.approx(scores["bits_per_token"] * len(counted), rel=1e-12)
    torch.manual_seed(0)
    table = torch.randn(VOCABULARY, VOCABULARY).double().log_softmax(-1)
    sequence = task.split("test")[: protocol.get("limit")].astype(np.int64)
    bits = -table[sequence[:-1], sequence[1:]].sum().item() / math.log(2)
    assert scores["bits_per_byte"] == pytest.approx(bits / len(text.encode()), rel=1e-6)


def test_without_the_bytes_of_tokens_there_are_only_bits_per_token(corpus: Path) -> None:
    task = tokens()
    assert task.metric == "bits_per_token"
    batch = next(task.eval_batches("test", batch_size=3))
    (total, count) = task.score(torch.zeros(*batch.inputs.shape, VOCABULARY), batch)["bits_per_token"]
    assert total / count == pytest.approx(math.log2(VOCABULARY))
    assert "bits_per_byte" not in task.score(torch.zeros(*batch.inputs.shape, VOCABULARY), batch)


MISTAKES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "raw numbers": ({"path": "raw.bin"}, "path", ["raw.bin", "np.save", "np.fromfile"]),
    "a small vocabulary": ({"vocabulary": 300}, "vocabulary", ["300", "306", "train.npy"]),
    "a vocabulary of nothing": ({"vocabulary": 0}, "vocabulary", ["whole number"]),
    "a short test": ({"test": "one.npy"}, "test", ["at least 2 tokens in test, got 1", "one.npy"]),
    "a short text": ({"path": "valid.npy", "length": 300}, "path", ["at least 301 tokens in train, got 90"]),
    "no such file": ({"valid": "none.npy"}, "valid", ["does not exist"]),
    "too few lines": ({"token_bytes": "few.txt"}, "token_bytes", ["307", "2 lines"]),
    "no number": ({"token_bytes": "words.txt"}, "token_bytes", ["words.txt:2", "'two'"]),
    "no text": ({"token_bytes": "latin.txt"}, "token_bytes", ["UTF-8", "offset 2"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_that_begins_with_its_option(kind: str, corpus: Path) -> None:
    NUMBERS.astype("<u2").tofile(corpus / "raw.bin")
    np.save(corpus / "one.npy", np.ones(1, "uint16"))
    (corpus / "few.txt").write_bytes(b"1\n2\n")
    (corpus / "words.txt").write_bytes(b"1\ntwo\n" + b"3\n" * (VOCABULARY - 2))
    (corpus / "latin.txt").write_bytes(b"1\n\xe9\n" * VOCABULARY)
    options, option, words = MISTAKES[kind]
    with pytest.raises(UserError) as caught:
        tokens(**options)
    assert caught.value.message.startswith(f"{option}: ") and "\n" not in str(caught.value)
    assert [word for word in words if word not in caught.value.message] == []


def test_a_late_token_outside_the_vocabulary_is_found_before_training(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor reads only the beginning of a file; ``prepare`` reads all of it."""
    monkeypatch.setattr("attnlab.tasks.tokens.FIRST", 100)
    late = NUMBERS.copy()
    late[1950] = VOCABULARY
    np.save(corpus / "train.npy", late)
    with pytest.raises(UserError, match=r"^vocabulary: .*307"):
        tokens().prepare()


def test_a_file_that_changed_after_the_plan_is_noticed(corpus: Path) -> None:
    study = STUDY.replace("{name: pydocs, length: 24}", "{name: tokens, path: train.npy, vocabulary: 307, length: 24}")
    planned = plan(write(corpus, study))
    np.save(corpus / "train.npy", NUMBERS[::-1])
    with pytest.raises(UserError, match="changed since this was planned"):
        train(planned.cells[0].config)


@pytest.mark.parametrize("metric", ["bits_per_token", "bits_per_byte"])
def test_a_study_trains_and_is_scored(metric: str, corpus: Path) -> None:
    more = ", token_bytes: bytes.txt" if metric == "bits_per_byte" else ""
    task = f"{{name: tokens, path: train.npy, vocabulary: 307, length: 24{more}}}"
    planned = plan(write(corpus, STUDY.replace("{name: pydocs, length: 24}", task)))
    assert (planned.metric, planned.direction) == (metric, "min")
    config: RunConfig = planned.cells[0].config
    result = train(config)
    assert result.state == "completed" and 0 < result.summary[metric] < 20
    assert ("bits_per_byte" in result.summary) == (metric == "bits_per_byte")


def test_mistakes_of_a_study_have_the_place_of_their_option(corpus: Path) -> None:
    task = "{name: tokens, path: train.npy, vocabulary: 300, length: 24}"
    line = misplanned(write(corpus, STUDY.replace("{name: pydocs, length: 24}", task)))
    assert line.startswith(f"s.yaml:3:{STUDY.splitlines()[2].index('{') + 1 + task.index('300')}: vocabulary")


@pytest.mark.parametrize("limit", [None, 53])
def test_the_reference_score_is_that_of_a_model_of_tokens(limit: int | None, corpus: Path) -> None:
    task = tokens()
    scores = {name: reference.score(limit) for name, reference in task.reference_scores().items()}
    order = 64 // 9  # 307 tokens need 9 bits
    chances = reference_scores.KneserNey(task.split("train"), order=order, vocabulary=VOCABULARY).probabilities(
        task.split("test")[:limit]
    )
    assert scores == {"n-gram": pytest.approx(-np.log2(chances[1:]).mean(), rel=1e-12)}
    exact = tokens(token_bytes="bytes.txt")
    bytes_counted = sum(len(SPELLED[token].encode()) for token in task.split("test")[1:limit])
    count = len(task.split("test")[1:limit])
    assert exact.reference_scores()["n-gram"].score(limit) == pytest.approx(scores["n-gram"] * count / bytes_counted)


# ---------------------------------------------------------------- files of other formats


@pytest.mark.parametrize("kind", ["<u2", ">u2", "<i4", ">i8", "u1"])
def test_a_file_states_its_type_and_byte_order(kind: str, corpus: Path) -> None:
    np.save(corpus / "t.npy", (NUMBERS % 200).astype(kind))
    task = tokens(path="t.npy", token_bytes="bytes.txt")
    assert task.split("train").tolist() == (NUMBERS % 200)[:1800].tolist() and task.split("train").dtype == kind
    batch = task.train_batch(3, seed=1, batch_size=5)
    np.save(corpus / "u.npy", (NUMBERS % 200).astype("uint32"))
    assert torch.equal(tokens(path="u.npy").train_batch(3, seed=1, batch_size=5).inputs, batch.inputs)
    assert task.reference_scores()["n-gram"].score(None) > 0


@pytest.mark.parametrize("option", ["path", "test"])
@pytest.mark.parametrize("kind", ["raw", "zip", "text", "pickle", "empty", "cut", "floats", "rows", "negative", "wider"])
def test_other_files_are_refused_in_one_line(kind: str, option: str, corpus: Path) -> None:
    with open("t.npy", "wb") as file:
        match kind:
            case "raw":
                NUMBERS.astype("<u2").tofile(file)
            case "zip":
                np.savez(file, NUMBERS)
            case "text":
                file.write(b"12 7 305\n" * 50)
            case "pickle":
                pickle.dump(NUMBERS, file)
            case "cut":
                file.write((corpus / "train.npy").read_bytes()[:-7])
            case "floats":
                np.save(file, NUMBERS.astype("f4"))
            case "rows":
                np.save(file, NUMBERS.reshape(20, 100))
            case "negative":
                np.save(file, np.where(NUMBERS == 3, -100, NUMBERS).astype("int16"))
            case "wider":
                np.save(file, NUMBERS.astype("uint64"))
    if kind == "wider" and option == "path":
        option = "test"
    with pytest.raises(UserError, match=rf"^{option}: .*t.npy") as refusal:
        tokens(**{"path": "train.npy", option: "t.npy"})
    assert "\n" not in str(refusal.value)

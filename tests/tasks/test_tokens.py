"""Tests of ``tokens``: files of token numbers, their types, their vocabulary, and exact bits per byte."""

import math
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
    for kind in ("uint16", "uint32"):
        NUMBERS.astype(f"<{kind[0]}{int(kind[4:]) // 8}").tofile(folders / f"train.{kind}.bin")
    NUMBERS[:101].astype("<u2").tofile(folders / "valid.bin")
    NUMBERS[::-1][:97].astype("<u2").tofile(folders / "test.bin")
    (folders / "bytes.txt").write_text("".join(f"{len(text.encode())}\n" for text in SPELLED), encoding="utf-8")
    return folders


def tokens(**options: Any) -> Tokens:
    return Tokens(**{"path": "train.uint16.bin", "vocabulary": VOCABULARY, "length": 16, **options})


@pytest.mark.parametrize(("name", "kind"), [("train.uint16.bin", "uint16"), ("train.uint32.bin", "uint32")])
def test_the_type_comes_from_the_name_and_the_splits_from_the_end(name: str, kind: str, corpus: Path) -> None:
    task = tokens(path=name)
    assert task.cuts() == (1800, 1900, 2000) and task.steps_per_epoch(4) == 1799 // 64  # without the data
    assert [task.split(split).tolist() for split in SPLITS] == [
        NUMBERS[:1800].tolist(),
        NUMBERS[1800:1900].tolist(),
        NUMBERS[1900:].tolist(),
    ]
    assert isinstance(task.split("train"), np.memmap) and task.split("train").dtype == kind
    batch = task.train_batch(3, seed=1, batch_size=5)
    assert batch.inputs.dtype == torch.int64 and torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert torch.equal(tokens(path=name).train_batch(3, seed=1, batch_size=5).inputs, batch.inputs)
    counts = [int((batch.targets != IGNORED).sum()) for batch in task.eval_batches("test", batch_size=3)]
    assert sum(counts) == 99


def test_files_of_their_own_and_their_identity(corpus: Path) -> None:
    options = {"valid": "valid.bin", "test": "test.bin", "token_bytes": "bytes.txt"}
    task = tokens(**options)
    assert [len(task.split(split)) for split in SPLITS] == [2000, 101, 97]
    assert task.split("test").tolist() == NUMBERS[::-1][:97].tolist()
    identities = {task.identity(), tokens().identity(), tokens(valid="valid.bin").identity()}
    identities |= {tokens(path="train.uint32.bin").identity(), tokens(**options | {"valid": "test.bin"}).identity()}
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
    task = tokens(test="test.bin", token_bytes="bytes.txt")
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
    "no type": ({"path": "valid.bin"}, "dtype", ["uint16", "uint32", "valid.bin"]),
    "an unknown type": ({"dtype": "int16"}, "dtype", ["'int16'", "uint16"]),
    "a type against the name": ({"dtype": "uint32"}, "dtype", ["uint32", "train.uint16.bin"]),
    "half a token": ({"test": "odd.bin"}, "test", ["multiple of 2 bytes", "odd.bin has 5 bytes"]),
    "wider tokens": ({"path": "wide.bin", "dtype": "uint16", "vocabulary": 70_000}, "dtype", ["uint32", "every second"]),
    "a small vocabulary": ({"vocabulary": 300}, "vocabulary", ["300", "306", "train.uint16.bin"]),
    "a vocabulary of nothing": ({"vocabulary": 0}, "vocabulary", ["whole number"]),
    "a numpy file": ({"path": "x.npy", "dtype": "uint16"}, "path", ["x.npy", "tofile"]),
    "a short test": ({"test": "one.bin"}, "test", ["one.bin has 1 token"]),
    "a short text": ({"path": "valid.bin", "dtype": "uint16", "length": 300}, "path", ["101 tokens", "need 335"]),
    "no such file": ({"valid": "none.bin"}, "valid", ["does not exist"]),
    "too few lines": ({"token_bytes": "few.txt"}, "token_bytes", ["307", "2 lines"]),
    "no number": ({"token_bytes": "words.txt"}, "token_bytes", ["words.txt:2", "'two'"]),
    "no text": ({"token_bytes": "latin.txt"}, "token_bytes", ["UTF-8", "offset 2"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_that_begins_with_its_option(kind: str, corpus: Path) -> None:
    (corpus / "odd.bin").write_bytes(b"12345")
    (corpus / "one.bin").write_bytes(b"\x01\x00")
    NUMBERS.astype("<u4").tofile(corpus / "wide.bin")
    np.save(corpus / "x.npy", NUMBERS.astype(np.uint16))
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
    late.astype("<u2").tofile(corpus / "train.uint16.bin")
    with pytest.raises(UserError, match=r"^vocabulary: .*307"):
        tokens().prepare()


def test_a_file_that_changed_after_the_plan_is_noticed(corpus: Path) -> None:
    study = STUDY.replace("{name: pydocs, length: 24}", "{name: tokens, path: train.uint16.bin, vocabulary: 307, length: 24}")
    planned = plan(write(corpus, study))
    NUMBERS[::-1].astype("<u2").tofile(corpus / "train.uint16.bin")
    with pytest.raises(UserError, match="changed since this was planned"):
        train(planned.cells[0].config)


@pytest.mark.parametrize("metric", ["bits_per_token", "bits_per_byte"])
def test_a_study_trains_and_is_scored(metric: str, corpus: Path) -> None:
    more = ", token_bytes: bytes.txt" if metric == "bits_per_byte" else ""
    task = f"{{name: tokens, path: train.uint16.bin, vocabulary: 307, length: 24{more}}}"
    planned = plan(write(corpus, STUDY.replace("{name: pydocs, length: 24}", task)))
    assert (planned.metric, planned.direction) == (metric, "min")
    config: RunConfig = planned.cells[0].config
    result = train(config)
    assert result.state == "completed" and 0 < result.summary[metric] < 20
    assert ("bits_per_byte" in result.summary) == (metric == "bits_per_byte")


def test_mistakes_of_a_study_have_the_place_of_their_option(corpus: Path) -> None:
    task = "{name: tokens, path: train.uint16.bin, vocabulary: 300, length: 24}"
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


# ---------------------------------------------------------------- files that contradict their options

ZIPF = np.minimum(np.random.default_rng(1).zipf(1.3, size=20_000), 40_000) - 1  # as the ids of a tokenizer are distributed


def saved(folder: Path, numbers: Any, kind: str, name: str = "t.bin") -> str:
    np.asarray(numbers).astype(kind).tofile(folder / name)
    return str(folder / name)


@pytest.mark.parametrize("declared", ["uint16", "uint32"])
@pytest.mark.parametrize("actual", ["<u2", "<u4", "<i8", ">u2", ">u4", ">i8", "u1", "<f4", "<f8"])
def test_another_type_or_byte_order_is_refused_or_noted(declared: str, actual: str, corpus: Path) -> None:
    large = np.where(ZIPF % 5, ZIPF, ZIPF + 60_000)
    for numbers, vocabulary in ((ZIPF % 250, 256), (ZIPF, 50_257), (ZIPF, 65_536), (large, 100_277)):
        if np.dtype(actual).kind != "f" and numbers.max() > np.iinfo(actual).max:
            continue
        options = {"path": saved(corpus, numbers, actual), "dtype": declared, "vocabulary": vocabulary}
        if np.dtype(actual) == np.dtype(f"<u{np.dtype(declared).itemsize}"):
            assert tokens(**options).data_notes() == []
            continue
        try:
            notes = tokens(**options).data_notes()
        except UserError as error:
            assert error.message.startswith(("dtype: ", "vocabulary: ", "path: ")) and "\n" not in str(error)
        else:
            assert vocabulary == 65_536 and any("big-endian" in note or "wider numbers" in note for note in notes)


@pytest.mark.parametrize(
    ("numbers", "kind", "declared", "vocabulary", "words"),
    [
        (ZIPF, "<i8", "uint16", 50_257, "8-byte"),
        (ZIPF, "<i8", "uint32", 50_257, "8-byte"),
        (ZIPF, "<u4", "uint16", 50_257, "uint32"),
        (ZIPF + 60_000 * (ZIPF > 9), "<u4", "uint16", 100_277, "uint32"),
        (ZIPF, ">u4", "uint16", 50_257, "most significant"),
        (ZIPF, ">u4", "uint32", 50_257, "big-endian"),
        (ZIPF % 200, ">u2", "uint16", 256, "big-endian"),
        (ZIPF % 256, "u1", "uint16", 256, "uint8"),
        (ZIPF % 300, "<u2", "uint32", 300, "uint16"),
        (np.where(ZIPF > 999, -1, ZIPF), "<i2", "uint16", 50_257, "signed numbers, with -1"),
        (np.where(ZIPF > 999, -100, ZIPF), "<i2", "uint16", 50_257, "signed numbers, with -100"),
        (np.where(ZIPF > 999, -100, ZIPF), "<i4", "uint32", 50_257, "signed numbers, with -100"),
        (ZIPF, "<f4", "uint32", 50_257, "float32"),
        (np.zeros(3_000), "<u2", "uint16", 300, "different tokens in train"),
        (np.full(3_000, 7), "<u4", "uint32", 300, "different tokens in train"),
        (np.concatenate([ZIPF % 300, np.zeros(5_000)]), "<u2", "uint16", 300, "different tokens in valid"),
    ],
)
def test_a_contradiction_is_one_line_that_names_it(
    numbers: Any, kind: str, declared: str, vocabulary: int, words: str, corpus: Path
) -> None:
    with pytest.raises(UserError) as refusal:
        tokens(path=saved(corpus, numbers, kind), dtype=declared, vocabulary=vocabulary)
    assert words in refusal.value.message and "t.bin" in refusal.value.message and "\n" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["uint16", "uint32"])
def test_a_vocabulary_that_is_too_small_by_one_has_no_other_cause(kind: str, corpus: Path) -> None:
    with pytest.raises(UserError) as refusal:
        tokens(path=saved(corpus, ZIPF % 500 + 1, kind), dtype=kind, vocabulary=500)
    assert "500" in refusal.value.message and "is it a file of" not in refusal.value.message


def test_bytes_are_no_uint16_and_hashed_tokens_are_no_bytes(corpus: Path) -> None:
    notes = tokens(path=saved(corpus, ZIPF % 256, "u1"), dtype="uint16", vocabulary=65_536).data_notes()
    assert any("uint8" in note for note in notes)
    for vocabulary in (1_024, 50_257, 65_536):
        hashed = np.random.RandomState(0).randint(0, vocabulary, 40_000)
        assert tokens(path=saved(corpus, hashed, "<u2"), dtype="uint16", vocabulary=vocabulary).data_notes() == []


@pytest.mark.parametrize("option", ["path", "valid", "test"])
def test_files_of_other_formats_are_refused(option: str, corpus: Path) -> None:
    body = NUMBERS.astype("<u2").tobytes()
    heads = {"numpy": b"\x93NUMPY\x01\x00", "zip": b"PK\x03\x04", "gzip": b"\x1f\x8b\x08\x00", "Parquet": b"PAR1"}
    heads |= {"llm.c": np.array([20240520, 1], "<i4").tobytes(), "Megatron": b"MMIDIDX\x00", "pickle": b"\x80\x04\x95\x00"}
    for name, head in heads.items():
        (corpus / "t.bin").write_bytes(head + body)
        with pytest.raises(UserError, match=rf"^{option}: .*{name}"):
            tokens(**{"path": "train.uint16.bin", "dtype": "uint16", option: "t.bin"})
    (corpus / "t.bin").write_text("12 7 305 und 'größer'\n" * 50, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^{option}: .*a text"):
        tokens(**{"path": "train.uint16.bin", "dtype": "uint16", "vocabulary": 65_536, option: "t.bin"})


def test_the_names_of_all_files_are_those_of_the_type(corpus: Path) -> None:
    saved(corpus, NUMBERS, "<u4", "test.uint32.bin")
    with pytest.raises(UserError, match=r"^dtype: uint16 .*test.uint32.bin"):
        tokens(test="test.uint32.bin")


@pytest.mark.parametrize(
    ("numbers", "vocabulary", "words"),
    [
        (np.concatenate([[7, 1], np.zeros(510), ZIPF % 299 + 1]), 300, "header"),
        (np.concatenate([ZIPF % 300, np.full(400, 9)]), 300, "the last 400 tokens of test"),
        (np.sort(ZIPF % 300), 300, "never decrease"),
        (np.where(np.arange(20_000) % 5 < 3, 1, ZIPF % 300), 300, "are 1: are rows padded?"),
        (ZIPF % 300, 50_257, "largest token of train (t.bin) is 299"),
    ],
)
def test_unusual_tokens_are_noted(numbers: Any, vocabulary: int, words: str, corpus: Path) -> None:
    notes = tokens(path=saved(corpus, numbers, "<u2"), dtype="uint16", vocabulary=vocabulary).data_notes()
    assert any(words in note for note in notes)


def test_ordinary_tokens_have_no_note(corpus: Path) -> None:
    assert tokens(token_bytes="bytes.txt").data_notes() == []
    for kind in ("uint16", "uint32"):
        path = saved(corpus, ZIPF, f"<u{int(kind[4:]) // 8}")
        assert tokens(path=path, dtype=kind, vocabulary=50_257).data_notes() == []


def test_numbers_of_bytes_are_cut_by_lines_and_unusual_ones_are_noted(corpus: Path) -> None:
    counts = [str(len(text.encode())) for text in SPELLED]
    (corpus / "bytes.txt").write_bytes("\r\n".join(counts).encode())
    assert tokens(token_bytes="bytes.txt").data_notes() == []
    (corpus / "bytes.txt").write_bytes("\x85".join(counts).encode())
    with pytest.raises(UserError, match=r"^token_bytes: "):
        tokens(token_bytes="bytes.txt")
    (corpus / "bytes.txt").write_bytes(b"1\n" + b"0\n" * (VOCABULARY - 1))
    assert any("bytes on average" in note for note in tokens(token_bytes="bytes.txt").data_notes())
    half = [count if i % 2 else "0" for i, count in enumerate(counts)]
    (corpus / "bytes.txt").write_text("\n".join(half), encoding="utf-8")
    assert any("have no bytes" in note for note in tokens(token_bytes="bytes.txt").data_notes())
    (corpus / "many.txt").write_bytes(b"1\n" * 600)
    assert any("600 tokens have one byte" in note for note in tokens(token_bytes="many.txt", vocabulary=600).data_notes())

"""Tests of bytes as subwords: exact round trips, exact bits per byte, limits in bytes, and comparable cells."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnlab import load_runs
from attnlab._util.metrics import merge
from attnlab.config import comparability
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report.reference_scores import matching_scores
from attnlab.study.run import run
from attnlab.tasks import IGNORED, SPLITS, byte_bpe
from attnlab.tasks.byte_bpe import ByteBPE, chunks
from attnlab.tasks.bytes import ByteTask, bytes_per_token
from attnlab.tasks.enwik8 import Enwik8
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.subwords import learn
from attnlab.tasks.text import Text
from attnlab.testing import check_task
from attnlab.trained.generation import generate
from tests.support.compared import recorded
from tests.support.studies import STUDY, misplanned, write

VOCABULARY = 400
PROSE = "".join(
    f"The {i % 13}th naïve “reader” reads\n\n  line {i}, and “{'so' * (i % 4)}” on.\t\n" for i in range(300)
).encode()
BROKEN = PROSE + b"\xff\xfe broken \xe2\x80 bytes\n" * 5
ENCODER = ByteBPE(learn("byte_bpe", [PROSE.decode()], vocabulary=VOCABULARY))


@pytest.fixture
def corpus(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folders)
    (folders / "book.txt").write_bytes(BROKEN * 3)
    (folders / "test.txt").write_bytes(BROKEN[::2])
    return folders


def text(**options: Any) -> Text:
    return Text(**{"path": "book.txt", "test": "test.txt", "length": 16, "tokens": "bpe", "vocabulary": VOCABULARY, **options})


@given(st.binary(max_size=300))
def test_every_sequence_of_bytes_survives_the_round_trip(data: bytes) -> None:
    ids = ENCODER.encode(data)
    assert ENCODER.decode(ids.tolist()) == data
    assert sum(len(ENCODER.tokens[token]) for token in ids) == len(data)


@given(st.text(alphabet="ab 1.\n\t’é", max_size=400), st.integers(1, 60))
def test_chunks_that_end_at_lines_have_the_tokens_of_the_whole_text(prose: str, size: int) -> None:
    data = prose.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_bpe, "CHUNK", size)
        places = list(chunks(data))
        parts = ENCODER.encode(data)
    assert b"".join(data[place] for place in places) == data and all(0 < p.stop - p.start <= size for p in places)
    assert ENCODER.decode(parts.tolist()) == data
    if all(re.search(rb"\S\n\Z", data[: place.stop]) and not data[place.stop :][:1].isspace() for place in places[:-1]):
        assert parts.tolist() == ENCODER.encode(data).tolist()


def test_a_chunk_ends_at_a_line_break_that_no_token_can_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_bpe, "CHUNK", 200)
    ends = [place.stop for place in chunks(PROSE.replace(b"\t\n", b"\n"))]
    assert len(ends) > 50
    parts = ENCODER.encode(PROSE.replace(b"\t\n", b"\n"))
    monkeypatch.undo()
    assert parts.tolist() == ENCODER.encode(PROSE.replace(b"\t\n", b"\n")).tolist()


def test_each_split_is_encoded_by_itself(corpus: Path) -> None:
    task = text()
    assert task.tokens == "bpe" and task.vocabulary == VOCABULARY
    for split in ("train", "valid", "test"):
        tokens = task.split(split)
        assert isinstance(tokens, np.memmap) and tokens.dtype == np.uint16 and len(tokens) < len(task.text(split))
        assert task.subwords.decode(tokens.tolist()) == task.text(split).tobytes()
    assert task.text("test").tobytes() == BROKEN[::2]


def test_the_vocabulary_is_learned_on_train_only(corpus: Path) -> None:
    one = text().subwords.tokens
    (corpus / "test.txt").write_bytes(b"other " * 200)
    assert text().subwords.tokens == one
    (corpus / "book.txt").write_bytes(b"other words " * 200 + PROSE)
    assert text(vocabulary=300).subwords.tokens != one[:300]


def test_splits_are_encoded_once(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, encoded = ByteBPE.encode_groups, []
    monkeypatch.setattr(ByteBPE, "encode_groups", lambda self, data: encoded.append(len(data)) or encode(self, data))
    text().prepare()
    assert len(encoded) == len(SPLITS)
    text(length=32).prepare()
    assert len(encoded) == len(SPLITS), "another length reads the same tokens"


def bits(task: ByteTask, **protocol: Any) -> tuple[dict[str, float], bytes, float]:
    """Return the scores of a fixed random model on ``test``, the bytes of all counted targets, and the bits of its rows."""
    table = torch.randn(task.vocabulary, task.vocabulary, generator=torch.Generator().manual_seed(0))
    scores, counted, rows = [], [], 0.0
    for batch in task.eval_batches("test", batch_size=3, **protocol):
        logits = table[batch.inputs]
        scores.append(task.score(logits, batch))
        sums, counts = task.item_scores(logits, batch)
        kept = batch.targets != IGNORED
        assert counts.tolist() == [
            sum(len(ENCODER_OF[task].tokens[t]) for t in row[k]) for row, k in zip(batch.targets, kept, strict=True)
        ]
        rows += float(sums.sum())
        order = range(len(kept)) if batch.items is None else batch.items.tolist()
        counted += [(item, batch.targets[row][kept[row]].tolist()) for row, item in enumerate(order)]
    tokens = [token for _, row in sorted(counted) for token in row]
    return {name: mean.value for name, mean in merge(scores).items()}, ENCODER_OF[task].decode(tokens), rows


ENCODER_OF: dict[ByteTask, ByteBPE] = {}


@pytest.mark.parametrize(
    "protocol", [{}, {"limit": 501}, {"limit": 5_003}, {"limit": 5_003, "protocol": "sliding", "stride": 5}]
)
def test_bits_per_byte_are_the_bits_of_all_tokens_over_the_bytes_of_their_text(protocol: dict[str, Any], corpus: Path) -> None:
    task = text()
    ENCODER_OF[task] = task.subwords
    scores, counted, rows = bits(task, **protocol)
    table = torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
    parts, tokens = task.stretches("test", protocol.get("limit")), task.split("test").astype(np.int64)
    total, expected = 0.0, b""
    for start, end in zip(parts.starts, parts.ends, strict=True):
        total -= table[tokens[start : end - 1], tokens[start + 1 : end]].sum().item() / math.log(2)
        expected += ENCODER_OF[task].decode(tokens[start + 1 : end].tolist())
    assert counted == expected
    assert scores["bits_per_byte"] == pytest.approx(total / len(expected), rel=1e-6) and rows == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("limit", [None, 501, 2_500, 5_003])
def test_subwords_are_tested_on_the_bytes_that_bytes_are_tested_on(limit: int | None, corpus: Path) -> None:
    subwords, plain = text(), Text(path="book.txt", test="test.txt", length=16)
    parts, wanted = subwords.stretches("test", limit), plain.stretches("test", limit)
    lengths = [len(token) for token in subwords.subwords.tokens]
    places = np.cumsum([0, *(lengths[token] for token in subwords.split("test"))])
    longest = max(lengths)
    assert len(parts.starts) == len(wanted.starts)
    first, last = places[parts.starts + 1], places[parts.ends]  # of the predicted bytes
    assert ((first > wanted.starts) & (first <= wanted.starts + longest)).all()
    assert ((last <= wanted.ends) & (last > wanted.ends - longest)).all()
    of_references = [np.concatenate(task.counted("test", limit)) for task in (subwords, plain)]
    assert np.array_equal(of_references[0], of_references[1])


def test_rows_of_an_evaluation_continue_from_batch_to_batch(corpus: Path) -> None:
    """Stretches have unequal numbers of tokens, but a memory keeps its rows until the longest one ends."""
    batches = list(text(sampling="contiguous").eval_batches("test", batch_size=7, limit=5_003))
    assert len(batches) > 20 and batches[0].fresh
    for before, after in zip(batches, batches[1:], strict=False):
        if not after.fresh:
            real = after.targets[:, 0] != IGNORED
            assert len(before.inputs) == len(after.inputs)
            assert torch.equal(before.targets[real][:, -1], after.inputs[real][:, 0])


def test_a_limit_within_one_token_leaves_nothing_to_predict(corpus: Path) -> None:
    (corpus / "test.txt").write_bytes(b"reader")
    with pytest.raises(UserError, match="nothing to predict"):
        text().eval_batches("test", batch_size=1, limit=3)


def test_the_contract_of_tasks_holds_for_subwords() -> None:
    results = check_task("pydocs", options={"length": 24, "tokens": "bpe", "vocabulary": 500})
    assert not [result for result in results if result.status == "failed"]


@pytest.mark.parametrize("name", ["valid_limit", "test_limit"])
def test_a_limit_of_few_bytes_is_refused_in_the_plan(name: str, corpus: Path) -> None:
    study = STUDY.replace("name: pydocs", "name: pydocs, tokens: bpe, vocabulary: 512")
    study = study.replace("  machine:", f"  evaluate: {{{name}: 255}}\n  machine:")
    refusals = {cell.refusal for cell in plan(write(corpus, study)).cells}
    assert len(refusals) == 1 and f"evaluate.{name}: expected at least 256 bytes" in str(refusals.pop())


@pytest.mark.exhaustive  # of small texts: the tests above
def test_enwik8_survives_the_round_trip(real_data: Path) -> None:
    data = Enwik8().text("valid")[:1_000_000].tobytes()
    encoder = ByteBPE(learn("byte_bpe", [data[place].decode(errors="ignore") for place in chunks(data)], vocabulary=1_024))
    ids = encoder.encode(data)
    assert encoder.decode(ids.tolist()) == data
    assert 0.9 < len(data) / len(ids) / bytes_per_token(1_024) < 1.1


@pytest.mark.parametrize("sampling", ["random", "contiguous"])
def test_rows_are_tokens(sampling: str, corpus: Path) -> None:
    task = text(sampling=sampling)
    batch = task.train_batch(2, seed=1, batch_size=3)
    assert batch.inputs.shape == (3, 16) and torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    encoder, train = task.subwords, task.text("train").tobytes()
    assert all(encoder.decode(row.tolist()) in train for row in batch.inputs)


def test_the_plan_neither_learns_nor_encodes(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ByteTask, "prepare", lambda self: pytest.fail("prepared"))
    study = STUDY.replace("name: pydocs", "name: pydocs, tokens: bpe, vocabulary: 512").replace("steps: 3", "epochs: 1")
    cell = plan(write(corpus, study)).cells[0]
    assert cell.refusal is None and cell.eval_flops and cell.train_flops
    assert any("512 tokens" in note for note in PyDocs(tokens="bpe", vocabulary=512).data_notes())


def test_cells_that_differ_in_their_tokens_have_the_same_test() -> None:
    cells: list[dict[str, Any]] = [{}, {"tokens": "bytes"}, {"tokens": "bpe", "vocabulary": 300}]
    cells.append({"tokens": "bpe", "vocabulary": 512})
    data = [PyDocs(**options).identity() for options in cells]
    assert data[0] == data[1] and len(set(data)) == 3
    task = {"name": "pydocs", "length": 16}
    configs = [{"task": {**task, **options}, "data": text} for options, text in zip(cells, data, strict=True)]
    tests = {comparability.test_identity(config, 16) for config in configs}
    assert len(tests) == 1 and json.loads(tests.pop())["data"] == data[0]
    imdb = [{"task": {"name": "imdb", "vocabulary": size}, "data": "imdb"} for size in (300, 512)]
    assert len({comparability.test_identity(config, 16) for config in imdb}) == 2


def test_a_study_compares_bytes_with_subwords(corpus: Path) -> None:
    study = """\
study: s
base:
  variant: dense
  position: learned
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 4, batch_size: 3}
  evaluate: {test_limit: 3_000}
  machine: {device: cpu}
  task: {name: text, path: book.txt, test: test.txt, length: 16}
grid:
  subwords:
    none: {task.tokens: bytes}
    few: {task.tokens: bpe, task.vocabulary: 300}
seeds: [0, 1]
baseline: {subwords: none}
reference_scores: [xz]
"""
    planned = plan(write(corpus, study))
    assert not [note for note in planned.notes if "not the same test" in note]
    result = run(planned)
    assert result.ok and all(2 < row.summary["bits_per_byte"] < 9 for row in result.rows)
    (score,) = result.reference_scores  # of the text, whatever its tokens
    runs = load_runs("s").to_dict("records")
    assert len(runs) == 4
    sample = generate("s/few/0", length=7)
    assert "7 tokens" in sample.method and sample.origin.startswith("256 tokens of the validation split")
    assert sample.prompt and generate("s/none/0", prompt="The", length=7).method.startswith("sample: 7 bytes")
    assert all(matching_scores([score], [dict(run)], metric="bits_per_byte") for run in runs)
    cells = recorded("s", None)[1].cells
    assert [cell.difference is not None for cell in cells if not cell.is_baseline] == [True]


MISTAKES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "unknown tokens": ({"tokens": "wordpiece"}, "tokens", ["bytes or bpe", "'wordpiece'"]),
    "no vocabulary": ({"vocabulary": None}, "vocabulary", ["tokens: bpe", "8192"]),
    "a vocabulary of bytes": ({"tokens": "bytes"}, "vocabulary", ["tokens: bytes", "400"]),
    "fewer tokens than bytes": ({"vocabulary": 255}, "vocabulary", ["at least 256", "255"]),
    "no number": ({"vocabulary": "8k"}, "vocabulary", ["whole number", "'8k'"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_that_begins_with_its_option(kind: str, corpus: Path) -> None:
    options, option, words = MISTAKES[kind]
    with pytest.raises(UserError) as caught:
        text(**options)
    assert caught.value.message.startswith(f"{option}: ") and "\n" not in str(caught.value)
    assert [word for word in words if word not in caught.value.message] == []


def test_a_mistake_of_a_study_has_the_place_of_its_option(corpus: Path) -> None:
    line = misplanned(write(corpus, STUDY.replace("name: pydocs", "name: pydocs, tokens: bpe, vocabulary: 100")))
    assert line.startswith("s.yaml:3:") and "vocabulary: expected" in line

"""Tests of reviews: splits, words, and batches of similar lengths, on a small generated archive and on the real one."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.errors import UserError
from attnlab.tasks import corpora, datasets, documents, imdb, subwords
from attnlab.tasks.bucketing import by_length, padding_share, shuffled_by_length
from attnlab.tasks.corpora import CLASSES
from attnlab.tasks.imdb import Imdb
from attnlab.tasks.masked_text import MaskedText
from attnlab.tasks.reference_scores import Texts

LENGTHS = np.random.default_rng(0).lognormal(5.2, 0.6, size=4001).clip(5, 512).astype(int)


@pytest.mark.parametrize("batch_size", [1, 3, 32, 5000])
def test_an_epoch_has_every_row_once_with_little_padding(batch_size: int):
    batches = shuffled_by_length(LENGTHS, np.random.default_rng(1), batch_size=batch_size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(4001))
    sizes = {len(batch) for batch in batches}
    assert max(sizes) <= batch_size and max(sizes) - min(sizes) <= 1
    assert len(batches) == -(-4001 // batch_size)
    assert batch_size == 5000 or padding_share(LENGTHS, batches) <= 0.03


def test_the_seed_decides_the_order_and_batches_mix():
    epochs = [shuffled_by_length(LENGTHS, np.random.default_rng(s), batch_size=32) for s in (1, 1, 2)]
    assert all(np.array_equal(a, b) for a, b in zip(epochs[0], epochs[1], strict=True))
    pairs = [{tuple(sorted(batch[:2].tolist())) for batch in epoch} for epoch in epochs]
    assert len(pairs[0] & pairs[2]) < 5  # a row is batched with other rows
    means = [LENGTHS[batch].mean() for batch in epochs[0]]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3  # short and long batches are mixed


def test_evaluation_batches_fill_a_budget_of_tokens():
    batches = by_length(LENGTHS, tokens=4 * 512)
    assert sorted(np.concatenate(batches).tolist()) == list(range(4001))
    assert all(len(batch) * LENGTHS[batch].max() <= 4 * 512 for batch in batches)
    assert len(batches) < 0.55 * 4001 / 4  # fewer batches than with a fixed four rows
    assert len(by_length(np.asarray([9, 9]), tokens=1)) == 2


# ---------------------------------------------------------------- a small archive


@pytest.fixture
def task(small_reviews: None) -> Imdb:
    task = Imdb(length=17, vocabulary=40)
    task.prepare()
    return task


def test_splits_are_stratified_and_words_come_from_train_alone(task: Imdb):
    for name, count in (("train", 18), ("valid", 2), ("test", 20)):
        assert np.bincount(task.split(name).labels).tolist() == [count, count]
    words = json.loads((task._place / "words.json").read_text())["model"]["vocab"]  # type: ignore[operator]
    assert words["[PAD]"] == 0 and words["[UNK]"] == 1 and len(words) == 40
    assert "trainonly" in words and "testonly" not in words
    assert task.split("test").tokens[0] == 1 and task.split("train").tokens.dtype == np.uint16
    assert "br" not in words and task.decode(task.encode("GOOD!<br />bad")) == "good ! bad"


def test_training_batches(task: Imdb):
    steps = task.steps_per_epoch(5)
    assert steps == 8
    batches = [task.train_batch(step, seed=1, batch_size=5) for step in range(2 * steps)]
    for epoch in (batches[:steps], batches[steps:]):
        assert sum(len(batch.targets) for batch in epoch) == 36
        assert sum(int(batch.targets.sum()) for batch in epoch) == 18
        lengths = np.minimum(task.split("train").lengths, 17)
        assert sum(batch.tokens for batch in epoch) == lengths.sum()
    for batch in batches:
        real = torch.ones_like(batch.inputs, dtype=torch.bool) if batch.mask is None else batch.mask
        assert torch.equal(real, batch.inputs != 0)  # no word has the padding's number
        assert batch.inputs.shape[1] <= 17 and real[:, 0].all() and bool(real.any(0).all())
    again = Imdb(length=17, vocabulary=40)
    for step in (13, 2, 9):
        assert torch.equal(again.train_batch(step, seed=1, batch_size=5).inputs, batches[step].inputs)
    firsts = [task.train_batch(0, seed=seed, batch_size=36).inputs for seed in (1, 2)]
    assert firsts[0].shape != firsts[1].shape or not torch.equal(*firsts)


def test_evaluation_reads_all_once_and_a_limit_is_balanced(task: Imdb):
    batches = list(task.eval_batches("test", batch_size=3))
    assert sum(len(batch.targets) for batch in batches) == 40
    assert sum(batch.tokens for batch in batches) == np.minimum(task.split("test").lengths, 17).sum()
    some = list(task.eval_batches("test", batch_size=3, limit=10))
    assert sum(len(batch.targets) for batch in some) == 10
    assert sum(int(batch.targets.sum()) for batch in some) == 5
    tokens = {limit: task.eval_tokens("test", limit=limit, protocol="segment", stride=None) for limit in (None, 10)}
    assert tokens == {None: 40 * 17, 10: 10 * 17}
    with pytest.raises(UserError, match="no protocol"):
        next(task.eval_batches("test", batch_size=3, protocol="sliding", stride=1))


def reviews(texts: Texts, *, length: int | None = None) -> list[tuple[int, ...]]:
    """Return each review as its class and its words (the first ``length``), sorted."""
    cut = np.split(texts.words, texts.ends[:-1])
    return sorted((int(label), *map(int, words[:length])) for label, words in zip(texts.labels, cut, strict=True))


def test_reference_scores_learn_from_train_and_valid_and_count_what_an_evaluation_counts(
    task: Imdb, monkeypatch: pytest.MonkeyPatch
):
    met: list[Any] = []
    monkeypatch.setattr(documents, "tfidf_accuracy", lambda *texts: met.append(texts) or 0.5)
    assert [baseline.score(10) for baseline in task.reference_scores().values()] == [0.5]
    whole = {name: task.split(name) for name in ("train", "valid", "test")}
    known = {name: reviews(Texts(of.tokens, of.ends, of.labels)) for name, of in whole.items()}
    ((train, valid, test),) = met
    assert reviews(train) == known["train"] and reviews(valid) == known["valid"]
    counted = [
        (int(label), *(int(word) for word in words if word))
        for batch in task.eval_batches("test", batch_size=3, limit=10)
        for words, label in zip(batch.inputs, batch.targets, strict=True)
    ]
    assert reviews(test, length=17) == sorted(counted), "an evaluation reads the first 17 words"
    assert set(reviews(test)) <= set(known["test"]), "a baseline all of them"


def test_score_and_loss(task: Imdb):
    batch = next(task.eval_batches("valid", batch_size=4))
    logits = torch.nn.functional.one_hot(batch.targets, 2).float() * 3
    logits[0] = -logits[0]  # one wrong prediction
    n = len(batch.targets)
    score = task.score(logits, batch)
    assert score["accuracy"] == (n - 1, n)
    expected = -logits.double().log_softmax(-1).gather(1, batch.targets[:, None]).sum().item()
    assert score["loss"] == (pytest.approx(expected, rel=1e-6), n)
    assert task.loss(logits, batch).item() == pytest.approx(expected / n, rel=1e-6)


def test_refusals(task: Imdb):
    def config(mem_len: int, protocol: str) -> SimpleNamespace:
        evaluate = SimpleNamespace(protocol=protocol)
        return SimpleNamespace(model=SimpleNamespace(mem_len=mem_len), evaluate=evaluate)

    assert task.unsupported(config(0, "segment")) is None  # type: ignore[arg-type]
    assert "memory" in str(task.unsupported(config(8, "segment")))  # type: ignore[arg-type]
    assert "sliding" in str(task.unsupported(config(0, "sliding")))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="vocabulary: expected a whole number of at least 3"):
        Imdb(vocabulary=2)


# ---------------------------------------------------------------- subwords


def with_subwords(**options: Any) -> Imdb:
    made = Imdb(**{"length": 9, "vocabulary": 90, "tokens": "wordpiece", **options})
    made.prepare()
    return made


def test_a_row_of_subwords_is_cls_review_sep_also_where_it_is_cut(small_reviews: None):
    task = with_subwords()
    whole = with_subwords(length=400)
    cut = 0
    for made, batch in ((t, b) for t in (task, whole) for b in t.eval_batches("test", batch_size=8)):
        lengths = batch.mask.sum(1) if batch.mask is not None else torch.full((len(batch.inputs),), batch.inputs.shape[1])
        rows = torch.arange(len(lengths))
        assert (batch.inputs[:, 0] == subwords.CLS).all() and (batch.inputs[rows, lengths - 1] == subwords.SEP).all()
        assert ((batch.inputs == subwords.SEP).sum(1) == 1).all()
        full = made.split("test").lengths[batch.items.numpy()]  # type: ignore[union-attr]
        cut += int((full > made.length).sum())
    assert cut > 10


def test_subwords_are_encoded_as_the_reviews_are(small_reviews: None):
    task = with_subwords(length=400)
    ids = task.encode("GOOD!<br />bad")
    assert ids[0] == subwords.CLS and ids[-1] == subwords.SEP and task.decode(ids) == "good! bad"
    assert task.split("train").tokens.max() < 90 and subwords.UNK not in ids


def test_the_vocabulary_is_that_of_the_pretraining_task(small_reviews: None):
    task, pretraining = with_subwords(), MaskedText(corpus="imdb", vocabulary=90)
    assert task.vocabulary_identity() == pretraining.vocabulary_identity()
    assert task.encode("bad w1 w2") == pretraining.encode("bad w1 w2")
    others = [MaskedText(corpus="imdb", vocabulary=91), MaskedText(corpus="enwik8", vocabulary=90), Imdb(vocabulary=90)]
    assert task.vocabulary_identity() not in {other.vocabulary_identity() for other in others}
    assert Imdb(length=9).vocabulary_identity() == Imdb().vocabulary_identity()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": "letters"}, "tokens: expected words or wordpiece, got 'letters'"),
        ({"tokens": "wordpiece", "corpus": "imbd"}, "corpus: expected enwik8 or imdb, got 'imbd' .*imdb"),
        ({"role": "cross"}, "role: expected bidirectional or causal"),
        ({"tokens": "wordpiece", "length": 2}, "length: expected at least 3"),
    ],
)
def test_refused_options(options: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Imdb(**options)


@pytest.mark.exhaustive  # of small files: the tests above
@pytest.mark.real
def test_the_real_reviews(real_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The archive is read whole; every tenth review is prepared."""
    task = Imdb()
    assert task.steps_per_epoch(32) == 704  # without the data
    reviews, note = imdb.IMDB.read(imdb.IMDB, datasets.folder() / imdb.IMDB.file)
    assert "sha256 of the 50,000 as expected" in note
    counts = {"train": 11_250, "valid": 1_250, "test": 12_500}
    for name, names in corpora.hold_out(list(reviews)).items():
        assert [sum(f"/{label}/" in review for review in names) for label in CLASSES] == [counts[name]] * 2

    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path))
    monkeypatch.setattr(corpora, "HELD_OUT", 125)
    monkeypatch.setattr(datasets, "load", lambda source: {name: reviews[name] for name in list(reviews)[::10]})
    task.prepare()
    for name, count in counts.items():
        assert np.bincount(task.split(name).labels).tolist() == [count // 10] * 2
    assert task.padding(batch_size=32) <= 0.03
    monkeypatch.setattr(Imdb, "build_data", lambda *_: pytest.fail("what is prepared was prepared again"))
    again = Imdb()
    again.prepare()
    again.train_batch(0, seed=0, batch_size=32)

"""Tests of the pre-training of BERT: pairs of passages, masks, and metrics, on a small made-up corpus."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attnlab._util.metrics import merge
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, Batch, corpora, subwords
from attnlab.tasks.masked_text import IS_NEXT, NOT_NEXT, MaskedText, Passages
from attnlab.tasks.masking import MaskedOutput, mask_tokens, predicted_tokens
from attnlab.testing import check_task
from tests.support.documents import documents, use_small_corpus

SPECIAL = len(subwords.SPECIAL_TOKENS)
MASKABLE = np.arange(40)[None] < np.full((2000, 1), 37)
OPTIONS = {"mask": subwords.MASK, "first": SPECIAL, "vocabulary": 500}


@pytest.fixture
def corpus(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_corpus(monkeypatch)


def task(**options: object) -> MaskedText:
    made = MaskedText(**{"length": 24, "vocabulary": 120, **options})  # type: ignore[arg-type]
    made.prepare()
    return made


# ---------------------------------------------------------------- masks


def test_15_per_cent_are_chosen_and_80_10_10_per_cent_masked_replaced_and_kept():
    tokens = np.random.default_rng(0).integers(SPECIAL, 500, MASKABLE.shape)
    inputs, targets, positions = mask_tokens(tokens, MASKABLE, rng=np.random.default_rng(1), **OPTIONS)
    chosen = targets != IGNORED
    assert (chosen.sum(1) == 6).all() and not chosen[:, 37:].any()  # round(0.15 * 37)
    assert torch.equal(targets[chosen], torch.from_numpy(tokens)[chosen])
    assert torch.equal(inputs[~chosen], torch.from_numpy(tokens)[~chosen])
    shares = [(inputs[chosen] == token).double().mean().item() for token in (subwords.MASK, targets[chosen])]
    assert shares == pytest.approx([0.8, 0.1 + 0.1 / 495], abs=0.01)  # a standard error is 0.004
    assert inputs[chosen].min() >= subwords.MASK and inputs[chosen].max() == 499
    assert (targets.gather(1, positions) != IGNORED).all() and positions.shape == (2000, 6)
    places = chosen.double().mean(0)[:37]
    assert places.min() > 0.12 and places.max() < 0.21  # each position as often: 6 / 37, a standard error is 0.008


def test_neither_the_choice_nor_the_replacement_depends_on_the_hidden_token():
    """Rows that differ in their chosen tokens alone have the same inputs, except where a token is kept."""
    tokens = np.random.default_rng(0).integers(SPECIAL, 500, MASKABLE.shape)
    inputs, targets, positions = mask_tokens(tokens, MASKABLE, rng=np.random.default_rng(1), **OPTIONS)
    chosen = (targets != IGNORED).numpy()
    others = np.where(chosen, (tokens - SPECIAL + 7) % 495 + SPECIAL, tokens)
    again, other_targets, other_positions = mask_tokens(others, MASKABLE, rng=np.random.default_rng(1), **OPTIONS)
    assert torch.equal(positions, other_positions) and torch.equal(targets == IGNORED, other_targets == IGNORED)
    differs = inputs != again
    assert torch.equal(inputs[differs], torch.from_numpy(tokens)[differs])
    assert differs.sum() / chosen.sum() == pytest.approx(0.1, abs=0.01)


def test_a_row_with_fewer_targets_repeats_a_position_without_one():
    maskable = np.arange(20)[None] < np.array([[20], [3]])
    _, targets, positions = mask_tokens(np.full((2, 20), 9), maskable, rng=np.random.default_rng(0), **OPTIONS)
    assert (targets != IGNORED).sum(1).tolist() == [3, 1] and positions.shape == (2, 3)
    batch = Batch(targets, targets, positions=positions)
    assert (predicted_tokens(batch) != IGNORED).sum(1).tolist() == [3, 1]


# ---------------------------------------------------------------- pairs


def test_half_of_the_pairs_follow_each_other_in_their_document_and_the_others_are_of_two():
    sentences = np.array([3, 7, 12, 20, 22, 30, 31, 40])
    passages = Passages(np.arange(40), sentences, np.array([12, 20, 40]))
    pairs = passages.draw(4000, room=9, random_half=True, rng=np.random.default_rng(0))
    document = np.searchsorted([12, 20, 40], pairs.starts_a, side="right")
    other = np.searchsorted([12, 20, 40], pairs.starts_b, side="right")
    assert (document == other)[pairs.follows].all() and (document != other)[~pairs.follows].all()
    assert pairs.follows.mean() == pytest.approx(0.5, abs=0.03)
    ends = pairs.starts_a + pairs.lengths_a
    assert (pairs.starts_b == ends)[pairs.follows].all()
    assert set(ends) == set(pairs.starts_b) == {3, 7, 22, 30, 31}  # ends of sentences inside documents
    assert pairs.lengths_a.min() >= 1 and pairs.lengths_b.min() >= 1 and (pairs.lengths_a + pairs.lengths_b).max() == 9
    assert ((pairs.starts_b + pairs.lengths_b) <= np.array([12, 20, 40])[other]).all()
    assert (pairs.starts_a >= np.array([0, 12, 20])[document]).all()


def test_the_lengths_do_not_tell_whether_the_second_passage_follows():
    """Where documents are long, both kinds of pairs have the same lengths."""
    ends = np.arange(5, 50_001, 5)
    pairs = Passages(np.zeros(50_000), ends, ends[99::100]).draw(8000, room=21, random_half=True, rng=np.random.default_rng(0))
    for lengths in (pairs.lengths_a, pairs.lengths_b, pairs.lengths_a + pairs.lengths_b):
        means = [lengths[pairs.follows == kind].mean() for kind in (True, False)]
        assert means[0] == pytest.approx(means[1], abs=0.3)  # a standard error is 0.07


def test_without_next_sentences_the_first_passages_are_the_same(corpus: None):
    pair, plain = task(), task(next_sentence=False)
    one, other = (t.train_batch(3, seed=1, batch_size=64) for t in (pair, plain))
    follow = one.labels == IS_NEXT  # type: ignore[operator]
    assert other.labels is None and 16 < follow.sum() < 48
    assert torch.equal(one.inputs[follow], other.inputs[follow]) and torch.equal(one.targets[follow], other.targets[follow])
    assert not torch.equal(one.inputs, other.inputs)


@pytest.mark.parametrize("options", [{}, {"next_sentence": False}, {"objective": "causal"}])
def test_a_row_is_cls_a_sep_b_sep(corpus: None, options: dict[str, object]):
    made = task(length=64, vocabulary=300, **options)
    for split in ("train", "valid"):
        batch = made.train_batch(0, seed=0, batch_size=50)
        if split == "valid":
            batch = next(made.eval_batches("valid", batch_size=50))
        assert batch.segments is not None and batch.mask is not None
        whole = torch.where(batch.targets == IGNORED, batch.inputs, batch.targets) if made.role != "causal" else batch.inputs
        assert (whole[:, 0] == subwords.CLS).all() and ((whole == subwords.SEP).sum(1) == 2).all()
        assert torch.equal(batch.mask, whole != subwords.PAD)
        last = batch.mask.sum(1) - 1
        assert (whole[torch.arange(50), last] == subwords.SEP).all()
        first = (whole == subwords.SEP).long().argmax(1, keepdim=True)
        place = torch.arange(whole.shape[1])
        assert torch.equal(batch.segments.bool(), (place > first) & batch.mask)
        words = made._tokenizer.decode(whole[0][batch.mask[0]].tolist()).split()
        assert words and (whole != subwords.UNK).all()


def test_the_documents_of_a_pair(corpus: None):
    """Each sentence of the corpus begins with a word of its document: B begins with A's exactly if it follows A."""
    made = task(length=64, vocabulary=300)
    whole = next(made.eval_batches("train", batch_size=200))
    tokens = torch.where(whole.targets == IGNORED, whole.inputs, whole.targets)
    agree = []
    for row, segments in zip(tokens, whole.segments, strict=True):  # type: ignore[arg-type]
        a, b = (made.decode(row[(segments == s) & (row != subwords.PAD)].tolist()).split() for s in (0, 1))
        marks = [{word for word in words if word.startswith("x0")} for words in (a[1:], b[:1])]
        agree.append(marks[1] <= marks[0] if marks[0] else None)
    labels = whole.labels.tolist()  # type: ignore[union-attr]
    pairs = [(a, label) for a, label in zip(agree, labels, strict=True) if a is not None]
    assert len(pairs) > 100 and {pair for pair in pairs} == {(True, IS_NEXT), (False, NOT_NEXT)}


def test_a_causal_row_predicts_every_next_token(corpus: None):
    batch = task(objective="causal", length=64, vocabulary=300).train_batch(0, seed=0, batch_size=9)
    known = batch.targets[:, :-1] != IGNORED
    assert torch.equal(batch.targets[:, :-1][known], batch.inputs[:, 1:][known])
    assert torch.equal(known, batch.mask[:, 1:]) and batch.positions is None and batch.labels is None  # type: ignore[index]


def test_evaluations_have_fixed_rows_and_masks(corpus: None):
    made = task()
    one = list(made.eval_batches("valid", batch_size=7, limit=30))
    other = list(task().eval_batches("valid", batch_size=30, limit=30))
    assert len(one) == 5 and len(other) == 1 and sum(len(batch.inputs) for batch in one) == 30
    assert torch.equal(torch.cat([batch.inputs for batch in one]), other[0].inputs)
    assert torch.equal(torch.cat([batch.targets for batch in one]), other[0].targets)
    assert sum(len(batch.inputs) for batch in made.eval_batches("test", batch_size=512)) == 4096


# ---------------------------------------------------------------- scores


def output(made: MaskedText, batch: Batch, *, right: bool) -> MaskedOutput:
    targets = predicted_tokens(batch)
    tokens = torch.zeros(*targets.shape, made.vocabulary)
    labels = torch.zeros(len(targets), 2)
    if right:
        tokens.scatter_(2, targets.clamp(min=0).unsqueeze(2), 50.0)
        labels.scatter_(1, batch.labels.unsqueeze(1), 50.0)  # type: ignore[union-attr]
    return MaskedOutput(tokens, labels)


def test_scores_and_losses(corpus: None):
    made = task()
    batch = made.train_batch(0, seed=0, batch_size=16)
    count = int((batch.targets != IGNORED).sum())
    means = {name: mean.value for name, mean in merge([made.score(output(made, batch, right=False), batch)]).items()}
    assert means["bits_per_token"] == pytest.approx(np.log2(120))
    assert made.loss(output(made, batch, right=False), batch).item() == pytest.approx(np.log(120) + np.log(2))
    right = made.score(output(made, batch, right=True), batch)
    assert right["masked_accuracy"] == (count, count) and right["next_sentence_accuracy"] == (16, 16)
    assert made.loss(output(made, batch, right=True), batch) < 1e-6
    without = MaskedOutput(output(made, batch, right=True).tokens)
    assert "next_sentence_accuracy" not in made.score(without, batch)
    bits, counts = made.item_scores(output(made, batch, right=False), batch)
    assert int(counts.sum()) == count and bits.sum().item() == pytest.approx(count * np.log2(120))


def test_the_reference_score_is_the_entropy_of_single_tokens(corpus: None):
    for options in ({}, {"objective": "causal"}):
        score = task(**options).reference_scores()["unigram"].score(200)
        assert 3.0 < score < np.log2(120)


@pytest.mark.parametrize("options", [{}, {"next_sentence": False}, {"objective": "causal"}])
def test_the_contract_of_tasks(folders: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object]):
    # Without the word of each document, so that the splits have the same words.
    every = [[sentence.partition(" ")[2] for sentence in document] for document in documents(0, 100)]
    splits = {"train": every[:60], "valid": every[60:80], "test": every[80:]}
    monkeypatch.setitem(corpora.CORPORA, "enwik8", corpora.Corpus(lambda: "made up", lambda: splits))
    results = check_task("masked_text", options={"length": 24, "vocabulary": 120, **options})
    assert not [result for result in results if result.status == "failed"]
    hidden = {result.check: result.status for result in results}["hidden tokens"]
    assert (hidden == "passed") == ("objective" not in options)


# ---------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corpus": "enwik9"}, "corpus: expected enwik8 or imdb, got 'enwik9'"),
        ({"objective": "maskd"}, "objective: expected masked or causal, got 'maskd'"),
        ({"objective": "causal", "next_sentence": True}, "next_sentence: expected false"),
        ({"length": 8}, "length: expected a whole number of at least 16"),
        ({"vocabulary": 5}, "vocabulary: expected a whole number of at least 6"),
    ],
)
def test_refused_options(options: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        MaskedText(**options)  # type: ignore[arg-type]

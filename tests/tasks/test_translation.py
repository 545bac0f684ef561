"""Tests of tasks of translation: batches, scores from text, bad files, and Multi30k's real sentences."""

import gzip
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, Batch, archives
from attnlab.tasks.multi30k import Multi30k
from attnlab.tasks.parallel import Parallel
from attnlab.tasks.translation import BEGIN, END, PADDING, UNKNOWN, TranslationTask
from attnlab.testing import check_task
from tests.support.small_translations import pairs, write

SIZES = {"train": 101, "valid": 23, "test": 19}


@pytest.fixture
def files(tmp_path: Path, folders: Path) -> dict[str, Any]:
    drawn = pairs(sum(SIZES.values()))
    options: dict[str, Any] = {"vocabulary": 120, "length": 64}
    begin = 0
    for split, count in SIZES.items():
        options |= write(tmp_path, split, drawn[begin : begin + count])
        begin += count
    return options


def target_tokens(batch: Batch) -> list[list[int]]:
    return [[token for token in row if token != IGNORED] for row in batch.targets.tolist()]


def item_numbers(batches: Iterable[Batch]) -> list[int]:
    return [number for batch in batches if batch.items is not None for number in batch.items.tolist()]


def repeat_targets(batch: Batch, **options: Any) -> list[list[int]]:
    """A decoder that translates perfectly."""
    return target_tokens(batch)


# ---------------------------------------------------------------- batches


def test_targets_are_the_sentence_and_inputs_the_same_one_later(files: dict[str, Any]):
    task = Parallel(**files)
    lines = {side: Path(files[side]).read_text(encoding="utf-8").splitlines() for side in ("source", "target")}
    lengths = set()
    for step in range(2 * task.steps_per_epoch(8)):
        batch = task.train_batch(step, seed=3, batch_size=8)
        assert batch.source is not None and batch.items is not None
        for row, number in enumerate(batch.items.tolist()):
            targets = target_tokens(batch)[row]
            assert targets[-1] == END and task.decode(targets) == lines["target"][number]
            assert batch.inputs[row, : len(targets)].tolist() == [BEGIN, *targets[:-1]]
            assert (batch.inputs[row, len(targets) :] == PADDING).all()
            real = batch.source[row] != PADDING
            assert task.decode(batch.source[row].tolist()) == lines["source"][number]
            assert batch.source[row][real][-1] == END and UNKNOWN not in batch.source[row]
            if batch.source_mask is not None:
                assert torch.equal(batch.source_mask[row], real)
            if batch.mask is not None:
                assert int(batch.mask[row].sum()) == len(targets)
            lengths.add(len(targets))
    assert len(lengths) > 3


def test_an_epoch_has_every_pair_once_in_batches_of_similar_lengths(files: dict[str, Any]):
    task, again = Parallel(**files), Parallel(**files)
    steps = task.steps_per_epoch(8)
    assert steps == 13
    batches = [task.train_batch(step, seed=0, batch_size=8) for step in range(2 * steps)]
    for epoch in (batches[:steps], batches[steps:]):
        assert sorted(item_numbers(epoch)) == list(range(SIZES["train"]))
    assert task.padding(batch_size=8) < 0.15
    for step in (20, 3):  # in another order, from another object
        assert torch.equal(again.train_batch(step, seed=0, batch_size=8).inputs, batches[step].inputs)
    assert item_numbers([task.train_batch(0, seed=1, batch_size=8)]) != item_numbers(batches[:1])


def test_an_evaluation_reads_each_pair_once_and_a_limit_the_same_ones(files: dict[str, Any]):
    task = Parallel(**files)
    limited = []
    for batch_size in (1, 4):
        assert sorted(item_numbers(task.eval_batches("test", batch_size=batch_size))) == list(range(SIZES["test"]))
        limited.append(sorted(item_numbers(task.eval_batches("test", batch_size=batch_size, limit=7))))
    assert limited[0] == limited[1] != list(range(7)) and len(set(limited[0])) == 7


def test_long_sentences_are_cut_without_an_end_token_and_counted(files: dict[str, Any]):
    whole, short = Parallel(**files), Parallel(**{**files, "length": 15})
    lengths = [(side.lengths > 15).sum() for side in whole.pairs("train")]
    assert 0 < lengths[1] < SIZES["train"]
    ends = 0
    for batch in short.eval_batches("train", batch_size=4):
        assert batch.inputs.shape[1] <= 15 and batch.source is not None and batch.source.shape[1] <= 15
        ends += sum(row[-1] == END for row in target_tokens(batch))
    assert ends == SIZES["train"] - lengths[1]
    notes = " ".join(short.data_notes())
    assert f"{lengths[0]} source and {lengths[1]} target sentences of train are longer than 15 tokens and are cut" in notes
    assert not any("longer" in note for note in whole.data_notes())
    # References are never cut: a perfect translation of the cut targets is not the reference.
    assert short.generated_scores(repeat_targets, "test", batch_size=4, limit=None)["bleu"] < 95


def test_the_vocabulary_is_learned_on_train_alone(files: dict[str, Any]):
    task = Parallel(**files)
    task.prepare()
    write(Path(files["test_source"]).parent, "test", [("Zwölf Xylophone.", "Twelve xylophones.")])
    other = Parallel(**files)
    assert other.identity() != task.identity()
    assert other._vocabulary.get_vocab() == task._vocabulary.get_vocab()
    assert UNKNOWN in other.encode("Xylophone")
    assert Parallel(**{**files, "vocabulary": 119}).identity() != other.identity()


def test_lower_applies_to_tokens_and_scores(files: dict[str, Any]):
    cased, lower = Parallel(**files), Parallel(**files, lower=True)
    assert cased.encode("Ein Hund.") != cased.encode("ein hund.")
    assert lower.encode("Ein Hund.") == lower.encode("ein hund.")
    assert lower.decode(lower.encode("Ein Hund sieht.")) == "ein hund sieht."
    scores = lower.generated_scores(repeat_targets, "test", batch_size=4, limit=None)
    assert scores["bleu"] == pytest.approx(100) and scores["chrf"] == pytest.approx(100)
    assert "case:lc" in lower.run_notes()["sacrebleu"] and "case:mixed" in cased.run_notes()["sacrebleu"]


# ---------------------------------------------------------------- loss


def test_label_smoothing_is_of_the_training_loss_alone(files: dict[str, Any]):
    plain, smooth = Parallel(**files), Parallel(**files, label_smoothing=0.2)
    batch = plain.train_batch(0, seed=0, batch_size=5)
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(*batch.targets.shape, plain.vocabulary, generator=generator)
    real = batch.targets != IGNORED
    log_probabilities = logits[real].double().log_softmax(-1)
    nll = -log_probabilities.gather(1, batch.targets[real][:, None]).mean()
    uniform = -log_probabilities.mean()
    assert plain.loss(logits, batch).item() == pytest.approx(nll.item(), rel=1e-5)
    assert smooth.loss(logits, batch).item() == pytest.approx((0.8 * nll + 0.2 * uniform).item(), rel=1e-5)
    for task in (plain, smooth):
        total, count = task.score(logits, batch)["loss"]
        assert count == real.sum() and float(total / count) == pytest.approx(nll.item(), rel=1e-5)
        sums, counts = task.item_scores(logits, batch)
        assert torch.equal(counts, real.sum(1)) and float(sums.sum()) == pytest.approx(float(total))


# ---------------------------------------------------------------- scores of generated text


def drop_last_word(batch: Batch, **options: Any) -> list[list[int]]:
    """A decoder that translates perfectly, but leaves out the last two tokens of each sentence with an even number."""
    assert batch.items is not None
    return [row[: len(row) - 3 * (number % 2)] for row, number in zip(target_tokens(batch), batch.items.tolist(), strict=True)]


def expected_bleu(task: TranslationTask, references: list[str]) -> float:
    """BLEU of ``drop_last_word`` by sacrebleu's own function, from the file and the task's encoding alone."""
    import sacrebleu

    translations = []
    for number, reference in enumerate(references):
        ids = task._vocabulary.encode(reference).ids
        translations.append(task._vocabulary.decode(ids[: len(ids) - 2] if number % 2 else ids))
    return sacrebleu.corpus_bleu(translations, [references]).score


def test_bleu_is_of_detokenized_text_against_the_lines_of_the_file(files: dict[str, Any]):
    task = Parallel(**files)
    references = Path(files["test_target"]).read_text(encoding="utf-8").splitlines()
    expected = expected_bleu(task, references)
    assert 50 < expected < 99
    for batch_size in (1, 5):
        scores = task.generated_scores(drop_last_word, "test", batch_size=batch_size, limit=None)
        assert scores["bleu"] == pytest.approx(expected)
    assert task.generated_scores(repeat_targets, "test", batch_size=4, limit=5)["bleu"] == pytest.approx(100)


class TokenizedBleu(Parallel):
    """A mutant: scores subwords joined with spaces."""

    def decode(self, ids: Any) -> str:
        return " ".join([str(self._vocabulary.id_to_token(i)) for i in ids if i > UNKNOWN])

    def text(self, split: str, side: str) -> list[str]:
        return [self.decode(self._vocabulary.encode(line).ids) for line in super().text(split, side)]


class TargetsShiftedByOne(Parallel):
    """A mutant: the decoder reads the token that it predicts."""

    def batch(self, split: str, numbers: np.ndarray) -> Batch:
        batch = super().batch(split, numbers)
        return replace(batch, inputs=torch.where(batch.targets == IGNORED, PADDING, batch.targets))


def test_the_mutant_of_tokenized_bleu_is_caught(files: dict[str, Any]):
    references = Path(files["test_target"]).read_text(encoding="utf-8").splitlines()
    mutant = TokenizedBleu(**files)
    assert mutant.generated_scores(repeat_targets, "test", batch_size=4, limit=None)["bleu"] == pytest.approx(100)
    scores = mutant.generated_scores(drop_last_word, "test", batch_size=4, limit=None)
    assert scores["bleu"] != pytest.approx(expected_bleu(Parallel(**files), references), abs=0.1)


def test_the_contract_holds_and_catches_targets_that_are_shifted(files: dict[str, Any]):
    results = check_task(Parallel, options=files)
    assert not [result for result in results if result.status == "failed"]
    (caught,) = check_task(TargetsShiftedByOne, options=files, only=["targets"])
    assert caught.status == "failed" and "next input" in caught.detail


# ---------------------------------------------------------------- bad files and options


def rewrite(path: str, lines: list[str]) -> None:
    Path(path).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def test_an_empty_line_is_refused_with_its_number(files: dict[str, Any]):
    path = files["valid_target"]
    rewrite(path, ["A dog.", " ", "A man."])
    with pytest.raises(UserError, match="empty line") as refusal:
        Parallel(**files)
    assert "valid_target: " in str(refusal.value) and f"{path}:2" in str(refusal.value) and "\n" not in str(refusal.value)


def test_files_of_unequal_numbers_of_lines_are_refused(files: dict[str, Any]):
    rewrite(files["target"], ["A dog."] * 7)
    with pytest.raises(UserError, match="target: .*train.de has 101 and .*train.en 7") as refusal:
        Parallel(**files)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"vocabulary": 12}, "vocabulary: expected at least"),
        ({"vocabulary": 4}, "vocabulary"),
        ({"length": 1}, "length"),
        ({"target": "train.fr"}, "train.fr"),
        ({"valid_target": None}, "valid_source: expected files of both sides"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"beam": 0}, "beam"),
        ({"length_penalty": -1}, "length_penalty"),
    ],
)
def test_bad_options_are_refused_in_one_line(files: dict[str, Any], change: dict[str, Any], words: str):
    with pytest.raises(UserError) as refusal:
        Parallel(**{**files, **change}).prepare()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_file_that_changes_is_other_data(files: dict[str, Any]):
    task = Parallel(**files)
    rewrite(files["test_source"], [f"Ein Hund {i}." for i in range(SIZES["test"])])
    assert Parallel(**files).identity() != task.identity()


def test_splits_without_files_are_held_out_by_source(tmp_path: Path, folders: Path):
    drawn = pairs(90)
    rows = drawn + [(source, "Another translation.") for source, _ in drawn[:30]]
    task = Parallel(**write(tmp_path, "train", rows), vocabulary=60)
    assert [task.count(split) for split in ("train", "valid", "test")] != [120, 0, 0]
    assert sum(task.count(split) for split in ("train", "valid", "test")) == 120
    texts = {split: set(task.text(split, "source")) for split in ("train", "valid", "test")}
    assert not texts["train"] & texts["valid"] and not texts["train"] & texts["test"] and not texts["valid"] & texts["test"]
    assert len(texts["valid"]) == len(texts["test"]) == 9
    with pytest.raises(UserError, match="hold out"):
        Parallel(**write(tmp_path, "train", drawn[:2]), vocabulary=60)


def test_sources_that_are_also_in_train_are_noted(files: dict[str, Any], tmp_path: Path):
    assert not any("train" in note for note in Parallel(**files).data_notes())
    files |= write(tmp_path, "test", pairs(sum(SIZES.values()))[:40])
    assert any("40 of the 40 source sentences of test are also in train" in note for note in Parallel(**files).data_notes())


# ---------------------------------------------------------------- multi30k


@pytest.fixture
def small_multi30k(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in the layout of Multi30k with made-up sentences."""
    rows = pairs(60)
    begin = 0
    for split, count in (("train", 30), ("valid", 20), ("test", 10)):
        for number, language in enumerate(("de", "en")):
            source = archives.MULTI30K[split, language]
            text = "".join(row[number] + "\n" for row in rows[begin : begin + count]).encode()
            path = folders / "data" / source.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress(text))
            digest = archives.hashlib.sha256(text).hexdigest()
            monkeypatch.setitem(archives.MULTI30K, (split, language), replace(source, contents=digest))
        monkeypatch.setitem(archives.MULTI30K_PAIRS, split, count)
        begin += count


def test_multi30k_reads_the_files_of_its_languages(small_multi30k: None):
    task = Multi30k(vocabulary=60)
    assert task.text("test", "source")[0].startswith("Ein") and task.text("test", "target")[0].startswith("A ")
    other = Multi30k(source="en", target="de", vocabulary=60)
    assert other.text("test", "source") == task.text("test", "target") and other.identity() != task.identity()
    assert [task.count(split) for split in ("train", "valid", "test")] == [30, 20, 10]
    assert not Multi30k(target="fr", vocabulary=60).available()
    assert len(Multi30k(target="fr", vocabulary=60).data_notes()) == 1  # without the files: signatures alone


@pytest.mark.exhaustive  # of small files: the tests above
@pytest.mark.real
def test_the_real_sentences(real_data: Path):
    if not all((real_data / source.file).is_file() for source in archives.MULTI30K.values()):
        pytest.skip(f"no multi30k/*.gz in {real_data}; set ATTNLAB_DATA to a folder with them")
    task = Multi30k()
    task.prepare()
    assert [len(task.text(split, "target")) for split in ("train", "valid", "test")] == [29_000, 1_014, 1_000]
    assert task._vocabulary.get_vocab_size() == 8000 and not any("longer" in note for note in task.data_notes())
    assert task.padding(batch_size=128) < 0.1
    scores = task.generated_scores(repeat_targets, "test", batch_size=32, limit=None)
    assert scores["bleu"] == pytest.approx(100) and scores["chrf"] == pytest.approx(100)


def test_a_valid_that_is_the_test_is_noted(files: dict[str, Any]):
    same = files | {"valid_source": files["test_source"], "valid_target": files["test_target"]}
    assert any("are the same" in note for note in Parallel(**same).data_notes())
    assert not any("are the same" in note for note in Parallel(**files).data_notes())

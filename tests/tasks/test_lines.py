"""Tests of the rule by which lines are cut, and of translations whose text has unusual characters."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.tasks import IGNORED, Batch
from attnlab.tasks.lines import OTHER_BREAKS, split_lines
from attnlab.tasks.parallel import Parallel
from attnlab.tasks.translation import END
from attnlab.tasks.translation_scores import score_translations, spaces_note, tokenized_note
from tests.support.small_translations import pairs, write

BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"
SIZES = {"train": 101, "valid": 11, "test": 19}


def files(
    folder: Path, *, change: Any = None, split: str = "test", rows: list[tuple[str, str]] | None = None
) -> dict[str, Any]:
    """Write small files, with ``change`` in the sentences of one split, and return the options of the task."""
    drawn = rows or pairs(sum(SIZES.values()))
    options: dict[str, Any] = {"vocabulary": 160, "length": 96}
    begin = 0
    for name, count in SIZES.items():
        part = drawn[begin : begin + count]
        begin += count
        options |= write(folder, name, [change(*row) for row in part] if change and name == split else part)
    return options


def perfect(batch: Batch, **options: Any) -> list[list[int]]:
    """A decoder that translates perfectly."""
    return [[token for token in row if token not in (IGNORED, END)] for row in batch.targets.tolist()]


def scores(task: Parallel) -> dict[str, float]:
    return task.generated_scores(perfect, "test", batch_size=7, limit=None)


def test_only_line_feeds_cut_lines() -> None:
    assert split_lines("") == [] and split_lines("a") == ["a"] and split_lines("\n") == [""]
    assert split_lines("a\r\nb\n\nc\r\n") == ["a", "b", "", "c"]
    for mark in BREAKS:
        assert split_lines(f"a{mark}b\nc") == [f"a{mark}b", "c"] and OTHER_BREAKS.search(mark)


def test_a_character_that_others_take_for_a_line_end_is_a_space(tmp_path: Path, folders: Path) -> None:
    seen = []

    def mark(source: str, target: str) -> tuple[str, str]:
        seen.append(target.replace(" ", (BREAKS + " " * SIZES["test"])[len(seen)], 1))
        return source, seen[-1]

    task = Parallel(**files(tmp_path, change=mark))
    assert task.count("test") == SIZES["test"] and task.text("test", "target") == seen  # the text as it was read
    assert scores(task) == pytest.approx({"bleu": 100, "chrf": 100})


def test_files_with_other_line_ends_are_the_same_text(tmp_path: Path, folders: Path) -> None:
    options = files(tmp_path)
    plain = Parallel(**options)
    plain.prepare()
    path = Path(options["test_target"])
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))  # of one side, with a byte order mark
    other = Parallel(**options)
    assert other.text("test", "target") == plain.text("test", "target")
    assert other.data_notes() == plain.data_notes()


def test_references_in_another_normal_form_get_equal_scores(tmp_path: Path, folders: Path) -> None:
    drawn = [(target, source) for source, target in pairs(sum(SIZES.values()))]  # German targets

    def decomposed(source: str, target: str) -> tuple[str, str]:
        return source, unicodedata.normalize("NFD", target)

    composed = Parallel(**files(tmp_path, rows=drawn))
    task = Parallel(**files(tmp_path, rows=drawn, change=decomposed))
    assert task.text("test", "target") != composed.text("test", "target")
    assert scores(task) == scores(composed) and scores(task)["bleu"] == pytest.approx(100)


# ---------------------------------------------------------------- the tokenizer of BLEU

CHINESE = ["那只狗看见那个红色的房子。", "那只猫喜欢那个旧的汽车。", "那只狗买那个蓝色的书。"]
JAPANESE = ["犬は赤い家を見ます。", "猫は古い車がすきです。"]
THAI = ["สุนัขเห็นบ้านสีแดงหลังใหญ่", "แมวชอบรถยนต์คันเก่าของเขา"]
PLAIN = ["A dog sees a house, and barks.", "Ein Hund 狗 sieht es.", "Vois-tu la maison ?", "Mr. X pays 3.5 $."]


@pytest.mark.parametrize("references", [CHINESE, JAPANESE, THAI])
def test_references_without_spaces_are_noted_where_words_are_found_by_spaces(references: list[str]) -> None:
    assert "choose zh" in spaces_note(references, tokenizer="13a") and spaces_note(references, tokenizer="intl")
    assert spaces_note(references, tokenizer="char") == spaces_note(PLAIN, tokenizer="13a") == ""
    assert spaces_note([" ".join(line) for line in references], tokenizer="13a") == ""  # separated beforehand


def test_tokenized_references_are_noted(tmp_path: Path, folders: Path) -> None:
    rows = [(source, target.replace(".", " .")) for source, target in pairs(sum(SIZES.values()))]
    assert any("look tokenized" in note for note in Parallel(**files(tmp_path, rows=rows)).data_notes())
    assert not any("look tokenized" in note for note in Parallel(**files(tmp_path)).data_notes())
    assert tokenized_note(["A do@@ g sees a house."]) and tokenized_note(["▁A ▁dog"]) and not tokenized_note(PLAIN)


def test_the_tokenizer_is_that_of_sacrebleu() -> None:
    from sacrebleu.metrics.bleu import BLEU

    nearly = [line.replace("旧", "老").replace("买", "卖") for line in CHINESE]
    found = {name: score_translations(nearly, CHINESE, lower=False, tokenizer=name)["bleu"] for name in ("13a", "zh", "char")}
    assert found["zh"] == pytest.approx(BLEU(tokenize="zh").corpus_score(nearly, [CHINESE]).score)
    assert found["13a"] == pytest.approx(0, abs=1e-9) and min(found["zh"], found["char"]) > 60
    with pytest.raises(ValueError, match="3"):  # sacrebleu would drop the rest
        score_translations(nearly, CHINESE[:2], lower=False)


def test_the_tokenizer_is_in_the_signature_and_the_notes(tmp_path: Path, folders: Path) -> None:
    rows = [(f"the dog {i}", CHINESE[i % 3] + str(i % 7)) for i in range(sum(SIZES.values()))]
    options = files(tmp_path, rows=rows)
    task, chosen = Parallel(**options), Parallel(**options, bleu_tokenizer="zh")
    assert "tok:13a" in task.run_notes()["sacrebleu"] and "tok:zh" in chosen.run_notes()["sacrebleu"]
    assert any("choose zh" in note for note in task.data_notes())
    assert not any("bleu_tokenizer" in note for note in chosen.data_notes()) and "tok:zh" in chosen.data_notes()[0]
    assert task.identity() == chosen.identity()  # the same data


@pytest.mark.parametrize("name", ["zhh", "ja-mecab", "none", 5])
def test_an_unknown_or_missing_tokenizer_is_refused_in_the_plan(
    name: Any, tmp_path: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnlab.tasks.translation_scores.find_spec", lambda name: None)
    with pytest.raises(UserError, match="^bleu_tokenizer: ") as refusal:
        Parallel(**files(tmp_path), bleu_tokenizer=name)
    assert "\n" not in str(refusal.value)
    assert ("sacrebleu[ja]" in str(refusal.value)) is (name == "ja-mecab")

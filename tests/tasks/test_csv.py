"""Tests of ``csv``: columns, labels, splits without leaks, and one line for each malformed file."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
import torch

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.tasks.csv import Csv
from attnlab.training.train import train
from tests.support.studies import STUDY, misplanned, write

SPLITS = ("train", "valid", "test")
LABELS = ("bad", "fair", "good")


def rows(count: int, *, seed: int = 0, repeats: int = 0) -> list[tuple[str, str]]:
    """Return texts of noise and one telling word, with their labels, of unequal frequency; ``repeats`` of them occur twice."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(count):
        label = LABELS[int(rng.choice(3, p=[0.2, 0.3, 0.5]))]
        noise = " ".join(f"w{word}" for word in rng.integers(0, 40, size=rng.integers(1, 12)))
        made.append((f"{noise} {label}word, number {seed}x{i}", label))
    return made + made[:repeats]


def save(
    path: Path, contents: Sequence[tuple[str, ...]], *, header: tuple[str, ...] = ("text", "label"), **options: Any
) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **options).writerows([header, *contents])
    return path


@pytest.fixture
def corpus(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folders)
    save(folders / "train.csv", rows(211, repeats=40))
    save(folders / "valid.csv", rows(31, seed=1))
    save(folders / "test.csv", rows(53, seed=2))
    return folders


def task(**options: Any) -> Csv:
    return Csv(**{"path": "train.csv", "length": 9, "vocabulary": 90, **options})


def documents_of(csv_task: Csv, split: str) -> list[tuple[str, int]]:
    """Return the words and the class of every document of a split."""
    data = csv_task.split(split)
    words = np.split(data.tokens, data.ends[:-1])
    return [(csv_task.decode(ids.tolist()), int(label)) for ids, label in zip(words, data.labels, strict=True)]


# ---------------------------------------------------------------- splits


def test_derived_splits_share_no_text_and_have_every_label(corpus: Path) -> None:
    made = task(vocabulary=5_000)
    assert (made.classes, made.labels) == (3, list(LABELS))
    assert sum(made.count(split) for split in SPLITS) == 251
    parts = {split: documents_of(made, split) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {split: made.count(split) for split in SPLITS}
    numbers = {split: set(made._texts(split)) for split in SPLITS}
    assert not numbers["train"] & numbers["test"] and not numbers["train"] & numbers["valid"]
    assert not numbers["valid"] & numbers["test"] and len(set().union(*numbers.values())) == 211
    for split in ("valid", "test"):
        assert {label for _, label in parts[split]} == {0, 1, 2}
        assert 0.07 * 251 < made.count(split) < 0.13 * 251


def test_rows_keep_their_labels(corpus: Path) -> None:
    made = task(vocabulary=5_000)
    for split in SPLITS:
        for words, label in documents_of(made, split):
            assert f"{LABELS[label]}word" in words or "[UNK]" in words
    assert sum(f"{LABELS[label]}word" in words for words, label in documents_of(made, "train")) == made.count("train")


def test_files_of_their_own_are_read_whole_and_words_come_from_train_alone(corpus: Path) -> None:
    made = task(valid="valid.csv", test="test.csv", vocabulary=5_000)
    assert [made.count(split) for split in SPLITS] == [251, 31, 53]
    assert Counter(label for _, label in documents_of(made, "test")) == Counter(
        LABELS.index(label) for _, label in rows(53, seed=2)
    )
    made.prepare()
    assert made.encode("number") != [1] and made.encode("2x7") == [1]  # occurs in test alone
    only_test = task(test="test.csv")
    assert only_test.count("test") == 53 and only_test.count("valid") + only_test.count("train") == 251


def test_batches_read_each_text_once_and_a_limit_keeps_the_shares(corpus: Path) -> None:
    made = task(test="test.csv")
    steps = made.steps_per_epoch(5)  # known before the data are prepared
    epoch = [made.train_batch(step, seed=3, batch_size=5) for step in range(steps)]
    assert sum(len(batch.targets) for batch in epoch) == made.count("train")
    again = task(test="test.csv").train_batch(1, seed=3, batch_size=5)
    assert torch.equal(again.inputs, epoch[1].inputs) and torch.equal(again.targets, epoch[1].targets)
    assert max(int(batch.inputs.max()) for batch in epoch) < 90 and max(batch.inputs.shape[1] for batch in epoch) == 9
    whole = np.bincount([label for _, label in rows_as_numbers(53)], minlength=3) / 53
    for limit in (11, 20, 37):
        counted = torch.cat([batch.targets for batch in made.eval_batches("test", batch_size=4, limit=limit)])
        assert len(counted) == limit
        assert np.abs(np.bincount(counted.numpy(), minlength=3) - limit * whole).max() < 1.5
    assert made.eval_tokens("test", limit=None, protocol="segment", stride=None) == 53 * 9


def test_the_order_of_the_rows_is_fixed(corpus: Path) -> None:
    made = task(test="test.csv")
    trained = [made.train_batch(step, seed=3, batch_size=5).items for step in (0, made.steps_per_epoch(5))]
    evaluated = next(iter(made.eval_batches("test", batch_size=5, limit=20))).items
    expected = [49, 174, 208, 43, 220], [212, 39, 79, 209, 200], [7, 30, 14, 47, 36]
    for items, numbers in zip((*trained, evaluated), expected, strict=True):
        assert items is not None and items.tolist() == numbers


def rows_as_numbers(count: int) -> list[tuple[str, int]]:
    return [(text, LABELS.index(label)) for text, label in rows(count, seed=2)]


# ---------------------------------------------------------------- labels and columns


def test_labels_can_be_ordered_and_numbers_are_in_their_order(corpus: Path) -> None:
    assert task(labels=["good", "bad", "fair"]).labels == ["good", "bad", "fair"]
    assert task(labels=["good", "bad", "fair"]).identity() != task().identity()
    save(corpus / "stars.csv", [(f"text {i} of {i % 12}", str(i % 12)) for i in range(60)])
    assert task(path="stars.csv").labels == [str(i) for i in range(12)]


def test_other_columns_delimiters_quotes_and_encodings(corpus: Path) -> None:
    made = [(f'{text} "quoted";\nnext line', label) for text, label in rows(60)]
    save(corpus / "a.csv", [(str(i), *row) for i, row in enumerate(made)], header=("id", "review", "stars"), delimiter=";")
    expected = documents_of(task(path="a.csv", text="review", label="stars", delimiter=";", vocabulary=5_000), "train")
    text = (corpus / "a.csv").read_text(encoding="utf-8")
    assert any("quoted" in words and "next" in words for words, _ in expected)
    (corpus / "b.csv").write_bytes(text.replace(";", "\t").encode("utf-16"))
    (corpus / "c.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\r\n", "\n\n").encode())  # a mark, and blank lines
    utf16 = task(path="b.csv", text="review", label="stars", delimiter="tab", quoting=True, encoding="utf-16", vocabulary=5_000)
    marked = task(path="c.csv", text="review", label="stars", delimiter=";", vocabulary=5_000)
    assert utf16.count("train") == marked.count("train") == len(expected)
    assert [label for _, label in documents_of(marked, "train")] == [label for _, label in expected]


MISTAKES: dict[str, tuple[str, dict[str, Any], str, list[str]]] = {
    "no such column": ("txt,label\na,b\n", {}, "text", ["'text'", "txt, label", "did you mean 'txt'"]),
    "another delimiter": ("text;label\na;x\nb;y\n", {}, "text", ["text;label"]),
    "an empty file": ("", {}, "path", ["mine.csv"]),
    "an open quote": ('text,label\n"a,x\nb,y\n', {}, "path", ["mine.csv", "quoting: false"]),
    "too many fields": ("text,label\na,x\nb,y,z\n", {}, "path", ["mine.csv", "line 3", "saw 3"]),
    "no text": ("text,label\na,x\n ,y\n", {}, "path", ["mine.csv", "row 3", "'text'"]),
    "one label": ("text,label\na,x\nb,x\n", {}, "label", ["two different labels", "got x"]),
    "too few texts": ("text,label\n" + "a,x\n" * 9 + "b,y\nc,y\nd,y\n", {}, "path", ["'x' has 1 different text", "as files"]),
    "an unknown label in test": ("text,label\na,x\nb,y\n", {"test": "other.csv"}, "test", ["other.csv", "x, y", "'z'"]),
    "a label that is not listed": ("text,label\na,x\nb,y\nc,z\n", {"labels": ["x", "y"]}, "path", ["mine.csv", "'z'"]),
    "a long delimiter": ("text,label\n", {"delimiter": ";;"}, "delimiter", ["one character"]),
    "an unknown encoding": ("text,label\n", {"encoding": "utf-9"}, "encoding", ["'utf-9'"]),
    "no such file": ("text,label\na,x\n", {"valid": "none.csv"}, "valid", ["does not exist"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_that_begins_with_its_option(kind: str, corpus: Path) -> None:
    text, options, option, words = MISTAKES[kind]
    (corpus / "mine.csv").write_bytes(text.encode())
    (corpus / "other.csv").write_text("text,label\na,x\nb,z\n", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        task(path="mine.csv", **options)
    assert caught.value.message.startswith(f"{option}: ") and "\n" not in str(caught.value)
    assert [word for word in words if word not in caught.value.message] == []


# ---------------------------------------------------------------- quotation marks


def speech(path: Path, *, label_first: bool = False, count: int = 400) -> Path:
    """Write tab-separated texts, of which some begin and later ones end with a quotation mark."""
    lines = ["label\ttext" if label_first else "text\tlabel"]
    for i in range(count):
        text = f"{'good' if i % 2 else 'bad'} film {i}"
        text = f'"{text}' if i % 20 == 4 else f'{text}"' if i % 20 == 11 else text
        lines.append("\t".join(("pos" if i % 2 else "neg", text)[:: 1 if label_first else -1]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("label_first", [False, True])
def test_quotation_marks_of_tab_separated_files_are_text(label_first: bool, corpus: Path) -> None:
    path = str(speech(corpus / "speech.tsv", label_first=label_first))
    made = task(path=path, delimiter="tab", vocabulary=2_000)
    assert sum(made.count(split) for split in SPLITS) == 400 and made.labels == ["neg", "pos"]
    assert sum(text.count('"') for split in SPLITS for text in made._texts(split)) == 40
    assert made.identity() == task(path=path, delimiter="tab", quoting=False).identity()
    quoted = task(path=path, delimiter="tab", quoting=True)  # swallows rows: the plan states how many are left
    assert "260 rows" in quoted.data_notes()[0] and "400 rows" in made.data_notes()[0]
    assert quoted.identity() != made.identity()


def test_json_lines_are_read_like_rows(corpus: Path) -> None:
    drawn = [(f'{text} "quoted"\nand\u2028more', label) for text, label in rows(60)]
    save(corpus / "a.csv", drawn)
    lines = [json.dumps({"text": text, "n": i, "label": label}) for i, (text, label) in enumerate(drawn)]
    (corpus / "a.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert documents_of(task(path="a.jsonl"), "test") == documents_of(task(path="a.csv"), "test")
    assert task(path="a.jsonl", label="n", text="label", test="a.jsonl", valid="a.jsonl").labels == [str(i) for i in range(60)]
    for wrong, words in (("{", "a.jsonl"), ('{"text": "a"}', "'label'"), ('{"text": null, "label": "good"}', "'text'")):
        (corpus / "a.jsonl").write_text("\n".join([*lines, wrong]), encoding="utf-8")
        with pytest.raises(UserError, match=f"^path: .*{words}") as refusal:
            task(path="a.jsonl")
        assert "\n" not in str(refusal.value)


def test_the_plan_states_the_rows_of_each_class(corpus: Path) -> None:
    made = task(valid="valid.csv", test="test.csv")
    (note, first, *_) = made.data_notes()
    text, label = rows(211)[0]
    assert repr(text[:60]) in first and repr(label) in first
    assert "335 rows in 3 classes" in note and "train 251 (" in note and "valid 31 (" in note
    of_test = Counter(label for _, label in rows(53, seed=2))
    assert f"test 53 ({', '.join(f'{of_test[label]} {label}' for label in LABELS)})" in note
    save(corpus / "many.csv", [(f"text {i}", str(i % 23)) for i in range(230)])
    (note, *_) = task(path="many.csv").data_notes()
    assert "230 rows in 23 classes: train 184 (23 classes)" in note


def test_texts_and_labels_in_another_normal_form_are_the_same(corpus: Path) -> None:
    made = [(f"für {text}", label.replace("fair", "fähr")) for text, label in rows(60)]
    save(corpus / "train.csv", made)
    save(corpus / "nfd.csv", [(normalize("NFD", text), normalize("NFD", label)) for text, label in made])
    mixed, plain = (task(valid="nfd.csv", test=test, vocabulary=500) for test in ("nfd.csv", "train.csv"))
    assert documents_of(mixed, "test") == documents_of(plain, "test")
    assert any("60 of the 60 texts of test" in note for note in mixed.data_notes())


def test_special_tokens_in_a_text_are_text(corpus: Path) -> None:
    save(corpus / "train.csv", [(f"{text} [PAD] [UNK]", label) for text, label in rows(60)])
    made = task(vocabulary=500)
    assert not {0, 1} & set(made.split("train").tokens.tolist())
    assert not {0, 1} & set(made.encode("[PAD] [UNK]"))


# ---------------------------------------------------------------- in a study


def test_mistakes_of_a_study_have_the_place_of_their_option(corpus: Path) -> None:
    line = misplanned(write(corpus, STUDY.replace("pydocs, length: 24", "csv, path: train.csv, label: labl")))
    assert line.startswith(
        f"s.yaml:3:{STUDY.splitlines()[2].index('pydocs') + 1 + len('csv, path: train.csv, label: ')}: label"
    )


def test_a_study_trains_and_notices_a_changed_file(corpus: Path) -> None:
    text = STUDY.replace("pydocs, length: 24", "csv, path: train.csv, test: test.csv, length: 24, vocabulary: 90")
    planned = plan(write(corpus, text))
    cell = next(cell for cell in planned.cells if cell.refusal is None)
    assert (planned.metric, planned.direction) == ("accuracy", "max")
    result = train(cell.config)
    assert result.state == "completed" and 0 <= result.summary["accuracy"] <= 1
    save(corpus / "test.csv", rows(53, seed=9))
    with pytest.raises(UserError, match="changed since this was planned"):
        train(cell.config)


def test_the_identity_covers_the_files_and_the_options_that_select_rows(corpus: Path) -> None:
    options: list[dict[str, Any]] = [{}, {"test": "test.csv"}, {"valid": "test.csv"}, {"labels": ["good", "bad", "fair"]}]
    identities = [task(**option).identity() for option in options]
    assert len(set(identities)) == 4 and task(length=5, vocabulary=50).identity() == identities[0]
    before = task()
    save(corpus / "train.csv", rows(211, repeats=39))
    assert task().identity() != identities[0] == before.identity()
    assert before.split("train").labels.shape == (before.count("train"),)  # the rows that it read, under their identity


def test_reference_scores_know_the_chance_level(corpus: Path) -> None:
    made = task(test="test.csv", vocabulary=500)
    scores = {name: reference.score(None) for name, reference in made.reference_scores().items()}
    labels = [label for _, label in rows(53, seed=2)]
    assert scores["majority"] == labels.count("good") / 53  # the most frequent label of train
    assert scores["tf-idf"] > 0.9 and set(scores) == {"majority", "tf-idf"}
    some = made.reference_scores()["majority"].score(20)
    counted = torch.cat([batch.targets for batch in made.eval_batches("test", batch_size=3, limit=20)])
    assert some == (counted == 2).double().mean().item()
    save(corpus / "train.csv", [row for row in rows(211) if row[1] != "fair"])
    assert set(task().reference_scores()) == {"majority", "tf-idf"}


def test_texts_that_differ_in_case_alone_are_noted(corpus: Path) -> None:
    save(corpus / "test.csv", [(f" {text.upper()}  ", label) for text, label in rows(60)])
    assert any("60 of the 60 texts of test" in note for note in task(valid="valid.csv", test="test.csv").data_notes())

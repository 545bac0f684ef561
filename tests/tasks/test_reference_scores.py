"""Tests of reference scores: their values, their cache, and their place in a study."""

import gzip
import lzma
import math
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.report import write
from attnlab.report.reference_scores import labels, matching_scores
from attnlab.study.comparison import load_info
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.execution.reference_scores import compute_reference_scores
from attnlab.study.run import run
from attnlab.tasks import reference_scores
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.reference_scores import Reference, compute_score
from attnlab.tracking.artifacts import ReferenceScore, read_reference_scores, write_reference_scores
from attnlab.tracking.runs import load_runs
from tests.support.synthetic import INFO, SPEC, made_up


def text(of: str) -> np.ndarray:
    return np.frombuffer(of.encode(), dtype=np.uint8)


def chance(model: reference_scores.KneserNey, history: str, byte: str) -> float:
    return model.probabilities(text(history + byte))[-1]


# ---------------------------------------------------------------- n-grams


def test_a_hand_computed_example() -> None:
    """Order 2 on "abac", where no discount can be estimated: half of each count is used (0.5 of 1).

    Pairs: ab, ba, ac, once each. Different bytes before: a 1 (b), b 1 (a), c 1 (a).
    """
    model = reference_scores.KneserNey(text("abac"), order=2)
    of_all = Fraction(3, 2) / 3 * Fraction(1, 256)  # the share of order 1 that every byte gets
    single = Fraction(1, 2) / 3 + of_all  # for each byte seen
    assert chance(model, "", "b") == pytest.approx(float(single), rel=1e-14)
    after_a = Fraction(1, 2) / 2 + Fraction(1) / 2 * single  # a is followed by b and c
    assert chance(model, "a", "b") == pytest.approx(float(after_a), rel=1e-14)
    assert chance(model, "a", "z") == pytest.approx(float(Fraction(1, 2) * of_all), rel=1e-14)
    assert chance(model, "b", "a") == pytest.approx(float(Fraction(1, 2) + Fraction(1, 2) * single), rel=1e-14)
    assert chance(model, "z", "a") == pytest.approx(float(single), rel=1e-14)  # an unknown history has no effect


def oracle(train: bytes, order: int) -> Any:
    """Return Chen and Goodman's recursion over dictionaries: (history, byte) -> probability."""
    counts: dict[int, Counter[bytes]] = {order: Counter(train[i : i + order] for i in range(len(train) - order + 1))}
    for n in range(order - 1, 0, -1):
        counts[n] = Counter(gram[1:] for gram in counts[n + 1])
    discounts, after = {}, defaultdict(list)
    for n, of in counts.items():
        n1, n2, n3, n4 = (sum(1 for c in of.values() if c == k) for k in (1, 2, 3, 4))
        y = n1 / (n1 + 2 * n2) if n1 and n2 else None
        raw = [(1, n1, n2), (2, n2, n3), (3, n3, n4)]
        discounts[n] = [k / 2 if y is None or not a else min(max(k - (k + 1) * y * b / a, 0.1), k) for k, a, b in raw]
        for gram, c in of.items():
            after[gram[:-1]].append(c)

    def probability(history: bytes, byte: int, n: int) -> float:
        if n == 0:
            return 1 / 256
        history = history[-(n - 1) :] if n > 1 else b""
        lower = probability(history[1:], byte, n - 1)
        if history not in after:
            return lower
        seen, c = after[history], counts[n][history + bytes([byte])]
        taken = sum(discounts[n][min(k, 3) - 1] for k in seen)
        own = c - discounts[n][min(c, 3) - 1] if c else 0
        return (own + taken * lower) / sum(seen)

    return lambda before, byte: probability(before, byte, min(order, len(before) + 1))


@pytest.mark.parametrize("order", [1, 3, 5, 8])
def test_every_probability_is_the_recursions(order: int) -> None:
    task = PyDocs()
    train, test = task.split("train")[:3_001], np.concatenate([task.split("test")[:211], text("\x00é")])
    expected = oracle(train.tobytes(), order)
    chances = reference_scores.KneserNey(train, order=order).probabilities(test)
    assert chances == pytest.approx([expected(test[:i].tobytes(), int(test[i])) for i in range(len(test))], rel=1e-12)


@pytest.mark.parametrize("history", ["", "t", "with the ", "never seen: \x00\x01\x02\x03\x04\x05\x06"])
def test_probabilities_sum_to_one(history: str) -> None:
    model = reference_scores.KneserNey(PyDocs().split("train")[:20_011])
    after = [model.probabilities(np.append(text(history), np.uint8(byte)))[-1] for byte in range(256)]
    assert min(after) > 0
    assert math.fsum(after) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(("vocabulary", "order"), [(2, 8), (300, 7), (50_257, 4), (2**32, 2)])
def test_a_model_of_a_larger_vocabulary_sums_to_one(vocabulary: int, order: int) -> None:
    tokens = np.random.default_rng(0).integers(0, min(vocabulary, 300), size=2_003).astype(np.uint32)
    model = reference_scores.KneserNey(tokens, order=order, vocabulary=vocabulary)
    history = tokens[500 : 500 + order]
    seen = np.arange(min(vocabulary, 300))
    after = [model.probabilities(np.append(history, np.uint32(token)))[-1] for token in seen]
    unseen = model.probabilities(np.append(history, np.uint32(vocabulary - 1)))[-1] if vocabulary > 300 else 0
    assert math.fsum(after) + (vocabulary - len(seen)) * unseen == pytest.approx(1, abs=1e-9)


def test_a_text_of_one_repeated_byte_has_a_finite_number() -> None:
    bits = reference_scores.ngram_bits_per_token(text("a" * 50), [text("aaab")])
    assert 0 < bits < 10


def test_each_stretch_begins_without_a_history_and_its_first_token_is_not_predicted() -> None:
    train = PyDocs().split("train")[:20_011]
    stretches = [train[500:517], train[900:931]]
    model = reference_scores.KneserNey(train)
    bits = [-math.log2(p) for stretch in stretches for p in model.probabilities(stretch)[1:]]
    assert reference_scores.ngram_bits_per_token(train, stretches) == pytest.approx(sum(bits) / (16 + 30), rel=1e-12)


# ---------------------------------------------------------------- the tasks' own


def test_reference_scores_of_bytes_read_the_bytes_that_an_evaluation_counts() -> None:
    task, limit = PyDocs(), 701
    scores = {name: baseline.score(limit) for name, baseline in task.reference_scores().items()}
    test = task.split("test")[:limit].tobytes()
    assert scores["gzip"] == 8 * len(gzip.compress(test, 9, mtime=0)) / limit
    assert scores["xz"] == 8 * len(lzma.compress(test, preset=9 | lzma.PRESET_EXTREME)) / limit
    counted = sum(int((batch.targets >= 0).sum()) for batch in task.eval_batches("test", batch_size=3, limit=limit))
    chances = reference_scores.KneserNey(task.split("train")).probabilities(task.split("test")[:limit])[1:]
    assert scores["n-gram"] == pytest.approx(-np.log2(chances).sum() / counted, rel=1e-12)
    assert scores["n-gram"] < scores["xz"]


def made_up_reviews(n: int, *, seed: int, flip: float = 0.0) -> reference_scores.Texts:
    """Return texts of 7 words out of 40: one of 0 to 4 in class 0, one of 5 to 9 in class 1; the rest is uninformative."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, n)
    words = random.integers(10, 40, (n, 7))
    words[np.arange(n), random.integers(0, 7, n)] = 5 * labels + random.integers(0, 5, n)
    labels = np.where(random.random(n) < flip, 1 - labels, labels)
    return reference_scores.Texts(words.ravel(), 7 * np.arange(1, n + 1), labels)


def test_a_linear_classifier_finds_the_words_that_tell() -> None:
    train, valid, test = (made_up_reviews(n, seed=n) for n in (600, 101, 307))
    assert reference_scores.tfidf_accuracy(train, valid, test) > 0.97


def test_pairs_do_not_cross_from_one_text_to_the_next() -> None:
    features, rows = reference_scores.Texts(np.array([3, 4, 3, 4, 5]), np.array([2, 5]), np.array([0, 1])).features
    pairs = {(int(f >> 32) - 1, int(f & 0xFFFFFFFF), int(row)) for f, row in zip(features, rows, strict=True) if f >> 32}
    assert pairs == {(3, 4, 0), (3, 4, 1), (4, 5, 1)}


# ---------------------------------------------------------------- computed once


def counting(values: list[float]) -> Reference:
    return Reference("a test's", lambda limit: values.pop(0))


def test_a_score_is_computed_once_for_each_key_and_limit(folders: Path) -> None:
    values = counting([1.5, 2.5, 3.5])

    def score(limit: int | None = None, **key: Any) -> float:
        return compute_score(values, limit, key={"name": "x", **key}).value

    assert [score(), score(), score(7), score(data="other"), score(7)] == [1.5, 1.5, 2.5, 3.5, 2.5]


# ---------------------------------------------------------------- in the report

GZIP = ReferenceScore("gzip", "pydocs", "0123456789abcdef", None, "bits_per_byte", 2.9, 0.31, "what gzip makes of it")


def other(**changes: Any) -> ReferenceScore:
    return ReferenceScore(**{**vars(GZIP), **changes})


def test_the_report_lists_reference_scores_and_compares_none(tmp_path: Path) -> None:
    from dataclasses import replace

    runs, points = made_up()
    write.write(tmp_path / "without", info=INFO, runs=runs, curves=points)
    write.write(tmp_path / "with", info=replace(INFO, reference_scores=(GZIP,)), runs=runs, curves=points)
    lines = (tmp_path / "with" / "README.md").read_text().splitlines()
    (line,) = [text_line for text_line in lines if text_line.startswith("| reference: gzip")]
    assert "2.9000" in line and "not compared" in line and "±" not in line
    assert "reference: gzip" in (tmp_path / "with" / "index.html").read_text()
    assert (tmp_path / "with" / "cells.csv").read_text() == (tmp_path / "without" / "cells.csv").read_text()


def test_only_scores_on_the_same_test_are_listed() -> None:
    runs = [{"data": "0123456789abcdef", "evaluate.test_limit": math.nan}, {"data": "b", "evaluate.test_limit": 500.0}]
    first, second = other(), other(data="b", limit=500)
    strangers = [other(data="c"), other(limit=500), other(data="b"), other(metric="loss")]
    assert matching_scores([first, *strangers, second], runs, metric=SPEC.metric) == [first, second]


def test_labels_distinguish_scores_of_one_name() -> None:
    assert labels([other(), other(name="xz")]) == ["reference: gzip", "reference: xz"]
    assert labels([other(), other(task="enwik8")]) == ["reference: gzip pydocs", "reference: gzip enwik8"]
    assert labels([other(), other(limit=5_000)]) == ["reference: gzip pydocs", "reference: gzip pydocs limit 5,000"]


# ---------------------------------------------------------------- in a study

OWN = """
from attnlab.tasks.reference_scores import Reference
from attnlab.tasks.pydocs import PyDocs


class Own(PyDocs):
    def reference_scores(self):
        broken = Reference("no such", lambda limit: 1 / 0)
        return {"uniform": Reference("every byte alike", lambda limit: 8.0), "broken": broken}
"""


def study(task: Any, **more: Any) -> dict[str, Any]:
    base = {"task": task, "train": {"steps": 2}, "machine": {"device": "cpu"}, "evaluate": {"test_limit": 300}}
    return {"study": "small", "base": base, "grid": {"variant": ["dense"], "task.length": [16, 24]}, **more}


def test_one_score_serves_all_cells_with_the_same_test() -> None:
    scores = compute_reference_scores(plan(study({"name": "pydocs"})))
    assert [(score.name, score.task, score.limit) for score in scores] == [
        ("gzip", "pydocs", 300),
        ("xz", "pydocs", 300),
        ("n-gram", "pydocs", 300),
    ]


def test_a_study_chooses_its_reference_scores() -> None:
    def names(wanted: Any) -> list[str]:
        return [score.name for score in compute_reference_scores(plan(study({"name": "pydocs"}, reference_scores=wanted)))]

    assert names(["n-gram", "gzip"]) == ["gzip", "n-gram"]
    with pytest.raises(UserError, match=r"'gzp' \(did you mean 'gzip'\?\)") as caught:
        names(["xz", "gzp"])
    assert "reference_scores[1]" in str(caught.value)


def test_no_score_is_computed_if_the_runs_do_not_read_test() -> None:
    config = study({"name": "pydocs"})
    config["base"]["evaluate"] = {"test": False}
    assert compute_reference_scores(plan(config)) == []


def test_a_reference_score_that_fails_is_one_warning(folders: Path, log: pytest.LogCaptureFixture) -> None:
    (folders / "own.py").write_text(OWN)
    scores = compute_reference_scores(plan(study({"name": f"{folders}/own.py:Own"})))
    assert [(score.name, score.task, score.value) for score in scores] == [
        ("uniform", "Own length=16", 8.0),  # the length may determine the value
        ("uniform", "Own length=24", 8.0),
    ]
    warnings = [record.getMessage() for record in log.records if record.levelname == "WARNING"]
    (line,) = [line for line in warnings if "broken of Own length=16" in line]
    assert "ZeroDivisionError: division by zero" in line


class Tags:
    """An MLflow client that supports only the tags of its one experiment."""

    def __init__(self) -> None:
        self.tags = {"attnlab.view": "another's"}

    def get_experiment(self, experiment: str) -> "Tags":
        return self

    def set_experiment_tag(self, experiment: str, key: str, value: str) -> None:
        self.tags[key] = value


def test_a_whole_study_replaces_what_was_recorded_and_a_part_of_one_adds() -> None:
    client: Any = Tags()

    def after(*scores: ReferenceScore, partial: bool = False) -> list[ReferenceScore]:
        write_reference_scores(client, "1", scores, partial=partial)
        return read_reference_scores(client, "1")

    xz, better = other(name="xz", value=2.2), other(value=2.8)
    assert after(GZIP, xz) == [xz, GZIP]
    assert after(better, partial=True) == [xz, better]
    assert after(better) == [better]
    assert after() == [] and client.tags["attnlab.view"] == "another's"


def test_the_report_finds_the_scores_of_a_study(folders: Path) -> None:
    def go(**words: Any) -> list[ReferenceScore]:
        config = study({"name": "pydocs"})
        return run(
            config, root=folders, display=ProgressDisplay(quiet=True), train="tests.support.study_fakes:good", **words
        ).reference_scores

    def recorded() -> set[ReferenceScore]:
        runs = load_runs("small", folders)
        assert len(runs) == 2  # reference scores are not runs
        stored = load_info("small", folders)[0].reference_scores
        return set(matching_scores(stored, runs.to_dict("records"), metric="bits_per_byte"))  # type: ignore[arg-type]

    assert go(reference_scores=False) == [] and recorded() == set()
    scores = go()
    assert len(scores) == 3 and recorded() == set(scores)

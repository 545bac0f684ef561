"""Tests of the diagnostics of recall and memory: their rows, chance and the options that they refuse."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.registry import TASKS
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics.compression import Compression
from attnlab.tasks.diagnostics.copy import START, Copy
from attnlab.tasks.diagnostics.fuzzy_recall import FuzzyRecall
from attnlab.tasks.diagnostics.indirect_index import IndirectIndex
from attnlab.tasks.diagnostics.induction import MARKER, Induction
from attnlab.tasks.diagnostics.k_hop import KHop
from attnlab.tasks.diagnostics.memorisation import Memorisation
from attnlab.tasks.diagnostics.mqar import Mqar, StackedMqar
from attnlab.tasks.diagnostics.noisy_recall import NoisyRecall
from attnlab.tasks.diagnostics.selective_copy import BLANK, SelectiveCopy

REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("mqar", {"pairs": 9, "keys": 8}, ["pairs", "at most 8", "9"]),
    ("mqar", {"pairs": 8, "length": 23}, ["length", "at least 24", "23"]),
    ("stacked_mqar", {"pairs": 17}, ["pairs", "at most 16", "17"]),
    ("k_hop", {"nodes": 33}, ["nodes", "at most 32", "33"]),
    ("k_hop", {"nodes": 5, "hops": 4}, ["hops", "at most 3 = 5 - 2", "4"]),
    ("induction", {"length": 7}, ["length", "8", "7"]),
    ("induction", {"symbols": 1}, ["symbols", "2", "1"]),
    ("noisy_recall", {"pairs": 17, "length": 128}, ["pairs", "at most 16", "17"]),
    ("noisy_recall", {"pairs": 8, "length": 20}, ["length", "more than 8", "20 // 2 - 2 = 8"]),
    ("noisy_recall", {"noise": 0.9}, ["length", "more than 8", "64 // 2 - 29 = 3"]),
    ("noisy_recall", {"noise": 1.0}, ["noise", "below 1", "1.0"]),
    ("noisy_recall", {"length": 33}, ["length", "even", "33"]),
    ("fuzzy_recall", {"pairs": 17}, ["pairs", "at most 16", "17"]),
    ("fuzzy_recall", {"key_size": 0}, ["key_size", "at least 1", "0"]),
    ("selective_copy", {"tokens": 8, "length": 16}, ["length", "at least 17", "16"]),
    ("compression", {"tokens": 2}, ["tokens", "at least 4", "2"]),
    ("memorisation", {"keys": 1}, ["keys", "at least 2", "1"]),
    ("memorisation", {"length": 17}, ["length", "even", "17"]),
    ("indirect_index", {"items": 33}, ["items", "at most 32", "33"]),
    ("indirect_index", {"items": 4, "reach": 4}, ["reach", "at most 3", "4"]),
    ("fuzzy_recall", {"pairs": 9, "symbols": 4}, ["pairs", "at most 4", "9 / 2 = 5"]),
    ("copy", {"length": 4}, ["length", "at least 8", "4"]),
]


@pytest.mark.parametrize(("name", "options", "words"), REFUSED)
def test_options_without_a_row_are_refused_with_the_arithmetic(name: str, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        TASKS.get(name)(**options)
    message = str(error.value)
    assert message.startswith(words[0]) and all(word in message for word in words) and "\n" not in message


def test_the_plan_names_the_cell_whose_task_has_no_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "study: s\n"
        "base: {task: {name: mqar, keys: 8}, variant: dense, position: rotary, train: {steps: 2, batch_size: 2}}\n"
        "grid: {task.pairs: [4, 9]}\nseeds: [0]\n"
    )
    code = main(["plan", str(study)])
    printed = "".join(capsys.readouterr())
    assert code != 0 and "expected at most 8, the number of keys, got 9" in printed


def test_induction_asks_for_each_place_equally_often() -> None:
    inputs, targets = Induction(length=12).rows("train", 3000, seed=0)
    assert ((inputs == MARKER).sum(1) == 2).all() and ((targets != IGNORED).sum(1) == 1).all()
    places = np.bincount((inputs == MARKER).argmax(1))
    assert len(places) == 10 and places.min() > 200


def test_noise_takes_its_share_and_lies_between_pairs() -> None:
    task = NoisyRecall(pairs=4, noise=0.25, length=40)
    inputs, targets = task.rows("valid", 200)
    noise = inputs >= 2 * task.keys
    assert (noise.sum(1) == 10).all() and (noise[:, ::2] == noise[:, 1::2]).all()
    assert (inputs[:, ::2] < task.keys)[~noise[:, ::2]].all()
    for row, keys in zip(targets, inputs, strict=True):
        clean = [int(key) for key in keys[::2] if key < task.keys]
        assert (row != IGNORED).sum() == len(clean) - len(set(clean)) > 0


@pytest.mark.parametrize("task", [NoisyRecall(), NoisyRecall(pairs=3, noise=0.5, length=40)])
def test_chance_of_noisy_recall_is_that_of_a_guess_among_the_values_so_far(task: NoisyRecall) -> None:
    rng = np.random.default_rng(0)
    right = total = 0
    inputs, targets = task.rows("valid", 2000)
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        values: list[int] = []
        for token, answer in zip(row, answers, strict=True):
            if answer != IGNORED:
                right, total = right + (rng.choice(values) == answer), total + 1
            if task.keys <= token < 2 * task.keys and token not in values:
                values.append(token)
    assert right / total == pytest.approx(task.chance(), abs=4 * (task.chance() / total) ** 0.5)


def test_a_fuzzy_key_can_be_a_part_of_another() -> None:
    task = FuzzyRecall(pairs=8, key_size=2, symbols=8)
    inputs, _ = task.rows("train", 100, seed=0)
    parsed = [[tuple(key) for key in _keys(row[: task.length // 2], task.symbols)] for row in inputs.tolist()]
    assert all(len(set(keys)) == 8 and sorted(map(len, keys)) == [1] * 4 + [2] * 4 for keys in parsed)
    parts = [any(long[:1] in keys or long[1:] in keys for long in keys if len(long) == 2) for keys in parsed]
    assert sum(parts) > 80


def _keys(row: list[int], symbols: int) -> list[list[int]]:
    keys, previous = [], 0
    for token in row:
        if 0 < token <= symbols:
            keys.append([*keys.pop(), token] if 0 < previous <= symbols else [token])
        previous = token
    return keys


@pytest.mark.parametrize("task", [FuzzyRecall(), FuzzyRecall(pairs=6, key_size=3, value_size=2)])
def test_chance_of_fuzzy_recall_is_that_of_the_last_token_of_a_key(task: FuzzyRecall) -> None:
    """The first of the pairs whose keys end in the same token is answered, if its value has a token at the same place."""
    inputs, targets = task.rows("valid", 1000)
    right = total = 0
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        values: dict[tuple[int, int], int] = {}
        place = 0
        for i, token in enumerate(row[: task.length // 2]):
            if token > task.symbols:
                place = 0 if row[i - 1] <= task.symbols else place + 1
                values.setdefault((row[i - 1 - place], place), token)
        for i, answer in enumerate(answers):
            if answer != IGNORED:
                place = 0 if row[i] else place + 1
                right, total = right + (values[row[i - place], place] == answer), total + 1
    assert right / total == pytest.approx(task.chance(), abs=5 * (task.chance() / total) ** 0.5)


def test_blanks_lie_anywhere_between_the_symbols_to_copy() -> None:
    inputs, _ = SelectiveCopy(tokens=3, length=14).rows("train", 2000, seed=0)
    symbols = (inputs[:, :10] > 1).mean(0)
    assert (abs(symbols - 0.3) < 0.06).all() and (inputs[:, 11:] == BLANK).all()


def test_the_mapping_to_memorize_is_the_same_in_all_splits_and_follows_the_seed() -> None:
    first, second = Memorisation(keys=16), Memorisation(keys=16, seed=1)
    pairs = {}
    for split in ("train", "valid", "test"):
        inputs, targets = Memorisation(keys=16).rows(split, 50)
        for key, value in zip(inputs[:, ::2].flat, targets[:, 1::2].flat, strict=True):
            assert pairs.setdefault(int(key), int(value)) == value
    assert len(pairs) == len(set(pairs.values())) == 16
    assert (first.values != second.values).any()


def test_compression_is_decoded_from_the_last_output_alone() -> None:
    task = Compression(tokens=5, symbols=4)
    logits = torch.randn(2, task.length, task.vocabulary, requires_grad=True)
    task.loss(logits, task.train_batch(0, seed=0, batch_size=2)).backward()
    assert logits.grad is not None
    assert (logits.grad[:, :-1] == 0).all() and (logits.grad[:, -1] != 0).all()


def test_indirect_indexes_reach_both_ways_and_stay_in_the_row() -> None:
    task = IndirectIndex(items=6, reach=2, queries=4)
    inputs, targets = task.rows("train", 400, seed=0)
    items = inputs[:, :6]
    source = (items[:, None] == inputs[:, 7::2, None]).argmax(2)
    place = (items[:, None] == targets[:, 7::2, None]).argmax(2)
    assert set(np.unique(place - source)) == {-2, -1, 1, 2}
    assert len(np.unique((place - source) * 100 + inputs[:, 6::2])) == 4  # one token for each distance
    assert set(np.unique(place)) == set(range(6))


@pytest.mark.parametrize("length", [16, 32, 64])
def test_strings_of_twice_the_length_are_all_longer(length: int) -> None:
    sizes = [(Copy(length=n).rows("train", 500, seed=0)[0] == START).argmax(1) for n in (length, 2 * length)]
    assert sizes[0].min() == length // 4 + 1 and sizes[0].max() == length // 2 < sizes[1].min()
    assert Copy(length=length).vocabulary == Copy(length=2 * length).vocabulary
    assert Copy(length=length).vocabulary_identity() == Copy(length=2 * length).vocabulary_identity()


def test_chance_of_copy_is_that_of_the_commonest_remaining_symbol() -> None:
    task = Copy(length=16, symbols=5)
    right = total = 0
    for row in task.rows("valid", 1000)[1]:
        copied = row[row != IGNORED]
        for i, symbol in enumerate(copied):
            right, total = right + (np.bincount(copied[i:]).argmax() == symbol), total + 1
    assert right / total == pytest.approx(task.chance(), abs=4 * (task.chance() / total) ** 0.5)


def test_values_of_a_row_differ_so_that_none_is_the_commonest() -> None:
    _, targets = Mqar(pairs=16, keys=16).rows("valid", 50)
    assert all(len(np.unique(row[row != IGNORED])) == 16 for row in targets)


def test_hops_follow_the_cycle_of_the_row() -> None:
    task = KHop(nodes=4, hops=2, queries=2, symbols=9)
    edges, queries = [0, 2, 3, 0, 1, 3, 2, 1], [9, 0, 10, 3]  # +1 of 0, +2 of 3
    assert task.solve(edges + queries) == 8 * [IGNORED] + [IGNORED, 2, IGNORED, 2]
    assert task.decode(queries) == "+1 0 +2 3"
    train, test = (task.rows(split, 300) for split in ("train", "test"))
    assert set(train[0][:, 8::2].flat) == {9, 10} and ((train[1] != IGNORED).sum(axis=1) == 2).all()
    scored = test[1][:, 9::2] != IGNORED
    assert (scored == (test[0][:, 8::2] == 10)).all()


def test_stacked_keys_and_values_differ_within_a_row() -> None:
    inputs, targets = StackedMqar(pairs=4, keys=5).rows("valid", 100)
    keys, values = np.divmod(inputs[:, :4] - 10, 5)
    assert all(len(set(row)) == 4 for row in [*keys.tolist(), *values.tolist()])
    assert (np.sort(inputs[:, 4:] - 5, axis=1) == np.sort(keys, axis=1)).all()
    assert set(targets[:, 4:].flat) == set(range(5))

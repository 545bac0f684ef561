"""Tests of the diagnostics of state tracking and length: definitions by hand, scored positions, options, other lengths."""

from collections import Counter
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch

from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.tasks import IGNORED
from attnlab.tasks.diagnostics.addition import Addition
from attnlab.tasks.diagnostics.flip_flop import FlipFlop
from attnlab.tasks.diagnostics.group import GROUPS, Group
from attnlab.tasks.diagnostics.listops import ListOps
from attnlab.tasks.diagnostics.parity import Parity
from attnlab.tasks.diagnostics.state_recall import StateRecall
from attnlab.training.evaluate import evaluate_lengths
from tests.support.small_runs import tiny

RNG = 0
STUDY = """\
study: s
base:
  task: {name: listops, depth: 9, length: 16}
  model: {dim: 8, depth: 1, heads: 2}
  train: {steps: 2, batch_size: 2, lr: 1e-3}
  machine: {device: cpu}
grid:
  variant: [dense]
seeds: [0]
"""


def solved(task: Any, row: str) -> str:
    """Return the targets of a row that is written as ``decode`` writes rows; "." where none is scored."""
    names = [task.decode([token]) for token in range(task.vocabulary)]
    tokens = [names.index(name) for name in row.split()]
    return " ".join("." if target == IGNORED else names[target] for target in task.solve(tokens))


def test_parity_counts_ones() -> None:
    assert solved(Parity(), "0 1 1 0 1") == "0 1 0 0 1"


def test_products_of_a_group_apply_the_latest_permutation_first() -> None:
    assert solved(Group(group="s3"), "213 132 213") == "213 231 321"  # (1 2), (1 2)(2 3) = (1 2 3), (1 3)


@pytest.mark.parametrize(("group", "order"), zip(GROUPS, (6, 12, 24, 60, 120), strict=True))
def test_a_group_has_its_order_and_products_that_are_permutations(group: str, order: int) -> None:
    task = Group(group=group)
    assert task.vocabulary == order and task.chance() == 1 / order
    assert all(sorted(line) == list(range(order)) for table in (task.products, task.products.T) for line in table)


def test_an_alternating_group_has_the_even_permutations() -> None:
    assert Group(group="a4").elements == [p for p in permutations(range(4)) if round(np.linalg.det(np.eye(4)[list(p)])) == 1]


def test_a_flip_flop_reads_the_latest_bit_written() -> None:
    assert solved(FlipFlop(), "w 1 i 0 r 1 i 0 w 0 i 1 r 0") == ". . . . 1 . . . . . . . 0 ."


def test_instructions_of_a_flip_flop_have_their_probabilities() -> None:
    task = FlipFlop(length=256, ignore=0.6)
    inputs, _ = task.draw(np.random.default_rng(RNG), 2_000)
    instructions = inputs[:, 2:-2:2]  # the first is w and the last r
    shares = np.bincount(instructions.ravel(), minlength=5)[2:] / instructions.size
    assert np.allclose(shares, [0.2, 0.2, 0.6], atol=0.005)
    assert (inputs[:, 0] == 2).all() and (inputs[:, -2] == 3).all()


@pytest.mark.parametrize(
    ("reverse", "row", "targets"),
    [
        (True, "5 3 + 8 6 = 3 0", ". . . . . 3 0 1"),
        (False, "3 5 + 6 8 = 1 0", ". . . . . 1 0 3"),
        (True, "0 + 0 =", ". . . 0 0"),
    ],
)
def test_addition_adds(reverse: bool, row: str, targets: str) -> None:
    task = Addition(reverse=reverse)
    assert solved(task, row + " _") == targets + (" ." if row.endswith("0") else "")


def test_numbers_to_add_have_every_size_in_training_and_the_largest_in_evaluations() -> None:
    task = Addition(length=20)  # 6 digits
    train, _ = task.rows("train", 2_000, seed=0)
    test, _ = task.rows("test", 500)
    sizes = Counter((train == 10).argmax(axis=1).tolist())
    assert sorted(sizes) == [1, 2, 3, 4, 5, 6] and min(sizes.values()) > 250
    assert set((test == 10).argmax(axis=1).tolist()) == {6}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[MAX 4 [MIN 2 3 ] 0 [SM 8 5 ] ]", 4),
        ("[MED 9 1 8 ]", 8),
        ("[MED 9 1 8 4 ]", 6),
        ("[SM 9 9 9 ]", 7),
        ("[MIN 5 [MAX 1 2 ] ] _ _", 2),
    ],
)
def test_an_expression_has_a_value_at_its_last_bracket(expression: str, value: int) -> None:
    targets = solved(ListOps(), expression).split()
    assert targets[expression.split()[::-1].index("]") * -1 - 1] == str(value)


@pytest.mark.parametrize(("depth", "arguments"), [(1, 2), (2, 5), (4, 3)])
def test_expressions_are_complete_and_keep_to_the_limits(depth: int, arguments: int) -> None:
    task = ListOps(depth=depth, length=40, arguments=arguments)
    inputs, _ = task.draw(np.random.default_rng(RNG), 300)
    deepest = 0
    for row in inputs.tolist():
        counts: list[int] = []  # the arguments of each open operation
        for i, token in enumerate(row):
            assert counts or i == 0 or token == 15  # padding follows the expression
            if counts and token < 14:
                counts[-1] += 1
            if 10 <= token < 14:
                counts.append(0)
            elif token == 14:
                assert 2 <= counts.pop() <= arguments
            deepest = max(deepest, len(counts))
        assert not counts
    assert deepest == depth


def test_an_expression_fills_at_most_its_row() -> None:
    """Where the room is small, operations close with fewer arguments than drawn."""
    task = ListOps(depth=3, length=10, arguments=5)
    inputs, targets = task.draw(np.random.default_rng(RNG), 500)
    assert ((inputs == 14).sum(axis=1) == ((inputs >= 10) & (inputs < 14)).sum(axis=1)).all()
    assert ((inputs == 14) == (targets != IGNORED)).all()


def test_swapped_pointers_lead_to_their_bits() -> None:
    task = StateRecall(bits=4, pointers=3, length=13)
    assert solved(task, "0:1 1:0 2:1 3:1 a->2 b->0 c->1 - a<>b b<>c b a c") == ". . . . . . . . . . 0 1 1"
    assert solved(task, "0:1 1:0 2:1 3:1 a->2 b->0 c->1 - - a<>c c a b") == ". . . . . . . . . . 1 0 1"


def test_evaluations_score_the_pointers_that_moved() -> None:
    """They are scored in rows with all swaps when the pointer has another address, although its bit may be the same."""
    task = StateRecall(bits=8, pointers=3, length=19)
    inputs, targets = task.rows("test", 300)
    for row, answers in zip(inputs.tolist(), targets.tolist(), strict=True):
        first, now = (addresses[0].tolist() for addresses in task.addresses(np.array([row])))
        assert first == [token % 8 for token in np.array(row[8:11]) - task.first_pointer] and row.count(task.no_swap) == 1
        moved = [now[query - task.first_query] != first[query - task.first_query] for query in row[-3:]]
        assert [answer != IGNORED for answer in answers] == [False] * 16 + moved
    inputs, targets = task.rows("train", 2_000, seed=0)
    assert ((targets != IGNORED).sum(axis=1) == 3).all()
    shares = np.bincount((inputs == task.no_swap).sum(axis=1) - 1) / len(inputs)
    assert shares == pytest.approx([0.25] * 4, abs=0.04)  # 0 to 3 of 4 swaps are left out


@pytest.mark.parametrize("name", ["parity", "group", "flip_flop"])
def test_evaluations_score_the_last_quarter_and_training_all_positions(name: str) -> None:
    task = TASKS.get(name)(length=34)
    _, train = task.rows("train", 200, seed=0)
    _, test = task.rows("test", 200)
    columns = np.flatnonzero((test != IGNORED).any(axis=0))
    assert columns.min() == (26 if name == "flip_flop" else 25) and columns.max() == (32 if name == "flip_flop" else 33)
    assert (train[:, :25] != IGNORED).any()


def test_evaluations_score_the_outermost_operation() -> None:
    task = ListOps()
    inputs, targets = task.rows("test", 200)
    assert ((targets != IGNORED).sum(axis=1) == 1).all()
    assert all((row[column + 1 :] == 15).all() for row, column in zip(inputs, targets.argmax(axis=1), strict=True))


def test_evaluation_rows_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Parity(length=8)
    first = next(task.eval_batches("test", batch_size=4))
    monkeypatch.setattr(Parity, "draw", None)
    assert torch.equal(next(task.eval_batches("test", batch_size=4)).inputs, first.inputs)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("parity", {"length": 7}, "length at least 8"),
        ("group", {"group": "s6"}, "group s3 s5 's6'"),
        ("group", {"length": 3}, "length at least 4"),
        ("flip_flop", {"length": 33}, "length even 33"),
        ("flip_flop", {"length": 14}, "length at least 16"),
        ("flip_flop", {"ignore": 1.0}, "ignore below 1 1.0"),
        ("flip_flop", {"ignore": True}, "ignore True"),
        ("addition", {"length": 7}, "length 8 = 3 x 2 + 2 7"),
        ("addition", {"base": 2, "length": 13}, "length 14 = 3 x 4 + 2 13"),
        ("addition", {"base": 11}, "base 10 11"),
        ("addition", {"base": 1}, "base at least 2"),
        ("addition", {"reverse": 1}, "reverse true 1"),
        ("listops", {"depth": 3, "length": 9}, "length 10 = 3 x 3 + 1 9"),
        ("listops", {"arguments": 1}, "arguments at least 2"),
        ("listops", {"depth": 0}, "depth at least 1"),
        ("sparse_flip_flop", {"test_ignore": 0.8}, "test_ignore above ignore 0.8"),
        ("state_recall", {"length": 28}, "length 29 = 16 + 2 x 5 + 3 two swaps 28"),
        ("state_recall", {"bits": 4}, "pointers at most 4 5"),
        ("state_recall", {"pointers": 2}, "pointers at least 3"),
    ],
)
def test_bad_options_are_refused_with_the_arithmetic(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as refused:
        TASKS.get(name)(**options)
    assert all(word in str(refused.value) for word in words.split(" ")) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "length", "longer"),
    [("addition", 8, 14), ("parity", 8, 16), ("flip_flop", 16, 32)],
)
def test_a_trained_model_is_tested_at_other_lengths(name: str, length: int, longer: int) -> None:
    """The vocabulary does not depend on the length, so that one model serves all."""
    task = TASKS.get(name)(length=length)
    options = {"name": name, "length": length}
    config = tiny(task=options, data=task.identity(), evaluate__lengths=[longer], evaluate__test_limit=40)
    scores, tags = evaluate_lengths(build(config, task), task, {}, config=config, device=torch.device("cpu"))
    assert tags == {} and {f"accuracy_at/{longer}", f"exact_at/{longer}"} <= scores.keys()

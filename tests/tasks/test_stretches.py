"""Tests of limited evaluations: stretches spread over the split, each token predicted once, the same for every length."""

import numpy as np
import pytest
import torch

from attnlab.models.build import build
from attnlab.tasks import IGNORED
from attnlab.tasks.bytes import ByteTask
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.sequence import FEW, LONG, MANY, MULTIPLE, SHORT, stretches
from attnlab.training.evaluate import evaluate
from tests.support.small_runs import tiny

SIZES = [20_011, 100_003, 1_000_003]
LIMITS = [2, 1_999, 2_048, 10_007, 65_537, 100_000, 700_001]


class Places(ByteTask):
    """A text whose tokens are their own places in the split."""

    def __init__(self, size: int, *, length: int = 16) -> None:
        super().__init__(length=length, sampling="contiguous")
        self.size = size

    def cuts(self) -> tuple[int, int, int]:
        return self.size, 2 * self.size, 3 * self.size

    def text(self, split: str) -> np.ndarray:
        return np.arange(self.size)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("limit", LIMITS)
def test_stretches_are_disjoint_within_the_limit_and_span_the_split(size: int, limit: int) -> None:
    parts = stretches(size, limit)
    count = len(parts.starts)
    assert (parts.starts[1:] >= parts.ends[:-1] - 1).all(), "the last token of one may be the first of the next"
    assert count * (parts.predicted + 1) <= min(limit, size) and parts.ends[-1] <= size and parts.starts[0] == 0
    assert count <= MANY and (count == 1 or parts.predicted >= SHORT - MULTIPLE)
    if limit < 2 * SHORT or limit >= size:
        assert count == 1 and parts.predicted == min(limit, size) - 1
    else:
        assert count >= min(FEW, limit // SHORT) and parts.ends[-1] == size and parts.predicted % MULTIPLE == 0
        gaps = np.diff(parts.starts)
        assert gaps.max() - gaps.min() <= 1
        assert count * parts.predicted >= limit - count * (MULTIPLE + 1) - count
    if limit >= FEW * LONG and limit < size:
        assert parts.predicted >= LONG - MULTIPLE


def counts(task: Places, limit: int, *, batch_size: int, protocol: str = "segment", stride: int | None = None) -> np.ndarray:
    """Return how often each place of ``valid`` is predicted."""
    times = np.zeros(task.size, dtype=int)
    for batch in task.eval_batches("valid", batch_size=batch_size, limit=limit, protocol=protocol, stride=stride):
        kept = batch.targets != IGNORED
        assert torch.equal(batch.inputs[kept] + 1, batch.targets[kept]), "a target is the token after its input"
        np.add.at(times, batch.targets[kept].numpy(), 1)
    return times


@pytest.mark.parametrize("limit", [1_500, 3_000, 9_001, 20_000])
@pytest.mark.parametrize("batch_size", [1, 5, 8, 100])
@pytest.mark.parametrize(("length", "stride"), [(16, None), (48, None), (96, 7), (4_096, None), (4_096, 500)])
def test_every_byte_of_a_stretch_but_the_first_is_predicted_once(
    limit: int, batch_size: int, length: int, stride: int | None
) -> None:
    task = Places(21_003, length=length)
    parts, expected = stretches(task.size, limit), np.zeros(task.size, dtype=int)
    for start, end in zip(parts.starts, parts.ends, strict=True):
        expected[start + 1 : end] += 1
    protocol = "sliding" if stride else "segment"
    times = counts(task, limit, batch_size=batch_size, protocol=protocol, stride=stride)
    assert (times == expected).all() and times.max() == 1
    batches = task.eval_batches("valid", batch_size=batch_size, limit=limit, protocol=protocol, stride=stride)
    rows = sum(int((batch.targets != IGNORED).any(1).sum()) for batch in batches)
    assert task.eval_tokens("valid", limit=limit, protocol=protocol, stride=stride) == length * rows


def test_the_same_tokens_are_tested_at_every_length_and_by_the_reference_scores() -> None:
    tested = [np.flatnonzero(counts(Places(21_003, length=length), 9_001, batch_size=3)) for length in (16, 100, 5_000)]
    assert all(np.array_equal(tested[0], other) for other in tested)
    task = Places(21_003)
    starts = stretches(task.size, 9_001).starts
    assert len(starts) > 1 and sorted([*tested[0], *starts]) == np.concatenate(task.counted("test", 9_001)).tolist()


@pytest.mark.parametrize("batch_size", [1, 3, 8, 40])
def test_rows_continue_within_a_stretch_and_are_fresh_at_its_start(batch_size: int) -> None:
    """Memory carries from batch to batch: a row that is not fresh starts where the same row of the batch before ended."""
    task, before = Places(21_003), np.zeros(0, dtype=int)
    starts = stretches(task.size, 9_001).starts
    for batch in task.eval_batches("valid", batch_size=batch_size, limit=9_001):
        first, live = batch.inputs[:, 0].numpy(), (batch.targets != IGNORED).any(1).numpy()
        if not batch.fresh:
            assert len(before) == len(first) and (first[live] == before[live]).all()
        elif batch_size <= len(starts):
            assert np.isin(first, starts).all(), "only the start of a stretch has an empty memory"
        before = first + task.length


def test_a_limited_score_with_memory_does_not_depend_on_the_batch_size() -> None:
    config = tiny(variant="transformer_xl", position="relative", model__mem_len=32, evaluate__test_limit=9_000)
    task = PyDocs(**config.task.options)
    model = build(config, task)
    assert len(stretches(len(task.split("test")), 9_000).starts) == 8
    by_rows = [config.replace({"evaluate.batch_size": rows}) for rows in (1, 3, 8)]
    scores = [evaluate(model, task, "test", config=limited, device=torch.device("cpu"))["bits_per_byte"] for limited in by_rows]
    assert scores == pytest.approx([scores[0]] * 3, rel=1e-6)

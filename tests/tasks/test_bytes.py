"""Tests of byte tasks: sampling, the counted bytes, and that each byte is counted once."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from attnlab._util.metrics import merge
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, Batch
from attnlab.tasks import pysource as module
from attnlab.tasks.bytes import ByteTask
from attnlab.tasks.enwik8 import Enwik8
from attnlab.tasks.overlap import overlap
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.pysource import PySource
from attnlab.tasks.text import Text


class Ramp(ByteTask):
    """A text whose byte number i is i mod 251, so that a window shows where it was cut."""

    def __init__(self, size: int, *, length: int = 7, sampling: str = "random") -> None:
        super().__init__(length=length, sampling=sampling)
        self.size = size

    def cuts(self) -> tuple[int, int, int]:
        return self.size, self.size + self.size, self.size + self.size + self.size

    def read(self):
        return np.tile((np.arange(self.size) % 251).astype(np.uint8), 3)


def counted(batches: list[Batch], size: int) -> np.ndarray:
    """Check each target of a short ramp against its input, and return how often each byte is predicted."""
    times = np.zeros(size, dtype=int)
    for batch in batches:
        kept = batch.targets != IGNORED
        assert torch.equal(batch.inputs[kept] + 1, batch.targets[kept])
        np.add.at(times, batch.targets[kept].numpy(), 1)
    return times


@pytest.mark.parametrize("size", [2, 3, 7, 8, 9, 15, 16, 57, 113, 250])
@pytest.mark.parametrize("batch_size", [1, 3, 5, 64])
@pytest.mark.parametrize("stride", [None, 1, 3, 7])
def test_every_byte_but_the_first_is_counted_once(size: int, batch_size: int, stride: int | None):
    protocol = "sliding" if stride else "segment"
    task = Ramp(250)
    batches = list(task.eval_batches("valid", batch_size=batch_size, limit=size, protocol=protocol, stride=stride))
    times = counted(batches, size)
    assert times[0] == 0 and (times[1:] == 1).all()
    assert all(len(batch.inputs) <= batch_size for batch in batches)
    windows = sum(int((batch.targets != IGNORED).any(1).sum()) for batch in batches)
    assert task.eval_tokens("valid", limit=size, protocol=protocol, stride=stride) == 7 * windows


@pytest.mark.parametrize(("split", "stride"), [("valid", None), ("test", None), ("test", 3)])
def test_the_positions_of_a_whole_split_are_known_without_reading_it(split: str, stride: int | None):
    protocol, task = "sliding" if stride else "segment", Ramp(250)
    read = sum(batch.inputs.numel() for batch in task.eval_batches(split, batch_size=1, protocol=protocol, stride=stride))
    assert task.eval_tokens(split, limit=None, protocol=protocol, stride=stride) == read


def test_rows_of_segments_continue_from_batch_to_batch():
    batches = list(Ramp(250).eval_batches("test", batch_size=4))
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert len({len(batch.inputs) for batch in batches}) == 1  # the memory keeps its rows
    for before, after in zip(batches, batches[1:], strict=False):
        real = after.targets[:, 0] != IGNORED
        assert torch.equal(before.inputs[real][:, -1] + 1, after.inputs[real][:, 0])


@pytest.mark.parametrize("stride", [1, 2, 5, 7])
def test_sliding_sees_at_least_length_minus_stride_bytes(stride: int):
    batches = Ramp(250).eval_batches("valid", batch_size=3, protocol="sliding", stride=stride)
    for number, batch in enumerate(batches):
        assert batch.fresh
        for row, targets in enumerate(batch.targets):
            seen = torch.nonzero(targets != IGNORED).flatten() + 1  # bytes of the row up to the prediction
            first_window = number == 0 and row == 0
            assert first_window or (seen >= 7 - stride + 1).all()


def test_a_uniform_model_has_eight_bits_a_byte():
    task = Ramp(250)
    for options in ({}, {"protocol": "sliding", "stride": 2}):
        scores = [
            task.score(torch.zeros(*batch.inputs.shape, 256), batch)
            for batch in task.eval_batches("test", batch_size=4, **options)
        ]
        total = merge(scores)["bits_per_byte"]
        assert total.count == 249
        assert total.value == pytest.approx(8, abs=1e-7)


def test_loss_and_score_agree_with_their_definition():
    task = Ramp(250)
    batch = list(task.eval_batches("test", batch_size=5))[-1]
    assert (batch.targets == IGNORED).any()
    logits = torch.randn(*batch.inputs.shape, 256, generator=torch.Generator().manual_seed(0))
    kept = batch.targets != IGNORED
    chosen = logits.double().log_softmax(-1)[kept].gather(-1, batch.targets[kept][:, None])
    total, count = task.score(logits, batch)["bits_per_byte"]
    assert count == kept.sum()
    assert total == pytest.approx(-chosen.sum().item() / math.log(2), rel=1e-6)
    assert task.loss(logits, batch).item() == pytest.approx(-chosen.mean().item(), rel=1e-6)


# ---------------------------------------------------------------- training batches


@pytest.mark.parametrize("sampling", ["random", "contiguous"])
def test_a_training_batch_is_a_function_of_its_arguments(sampling: str):
    first, second = Ramp(250, sampling=sampling), Ramp(250, sampling=sampling)
    forward = [first.train_batch(step, seed=3, batch_size=5) for step in range(20)]
    backward = [second.train_batch(step, seed=3, batch_size=5) for step in reversed(range(20))][::-1]
    for a, b in zip(forward, backward, strict=True):
        assert torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets) and a.fresh == b.fresh
        assert a.inputs.shape == (5, 7) and a.inputs.dtype == torch.int64 and a.inputs.is_contiguous()
        assert torch.equal((a.inputs + 1) % 251, a.targets) and a.tokens == 35
    assert not torch.equal(forward[0].inputs, first.train_batch(0, seed=4, batch_size=5).inputs)
    assert not torch.equal(forward[0].inputs, first.train_batch(7, seed=3, batch_size=5).inputs)


def test_random_rows_reach_every_byte_and_stay_inside():
    task = Ramp(30)
    batches = [task.train_batch(step, seed=0, batch_size=8) for step in range(40)]
    assert all(batch.fresh for batch in batches)
    assert set(torch.cat([batch.targets.flatten() for batch in batches]).tolist()) == set(range(1, 30))


def test_contiguous_rows_continue_and_restart():
    task = Ramp(250, sampling="contiguous")
    turn = task.steps_per_epoch(3)
    assert turn == 249 // 3 // 7 - 1
    batches = [task.train_batch(step, seed=1, batch_size=3) for step in range(3 * turn)]
    assert [batch.fresh for batch in batches] == ([True] + [False] * (turn - 1)) * 3
    for before, after in zip(batches, batches[1:], strict=False):
        if not after.fresh:
            assert torch.equal(before.targets[:, -1], after.inputs[:, 0])
    starts = [tuple(batches[turn * i].inputs[:, 0].tolist()) for i in range(3)]
    assert len(set(starts)) == 3
    for i, batch in enumerate(batches[:turn]):  # each row keeps to its own third
        assert ((batch.targets - 1) // 83 == torch.arange(3)[:, None]).all(), i


def test_steps_of_an_epoch():
    assert Ramp(250).steps_per_epoch(5) == 7
    assert Ramp(250).steps_per_epoch(500) == 1
    with pytest.raises(UserError, match="too short for 40 rows of 7"):
        Ramp(250, sampling="contiguous").steps_per_epoch(40)
    with pytest.raises(UserError, match="row needs 8"):
        Ramp(7).train_batch(0, seed=0, batch_size=1)


# ---------------------------------------------------------------- unsupported configurations


def settings(*, memory: int = 0, batch_size: int = 1, **evaluate: Any) -> RunConfig:
    train = {"steps": 1, "batch_size": batch_size}
    return RunConfig.model_validate(
        {"task": "ramp", "variant": "dense", "model": {"mem_len": memory}, "train": train, "evaluate": evaluate}
    )


def test_check_names_the_reason():
    random, contiguous = Ramp(250), Ramp(250, sampling="contiguous")
    assert random.unsupported(settings()) is None
    assert "sampling: contiguous" in str(random.unsupported(settings(memory=7)))
    assert contiguous.unsupported(settings(memory=7)) is None
    assert "evaluate.stride" in str(random.unsupported(settings(protocol="sliding", stride=8)))
    assert random.unsupported(settings(protocol="sliding", stride=7)) is None


def test_limits_that_would_fail_after_training_are_refused_in_the_plan():
    random, contiguous = Ramp(250), Ramp(250, sampling="contiguous")
    assert "evaluate.test_limit: one byte" in str(random.unsupported(settings(test_limit=1)))
    assert "evaluate.valid_limit: one byte" in str(random.unsupported(settings(valid_limit=1)))
    assert random.unsupported(settings(valid_limit=2, test_limit=2, batch_size=1000)) is None
    assert contiguous.unsupported(settings(batch_size=35)) is None  # 249 bytes: 35 rows of 7
    assert "too short for 36 rows of 7 bytes each" in str(contiguous.unsupported(settings(batch_size=36)))
    assert "train has 7 bytes, a row needs 8" in str(Ramp(7).unsupported(settings()))
    assert Ramp(8).unsupported(settings()) is None


def test_wrong_options_are_refused():
    with pytest.raises(UserError, match="did you mean 'contiguous'"):
        PyDocs(sampling="contigous")
    for length in (0, -1, 2.5, True, "256"):
        with pytest.raises(UserError, match="length: expected a whole number"):
            PyDocs(length=length)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="did you mean 'valid'"):
        Ramp(250).split("validation")
    with pytest.raises(UserError, match="stride"):
        Ramp(250).eval_batches("valid", batch_size=1, protocol="sliding", stride=8)
    with pytest.raises(UserError, match="protocol"):
        Ramp(250).eval_batches("valid", batch_size=1, protocol="slide")


# ---------------------------------------------------------------- the texts


def test_pydocs_needs_no_download_and_is_reproducible():
    task = PyDocs(length=64)
    task.prepare()
    sizes = [len(task.split(name)) for name in ("train", "valid", "test")]
    assert sum(sizes) > 300_000 and sizes[1] == pytest.approx(sum(sizes) * 0.05, abs=2)
    assert task.identity() == PyDocs().identity() and task.identity().startswith("pydocs sha256:")
    words = task.decode(task.split("valid")[:4000].tolist())
    assert " the " in words and task.decode(task.encode("naïve")) == "naïve"


@pytest.mark.parametrize(("split", "seen"), [("valid", "train"), ("test", "train"), ("test", "valid")])
def test_pydocs_shares_nothing_long_between_its_splits(split: str, seen: str):
    """128 bytes are two lines: topics of Python's help contain one another, so a model could know the answer from training."""
    seen_text, split_text = PyDocs().split(seen).tobytes(), PyDocs().split(split).tobytes()
    strings = {seen_text[place : place + 128] for place in range(len(seen_text) - 127)}
    assert not [
        split_text[place : place + 128] for place in range(len(split_text) - 127) if split_text[place : place + 128] in strings
    ]


def test_pysource_needs_no_download_and_splits_by_file():
    task = PySource(length=64)
    text, ends = module._contents()
    parts = [task.split(name).tobytes() for name in ("train", "valid", "test")]
    assert b"".join(parts) == text and len(text) > 5_000_000
    assert {len(parts[0]), len(parts[0]) + len(parts[1]), len(text)} <= set(ends), "no file is in two splits"
    assert [len(part) / len(text) for part in parts] == pytest.approx([0.9, 0.05, 0.05], abs=0.02)
    assert task.identity() == PySource().identity() and task.identity().startswith("pysource sha256:")


def test_pysource_states_how_much_of_its_splits_is_in_train():
    task = PySource()
    valid, test = overlap(task.split("train"), task.split("valid"), task.split("test"))
    assert valid.share < 0.045 and test.share < 0.045 and "about 3 %" in task.data_notes()[0]


def test_a_python_without_sources_is_the_users_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: str(tmp_path))
    module._contents.cache_clear()
    with pytest.raises(UserError, match="standard library"):
        PySource().identity()


def test_text_splits_a_file_and_notices_a_change(folders: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folders)
    contents = bytes(1 + number % 251 for number in range(1000))
    Path("mine.txt").write_bytes(contents)
    task = Text(path="mine.txt", length=16)
    task.prepare()
    parts = [task.split(name).tobytes() for name in ("train", "valid", "test")]
    assert b"".join(parts) == contents and [len(part) for part in parts] == [900, 50, 50]

    before = task.identity()
    Path("mine.txt").write_bytes(contents + b"more")
    changed = Text(path="mine.txt", length=16)
    assert changed.identity() != before
    assert len(changed.split("test")) == 51 and len(task.split("test")) == 50


def test_a_missing_or_short_file_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="does not exist"):
        Text(path=str(tmp_path / "none.txt"))
    with pytest.raises(UserError, match="it is a folder"):
        Text(path=str(tmp_path))
    short = tmp_path / "short.txt"
    short.write_bytes(b"a" * 100)
    with pytest.raises(UserError, match="at least 257 bytes in train, got 90 from .*short.txt"):
        Text(path=str(short))
    Text(path=str(short), length=89)
    with pytest.raises(UserError, match="at least 91 bytes in train, got 90"):
        Text(path=str(short), length=90)


@pytest.mark.real
def test_enwik8(real_data: Path):
    task = Enwik8()
    assert task.steps_per_epoch(32) == 89_999_999 // (32 * 256)  # without the data
    task.prepare()
    sizes = [len(task.split(name)) for name in ("train", "valid", "test")]
    assert sizes == [90_000_000, 5_000_000, 5_000_000]
    assert task.split("train")[:10].tobytes() == b"<mediawiki"
    assert isinstance(task.split("test").base, np.memmap) or isinstance(task.split("test"), np.memmap)
    batch = task.train_batch(12_345, seed=0, batch_size=3)
    assert batch.inputs.shape == (3, 256) and torch.equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    batches = task.eval_batches("test", batch_size=99, limit=100_003)
    assert sum(int((batch.targets != IGNORED).sum()) for batch in batches) == 12 * 8_192

"""One run: pace, evaluation, states, and that a resumed run is the run."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import tiny

from attnlab import checkpoint
from attnlab import train as training
from attnlab.config import RunConfig, TrainConfig
from attnlab.optimise import learning_rate
from attnlab.tasks.pydocs import PyDocs
from attnlab.train import Result, train

Point = tuple[int, dict[str, float]]
SPEED = ("train/tokens_per_s",)


def recorded(config: RunConfig, folder: Path | None = None, *, stop_at: int | None = None) -> tuple[Result, list[Point]]:
    """The result, and every point reported, without those that depend on the clock."""
    points: list[Point] = []

    def report(step: int, metrics: dict[str, float]) -> bool:
        points.append((step, {name: value for name, value in metrics.items() if name not in SPEED}))
        return step == stop_at

    return train(config, report=report, folder=folder), points


def test_a_run_reports_curves_and_a_summary() -> None:
    result, points = recorded(tiny())
    assert (result.state, result.step) == ("completed", 12)
    assert [step for step, m in points if "train/loss" in m] == [3, 4, 6, 8, 9, 12]
    assert [step for step, m in points if "valid/bits_per_byte" in m] == [4, 8, 12]
    assert 0 < result.summary["bits_per_byte"] < 8.5
    assert result.summary["valid_bits_per_byte"] == points[-1][1]["valid/bits_per_byte"]
    assert result.summary["tokens"] == 12 * 4 * 24
    assert {"parameters", "attention_parameters", "flops_per_token", "saved_mib"} <= result.summary.keys()
    assert {"tokens_per_s", "host_peak_mib", "train_seconds"} <= result.summary.keys()


def test_training_learns() -> None:
    result, _ = recorded(tiny(train__steps=150, train__eval_every=None, train__batch_size=8, model__dim=24))
    assert result.summary["bits_per_byte"] < 5.5  # 8 is chance, 4.9 the entropy of single bytes


@pytest.mark.parametrize("memory", [0, 16])
def test_the_same_seed_gives_the_same_bits_and_another_does_not(memory: int) -> None:
    config = tiny(model__memory=memory, model__dropout=0.2)
    (first, points), (second, again) = recorded(config), recorded(config)
    assert points == again
    assert first.summary["bits_per_byte"] == second.summary["bits_per_byte"]
    assert recorded(tiny(model__memory=memory, model__dropout=0.2, seed=1))[1] != points


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model__memory": 16, "model__dropout": 0.2, "train__select": "best"},
        {"train__accumulate": 2, "train__precision": "bf16", "train__checkpoint_every": 5},
    ],
)
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    config = tiny(**changes)
    whole, points = recorded(config)
    save, saved = checkpoint.save, itertools.count()

    def die_after_the_second_save(state: dict[str, Any], path: Path) -> None:
        save(state, path)
        if next(saved) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", die_after_the_second_save)
    with pytest.raises(KeyboardInterrupt):
        recorded(config, tmp_path)
    monkeypatch.setattr(checkpoint, "save", save)
    resumed, again = recorded(config, tmp_path)
    assert again == points, "a retry reports the whole curve, the part before it was stopped included"
    for name in ("bits_per_byte", "valid_bits_per_byte", "tokens", "steps"):
        assert resumed.summary[name] == whole.summary[name]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.pt"]


def test_accumulation_changes_memory_and_not_the_numbers() -> None:
    _, whole = recorded(tiny())
    _, parts = recorded(tiny(train__accumulate=4))
    for (_, one), (_, other) in zip(whole, parts, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_the_test_split_is_read_once_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    batches = PyDocs.eval_batches

    def watched(self: PyDocs, split: str, **options: Any) -> Any:
        read.append(split)
        return batches(self, split, **options)

    monkeypatch.setattr(PyDocs, "eval_batches", watched)
    recorded(tiny())
    assert read == ["valid", "valid", "valid", "test"]


def test_best_weights_are_those_that_valid_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([3.0, 1.0, 2.0])  # valid after steps 4, 8 and 12
    seen: list[tuple[str, float]] = []

    def fake(model: torch.nn.Module, task: Any, split: str, **_: Any) -> dict[str, float]:
        seen.append((split, next(iter(model.parameters())).sum().item()))
        return {"bits_per_byte": next(scores) if split == "valid" else 0.0}

    monkeypatch.setattr(training, "evaluate", fake)
    result, _ = recorded(tiny(train__select="best"))
    weights = [weight for split, weight in seen]
    assert weights[3] == weights[1] != weights[2], "tested with the weights of step 8"
    assert result.summary["valid_bits_per_byte"] == 1.0, "the score on valid is that of the weights that were tested"


def test_a_loss_that_becomes_infinite_ends_the_run_at_its_step() -> None:
    result, points = recorded(tiny(train__lr=1e30, train__clip=None, train__weight_decay=0.0))
    assert result.state == "diverged"
    assert f"at step {result.step}" in result.reason and 1 <= result.step <= 12
    assert "bits_per_byte" not in result.summary and result.summary["parameters"] > 0
    assert all(step < result.step for step, _ in points)


def test_running_out_of_memory_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: Any) -> None:
        torch.empty(2**60)

    monkeypatch.setattr(training, "forward", forward)
    result, _ = recorded(tiny())
    assert result.state == "out_of_memory" and "allocate" in result.reason
    assert result.summary["host_peak_mib"] > 0


def test_a_bug_is_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(training, "forward", forward)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        recorded(tiny())


def test_the_reporter_can_stop_a_run() -> None:
    result, points = recorded(tiny(), stop_at=6)
    assert (result.state, result.step, points[-1][0]) == ("pruned", 6, 6)
    assert "bits_per_byte" not in result.summary


def test_learning_rate_warms_up_and_decays() -> None:
    cosine = TrainConfig(steps=100, lr=1.0, warmup=10, final_lr=0.1)
    rates = [learning_rate(step, 100, cosine) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10] == 1.0 and rates[55] == pytest.approx(0.55) and rates[99] == pytest.approx(0.1, abs=1e-3)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    constant = TrainConfig(steps=100, lr=1.0, warmup=0.2, schedule="constant")
    rates = [learning_rate(step, 100, constant) for step in range(100)]
    assert rates[19:] == [1.0] * 81 and rates[9] == pytest.approx(0.5)


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "checkpoint.pt"
    checkpoint.save({"step": 1}, place)

    def half(state: Any, file: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save({"step": 2}, place)
    assert checkpoint.load(place) == {"step": 1}


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("run",))

    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(Exception, match="(?i)weights.only"):
        checkpoint.load(tmp_path / "evil.pt")

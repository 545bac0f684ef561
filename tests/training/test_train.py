"""Tests of one run: schedule, evaluation, selection and states. Resumed runs: test_resume.py."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from attnlab._util.progress import progress_to
from attnlab.config.run import TrainConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.language_model import LanguageModel
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import checkpoint, evaluate, trainer
from attnlab.training.evaluate import evaluate_lengths
from attnlab.training.optim import learning_rate
from attnlab.training.selection import Selection
from attnlab.training.train import train
from tests.support.small_runs import Reviews, recorded, tiny

CPU = torch.device("cpu")


def test_a_run_reports_curves_and_a_summary() -> None:
    result, points = recorded(tiny())
    assert (result.state, result.step) == ("completed", 12)
    assert [step for step, m in points if "train/loss" in m] == [3, 4, 6, 8, 9, 12]
    assert [step for step, m in points if "valid/bits_per_byte" in m] == [4, 8, 12]
    assert 0 < result.summary["bits_per_byte"] < 8.5
    assert result.summary["valid_bits_per_byte"] == points[-1][1]["valid/bits_per_byte"]
    assert result.summary["tokens"] == 12 * 4 * 24
    assert {"parameters", "attention_parameters", "flops_per_token", "saved_mib"} <= result.summary.keys()
    assert {"tokens_per_s", "host_peak_mib", "train_seconds"} <= train(tiny()).summary.keys()


def test_training_learns() -> None:
    result, _ = recorded(tiny(train__steps=150, train__eval_every=None, train__batch_size=8, model__dim=24))
    assert result.summary["bits_per_byte"] < 5.5  # 8 is chance, 4.9 the entropy of single bytes


@pytest.mark.parametrize("memory", [0, 16])
def test_the_same_seed_gives_the_same_bits_and_another_does_not(memory: int) -> None:
    config = tiny(model__mem_len=memory, model__dropout=0.2)
    (first, points), (second, again) = recorded(config), recorded(config)
    assert points == again
    assert first.summary["bits_per_byte"] == second.summary["bits_per_byte"]
    assert recorded(tiny(model__mem_len=memory, model__dropout=0.2, seed=1))[1] != points


def test_accumulation_changes_memory_and_not_the_numbers() -> None:
    _, whole = recorded(tiny())
    _, parts = recorded(tiny(train__gradient_accumulation=4))
    for (_, metrics), (_, accumulated) in zip(whole, parts, strict=True):
        assert metrics == pytest.approx(accumulated, rel=1e-4)


def test_the_test_split_is_read_once_and_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    batches = PyDocs.eval_batches

    def watched(self: PyDocs, split: str, **options: Any) -> Any:
        read.append(split)
        return batches(self, split, **options)

    monkeypatch.setattr(PyDocs, "eval_batches", watched)
    recorded(tiny())
    assert read == ["valid", "valid", "valid", "test"]


class Unread(Reviews):
    """A user's task whose splits are empty."""

    def eval_batches(self, split: str, **_: Any) -> Any:
        return iter(())


def test_a_split_without_a_batch_is_one_line() -> None:
    with pytest.raises(UserError, match="^task Unread: .*accuracy on valid.*no batch"):
        train(tiny(task={"name": "tests.training.test_train:Unread"}, model__heads=2))


def test_an_evaluation_drops_nothing_and_leaves_the_model_in_train_mode() -> None:
    rates = [f"model.{part}" for part in ("dropout", "attention_dropout", "embedding_dropout")]
    config, task = tiny().replace(dict.fromkeys(rates, 0.5)), PyDocs(length=24)
    model = build(config, task)
    first, again = (evaluate.evaluate(model, task, "test", config=config, device=CPU) for _ in range(2))
    assert first == again and model.training
    without = build(tiny(), task)
    without.load_state_dict(model.state_dict())
    assert evaluate.evaluate(without, task, "test", config=tiny(), device=CPU) == first


def test_an_evaluation_is_by_the_protocol_the_stride_and_the_limits_of_the_configuration() -> None:
    config = tiny(evaluate__test_limit=200, evaluate__valid_limit=150, evaluate__protocol="sliding", evaluate__stride=5)
    task = PyDocs(length=24)
    model = build(config, task)
    for split, limit in (("test", 200), ("valid", 150)):
        windows = task.eval_batches(split, batch_size=1, limit=limit, protocol="sliding", stride=5)
        with torch.no_grad():
            pairs = [task.score(model.eval()(batch.inputs)[0], batch)["bits_per_byte"] for batch in windows]
        by_hand = sum(float(total) for total, _ in pairs) / sum(int(count) for _, count in pairs)
        scores = evaluate.evaluate(model, task, split, config=config, device=CPU)
        assert scores["bits_per_byte"] == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("protocol", [{}, {"evaluate__protocol": "sliding", "evaluate__stride": 5}])
def test_an_evaluation_shows_how_much_of_it_is_done(protocol: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    config, task = tiny(evaluate__batch_size=2, evaluate__lengths=[48], **protocol), PyDocs(length=24)
    model, shown = build(config, task), []
    with progress_to(lambda *progress: shown.append(progress)):
        evaluate.evaluate(model, task, "valid", config=config, device=CPU)
        assert shown == [], "a short evaluation is not worth a line"
        monkeypatch.setattr(evaluate, "PROGRESS_SECONDS", 0.0)
        evaluate.evaluate(model, task, "valid", config=config, device=CPU)
    done = [parts for _, parts, _ in shown]
    assert {(label, total) for label, _, total in shown} == {("valid", done[-1])}
    assert len(set(done)) == len(done) > 5 and done == sorted(done)
    with progress_to(lambda *progress: shown.append(progress)):
        evaluate_lengths(model, task, {}, config=config, device=CPU)
    assert shown[-1][0] == "test at length 48" and shown[-1][1] == shown[-1][2]


def rows_read(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[int]:
    """Return the rows of each batch that reads the first 1,921 bytes of ``test``: 80 segments of 24."""
    config = tiny(variant="transformer_xl", position="relative", evaluate__test_limit=1_921, **changes)
    task, rows = PyDocs(**config.task.options), []
    monkeypatch.setattr(task, "score", lambda logits, batch: {"bits_per_byte": (8.0, 1)})
    logits = torch.zeros(())
    model = torch.nn.Identity()
    model.forward_batch = lambda batch, memory: (logits, rows.append(len(batch.inputs)))  # type: ignore[assignment]
    evaluate.evaluate(model, task, "test", config=config, device=torch.device("cpu"))  # type: ignore[arg-type]
    return rows


@pytest.mark.parametrize("batch_size", [1, 4, 6, 512])
def test_a_memory_is_filled_sixteen_times_for_any_batch_size(batch_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(memory: int) -> set[int]:
        return set(rows_read(monkeypatch, model__mem_len=memory, evaluate__batch_size=batch_size))

    assert rows(0) == {{1: 1, 4: 4, 6: 6, 512: 80}[batch_size]}
    assert rows(24) == {min(batch_size, 5)}, "one segment fills it: a row reads at least 16 of the 80"
    assert rows(25) == {min(batch_size, 2)}, "two fill it: at least 32"
    assert rows(240) == {1}


def scored(monkeypatch: pytest.MonkeyPatch, *scores: float) -> list[tuple[str, float]]:
    """Make ``valid`` return these scores in turn; return a list that collects (split, sum of a weight) of each evaluation."""
    left = iter(scores)
    seen: list[tuple[str, float]] = []

    def fake(model: torch.nn.Module, task: Any, split: str, **_: Any) -> dict[str, float]:
        seen.append((split, next(iter(model.parameters())).sum().item()))
        return {"bits_per_byte": next(left) if split == "valid" else 0.0}

    monkeypatch.setattr(trainer, "evaluate", fake)
    return seen


def test_best_weights_are_those_that_valid_chose(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scored(monkeypatch, 3.0, 1.0, 2.0)  # after steps 4, 8 and 12
    result, _ = recorded(tiny(train__checkpoint_selection="best"))
    weights = [weight for split, weight in seen]
    assert weights[3] == weights[1] != weights[2], "tested with the weights of step 8"
    assert result.summary["valid_bits_per_byte"] == 1.0, "the score on valid is that of the weights that were tested"


def test_a_sample_of_valid_selects_the_weights_that_all_of_it_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scored(monkeypatch, 3.0, 1.0, 2.0, 1.5)  # after steps 4, 8 and 12, and of the selected weights
    result, points = recorded(tiny(train__checkpoint_selection="best", evaluate__sample=100))
    weights = [weight for split, weight in seen]
    assert [split for split, _ in seen] == ["valid"] * 4 + ["test"]
    assert weights[4] == weights[3] == weights[1] != weights[2]
    assert [m["valid/bits_per_byte"] for _, m in points if "valid/bits_per_byte" in m] == [3.0, 1.0, 2.0]
    assert result.summary["valid_bits_per_byte"] == 1.5


def test_evaluations_read_the_sample_during_training_and_all_of_valid_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int | None]] = []
    batches = PyDocs.eval_batches

    def watched(self: PyDocs, split: str, *, limit: int | None, **options: Any) -> Any:
        read.append((split, limit))
        return batches(self, split, limit=limit, **options)

    monkeypatch.setattr(PyDocs, "eval_batches", watched)
    recorded(tiny(evaluate__sample=100, evaluate__valid_limit=None))
    assert read == [("valid", 100)] * 3 + [("valid", None), ("test", 300)]


@pytest.mark.parametrize("select", ["last", "best"])
def test_patience_ends_a_run_early(select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scored(monkeypatch, 3.0, 2.0, 2.0, 2.5, 1.0, 0.5)  # an equal score is not an improvement
    result, points = recorded(tiny(train__eval_every=2, train__patience=2, train__checkpoint_selection=select))
    assert (result.state, result.step, result.summary["steps"]) == ("completed", 8, 8)
    assert [split for split, _ in seen] == ["valid"] * 4 + ["test"]
    assert result.summary["valid_bits_per_byte"] == (2.0 if select == "best" else 2.5)
    assert seen[-1][1] == seen[1 if select == "best" else 3][1]
    assert points[-1] == (8, {"valid/bits_per_byte": 2.5})


@pytest.mark.parametrize("select", ["last", "best"])
def test_a_run_stops_at_the_score_that_it_was_to_reach(select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = scored(monkeypatch, 3.0, 2.1, 2.0, 1.0)
    result, points = recorded(tiny(train__eval_every=2, train__stop_at=2.0, train__checkpoint_selection=select))
    assert (result.state, result.step, result.summary["steps"]) == ("completed", 6, 6)
    assert [split for split, _ in seen] == ["valid"] * 3 + ["test"]
    assert points[-1] == (6, {"valid/bits_per_byte": 2.0})


def test_early_stopping_follows_the_metric_s_direction() -> None:
    better = {"min": [3.0, 2.0, 1.0], "max": [1.0, 2.0, 3.0]}
    for direction, scores in better.items():
        task = SimpleNamespace(metric="m", direction=direction)
        selection = Selection(task, TrainConfig(steps=9, eval_every=1, patience=2))  # type: ignore[arg-type]
        target = Selection(task, TrainConfig(steps=9, eval_every=1, stop_at=2.0))  # type: ignore[arg-type]
        waits, reached = [], [target.is_done]
        for score in [*scores, scores[-1], scores[0]]:
            selection.update({"m": score}, torch.nn.Linear(1, 1))
            target.update({"m": score}, torch.nn.Linear(1, 1))
            waits.append((selection.waited, selection.is_done))
            reached.append(target.is_done)
        assert reached == [False, False, True, True, True, False]
        assert waits == [(0, False)] * 3 + [(1, False), (2, True)]


def test_a_run_that_is_not_to_be_tested_never_reads_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = recorded(tiny())[0].summary
    seen = scored(monkeypatch, 3.0, 2.0, 1.0)
    result, _ = recorded(tiny(evaluate__test=False))
    assert [split for split, _ in seen] == ["valid"] * 3
    assert result.state == "completed" and result.summary["valid_bits_per_byte"] == 1.0
    assert whole.keys() - result.summary.keys() == {"bits_per_byte"}


def test_a_score_on_valid_that_becomes_infinite_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    scored(monkeypatch, 3.0, math.inf)
    result, _ = recorded(tiny())
    assert (result.state, result.step) == ("diverged", 8)
    assert result.reason == "bits_per_byte on valid became inf at step 8"


def test_a_loss_that_becomes_infinite_ends_the_run_at_its_step() -> None:
    result, points = recorded(tiny(train__lr=1e30, train__grad_clip=None, train__weight_decay=0.0))
    assert result.state == "diverged"
    assert f"at step {result.step}" in result.reason and 1 <= result.step <= 12
    assert "bits_per_byte" not in result.summary and result.summary["parameters"] > 0
    assert all(step < result.step for step, _ in points)


def test_a_bug_is_not_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(*_: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(LanguageModel, "forward_batch", forward)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        recorded(tiny())


def test_the_reporter_can_stop_a_run() -> None:
    result, points = recorded(tiny(), prune_at=6)
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


@pytest.mark.parametrize(
    ("schedule", "expected"), [("linear", [1.0, 0.775, 0.55, 0.28, 0.109]), ("wsd", [1.0, 1.0, 1.0, 0.918, 0.141])]
)
def test_linear_schedules_end_at_the_final_rate(schedule: Any, expected: list[float]) -> None:
    config = TrainConfig(steps=110, lr=1.0, warmup=10, final_lr=0.1, schedule=schedule)
    rates = [learning_rate(step, 110, config) for step in range(110)]
    assert [rates[step] for step in (10, 35, 60, 90, 109)] == pytest.approx(expected, abs=1e-3)
    assert rates[9] == 1.0 and all(a >= b for a, b in itertools.pairwise(rates[9:]))


def test_the_rate_of_the_curve_is_that_of_its_step() -> None:
    config = tiny(train__warmup=5, train__log_every=1)
    rates = [metrics["train/lr"] for _, metrics in recorded(config)[1] if "train/lr" in metrics]
    assert rates == [learning_rate(step, 12, config.train) for step in range(12)]


def norms(**changes: Any) -> list[float]:
    """Return the total gradient norm at each step of the optimizer."""
    totals: list[float] = []

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        totals.append(torch.stack([gradient.norm() for gradient in gradients]).norm().item())

    with register_optimizer_step_pre_hook(look):
        recorded(tiny(**changes))
    return totals


def test_gradients_are_clipped_to_the_norm_that_is_asked_for() -> None:
    assert min(norms(train__grad_clip=None)) > 0.02
    assert norms(train__grad_clip=0.01) == pytest.approx([0.01] * 12, rel=1e-3)


@pytest.mark.parametrize(("every", "steps"), [(None, [5, 10, 12]), (4, [4, 8, 12])])
def test_an_epoch_ends_with_an_evaluation_where_nothing_else_is_asked_for(every: int | None, steps: list[int]) -> None:
    epochs = {"train__steps": None, "train__epochs": 2.5, "train__eval_every": every}  # an epoch has five steps
    _, points = recorded(tiny(task={"name": "tests.support.small_runs:Reviews"}, position="learned", **epochs))
    assert [step for step, metrics in points if "valid/accuracy" in metrics] == steps


def test_a_checkpoint_is_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "checkpoint.pt"
    checkpoint.save({"step": 1}, place)

    def half(state: Any, file: Any) -> None:
        file.write(b"half")
        try:
            raise OSError("disk full")
        finally:
            raise RuntimeError("unexpected pos")  # torch's own message

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save({"step": 2}, place)
    assert checkpoint.load(place) == {"step": 1}
    assert list(tmp_path.iterdir()) == [place], "nothing half-written fills the disk"


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (print, ("run",))

    torch.save({"x": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(Exception, match="tensors and plain values only"):
        checkpoint.load(tmp_path / "evil.pt")

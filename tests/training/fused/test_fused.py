"""Tests of seeds that are trained as one model: each is the run that it would be alone."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._functorch import is_batchedtensor

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.nn.dropout import Dropout
from attnlab.registry import TASKS
from attnlab.training import checkpoint, timing, trainer, weights
from attnlab.training.fused import support
from attnlab.training.fused.stack import Stack
from attnlab.training.fused.streams import PerRun
from attnlab.training.fused.train import FusedRun, train_fused
from attnlab.training.result import Report, Result
from attnlab.training.train import train
from attnlab.training.trainer import Trainer
from tests.support.small_runs import tiny

Points = list[tuple[int, dict[str, float]]]


def configs(*, seeds: int = 2, **changes: Any) -> list[RunConfig]:
    """Return runs with SGD, which does not enlarge differences of rounding."""
    changes = {"train__optimizer": "sgd", "train__lr": 0.3, **changes}
    return [tiny(seed=seed, **changes) for seed in range(seeds)]


def reporter(points: Points) -> Report:
    """Return a function that adds what is reported to ``points``."""

    def report(step: int, metrics: dict[str, float]) -> bool:
        points.append((step, metrics))
        return False

    return report


def fused(runs: list[RunConfig], folder: Path) -> list[tuple[Result | Exception, Points]]:
    """Train runs together; return the outcome and the curves of each."""
    points: list[Points] = [[] for _ in runs]
    members = [FusedRun(run, reporter(own), folder / str(run.seed)) for run, own in zip(runs, points, strict=True)]
    outcomes = dict(train_fused(members))
    return [(outcomes[i], own) for i, own in enumerate(points)]


def solo(run: RunConfig, folder: Path) -> tuple[Result, Points]:
    points: Points = []
    return train(run, report=reporter(points), folder=folder / str(run.seed)), points


TIMES = ("seconds", "tokens_per_s", "peak_mib", "reserved_mib")


def without_times(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if not any(time in name for time in TIMES)}


# AdamW divides a gradient that should be zero by its own size, so that its rounding errors become updates.
TOLERANCES = {("sgd", "fp32"): 1e-6, ("adamw", "fp32"): 1e-4, ("sgd", "bf16"): 1e-2}


def assert_same_run(run: RunConfig, ours: tuple[Any, Points], alone: tuple[Result, Points], *, path: Path) -> None:
    """Compare states, metrics, curves and weights."""
    (result, points), (expected, expected_points) = ours, alone
    rel = 1e-5 if run.train.precision == "fp32" else 1e-3
    assert isinstance(result, Result), result
    assert (result.state, result.step, result.reason) == (expected.state, expected.step, expected.reason)
    assert without_times(result.summary) == pytest.approx(without_times(expected.summary), rel=rel, nan_ok=True)
    assert [step for step, _ in points] == [step for step, _ in expected_points]
    for (_, metrics), (_, expected_metrics) in zip(points, expected_points, strict=True):
        assert without_times(metrics) == pytest.approx(without_times(expected_metrics), rel=rel)
    if expected.state == "completed":
        own, reference = (weights.load(path / kind / str(run.seed))[1] for kind in ("fused", "solo"))
        tolerance = TOLERANCES[run.train.optimizer.name, run.train.precision]
        for name, tensor in reference.items():
            torch.testing.assert_close(own[name], tensor, rtol=tolerance, atol=tolerance)


def compare(runs: list[RunConfig], path: Path) -> list[Result]:
    """Train runs together and alone, compare them, and return the results of the first."""
    results = []
    for run, ours in zip(runs, fused(runs, path / "fused"), strict=True):
        assert_same_run(run, ours, solo(run, path / "solo"), path=path)
        results.append(ours[0])
    return results


DROPOUT: dict[str, Any] = {"model__dropout": 0.2, "model__embedding_dropout": 0.1, "model__word_dropout": 0.1}
KINDS: dict[str, dict[str, Any]] = {
    "dropout": {"variant": "no_wo", **DROPOUT},
    "attention dropout, blocked": {"backend": "blocked", "model__attention_dropout": 0.2, "model__dropout": 0.2},
    "attention dropout, sdpa": {"backend": "sdpa", "model__attention_dropout": 0.2, "position": "learned"},
    "tied embeddings, a bias with parameters": {"model__tie_embeddings": True, "position": "t5", "backend": "blocked"},
    "bf16": {"train__precision": "bf16", **DROPOUT},
    "frozen blocks, a schedule, the best weights": {
        "train__frozen": 1,
        "train__schedule": "cosine",
        "train__checkpoint_selection": "best",
        "train__weight_decay": 0.1,
        "train__optimizer": "adamw",
        "train__lr": 3e-3,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_is_the_one_that_it_would_be_alone(kind: str, tmp_path: Path) -> None:
    results = compare(configs(**KINDS[kind]), tmp_path)
    assert len({result.summary["valid_bits_per_byte"] for result in results}) == 2
    assert all(result.tags["fused"] == "2" for result in results)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["reference", "sdpa"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_each_run_is_the_one_that_it_would_be_alone_on_cuda(backend: str, precision: str, tmp_path: Path) -> None:
    on_cuda: dict[str, Any] = {"machine__device": "cuda", "train__precision": precision, "backend": backend, **DROPOUT}
    compare(configs(model__attention_dropout=0.1, **on_cuda), tmp_path)


def test_layers_compute_in_the_types_that_they_have_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On CUDA, dropout draws other numbers for other types."""
    types: dict[str, list[torch.dtype]] = {"alone": [], "fused": []}
    alone, fused_factors = Dropout.forward, PerRun._dropout_factors

    def record_alone(self: Dropout, x: torch.Tensor) -> torch.Tensor:
        if not is_batchedtensor(x):
            types["alone"].append(x.dtype)
        return alone(self, x)

    def record_fused(self: PerRun, x: torch.Tensor, p: float, **arguments: Any) -> torch.Tensor:
        types["fused"].append(x.dtype)
        return fused_factors(self, x, p, **arguments)

    monkeypatch.setattr(Dropout, "forward", record_alone)
    monkeypatch.setattr(PerRun, "_dropout_factors", record_fused)
    (config,) = configs(seeds=1, train__precision="bf16", **DROPOUT)
    task = TASKS.get(config.task.name)(**config.task.options)
    task.prepare()
    assert support.unsupported(config, task) is None
    assert torch.bfloat16 in types["fused"]
    assert types["alone"] == 2 * types["fused"], "two models alone, then both at once"


def test_an_optimizer_draws_the_noise_that_it_draws_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = torch.optim.SGD.step

    def noisy(self: torch.optim.SGD, closure: Any = None) -> Any:
        step(self, closure)
        with torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=0.01)

    monkeypatch.setattr(torch.optim.SGD, "step", noisy)
    compare(configs(**DROPOUT), tmp_path)


def test_each_run_is_clipped_by_its_own_norm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    clip = torch.nn.utils.clip_grad_norm_

    def recorded(parameters: Any, limit: float) -> Any:
        norms.append(float(clip(parameters, limit)))

    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", recorded)
    limit = 1.2
    compare(configs(train__grad_clip=limit), tmp_path)
    together = [norms[i : i + 2] for i in range(0, 24, 2)]
    assert any(min(step) < limit < max(step) for step in together), together


def test_a_run_that_diverges_leaves_the_others_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_step = Trainer.end_step

    def overflow(self: Trainer, *args: Any) -> None:
        end_step(self, *args)
        if (self.config.seed, self.step) == (1, 5):
            self.optimizer.param_groups[0]["params"][0].data.fill_(float("inf"))

    monkeypatch.setattr(Trainer, "end_step", overflow)
    results = compare(configs(seeds=3, model__dropout=0.2), tmp_path)
    assert [(result.state, result.step) for result in results] == [("completed", 12), ("diverged", 6), ("completed", 12)]
    assert results[2].tags["fused"] == "3"


def test_a_run_that_stops_early_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    runs = configs(train__patience=1, train__eval_every=2, train__steps=20, train__lr=3.0)
    results = compare(runs, tmp_path)
    assert len({result.step for result in results}) == 2, [result.step for result in results]


class _Killed(BaseException):
    """The end of a process."""


def killed_at(step: int, runs: list[RunConfig], folder: Path) -> None:
    """Train runs together, or one alone, until the last one reports a step."""

    def report(at: int, metrics: dict[str, float]) -> bool:
        if at == step:
            raise _Killed
        return False

    def keep(at: int, metrics: dict[str, float]) -> bool:
        return False

    members = [FusedRun(run, report if run is runs[-1] else keep, folder / str(run.seed)) for run in runs]
    with pytest.raises(_Killed):
        list(train_fused(members))


def test_killed_runs_resume_together_or_alone(tmp_path: Path) -> None:
    runs = configs(**DROPOUT)
    killed_at(8, runs, tmp_path / "fused")
    steps = [checkpoint.load(tmp_path / "fused" / str(run.seed) / checkpoint.NEWEST)["step"] for run in runs]
    assert steps == [8, 4]  # the second one was killed before it wrote the checkpoint of step 8
    shutil.copytree(tmp_path / "fused", tmp_path / "alone" / "fused")
    compare(runs, tmp_path)
    for run in runs:  # resumed alone from the checkpoint of a fused run
        alone = solo(run, tmp_path / "alone" / "fused")
        assert_same_run(run, alone, solo(run, tmp_path / "alone" / "solo"), path=tmp_path / "alone")


def test_a_run_that_began_alone_continues_with_others(tmp_path: Path) -> None:
    runs = configs(**DROPOUT)
    killed_at(8, runs[:1], tmp_path / "fused")
    results = compare(runs, tmp_path)
    assert [result.tags["fused"] for result in results] == ["2", "2"]


def test_a_checkpoint_of_a_fused_run_is_no_larger_than_that_of_a_solo_one(tmp_path: Path) -> None:
    runs = configs(model__dim=48)
    killed_at(8, runs, tmp_path / "fused")
    killed_at(8, runs[:1], tmp_path / "solo")
    sizes = [(tmp_path / kind / "0" / checkpoint.NEWEST).stat().st_size for kind in ("fused", "solo")]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.02)


def test_an_error_of_one_run_ends_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Trainer.finish

    def failing(self: Trainer) -> Result:
        if self.config.seed == 1:
            raise ValueError("no such word")
        return finish(self)

    monkeypatch.setattr(Trainer, "finish", failing)
    other, failed = [outcome for outcome, _ in fused(configs(), tmp_path)]
    assert isinstance(failed, ValueError)
    assert isinstance(other, Result) and other.state == "completed"


def test_the_seconds_of_steps_are_shared_and_others_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])

    def passing(function: Any, seconds: float) -> Any:
        def passed(*args: Any, **kwargs: Any) -> Any:
            now[0] += seconds
            return function(*args, **kwargs)

        return passed

    monkeypatch.setattr(Stack, "backward", passing(Stack.backward, 6.0))
    monkeypatch.setattr(trainer, "evaluate", passing(trainer.evaluate, 100.0))
    results = [outcome for outcome, _ in fused(configs(), tmp_path)]
    for result in results:
        assert isinstance(result, Result)
        assert result.summary["train_seconds"] == pytest.approx(12 * 6.0 / 2)
        assert result.summary["evaluation_seconds"] == pytest.approx(4 * 100.0)
        assert "host_peak_mib" not in result.summary


def test_running_out_of_memory_is_no_result_of_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(self: Stack, batches: Any) -> Any:
        raise torch.OutOfMemoryError("Tried to allocate 3.00 GiB")

    monkeypatch.setattr(Stack, "backward", hungry)
    with pytest.raises(UserError, match="2 seeds together ran out of memory .requested 3.00 GiB"):
        fused(configs(), tmp_path)

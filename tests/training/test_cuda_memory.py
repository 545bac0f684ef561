"""Tests of the predicted memory of a training step, compared with the memory that a real step allocates."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.planning import costs as planning_costs
from attnlab.planning.plan import plan
from attnlab.tasks import Task
from attnlab.tasks.pydocs import PyDocs
from attnlab.training import costs, cuda_memory
from attnlab.training.distributed import Group
from attnlab.training.gradients import Prefetcher, backward
from attnlab.training.optim import build_optimizer
from tests.support.small_runs import Reviews, tiny
from tests.support.studies import STUDY

SMALL: dict[str, Any] = {"model__dim": 64, "model__heads": 4, "model__depth": 3, "train__batch_size": 8, "backend": "sdpa"}
MEMORY = {"position": "relative", "backend": "reference", "model__mem_len": 32}
TEXT = PyDocs(length=64, sampling="contiguous")


def two_steps(config: RunConfig, task: Task, device: torch.device) -> None:
    """Take two steps as a run does."""
    model = build(config, task).to(device).train()
    optimizer, group, memory = build_optimizer(model, config.train), Group(), None
    feed = Prefetcher(task, config, group=group, device=device)
    for step in range(2):
        context: dict[str, Any] = {"task": task, "config": config, "device": device, "group": group}
        _, memory = backward(model, feed.take(step), memory, **context)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def allocated(config: RunConfig, task: Task, trace: Path) -> int:
    """Return the peak bytes of two real steps on the CPU, from PyTorch's profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        two_steps(config, task, torch.device("cpu"))
    profiler.export_chrome_trace(str(trace))
    allocations = [
        event["args"]
        for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
        if event.get("name") == "[memory]"
    ]
    return max(event_args["Total Allocated"] for event_args in allocations) - (
        allocations[0]["Total Allocated"] - allocations[0]["Bytes"]
    )


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        (TEXT, {}),
        (TEXT, {"backend": "reference", "train__precision": "bf16"}),
        (TEXT, {"train__activation_checkpointing": True}),
        (TEXT, {"train__gradient_accumulation": 2}),
        (TEXT, MEMORY),
        (TEXT, {"model__norm_type": "rms", "model__feed_forward": "swiglu"}),
        (Reviews(length=61), {"position": "learned", "train__batch_size": 16}),
    ],
    ids=["fp32", "bf16", "recomputed", "accumulated", "memory", "rms", "reviews"],
)
def test_the_estimate_is_the_memory_of_a_step_on_the_cpu(task: Task, changes: dict[str, Any], tmp_path: Path) -> None:
    config = tiny(**{**SMALL, **changes})
    task.prepare()
    traced = max(cuda_memory.trace(config, task, on_cuda=False).values())
    assert traced == pytest.approx(allocated(config, task, tmp_path / "trace.json"), rel=0.04)


@pytest.mark.parametrize("changes", [{}, MEMORY, {"train__activation_checkpointing": True}])
def test_any_depth_is_known_from_two_blocks(changes: dict[str, Any]) -> None:
    config = tiny(**{**SMALL, **changes, "model__depth": 5})
    whole = max(cuda_memory.trace(config, TEXT).values()) / costs.MIB + cuda_memory.CUBLAS_WORKSPACE
    assert cuda_memory.cuda_peak_mib(config, TEXT) == pytest.approx(whole, rel=0.005)


def test_attention_on_cuda_keeps_no_logits() -> None:
    """Memory grows 2.5-fold with 2.5 times the length; with logits it would grow six-fold."""

    def peak(length: int, **changes: Any) -> float:
        return cuda_memory.cuda_peak_mib(tiny(**{**SMALL, "train__precision": "bf16", **changes}), PyDocs(length=length))

    assert peak(1000) < 2.6 * peak(400)
    assert peak(1000, backend="reference") > 4 * peak(400, backend="reference")
    assert peak(1000, model__attention_dropout=0.1) < 2.6 * peak(400), "nor with dropout, which a CPU computes with logits"
    assert peak(1000, backend="xformers") == peak(1000)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_rms_norm_on_cuda_saves_as_much_as_a_layer_norm(precision: str) -> None:
    """Its kernel saves the input; on a CPU its operations save the normalized input as well."""
    layer, rms = (tiny(**{**SMALL, "model__norm_type": kind, "train__precision": precision}) for kind in ("layer", "rms"))
    assert cuda_memory.cuda_peak_mib(rms, TEXT) == pytest.approx(cuda_memory.cuda_peak_mib(layer, TEXT), rel=0.01)
    on_cpu = [max(cuda_memory.trace(config, TEXT, on_cuda=False).values()) for config in (rms, layer)]
    assert on_cpu[0] > 1.02 * on_cpu[1]


@pytest.mark.parametrize("variant", ["gru", "lstm"])
def test_a_recurrence_has_an_estimate(variant: str) -> None:
    assert cuda_memory.cuda_peak_mib(tiny(variant=variant, position="none"), TEXT) > 0


def test_blocks_have_an_estimate_with_dropped_weights() -> None:
    config = tiny(**{**SMALL, "backend": "blocked"})
    dropping = config.replace({"model.attention_dropout": 0.1})
    assert cuda_memory.cuda_peak_mib(dropping, TEXT) == cuda_memory.cuda_peak_mib(config, TEXT)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes", [{}, {"position": "relative"}, {"train__activation_checkpointing": True}, {"model__norm_type": "rms"}]
)
def test_the_estimate_is_the_memory_of_a_step_on_cuda(changes: dict[str, Any], precision: str) -> None:
    changes = {**changes, "train__precision": precision}
    large = {"model__dim": 256, "model__heads": 8, "model__depth": 12, "train__batch_size": 128, "backend": "sdpa"}
    config, task, device = tiny(**{**large, **changes}), PyDocs(length=256), torch.device("cuda")
    task.prepare()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    two_steps(config, task, device)
    real = (torch.cuda.max_memory_allocated() - before) / costs.MIB
    assert cuda_memory.cuda_peak_mib(config, task) == pytest.approx(real, rel=0.1)


def test_a_plan_estimates_each_distinct_cell_once_and_names_those_that_do_not_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "s.yaml"
    grid = "[dense, no_wo]\n  train.lr: [1e-3, 3e-4]"
    path.write_text(STUDY.replace("[dense, no_wo, {name: strided_sparse, stride: 7}]", grid))
    estimated: list[str] = []
    estimate = planning_costs._estimate
    monkeypatch.setattr(planning_costs, "_estimate", lambda config: estimated.append(config.variant.name) or estimate(config))
    cells = plan(path).cells
    peaks = planning_costs.cuda_peaks(cells)
    assert estimated == ["dense", "no_wo"] and peaks.keys() == {cell.name for cell in cells}
    assert list(planning_costs.memory_notes(cells, peaks)) == []

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    device = type("Device", (), {"name": "Small GPU", "total_memory": 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda of: device)
    cell = replace(cells[0], settings=cells[0].config.replace({"machine.device": "cuda"}))
    (note,) = planning_costs.memory_notes([cell], {cell.name: 600.0})
    assert [word for word in (repr(cell.name), "not fit", "1.6 GiB", "Small GPU", "1.0 GiB") if word not in note] == []

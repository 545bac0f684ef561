"""Tests of ``train.precision`` in the plan, on processors with fast or slow bf16 or without a kernel, and on this one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.errors import UserError
from attnlab.nn import processor
from attnlab.planning import precision
from attnlab.planning.plan import Plan, plan
from attnlab.testing.benchmark.layer import LayerConfig, unsupported
from attnlab.training import device
from attnlab.variants.lstm import Lstm

BASE = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "depth": 1, "heads": 2}, "machine": {"device": "cpu"}}
NO_LSTM = "lstm: this processor has no bf16 kernel for nn.LSTM: use train.precision: fp32"
WITHOUT_AVX512 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}  # imitates such a processor
ON_IT = """
import json, torch
from attnlab.nn import processor
from attnlab.planning.plan import plan
def works():
    try:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.LSTM(4, 4)(torch.ones(2, 4))[0].float().sum().backward()
    except RuntimeError:
        return False
    return True
planned = plan({"study": "s", "base": %r, "grid": {"variant": ["dense", "gru", "lstm"]}})
cells = {cell.name: cell.refusal for cell in planned.cells}
print(json.dumps({"works": works(), "cells": cells, "notes": planned.notes, "speedup": processor.bf16_speedup()}))
"""


def planned(variants: list[Any], *, setting: str = "bf16", **more: Any) -> Plan:
    base = {**BASE, "train": {"steps": 2, "batch_size": 2, "precision": setting}}
    return plan({"study": "s", "base": base, "grid": {"variant": variants}, **more})


def precisions(planned: Plan) -> list[str]:
    return [cell.config.train.precision for cell in planned.cells]


@pytest.fixture
def imitate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Imitate a processor with this speedup of bf16 products, and with or without a kernel for ``nn.LSTM``."""

    def has(*, speedup: float, lstm: bool = True) -> None:
        monkeypatch.setattr(processor, "bf16_speedup", lambda setting="highest": speedup)
        monkeypatch.setattr(processor, "runs_in_bf16", lambda layer: lstm or layer is not nn.LSTM)

    return has


def test_a_recurrence_without_a_bf16_kernel_is_refused(imitate: Callable[..., None]) -> None:
    imitate(speedup=2.0, lstm=False)
    variants = ["dense", "gru", "lstm"]
    assert [cell.refusal for cell in planned(variants).cells] == [None, None, NO_LSTM]
    assert [cell.refusal for cell in planned(variants, setting="fp32").cells] == [None] * 3
    config = {"role": "causal", "hook": "none", "memory": False, "backend": "reference", "dim": 8, "heads": 1}
    assert Lstm.unsupported(**config, precision="bf16", device="cpu") is not None
    assert Lstm.unsupported(**config, precision="bf16", device="cuda") is None, "only this machine's CPU was tried"
    imitate(speedup=2.0)
    assert [cell.refusal for cell in planned(variants).cells] == [None] * 3


def test_a_users_recurrence_is_refused_by_what_it_declares(imitate: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from torch import nn\nfrom attnlab.variants.dense import Dense\n"
        "class Own(Dense):\n    recurrent_layers = (nn.GRU, nn.LSTM)\n"
    )
    imitate(speedup=2.0, lstm=False)
    variant = f"{tmp_path}/own.py:Own"
    assert "no bf16 kernel for nn.LSTM" in str(planned([variant]).cells[0].refusal)
    imitate(speedup=2.0)
    assert planned([variant]).cells[0].refusal is None


def test_the_bench_refuses_it_too(imitate: Callable[..., None]) -> None:
    shape: dict[str, Any] = {"batch": 1, "dim": 8, "heads": 1, "length": 4, "role": "causal", "position": "none", "options": {}}
    layers = {name: LayerConfig(variant="lstm", backend="reference", precision=name, **shape) for name in ("fp32", "bf16")}
    imitate(speedup=2.0, lstm=False)
    assert "no bf16 kernel for nn.LSTM" in str(unsupported(layers["bf16"], torch.device("cpu")))
    assert unsupported(layers["fp32"], torch.device("cpu")) is None
    imitate(speedup=2.0)
    assert unsupported(layers["bf16"], torch.device("cpu")) is None


@pytest.mark.parametrize(("speedup", "times"), [(1 / 147, "150"), (0.4, "2.5")])
def test_slow_bf16_is_noted(speedup: float, times: str, imitate: Callable[..., None]) -> None:
    imitate(speedup=speedup)
    slow = f"bf16 products are {times} times slower than fp32 products on this processor: use train.precision: fp32 or auto"
    assert planned(["dense", "no_wo"]).notes == [slow]
    assert planned(["dense"], setting="fp32").notes == []


def test_bf16_that_is_not_slow_is_not_noted(imitate: Callable[..., None]) -> None:
    imitate(speedup=0.9)  # nearly equal
    assert planned(["dense"]).notes == []


@pytest.mark.parametrize(
    ("speedup", "lstm", "expected", "why"),
    [
        (2.04, True, "bf16", "bf16 products are 2 times as fast as fp32 products on this processor"),
        (1.1, True, "fp32", "bf16 products are 1.1 times as fast as fp32 products on this processor"),
        (1 / 147, True, "fp32", "bf16 products are 150 times slower than fp32 products on this processor"),
        (2.0, False, "fp32", f"'lstm' cannot run in bf16 ({NO_LSTM})"),
    ],
)
def test_auto_is_one_precision_for_all_cells(
    speedup: float, lstm: bool, expected: str, why: str, imitate: Callable[..., None]
) -> None:
    imitate(speedup=speedup, lstm=lstm)
    study_plan = planned(["dense", "gru", "lstm"], setting="auto")
    assert precisions(study_plan) == [expected] * 3 and study_plan.refused == []
    assert study_plan.notes == [f"train.precision: auto is {expected} on cpu: {why}"]


def test_auto_is_recorded_as_what_it_became(imitate: Callable[..., None]) -> None:
    for speedup, expected in ((2.0, "bf16"), (0.1, "fp32")):
        imitate(speedup=speedup)
        auto, explicit = (planned(["dense", "no_wo"], setting=setting) for setting in ("auto", expected))
        assert [run.fingerprint for run in auto.runs] == [run.fingerprint for run in explicit.runs]


def test_the_cells_that_only_leaves_out_count_in_what_auto_becomes(imitate: Callable[..., None]) -> None:
    imitate(speedup=2.0, lstm=False)
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}}
    study_plan = plan({"study": "s", "base": base, "grid": {"variant": ["dense", "lstm"]}}, only={"variant": "dense"})
    assert precisions(study_plan) == ["fp32"]


def test_a_cell_that_is_refused_in_any_precision_has_no_say(imitate: Callable[..., None]) -> None:
    imitate(speedup=2.0)
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}, "position": "rotary"}
    study_plan = plan({"study": "s", "base": base, "grid": {"variant": ["dense", "gru"]}})
    assert precisions(study_plan) == ["bf16"] * 2 and [cell.name for cell, _ in study_plan.refused] == ["gru"]


def test_auto_beside_a_precision_that_is_given(imitate: Callable[..., None]) -> None:
    imitate(speedup=0.1)
    grid = {"train.precision": ["fp32", "auto"], "variant": ["dense"]}
    study_plan = plan({"study": "s", "base": {**BASE, "train": {"steps": 2}}, "grid": grid})
    assert precisions(study_plan) == ["fp32"] and "'train.precision' changes nothing" in study_plan.notes[0]


def test_auto_on_cuda_is_bf16_and_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "bf16_speedup", lambda setting="": pytest.fail("measured"))
    monkeypatch.setattr(processor, "runs_in_bf16", lambda layer: pytest.fail("tried"))
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}, "machine": {"device": "cuda"}}
    study_plan = plan({"study": "s", "base": base, "grid": {"variant": ["dense", "lstm"]}})
    assert precisions(study_plan) == ["bf16"] * 2 and "train.precision: auto is bf16 on cuda" in study_plan.notes[0]


def test_a_plan_in_fp32_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "bf16_speedup", lambda setting="": pytest.fail("measured"))
    monkeypatch.setattr(processor, "runs_in_bf16", lambda layer: pytest.fail("tried"))
    assert planned(["dense", "lstm"], setting="fp32").notes == []


def test_the_setting_that_gains_least_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "bf16_speedup", {"highest": 3.0, "medium": 1.0}.__getitem__)
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}}
    for settings, expected in ((["highest", "medium"], "fp32"), (["highest"], "bf16"), (["medium"], "fp32")):
        study_plan = plan({"study": "s", "base": base, "grid": {"machine.matmul_precision": settings, "variant": ["dense"]}})
        assert precisions(study_plan) == [expected] * len(settings)


def test_auto_stays_out_of_a_search_and_of_a_run() -> None:
    search = {"trials": 2, "space": {"train.precision": {"choices": ["fp32", "auto"]}}, "sampler": "RandomSampler"}
    with pytest.raises(UserError, match="train.precision: expected fp32 or bf16 in a search, got 'auto'"):
        planned(["dense"], setting="fp32", search=search, confirm={"seeds": [100]})
    with pytest.raises(UserError, match="train.precision: expected fp32 or bf16, got 'auto'"):
        device.autocast(torch.device("cpu"), "auto")


def test_the_probe_finds_what_this_processor_does_and_leaves_no_trace() -> None:
    precision_before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    processor.bf16_speedup.cache_clear()
    processor.runs_in_bf16.cache_clear()
    with torch.no_grad():
        assert isinstance(processor.runs_in_bf16(nn.LSTM), bool)
    assert processor.bf16_speedup("medium") > 0
    assert torch.rand(1) == expected
    assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == (precision_before, threads)


def test_a_layer_that_raises_has_no_kernel() -> None:
    class Broken(nn.LSTM):
        def forward(self, *_: Any) -> Any:
            raise RuntimeError("could not create a primitive descriptor")

    assert not processor.runs_in_bf16(Broken)


@pytest.mark.parametrize(("slow", "sizes"), [(1e-9, len(processor.SIZES)), (1.0, 1)])
def test_products_that_take_long_are_not_made_larger(slow: float, sizes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(processor, "_seconds", lambda size: (made.append(size), (1e-9, slow))[1])
    assert processor._ratio_at_largest_size() == pytest.approx(1e-9 / slow)
    assert made == list(processor.SIZES[:sizes])


def test_a_processor_without_avx512_is_planned_out() -> None:
    """Run the real probe in a process that cannot use this processor's newer instructions."""
    base = {**BASE, "train": {"steps": 2, "precision": "bf16"}}
    done = subprocess.run(
        [sys.executable, "-c", ON_IT % base], env={**os.environ, **WITHOUT_AVX512}, capture_output=True, text=True, check=True
    )
    probe = json.loads(done.stdout)
    if probe["works"]:
        pytest.skip("oneDNN has a bf16 LSTM here even with ONEDNN_MAX_CPU_ISA=AVX2")
    assert probe["cells"] == {"dense": None, "gru": None, "lstm": NO_LSTM}
    slow = probe["speedup"] * precision.MIN_SPEEDUP < 1
    assert any("times slower than fp32 products" in note for note in probe["notes"]) == slow

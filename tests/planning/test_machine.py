"""Tests of each ``auto`` of the machine in the plan.

Of ``train.precision``: on processors with fast or slow bf16 or without a kernel, and on this one. Of fields of ``machine``:
with injected times of training steps.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from attnlab.config.run import MachineConfig, RunConfig
from attnlab.errors import UserError
from attnlab.extras.bench.layer import LayerConfig, unsupported
from attnlab.nn import processor
from attnlab.planning import machine
from attnlab.planning.machine import AutoSetting, StepTime
from attnlab.planning.plan import Plan, plan
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
print(json.dumps({"works": works(), "cells": cells, "notes": planned.notes, "speedup": processor.half_speedup()}))
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
        monkeypatch.setattr(processor, "half_speedup", lambda setting="highest", precision="bf16": speedup)
        monkeypatch.setattr(processor, "runs_in_half", lambda layer, precision: lstm or layer is not nn.LSTM)

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
    monkeypatch.setattr(processor, "half_speedup", lambda setting="", precision="": pytest.fail("measured"))
    monkeypatch.setattr(processor, "runs_in_half", lambda layer, precision: pytest.fail("tried"))
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}, "machine": {"device": "cuda"}}
    study_plan = plan({"study": "s", "base": base, "grid": {"variant": ["dense", "lstm"]}})
    assert precisions(study_plan) == ["bf16"] * 2 and "train.precision: auto is bf16 on cuda" in study_plan.notes[0]


def test_a_plan_in_fp32_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "half_speedup", lambda setting="", precision="": pytest.fail("measured"))
    monkeypatch.setattr(processor, "runs_in_half", lambda layer, precision: pytest.fail("tried"))
    assert planned(["dense", "lstm"], setting="fp32").notes == []


def test_the_setting_that_gains_least_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "half_speedup", lambda setting, precision: {"highest": 3.0, "medium": 1.0}[setting])
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}}
    for settings, expected in ((["highest", "medium"], "fp32"), (["highest"], "bf16"), (["medium"], "fp32")):
        study_plan = plan({"study": "s", "base": base, "grid": {"machine.matmul_precision": settings, "variant": ["dense"]}})
        assert precisions(study_plan) == [expected] * len(settings)


def test_auto_stays_out_of_a_search_and_of_a_run() -> None:
    search = {"trials": 2, "space": {"train.precision": {"choices": ["fp32", "auto"]}}, "sampler": "RandomSampler"}
    with pytest.raises(UserError, match="train.precision: expected fp32, bf16 or fp16 in a search, got 'auto'"):
        planned(["dense"], setting="fp32", search=search, confirm={"seeds": [100]})
    with pytest.raises(UserError, match="train.precision: expected fp32, bf16 or fp16, got 'auto'"):
        device.autocast(torch.device("cpu"), "auto")


def test_the_probe_finds_what_this_processor_does_and_leaves_no_trace() -> None:
    precision_before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    processor.half_speedup.cache_clear()
    processor.runs_in_half.cache_clear()
    with torch.no_grad():
        assert isinstance(processor.runs_in_half(nn.LSTM, "bf16"), bool)
    assert processor.half_speedup("medium") > 0
    assert torch.rand(1) == expected
    assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == (precision_before, threads)


def test_a_layer_that_raises_has_no_kernel() -> None:
    class Broken(nn.LSTM):
        def forward(self, *_: Any) -> Any:
            raise RuntimeError("could not create a primitive descriptor")

    assert not processor.runs_in_half(Broken, "bf16")


@pytest.mark.parametrize(("slow", "sizes"), [(1e-9, len(processor.SIZES)), (1.0, 1)])
def test_products_that_take_long_are_not_made_larger(slow: float, sizes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(processor, "_seconds", lambda size, dtype: (made.append(size), (1e-9, slow))[1])
    assert processor._ratio_at_largest_size(torch.bfloat16) == pytest.approx(1e-9 / slow)
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
    slow = probe["speedup"] * machine.MIN_SPEEDUP < 1
    assert any("times slower than fp32 products" in note for note in probe["notes"]) == slow


# ---------------------------------------------------------------- fields of machine

FIELDS = ("machine.matmul_precision", "machine.reuse_memory")
AUTO = {**BASE, "train": {"steps": 2, "batch_size": 2}, "machine": "auto"}


def steps(medium: float, memory: float, both: float, *, difference: float = 1e-7) -> list[StepTime]:
    """Return steps of one cell: seconds with each set of changed fields, 1 with the defaults."""
    matmul, reuse = FIELDS
    times = {(): 1.0, (matmul,): medium, (reuse,): memory, (matmul, reuse): both}
    return [StepTime(changed, seconds, difference if matmul in changed else 0.0) for changed, seconds in times.items()]


def chosen(*cells: list[StepTime]) -> tuple[Any, Any]:
    settings = machine.choose_levers(FIELDS, {f"cell {i}": of_cell for i, of_cell in enumerate(cells)})
    return tuple(settings[path].value for path in FIELDS)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([steps(0.6, 0.95, 0.5), steps(0.7, 0.95, 0.6)], ("medium", True)),
        ([steps(0.6, 0.8, 0.68), steps(0.7, 0.8, 0.7)], ("medium", False)),  # memory slows a cell where products are fast
        ([steps(1.12, 0.8, 0.5), steps(0.9, 0.8, 0.5)], ("highest", True)),  # slower in one cell
        ([steps(1.08, 1.0, 1.21), steps(0.9, 1.0, 0.9)], ("highest", False)),  # measured as slower in one
        ([steps(1.02, 1.0, 1.21), steps(0.9, 1.0, 0.9)], ("medium", False)),  # within noise in one, faster in the other
        ([steps(0.98, 1.12, 0.99), steps(0.99, 1.0, 1.0)], ("highest", False)),  # too little to be sure, and slower
        ([steps(0.98, 1.02, 0.97), steps(0.99, 1.08, 1.0)], ("highest", False)),  # a lever that is measured as slower
        ([steps(0.5, 1.0, 0.4)], ("medium", True)),  # a study of one cell
        ([steps(0.5, 0.8, 0.4, difference=3e-3), steps(0.5, 0.8, 0.4)], ("highest", True)),  # products in bf16
        ([steps(0.5, 0.8, 0.4, difference=float("nan"))], ("highest", True)),
    ],
)
def test_a_field_changes_only_where_steps_are_faster_and_as_exact(
    cells: list[list[StepTime]], expected: tuple[str, bool]
) -> None:
    assert chosen(*cells) == expected


def test_the_reason_for_a_refusal_is_the_difference() -> None:
    settings = machine.choose_levers(FIELDS, {"dense": steps(0.5, 0.8, 0.4, difference=3e-3)})
    assert settings[FIELDS[0]].reason == "matmul_precision: medium changes the gradients by 0.003"


@pytest.mark.parametrize(
    ("medium", "words"),
    [
        (1 / 1.02, "1.02 times as fast with matmul_precision: medium, less than 1.05"),
        (1 / 1.0496, "1.04 times as fast with matmul_precision: medium, less than 1.05"),  # not 1.05, less than 1.05
        (1.25, "slower"),
        (0.5, "2.00 times"),
    ],
)
def test_the_note_is_a_reason(medium: float, words: str) -> None:
    assert words in machine.choose_levers(FIELDS[:1], {"dense": steps(medium, 1.0, 1.0)})[FIELDS[0]].reason


def noisy(speedup: float, rng: np.random.Generator, rounds: int) -> list[StepTime]:
    """Return steps of one cell whose ratios vary by 5 % a round, with an interruption in each tenth step."""
    noise = np.exp(0.05 * rng.standard_normal((2, rounds)) + 0.3 * (rng.random((2, rounds)) < 0.1))
    times = noise / np.array([[1.0], [speedup]])
    return [StepTime(c, float(np.median(t)), 0.0, tuple(t)) for c, t in zip(((), (FIELDS[0],)), times, strict=True)]


@pytest.mark.parametrize(("speedup", "expected"), [(0.9, "highest"), (1.0, "highest"), (1.15, "medium"), (1.5, "medium")])
def test_the_same_machine_chooses_the_same_twice(speedup: float, expected: str) -> None:
    rng = np.random.default_rng(0)
    values = [machine.choose_levers(FIELDS[:1], {"dense": noisy(speedup, rng, 40)})[FIELDS[0]].value for _ in range(50)]
    assert values.count(expected) >= 49


def test_what_is_not_sure_keeps_the_default_and_says_so() -> None:
    rng, rounds = np.random.default_rng(0), (1.0, 1 / 1.2) * 5  # the median is 1 or 1.2 times as fast
    times = {"dense": [StepTime((), 1.0, 0.0, (1.0,) * 10), StepTime((FIELDS[0],), 0.91, 0.0, rounds)]}
    setting = machine.choose_levers(FIELDS[:1], times)[FIELDS[0]]
    assert setting.value == "highest" and "too close to 1.05" in setting.reason and not machine.is_clear(FIELDS[:1], times)
    assert machine.is_clear(FIELDS[:1], {"dense": noisy(2.0, rng, 10)})


def test_the_smallest_and_the_largest_cell_are_measured() -> None:
    measured: list[RunConfig] = []

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]]:
        assert paths == list(FIELDS)
        measured.extend(configs)
        return [steps(0.5, 1.2, 0.6)] * len(configs)

    grid = {"variant": ["dense"], "model.dim": [32, 64, 16, 48]}
    study = {"study": "s", "base": AUTO, "grid": grid}
    auto = plan(study, measure=measure)
    assert [config.model.dim for config in measured] == [16, 64]
    assert all((c.machine.matmul_precision, c.machine.reuse_memory) == ("highest", False) for c in measured)
    explicit = plan(study, sets={FIELDS[0]: "medium", FIELDS[1]: False}, measure=lambda *_: pytest.fail("measured"))
    assert [run.fingerprint for run in auto.runs] == [run.fingerprint for run in explicit.runs]
    assert auto.notes[0].startswith("machine.matmul_precision: auto is medium on cpu: training steps of '")
    assert set(auto.auto_machine["cpu"]) == set(FIELDS) and explicit.auto_machine == {}


def test_a_step_that_takes_long_is_measured_with_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> None:
        rows.extend(config.train.batch_size for config in configs)

    study = {"study": "s", "base": AUTO, "grid": {"train.batch_size": [64, 2], "variant": ["dense"]}}
    defaults = plan(study, measure=measure)
    monkeypatch.setattr(machine, "MAX_FLOPS", 1e7)
    plan(study, measure=measure)
    assert rows[:3] == [2, 64, 2] and 2 < rows[3] < 64
    assert [cell.config.machine.matmul_precision for cell in defaults.cells] == ["highest"] * 2
    assert "training steps could not be measured" in defaults.notes[0]


def in_both_precisions(medium: float, bf16: float, *, difference: float = 0.01) -> list[StepTime]:
    """Return steps of one cell: seconds with each set of changed fields, 1 with the defaults; 0.9 of it with kept buffers."""
    matmul, memory = FIELDS
    times = {(): 1.0, (matmul,): medium, (machine.PRECISION,): bf16, (matmul, machine.PRECISION): bf16}
    return [
        StepTime((*changed, *kept), seconds * (0.9 if kept else 1), difference if machine.PRECISION in changed else 0.0)
        for kept in ((), (memory,))
        for changed, seconds in times.items()
    ]


@pytest.mark.parametrize(
    ("cells", "expected", "why"),
    [
        ([(0.9, 0.6), (0.8, 0.7)], "bf16", "1.50 and 1.14 times as fast with precision: bf16"),
        ([(0.6, 0.7), (1.0, 1.0)], "fp32", "0.86 and 1.00 times as fast with precision: bf16"),  # medium is faster still
        ([(1.0, 0.7), (1.0, 1.2)], "fp32", "1.43 and 0.83 times as fast"),  # a narrow model is slower
        ([(1.0, 0.6), (1.0, 0.6, 0.3)], "fp32", "precision: bf16 changes the gradients by 0.3"),
    ],
)
def test_bf16_is_chosen_where_steps_are_faster_than_with_the_chosen_products(
    cells: list[tuple[float, ...]], expected: str, why: str, imitate: Callable[..., None]
) -> None:
    imitate(speedup=2.0)

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]]:
        assert paths == [FIELDS[0], machine.PRECISION, FIELDS[1]]
        assert {config.train.precision for config in configs} == {"fp32"}
        return [
            in_both_precisions(medium, bf16, difference=difference[0] if difference else 0.01)
            for medium, bf16, *difference in cells
        ]

    base = {**AUTO, "train": {"steps": 2, "precision": "auto"}}
    measured = plan({"study": "s", "base": base, "grid": {"variant": ["dense"], "model.dim": [16, 32]}}, measure=measure)
    assert precisions(measured) == [expected] * 2
    assert {cell.config.machine.reuse_memory for cell in measured.cells} == {True}, "kept buffers change no number"
    assert why in next(note for note in measured.notes if note.startswith("train.precision: auto is "))


@pytest.mark.parametrize("speedup", [0.7, 1.0, 1.19, 2.4])
def test_steps_decide_where_products_do_not(speedup: float, imitate: Callable[..., None]) -> None:
    """With AMX, small products are little faster in bf16 and steps are twice as fast."""
    imitate(speedup=speedup)
    base = {**BASE, "train": {"steps": 2, "precision": "auto"}}
    for bf16, expected, why in ((0.5, "bf16", "2.00 times"), (1 / 1.05, "fp32", "less than 1.1"), (2.0, "fp32", "slower")):
        both = [StepTime((), 1.0, 0.0), StepTime((machine.PRECISION,), bf16, 0.01)]
        measured = plan({"study": "s", "base": base, "grid": {"variant": ["dense"]}}, measure=lambda c, _, b=both: [b] * len(c))
        assert precisions(measured) == [expected] and why in measured.notes[0] and "products" not in measured.notes[0]


def test_bf16_is_not_measured_where_its_products_are_slow(imitate: Callable[..., None]) -> None:
    imitate(speedup=1 / 147)
    seen: list[Sequence[str]] = []

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]]:
        seen.append(paths)
        return [steps(0.5, 1.0, 0.5)] * len(configs)

    study = {"study": "s", "base": {**AUTO, "train": {"steps": 2, "precision": "auto"}}, "grid": {"variant": ["dense"]}}
    assert precisions(plan(study, measure=measure)) == ["fp32"] and seen == [list(FIELDS)]


def test_without_steps_the_fastest_products_in_fp32_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {**AUTO, "train": {"steps": 2, "precision": "auto"}}
    for medium, expected in ((1.0, "fp32"), (1.5, "bf16")):
        monkeypatch.setattr(processor, "half_speedup", lambda setting, _, m=medium: {"highest": 3.0, "medium": m}[setting])
        assert precisions(plan({"study": "s", "base": base, "grid": {"variant": ["dense"]}})) == [expected]


def test_steps_on_cuda_are_not_measured() -> None:
    base = {**AUTO, "machine": {"device": "cuda", "matmul_precision": "auto"}}
    study = {"study": "s", "base": base, "grid": {"variant": ["dense"]}}
    on_cuda = plan(study, measure=lambda *_: pytest.fail("measured"))
    assert on_cuda.cells[0].config.machine.matmul_precision == "highest"
    assert any("auto is highest on cuda: other values compute products in TF32" in note for note in on_cuda.notes)


LONG = {**AUTO, "task": {"name": "pydocs", "length": machine.LONG}}


def backends(sdpa: float, *, difference: float = 1e-7, **study: Any) -> dict[str, str]:
    """Return the backend of each cell if a step with ``sdpa`` takes so many times the time of one with ``blocked``."""

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]]:
        if paths != [machine.BACKEND]:
            return [steps(0.5, 1.2, 0.6)] * len(configs)
        assert all((config.backend, config.machine.matmul_precision) == ("blocked", "medium") for config in configs)
        return [[StepTime((), 1.0, 0.0), StepTime(("backend",), sdpa, difference)]] * len(configs)

    made = plan({"study": "s", "base": LONG, "grid": {"variant": ["dense", "lstm"]}, **study}, measure=measure)
    return {cell.name: cell.config.backend for cell in made.cells}


def test_long_sequences_have_the_backend_that_is_measured_to_be_faster() -> None:
    assert backends(0.7) == {"dense": "sdpa", "lstm": "reference"}
    assert backends(0.95)["dense"] == backends(0.5, difference=1e-3)["dense"] == "blocked"
    assert backends(0.7, base={**LONG, "backend": "reference"})["dense"] == "reference"
    assert backends(0.7, base={**LONG, "model": {"attention_dropout": 0.1}})["dense"] == "blocked"
    by_length = backends(0.7, grid={"variant": ["dense"], "task.length": [machine.LONG // 2, machine.LONG]})
    assert list(by_length.values()) == ["blocked", "sdpa"]
    changed = {"name": "dense", "with": ["softcap"]}
    assert list(backends(0.7, grid={"variant": ["dense", changed]}).values()) == ["sdpa", "blocked"]


def test_backends_in_bf16_need_not_agree_more_closely_than_it_rounds() -> None:
    train = {"steps": 2, "batch_size": 2, "precision": "bf16"}
    in_bf16 = {"base": {**LONG, "train": train}, "grid": {"variant": ["dense"]}}
    both = {"base": LONG, "grid": {"variant": ["dense"], "train.precision": ["fp32", "bf16"]}}
    for difference, expected in ((1e-2, ["sdpa"]), (0.5, ["blocked"]), (float("nan"), ["blocked"])):
        assert list(backends(0.7, difference=difference, **in_bf16).values()) == expected
    assert list(backends(0.7, difference=1e-2, **both).values()) == ["blocked"] * 2


def test_precision_alone_leaves_the_backend(imitate: Callable[..., None]) -> None:
    imitate(speedup=2.0)

    def measure(configs: Sequence[RunConfig], paths: Sequence[str]) -> list[list[StepTime]]:
        assert paths == [machine.PRECISION]
        return [[StepTime((), 1.0, 0.0), StepTime((machine.PRECISION,), 0.5, 0.01)]] * len(configs)

    base = {**LONG, "train": {"steps": 2, "batch_size": 2, "precision": "auto"}, "machine": {"device": "cpu"}}
    made = plan({"study": "s", "base": base, "grid": {"variant": ["dense"]}}, measure=measure)
    assert precisions(made) == ["bf16"] and made.cells[0].config.backend == "blocked"


def test_a_backend_that_was_recorded_is_kept() -> None:
    study = {"study": "s", "base": LONG, "grid": {"variant": ["dense"]}}
    recorded = {
        path: AutoSetting(value, "") for path, value in ((FIELDS[0], "medium"), (FIELDS[1], False), ("backend", "sdpa"))
    }

    def resumed(settings: dict[str, AutoSetting]) -> str:
        made = plan(study, recorded_machine=lambda _: {"cpu": settings}, measure=lambda *_: pytest.fail("measured"))
        return made.cells[0].config.backend

    assert resumed(recorded) == "sdpa"
    assert resumed({path: recorded[path] for path in FIELDS}) == "blocked", "its runs have it"


def test_a_stage_has_what_was_chosen_for_its_cell() -> None:
    base = {**AUTO, "machine": {"device": "cpu"}}
    stages = {"pretrain": {"train": {"steps": 3}, "machine": "auto"}}
    for own, expected in (("auto", ("medium", False)), ({"matmul_precision": "high"}, ("high", False))):
        study = {"study": "s", "base": {**base, "machine": own, "init": "pretrain"}, "grid": {"variant": ["dense"]}}
        staged = plan({**study, "stages": stages}, measure=lambda configs, _: [steps(0.5, 1.2, 0.6)] * len(configs))
        machines = [cell.config.machine for cell in (*staged.stages, *staged.cells)]
        assert [(m.matmul_precision, m.reuse_memory) for m in machines] == [expected] * 2


def test_auto_of_the_machine_is_a_mapping_and_can_be_assigned() -> None:
    study = {"study": "s", "base": AUTO, "grid": {"variant": ["dense"]}}
    assigned = plan(study, sets={FIELDS[0]: "high", "machine.threads": 3}).cells[0].config.machine
    assert (assigned.matmul_precision, assigned.reuse_memory, assigned.threads) == ("high", False, 3)
    threads = {"study": "s", "base": {**AUTO, "machine": {"threads": 2}}, "grid": {"variant": ["dense"]}}
    merged = plan(threads, sets={"machine": "auto"})
    assert merged.cells[0].config.machine.threads == 2 and set(merged.auto_machine["cpu"]) == set(FIELDS)


@pytest.mark.parametrize(
    ("value", "where", "message"),
    [
        ("fast", "base.machine", "expected 'auto', or a mapping of keys such as {device: cpu}, got 'fast'"),
        ({"reuse_memory": "yes"}, "base.machine.reuse_memory", "expected true, false or 'auto', got 'yes'"),
        ({"reuse_memory": 1}, "base.machine.reuse_memory", "expected true, false or 'auto', got 1"),
    ],
)
def test_a_wrong_value_is_one_line(value: Any, where: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        plan({"study": "s", "base": {**AUTO, "machine": value}, "grid": {"variant": ["dense"]}})
    assert (refused.value.where, refused.value.message) == (where, message)


def test_a_run_does_not_start_with_auto() -> None:
    with pytest.raises(UserError, match="machine.matmul_precision: expected a value, got 'auto'"):
        device.set_up(MachineConfig(matmul_precision="auto"))

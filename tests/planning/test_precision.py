"""Tests of ``train.precision: auto``: a rule on the instructions of the device, which reads no clock."""

import time

import pytest

from attnlab.nn import processor
from attnlab.planning.plan import plan
from attnlab.training.device import resolve_precision


def precisions(**changes: object) -> set[str]:
    base = {
        "task": {"name": "pydocs", "length": 16},
        "model": {"dim": 16, "depth": 1, "heads": 2},
        "train": {"steps": 2, "precision": "auto"},
        "machine": {"device": "cpu"},
    }
    cells = plan({"study": "auto", "base": base, "grid": {"variant": ["dense", "lstm"]}, **changes}).cells
    return {cell.config.train.precision for cell in cells}


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_where_the_processor_has_instructions_for_it(
    has_bf16: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "has_bf16", lambda: has_bf16)
    assert precisions() == {expected}


def test_a_plan_reads_no_clock_and_resolves_alike_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    first = precisions()
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(time, clock, lambda: pytest.fail("a plan measures nothing"))
    assert precisions() == first


@pytest.mark.parametrize("has_bf16", [True, False])
def test_a_cuda_device_states_what_it_has(has_bf16: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: has_bf16)
    assert resolve_precision("auto", "cuda:1") == ("bf16" if has_bf16 else "fp32")
    assert resolve_precision("fp16", "cuda") == "fp16"

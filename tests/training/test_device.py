"""Tests of device and process settings, with fake devices. Memory limits: test_out_of_memory.py."""

from typing import Any

import pytest
import torch
from torch.cuda._utils import _get_device_index

from attnlab.config.run import MachineConfig
from attnlab.training.device import set_up


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Replace torch.cuda's functions by argument checks, and return a list that collects the selected devices."""
    selected: list[int] = []
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: selected.append(_get_device_index(device)))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: _get_device_index(device, optional=True))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: selected[-1])
    return selected


@pytest.mark.parametrize(
    ("machine", "rank", "index"),
    [({"device": "cuda"}, 0, 0), ({"device": "cuda:1"}, 0, 1), ({"device": "cuda", "processes_per_run": 3}, 2, 2)],
)
def test_a_process_computes_on_the_device_that_is_its_own(
    machine: dict[str, Any], rank: int, index: int, chosen: list[int]
) -> None:
    device = set_up(MachineConfig(**machine), rank=rank)
    assert device.type == "cuda" and chosen == [index] and device.index in (None, index)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["auto", "cuda", "cuda:0"])
def test_an_available_device_is_set_up(name: str) -> None:
    device = set_up(MachineConfig(device=name))
    torch.ones(3, device=device)
    assert torch.cuda.max_memory_allocated(device) > 0 and torch.cuda.current_device() == 0

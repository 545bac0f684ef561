"""Tests of attnlab._util.memory: freed buffers of a process are kept or returned to the kernel."""

import platform
import subprocess
import sys

import pytest
import torch

from attnlab._util import memory

MIB = 1 << 20
SCRIPT = """
import torch
from attnlab._util.memory import _process_field, return_freed_memory, reuse_freed_memory

resident = lambda: _process_field("self", "VmRSS")
reuse_freed_memory()
before = resident()
buffers = [torch.ones(2_500_000 + 100_000 * i) for i in range(10)]  # 10 to 14 MB each
kept_alive = torch.ones(1000)
del buffers
kept = resident() - before
return_freed_memory()
print(kept, resident() - before, float(kept_alive.sum()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_buffers_are_kept_until_they_are_returned() -> None:
    output = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True).stdout
    kept, returned, alive = map(float, output.split())
    assert kept > 90 * MIB and returned < 20 * MIB and alive == 1000


def test_keeping_and_returning_memory_has_no_effect_on_other_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    memory.reuse_freed_memory()
    memory.return_freed_memory()
    assert torch.ones(3).sum() == 3

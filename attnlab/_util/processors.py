"""The processors that this process may use."""

import os
from contextlib import suppress

from attnlab._util.memory import CGROUP


def processors() -> int:
    """Return their number: those that the process may run on, and no more than the quota of its container."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # not Linux, another version of cgroups, or "max": no quota
        quota, period = map(int, (CGROUP / "cpu.max").read_text(encoding="utf-8").split())
        count = min(count, max(1, quota // period))
    return count

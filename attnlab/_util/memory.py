"""What a run's process holds of the machine's memory, and how to tell that the kernel ended it for that."""

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def peak(pid: int) -> int:
    """The largest resident size of a process so far, in bytes; 0 where that cannot be known."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(sizes[0]) * 1024 if sizes else 0


def kernel_kills() -> int:
    """How many processes the kernel has ended for want of memory: in this container if it counts them, else on the machine."""
    for path, name in ((CGROUP / "memory.events", "oom_kill"), (Path("/proc/vmstat"), "oom_kill")):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found = [int(line.split()[1]) for line in lines if line.split()[0] == name]
        if found:
            return found[0]
    return 0

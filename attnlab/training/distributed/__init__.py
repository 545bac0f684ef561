"""Data-parallel training of one run on several processes, through torchrun; each process computes its rows of every batch."""

from attnlab.config.run import RunConfig

ADDRESS = "ATTNLAB_RANKS"  # environment variable: the socket that a rank connects to


def unsupported(config: RunConfig) -> str | None:
    """Return the reason why ``machine.processes_per_run`` processes cannot share a run on this machine, or None.

    Args:
        config: resolved.
    """
    import torch

    n, device = config.machine.processes_per_run, config.machine.device
    if n == 1:
        return None
    if not torch.distributed.is_available():
        return f"machine.processes_per_run {n}: this torch was built without torch.distributed"
    rows, parts = config.train.batch_size, n * config.train.gradient_accumulation
    if rows % parts:
        whole = f"{n} processes x {config.train.gradient_accumulation} micro-batches"
        return f"machine.processes_per_run {n}: expected a train.batch_size divisible by {whole}, got {rows}"
    if device.startswith("cuda:"):
        return f"machine.processes_per_run {n}: expected machine.device cuda, of which each process takes one, got {device}"
    if device == "cuda" and torch.cuda.device_count() < n:
        return f"machine.processes_per_run {n}: expected a CUDA device for each, found {torch.cuda.device_count()}"
    return None

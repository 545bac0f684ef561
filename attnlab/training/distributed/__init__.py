"""One run on several processes, each with its rows of every batch: data-parallel training through torchrun."""

from attnlab.config.run import RunConfig

ADDRESS = "ATTNLAB_RANKS"  # the variable of the environment that tells a rank where to connect


def refusal(config: RunConfig) -> str | None:
    """Why a resolved configuration cannot share its run among ``machine.processes`` here; None if it can."""
    import torch

    n, device = config.machine.processes, config.machine.device
    if n == 1:
        return None
    if not torch.distributed.is_available():
        return f"machine.processes {n}: this torch was built without torch.distributed"
    rows, parts = config.train.batch_size, n * config.train.accumulate
    if rows % parts:
        whole = f"{n} processes x {config.train.accumulate} micro-batches"
        return f"machine.processes {n}: expected a train.batch_size that {whole} divide, got {rows}"
    if device.startswith("cuda:"):
        return f"machine.processes {n}: expected machine.device cuda, of which each process takes one, got {device}"
    if device == "cuda" and torch.cuda.device_count() < n:
        return f"machine.processes {n}: expected a CUDA device for each, found {torch.cuda.device_count()}"
    return None

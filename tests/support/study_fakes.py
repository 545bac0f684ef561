"""Stand-ins for ``attnlab.training.train.train`` with every outcome that a run can have; children import them by name."""

import ctypes
import errno
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnlab.config.run import RunConfig
from attnlab.training import evaluate
from attnlab.training.train import Result, train
from tests.support.surroundings import fill

Report = Callable[[int, dict[str, float]], bool]


def good(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Report four points of a curve, and return a result that differs between seeds."""
    with (folder.parent / "trained.txt").open("a") as file:
        file.write(f"{config.fingerprint()}\n")
    for step in (10, 20):
        report(step, {"train/loss": 1 / step, "train/tokens_per_s": 1_000.0})
        report(step, {"valid/bits_per_byte": 2 / step})
    import torch

    summary = {"bits_per_byte": 2 + config.seed / 10, "threads": float(torch.get_num_threads())}
    summary["told"] = float(os.environ.get("ATTNLAB_FAKE", "0"))
    return Result("completed", summary, 20)


def by_variant(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """End differently for each variant."""
    report(1, {"train/loss": 1.0})
    fates: dict[str, Callable[[], Any]] = {
        "einsum": lambda: ctypes.string_at(0),  # a segmentation fault
        "no_wo": lambda: os._exit(3),
        "wide": lambda: [][1],
        "narrow": lambda: Result("diverged", {"train_seconds": 1.0}, 5, "the loss became nan at step 5"),
        "basic": lambda: Result("out_of_memory", {}, 1, "no memory"),
    }
    fate = fates.get(config.variant.name)  # type: ignore[union-attr]
    return fate() if fate else good(config, report=report, folder=folder)


def stages_by_variant(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """End differently for each variant in a run that others start from, which has no start itself; the others complete.

    With ``ATTNLAB_FAKE`` set, everything completes.
    """
    repaired = "ATTNLAB_FAKE" in os.environ
    return (good if config.init or repaired else by_variant)(config, report=report, folder=folder)


def with_costs(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Complete with round costs; a run that starts from another one has those of a stage of 10 s and 9e9 FLOPs before it."""
    noise = (0.01, -0.02, 0.01, 0.03)[config.seed % 4] * (2 if config.init else 1)
    score = 2 + config.seed / 10 + noise - 0.5 * (config.init is not None)
    summary = {
        "bits_per_byte": score,
        "valid_bits_per_byte": score,
        "flops_per_token": 1e6,
        "tokens": 1e3,
        "train_seconds": 4.0,
    }
    if config.init is None:
        return Result("completed", summary, 20)
    summary |= {"chain_seconds": 14.0, "chain_flops": 12e9}
    return Result("completed", summary, 20, tags={"init": "takes 15 of 16 tensors; fresh: head.weight", "init_weights": "abc"})


def killed_once(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Be killed from outside at the first attempt; complete at the second."""
    mark = folder / "been_here"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return good(config, report=report, folder=folder)


def killed_at_its_checkpoint(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Train; be killed from outside once, when there is a checkpoint."""

    def watched(step: int, metrics: dict[str, float]) -> bool:
        if (folder / "checkpoint.pt").exists() and not (folder / "been_here").exists():
            (folder / "been_here").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return report(step, metrics)

    return train(config, report=watched, folder=folder)


def hangs_once(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Hang, with a child process, at the first attempt of seed 1; complete at the second."""
    mark = folder / "pids"
    if config.seed == 1 and not mark.exists():
        report(1, {"train/loss": 1.0})
        helper = os.fork()
        if helper == 0:
            time.sleep(600)
            os._exit(0)
        part = mark.with_suffix(".part")
        part.write_text(f"{os.getpid()} {helper}")
        part.rename(mark)
        time.sleep(600)
    return good(config, report=report, folder=folder)


def says_strange_things(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Raise errors that no file can store unchanged, or that resemble those of a full disk of the runs."""
    if config.variant.name == "no_wo":  # type: ignore[union-attr]
        raise ValueError("bad \udc80\0")
    if config.variant.name == "wide":  # type: ignore[union-attr]
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/nowhere/kernel.bin")
    return good(config, report=report, folder=folder)


def writes_past_python(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Let a program and the C library write the secret in ``HF_TOKEN``, and fail."""
    subprocess.run(["sh", "-c", "echo HF_TOKEN=$HF_TOKEN; echo token: $HF_TOKEN >&2"], check=True)
    os.write(1, os.environb[b"HF_TOKEN"] + b"\n")
    raise RuntimeError("it ends")


def failing(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Fail like a broken driver."""
    raise RuntimeError("the driver is broken today")


def valued(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Complete a trial, with a better value for a smaller learning rate."""
    return Result("completed", {"valid_bits_per_byte": config.train.lr}, 20)


def pruned(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Report no point, and return that the run was pruned."""
    return Result("pruned", {}, 3, "pruned at step 3")


def shows_every_batch(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Train, and show the progress of its evaluations after each batch."""
    evaluate.PROGRESS_SECONDS = 0.0
    return train(config, report=report, folder=folder)


def disk_fills(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Train; fill the disk once, when there is a checkpoint."""

    def watched(step: int, metrics: dict[str, float]) -> bool:
        if (folder / "checkpoint.pt").exists():
            _fill_once(folder)
        return report(step, metrics)

    return train(config, report=watched, folder=folder)


def disk_is_full_at_the_end(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Train; then fill the disk once."""
    result = train(config, report=report, folder=folder)
    _fill_once(folder)
    return result


def _fill_once(folder: Path) -> None:
    if not (folder.parent / "ballast").exists():
        fill(folder.parent / "ballast")


def settling(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return scores with large differences between seeds and small ones within pairs.

    no_wo is worse, narrow is equal except for noise, and wide is too noisy for a conclusion.
    """
    with (folder.parent / "trained.txt").open("a") as file:
        file.write(f"{config.fingerprint()}\n")
    noise = (0.8, -1.1, 0.2, 0.9, -0.7, -0.1)[config.seed % 6]
    gap = {"no_wo": 1 + 0.01 * noise, "narrow": 0.05 * noise, "wide": 0.5 * noise}.get(config.variant.name, 0.0)  # type: ignore[union-attr]
    value = 2 + config.seed + gap
    report(10, {"valid/bits_per_byte": value})
    return Result("completed", {"bits_per_byte": value, "valid_bits_per_byte": value}, 20)


def settling_evenly(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return scores of which every pair scatters alike."""
    shift = {"no_wo": 0, "narrow": 1, "wide": 2}.get(config.variant.name)  # type: ignore[union-attr]
    noise = 0.0 if shift is None else (0.8, -1.1, 0.2, 0.9, -0.7, -0.1)[(config.seed + shift) % 6]
    value = 2 + config.seed + 0.05 * noise
    report(10, {"valid/bits_per_byte": value})
    return Result("completed", {"bits_per_byte": value, "valid_bits_per_byte": value}, 20)


def settling_or_diverging(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Behave like ``settling``, but no_wo diverges with seed 1, and wide always."""
    if config.variant.name == "wide" or (config.variant.name == "no_wo" and config.seed == 1):  # type: ignore[union-attr]
        return Result("diverged", {}, 5, "the loss became nan at step 5")
    return settling(config, report=report, folder=folder)


def exact_match(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return a score of a user's metric, where higher is better: no_wo scores higher with every seed."""
    value = 0.5 + config.seed / 100 + (0.1 + config.seed / 1_000) * (config.variant.name == "no_wo")  # type: ignore[union-attr]
    return Result("completed", {"exact_match": value}, 20)


def shrinking(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return scores in which no_wo is better by less with each doubling of the steps, with a curve of five points."""
    with (folder.parent / "trained.txt").open("a") as file:
        file.write(f"{config.fingerprint()}\n")
    steps = config.train.steps or 0
    noise = (0.8, -1.1, 0.2, 0.9)[(config.seed + steps) % 4]
    gap = (0.001 * noise - 0.1 / steps) * (config.variant.name == "no_wo")  # type: ignore[union-attr]
    for part in range(1, 6):
        report(steps * part // 5, {"valid/bits_per_byte": 2 + 1 / part + gap})
    costs = {"flops_per_token": 100.0, "tokens_per_s": 1_000.0, "tokens": 32.0 * steps, "steps": float(steps)}
    return Result("completed", {"bits_per_byte": 3 - 0.01 * steps + config.seed + gap, **costs}, steps)


def swept(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return a score with an optimum of the learning rate: 0.01 for dense, 0.003 for all others.

    Learning rates above 0.2 diverge.
    """
    with (folder.parent / "trained.txt").open("a") as file:
        file.write(f"{config.variant.name}-{config.train.lr:g}-{config.seed}\n")  # type: ignore[union-attr]
    if config.train.lr > 0.2:
        return Result("diverged", {}, 5, "the loss became nan at step 5")
    optimum = 0.01 if config.variant.name == "dense" else 0.003  # type: ignore[union-attr]
    value = 2 + config.seed / 100 + 0.5 * math.log10(config.train.lr / optimum) ** 2
    report(10, {"valid/bits_per_byte": value})
    return Result("completed", {"bits_per_byte": value, "valid_bits_per_byte": value}, 20)


def swept_and_settling(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Behave like ``swept``, but wide is worse, and no_wo only scatters; from seed 3 on it is best at small learning rates."""
    result = swept(config, report=report, folder=folder)
    gap = (0.06, -0.05, 0.04, -0.06, 0.05, -0.04)[config.seed % 6]
    variant = config.variant.name  # type: ignore[union-attr]
    if variant == "wide":
        gap = 1 + gap / 100
    elif variant == "dense" or result.state != "completed":
        return result
    elif config.seed > 2:
        gap += 2 * math.log10(config.train.lr / 0.003)
    return replace(result, summary={name: value + gap for name, value in result.summary.items()})


def swept_with_a_failure(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Behave like ``swept``, but fail at a learning rate of 0.003 once."""
    if config.train.lr == 0.003 and not (folder.parent / "been_here").exists():
        (folder.parent / "been_here").touch()
        raise RuntimeError("the driver is broken today")
    return swept(config, report=report, folder=folder)


def two_scores(config: RunConfig, *, report: Report, folder: Path) -> Result:
    """Return the scores of ``settling`` on the test split; on ``valid``, narrow is better and the others only scatter."""
    result = settling(config, report=report, folder=folder)
    noise = (0.5, -0.4, 0.9, -1.0, 0.3, -0.3)[config.seed % 6]
    gap = {"no_wo": 0.04 * noise, "narrow": 0.01 * noise - 1}.get(config.variant.name, 0.0)  # type: ignore[union-attr]
    return replace(result, summary=result.summary | {"valid_bits_per_byte": 3 + config.seed + gap})

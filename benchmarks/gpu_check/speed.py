"""Steps on the speed and the memory of a card.

- The card, the driver and the versions; the rates of matrix products that steps are compared with.
- The time of a training step beside a plain loop of PyTorch with the same model and scaled dot-product attention.
- Forward and backward passes of sparse attention in bf16, beside dense scaled dot-product attention, by length.
- What a card gains from several processes that share it.
- The plan's estimate of the memory of a training step, beside what two real steps allocate.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._util.machine import processors
from attnlab._version import __version__
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.bench.layer import BenchCase, ForwardBackward, unsupported
from attnlab.extras.tune import steps_per_second
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training.costs import full_memory, micro_batch
from attnlab.training.cuda_memory import cuda_peak_mib
from attnlab.training.device import autocast, set_up_run
from attnlab.training.distributed import Group
from attnlab.training.gradients import RankBatch, backward
from attnlab.training.optim import build_optimizer
from attnlab.training.trainer import Trainer
from benchmarks.gpu_check.runner import MIB, Case, Rows, Setting, Summary, Values
from benchmarks.verdict.plain import LanguageModel

PACKAGES = ("torch", "triton", "xformers")
DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}

LENGTH, HEAD_WIDTH = 256, 64
MODES = {  # name -> precision, products, compiled
    "fp32": ("fp32", "highest", False),
    "tf32": ("fp32", "high", False),
    "bf16": ("bf16", "high", False),
    "bf16 compiled": ("bf16", "high", True),
}

LENGTHS = (4096, 8192, 16384, 32768, 65536)
VARIANTS = ("strided_sparse", "fixed_sparse")

WIDTHS = (64, 128, 256, 512)

EXAMPLES = Path(__file__).parents[2] / "examples"
DATA = EXAMPLES / "my_data"
REVIEWS = {"name": "csv", "path": str(EXAMPLES / "my_reviews/reviews.csv"), "text": "review", "label": "opinion", "length": 32}
SENTENCES = {"name": "translation", "source": str(DATA / "sentences.de"), "target": str(DATA / "sentences.en"), "length": 48}
# Changes to the base below: a cell of each model, and the settings that change what a step keeps.
CELLS: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense, fp32": {"train.precision": "fp32"},
    "dense, logits written out": {"backend": "reference"},
    "no_wo, blocks computed again": {"variant": "no_wo", "train.activation_checkpointing": True},
    "transformer_xl with memory": {
        "variant": "transformer_xl",
        "position": "relative",
        "model.mem_len": 256,
        "task": {"name": "pydocs", "length": 256, "sampling": "contiguous"},
    },
    "strided_sparse": {"variant": "strided_sparse"},
    "delta": {"variant": "delta", "position": "none"},
    "classifier": {"task": REVIEWS | {"vocabulary": 500}, "position": "learned", "train.batch_size": 512},
    "encoder_decoder": {"task": SENTENCES | {"vocabulary": 120}, "position": "learned", "train.batch_size": 512},
    "masked_language_model": {"task": {"name": "masked_text", "length": 256}},
}


def card_cases(setting: Setting) -> Iterator[Case]:
    yield Case("versions", partial(versions, setting))
    yield from (Case(f"product {precision}", partial(product, setting, precision)) for precision in DTYPES)


def summarize_card(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    seen = rows.get("versions", {})
    versions = [f"{name} {seen[name]}".removeprefix("card ") for name in ("card", "driver", "torch") if name in seen]
    rates = [f"{name.removeprefix('product ')} {row['tflops']:.3g}" for name, row in rows.items() if "tflops" in row]
    found = [("card", ", ".join(versions))] if versions else []
    return found + ([("products, TFLOP/s", ", ".join(rates))] if rates else [])


def versions(setting: Setting) -> Values:
    """Return the card, the driver, and the versions of what computes on it."""
    values: Values = {"card": f"rehearsal on {platform.machine()}"}
    if not setting.rehearse:
        seen = torch.cuda.get_device_properties(0)
        values = {"card": seen.name, "memory_mib": seen.total_memory // MIB, "capability": f"{seen.major}.{seen.minor}"}
        values |= {"multiprocessors": seen.multi_processor_count, "cuda": torch.version.cuda}
        values["cudnn"] = torch.backends.cudnn.version()
    values |= {"python": platform.python_version(), "attnlab": __version__, "processors": processors()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            values[name] = version(name)
    with suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        values["driver"] = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return values


def product(setting: Setting, precision: str) -> Values:
    """Return the rate of products of square matrices of random numbers in TFLOP/s."""
    n = setting.size(8192 if precision == "bf16" else 4096, 32)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    a, b = (torch.randn(n, n, device=setting.device, dtype=DTYPES[precision]) for _ in range(2))
    return {"tflops": 2 * n**3 / setting.interleaved(lambda: a @ b)[0] / 1e12}


def step_cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size((256, 768), (32,)):
        for mode in setting.size(tuple(MODES), ("fp32", "bf16")):
            yield Case(f"12 x {width}, {mode}", partial(compare_steps, setting, width, mode))


def summarize_steps(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    of_peak = {case: f"{row['share_of_peak']:.0%} of peak" for case, row in rows.items()}
    return [(case, f"{row['ms']:.3g} ms, {row['times_as_fast']:.2f} x plain, {of_peak[case]}") for case, row in rows.items()]


def compare_steps(setting: Setting, width: int, mode: str) -> Values:
    """Return the milliseconds of a step of attnlab and of plain PyTorch, and the rate in tokens and FLOPs."""
    precision, products, compiled = MODES[mode]
    depth, rows = setting.size((12, 128), (2, 2))
    heads = max(2, width // HEAD_WIDTH)
    config = setting.resolved(
        {
            "task": {"name": "pydocs", "length": LENGTH},
            "position": "learned",
            "model": {"dim": width, "depth": depth, "heads": heads},
            "train": {"steps": 10**6, "batch_size": rows, "precision": precision, "compile": compiled, "log_every": 10**6},
            "machine": {"matmul_precision": products},
        }
    )
    device = set_up_run(config)
    trainer = Trainer(config, group=Group(), folder=None, device=device, report=lambda step, metrics: False)
    model = LanguageModel(config.model_dump(), trainer.task.vocabulary).to(device)
    plain = plain_step(torch.compile(model) if compiled else model, rows, device=device, precision=precision)
    ours, theirs = setting.interleaved(trainer.take_step, plain, least=0.2)
    torch.set_float32_matmul_precision(products)
    rate = rows * LENGTH / ours
    flops = 3 * trainer.fixed_costs["flops_per_token"] * rate
    peak = product(setting, "tf32" if mode == "tf32" else precision)["tflops"]
    return {
        "ms": 1e3 * ours,
        "plain_ms": 1e3 * theirs,
        "times_as_fast": theirs / ours,
        "tokens_per_s": rate,
        "tflops": flops / 1e12,
        "share_of_peak": flops / 1e12 / peak,
        "backend": config.backend,
    }


def plain_step(model: Callable[[Tensor], Tensor], rows: int, *, device: torch.device, precision: str) -> Callable[[], None]:
    """Return a function that takes a training step on random bytes."""
    assert isinstance(model, nn.Module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        batch = torch.randint(0, 256, (rows, LENGTH + 1), generator=generator)
        tokens = (batch.pin_memory() if device.type == "cuda" else batch).to(device, non_blocking=True)
        with autocast(device, precision):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def sparse_cases(setting: Setting) -> Iterator[Case]:
    backend = setting.size("xformers", "blocked")
    for length in setting.size(LENGTHS, (64,)):
        for variant in VARIANTS:
            yield Case(f"{variant}, {backend}, {length}", partial(compare_layers, setting, variant, backend, length))


def summarize_sparse(rows: Rows) -> Summary:
    """Return each variant at its longest length."""
    longest: dict[str, tuple[str, str]] = {}
    for case, row in rows.items():
        name, _, length = case.rpartition(", ")
        memory = row["peak_mib"] / max(row["dense_peak_mib"], 1e-9)
        longest[name] = (f"{name}, {int(length):,}", f"{row['times_as_fast']:.2f} x dense, {memory:.2f} of its memory")
    return list(longest.values())


def compare_layers(setting: Setting, variant: str, backend: str, length: int) -> Values:
    """Return the milliseconds of a forward and backward pass of a layer and of a dense one, and their peak memory in MiB."""
    sparse, dense = (_passes(setting, *names, length) for names in ((variant, backend), ("dense", "sdpa")))
    peaks = []
    for passes in (sparse, dense):
        passes()  # the first pass allocates workspaces
        before = setting.allocated()
        passes()
        peaks.append((setting.peak() - before) / MIB)
    ours, theirs = setting.interleaved(sparse, dense, rounds=5)
    return {
        "ms": 1e3 * ours,
        "dense_ms": 1e3 * theirs,
        "times_as_fast": theirs / ours,
        "peak_mib": peaks[0],
        "dense_peak_mib": peaks[1],
    }


def _passes(setting: Setting, variant: str, backend: str, length: int) -> ForwardBackward:
    layer = BenchCase(variant=variant, backend=backend, length=length, role="causal", precision="bf16")
    if reason := unsupported(layer, setting.device):
        raise UserError(reason)
    return ForwardBackward(layer, setting.device)


def several_cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size(WIDTHS, (32,)):
        yield Case(f"processes, width {width}", partial(processes, setting, width))


def summarize_several(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    found = []
    for case, row in rows.items():
        factors = [f"{value:.2f}" for name, value in row.items() if name.startswith("times")]
        found.append((case, f"{' / '.join(factors)} x one after another"))
    return found


def shared_configuration(setting: Setting, width: int) -> RunConfig:
    """Return a dense model that neither logs nor evaluates during the measurement."""
    rows, length = setting.size((16, 128), (2, 16))
    base: dict[str, Any] = {
        "task": {"name": "pydocs", "length": length},
        "position": "learned",
        "backend": "sdpa",
        "model": {"dim": width, "depth": 2, "heads": 4},
        "train": {"steps": 10**6, "batch_size": rows, "log_every": 10**6, "grad_clip": 1.0, "precision": "bf16"},
        "machine": {"threads": 1},
    }
    return setting.resolved(base)


def processes(setting: Setting, width: int) -> Values:
    """Return how many times as many steps a second several processes take on the card as one does."""
    config = shared_configuration(setting, width)
    rates = {}
    for number in setting.size((1, 2, 4, 8), (1, 2)):
        rate = steps_per_second(config, number, seconds=setting.size(1.0, 0.05))
        if rate is None:
            raise UserError(f"{number} processes: a run failed")
        rates[number] = rate
    return {"steps_per_s": rates[1], **{f"times_{number}": rate / rates[1] for number, rate in rates.items() if number > 1}}


def memory_cases(setting: Setting) -> Iterator[Case]:
    names = setting.size(tuple(CELLS), ("dense", "encoder_decoder"))
    yield from (Case(name, partial(compare_memory, setting, CELLS[name])) for name in names)


def summarize_memory(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    ratios = sorted((row["ratio"], case) for case, row in rows.items())
    (low, lowest), (high, highest) = ratios[0], ratios[-1]
    return [("estimate / measured", f"{low:.3f} ({lowest}) to {high:.3f} ({highest})")]


def memory_configuration(setting: Setting, changes: dict[str, Any]) -> RunConfig:
    """Return 12 blocks of width 256 with ``changes``, by dotted names."""
    base: dict[str, Any] = {
        "task": changes.get("task", {"name": "pydocs", "length": 256}),
        "position": changes.get("position", "rotary"),
        "model": {"dim": setting.size(256, 32), "depth": setting.size(12, 2), "heads": setting.size(8, 2)},
        "train": {"steps": 2, "batch_size": setting.size(64, 2), "precision": "bf16"},
    }
    if setting.rehearse:
        changes = {name: value for name, value in changes.items() if name != "train.batch_size"}
    for name, value in changes.items():
        if "." in name:
            section, _, field = name.partition(".")
            base[section][field] = value
        elif name == "backend":
            base["backend"] = value
    return setting.resolved(base, variant=changes.get("variant", "dense"))


def take_example_steps(config: RunConfig, number: int) -> None:
    """Take training steps on one micro-batch of full length, as the estimate of the memory assumes."""
    device, task = set_up_run(config), TASKS.get(config.task.name)(**config.task.options)
    model = build(config, task).to(device).train()
    optimizer, rows = build_optimizer(model, config.train), micro_batch(config)
    batch = model.example_batch(task, rows, device=device, padded=True)
    memory = full_memory(config, rows, like=next(model.parameters()))
    context = {"task": task, "config": config, "device": device, "group": Group()}
    for _ in range(number):
        optimizer.zero_grad()
        backward(model, RankBatch([batch], [1.0], batch.tokens), memory, **context)
        optimizer.step()


def compare_memory(setting: Setting, changes: dict[str, Any]) -> Values:
    """Return the estimate and the measured peak in MiB."""
    config = memory_configuration(setting, changes)
    estimate = cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    before = setting.allocated()
    take_example_steps(config, 2)  # the first one allocates the state of the optimizer
    measured = (setting.peak() - before) / MIB
    return {"backend": config.backend, "estimate_mib": estimate, "measured_mib": measured, "ratio": estimate / measured}

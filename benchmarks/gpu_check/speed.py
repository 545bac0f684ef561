"""Steps on the speed and the memory of a card.

- The card, the driver and the versions; the rates of matrix products and copies that other steps are compared with.
- The time of a training step beside a plain loop of PyTorch with the same model and scaled dot-product attention.
- Forward and backward passes of sparse attention in bf16, beside dense scaled dot-product attention, by length.
- What a card gains from several processes that share it.
- The plan's estimate of the memory of a training step, beside what two real steps allocate.
- The study ``ablations/enwik8-headline.yaml`` in the time that is left, with its curve; a later call continues it.
"""

from __future__ import annotations

import csv
import json
import platform
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab._util.machine import processors
from attnlab._version import __version__
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.extras.bench.layer import ForwardBackward, LayerConfig, unsupported
from attnlab.extras.tune import steps_per_second
from attnlab.registry import TASKS
from attnlab.training.cuda_memory import cuda_peak_mib
from attnlab.training.device import autocast, set_up_run
from attnlab.training.distributed import Group
from attnlab.training.example_step import ExampleStep, time_steps
from attnlab.training.train import train
from attnlab.training.trainer import Trainer
from benchmarks.gpu_check.runner import MIB, Case, Rows, Setting, Summary, Values

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

STEPS = 10_625  # of the study
SHARE = 0.75  # of the time for steps; the rest is for compilation and evaluation
CURVE = "headline.csv"


def card_cases(setting: Setting) -> Iterator[Case]:
    yield Case("versions", partial(versions, setting))
    yield from (Case(f"product {precision}", partial(product, setting, precision)) for precision in DTYPES)
    yield Case("copy", partial(copy, setting))


def summarize_card(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    seen = rows.get("versions", {})
    versions = [f"{name} {seen[name]}".removeprefix("card ") for name in ("card", "driver", "torch") if name in seen]
    rates = [f"{name.removeprefix('product ')} {row['tflops']:.3g}" for name, row in rows.items() if "tflops" in row]
    found = [("card", ", ".join(versions))] if versions else []
    found += [("products, TFLOP/s", ", ".join(rates))] if rates else []
    return found + [("copies, TB/s", f"{row['tb_per_s']:.3g}") for row in rows.values() if "tb_per_s" in row]


def versions(setting: Setting) -> Values:
    """Return the card, the driver, and the versions of what computes on it."""
    values = setting.card.describe() | {"python": platform.python_version(), "attnlab": __version__, "processors": processors()}
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


def copy(setting: Setting) -> Values:
    """Return the rate of a copy on the device in TB/s, of bytes that are read and written."""
    a = torch.zeros(setting.size(2**30, 2**10), device=setting.device)
    b = torch.empty_like(a)
    return {"tb_per_s": 2 * a.nbytes / setting.interleaved(lambda: b.copy_(a))[0] / 1e12}


def step_cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size((256, 768), (32,)):
        for mode in setting.size(tuple(MODES), ("fp32", "bf16")):
            yield Case(f"12 x {width}, {mode}", partial(compare_steps, setting, width, mode))


def summarize_steps(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    of_peak = {case: f"{row['share_of_peak']:.0%} of peak" for case, row in rows.items()}
    return [(case, f"{row['ms']:.3g} ms, {row['times_as_fast']:.2f} x plain, {of_peak[case]}") for case, row in rows.items()]


def compare_steps(setting: Setting, width: int, mode: str) -> Values:
    """Return the milliseconds of a step of attnlab, of plain PyTorch and of a peer, and the rate in tokens and FLOPs."""
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
    model = PlainModel(trainer.task.vocabulary, width=width, depth=depth, heads=heads).to(device)
    plain = plain_step(torch.compile(model) if compiled else model, rows, device=device, precision=precision)
    steps = [trainer.take_step, plain]
    if peer := peer_model(trainer.task.vocabulary, width=width, depth=depth, heads=heads):
        peer = peer.to(device)
        steps.append(plain_step(torch.compile(peer) if compiled else peer, rows, device=device, precision=precision))
    ours, theirs, *peers = setting.interleaved(*steps, least=0.2)
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
        **({"x_transformers_ms": 1e3 * peers[0]} if peers else {}),
        "backend": config.backend,
    }


class PlainModel(nn.Module):
    """A pre-norm language model as one writes it by hand: tokens (b, t) -> logits (b, t, vocabulary)."""

    def __init__(self, vocabulary: int, *, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(PlainBlock(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


class PlainBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (z.unflatten(-1, (self.heads, -1)).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm2(x))


def peer_model(vocabulary: int, *, width: int, depth: int, heads: int) -> nn.Module | None:
    """Return x-transformers' decoder of the same size, with its flash attention; None when it is not installed."""
    if find_spec("x_transformers") is None:
        return None
    library = import_module("x_transformers")
    layers = library.Decoder(dim=width, depth=depth, heads=heads, attn_dim_head=width // heads, attn_flash=True)
    model: nn.Module = library.TransformerWrapper(num_tokens=vocabulary, max_seq_len=LENGTH, attn_layers=layers)
    return model


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
        before = setting.card.allocated()
        passes()
        peaks.append((setting.card.peak() - before) / MIB)
    ours, theirs = setting.interleaved(sparse, dense, rounds=5)
    return {
        "ms": 1e3 * ours,
        "dense_ms": 1e3 * theirs,
        "times_as_fast": theirs / ours,
        "peak_mib": peaks[0],
        "dense_peak_mib": peaks[1],
    }


def _passes(setting: Setting, variant: str, backend: str, length: int) -> ForwardBackward:
    size = {"batch": 2, "dim": 256, "heads": 8, "precision": "bf16", "options": {}}
    layer = LayerConfig(variant=variant, backend=backend, length=length, role="causal", position="none", **size)
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
    yield from (Case(name, partial(compare_memory, setting, changes)) for name, changes in CELLS.items())


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


def compare_memory(setting: Setting, changes: dict[str, Any]) -> Values:
    """Return the estimate and the measured peak in MiB."""
    config = memory_configuration(setting, changes)
    estimate = cuda_peak_mib(config, TASKS.get(config.task.name)(**config.task.options))
    before = setting.card.allocated()
    step = ExampleStep(config)
    for _ in range(2):  # the first one allocates the state of the optimizer
        step.seconds()
    measured = (setting.card.peak() - before) / MIB
    return {"backend": config.backend, "estimate_mib": estimate, "measured_mib": measured, "ratio": estimate / measured}


def headline_cases(setting: Setting) -> Iterator[Case]:
    yield Case("bits per byte", partial(bits_per_byte, setting))


def summarize_headline(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    return [
        (f"{row['task']}, {row['steps']:,} of {row['of_steps']:,} steps", f"{row['bits_per_byte']:.4f} bits per byte")
        for row in rows.values()
        if "bits_per_byte" in row
    ]


def available_task(setting: Setting) -> str:
    """Return ``enwik8`` if its data can be prepared, else ``pydocs``, which needs no download."""
    if setting.rehearse:
        return "pydocs"
    try:
        TASKS.get("enwik8")().prepare()
    except (UserError, OSError):
        return "pydocs"
    return "enwik8"


def headline_configuration(setting: Setting, task: str, steps: int) -> RunConfig:
    """Return the study's configuration with fewer steps."""
    base: dict[str, Any] = {
        "task": {"name": task, "length": setting.size(256, 16)},
        "position": "rotary",
        "model": {"dim": setting.size(256, 16), "depth": setting.size(12, 1), "heads": setting.size(8, 2)},
        "train": {
            "steps": steps,
            "batch_size": setting.size(512, 2),
            "lr": 2e-3,
            "warmup": min(500, steps // 10),
            "final_lr": 0.05,
            "weight_decay": 0.05,
            "precision": setting.size("bf16", "fp32"),
            "compile": not setting.rehearse,
            "eval_every": max(1, steps // 4),
            "checkpoint_every": max(1, steps // 8),
            "log_every": setting.size(25, 2),
        },
        "evaluate": {
            "protocol": "sliding",
            "stride": 16,
            "batch_size": setting.size(512, 16),
            "valid_limit": setting.size(500_000, 500),
            "test_limit": setting.size(None, 500),
        },
        "machine": {"matmul_precision": "high"},
    }
    return setting.resolved(base)


def bits_per_byte(setting: Setting) -> Values:
    """Train and return bits per byte on ``test``, the steps and the seconds."""
    began = time.perf_counter()
    folder, plan_file = setting.folder / "headline", setting.folder / "headline.json"
    if plan_file.exists():
        known = json.loads(plan_file.read_text(encoding="utf-8"))
        task, steps = known["task"], known["steps"]
    else:
        task = available_task(setting)
        taken, seconds, _ = time_steps(
            headline_configuration(setting, task, STEPS), seconds=setting.size(5.0, 0.1), ready=lambda: None
        )
        left = setting.seconds - (time.perf_counter() - began)
        steps = setting.size(max(100, min(STEPS, int(SHARE * left * taken / seconds))), 8)
        plan_file.write_text(json.dumps({"task": task, "steps": steps, "seconds_per_step": seconds / taken}), encoding="utf-8")
    config = headline_configuration(setting, task, steps)
    with (setting.folder / CURVE).open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["step", "seconds", "metric", "value"])

        def report(step: int, metrics: dict[str, float]) -> bool:
            for name, value in metrics.items():
                rows.writerow([step, f"{time.perf_counter() - began:.1f}", name, value])
            file.flush()
            return False

        result = train(config, report=report, folder=folder)
    kept = ("bits_per_byte", "valid_bits_per_byte", "train_seconds", "evaluation_seconds", "tokens_per_s", "gpu_peak_mib")
    summary = {name: result.summary[name] for name in kept if name in result.summary}
    return {"task": config.task.name, "ended": result.state, "steps": steps, "of_steps": STEPS, **summary}

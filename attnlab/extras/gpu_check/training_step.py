"""The time of a training step beside a plain loop of PyTorch with the same model and scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.extras.gpu_check import card
from attnlab.extras.gpu_check.step import Case, Rows, Setting, Summary, Values
from attnlab.training.device import autocast, set_up_run
from attnlab.training.distributed.group import Group
from attnlab.training.trainer import Trainer

LENGTH, HEAD_WIDTH = 256, 64
MODES = {  # name -> precision, products, compiled
    "fp32": ("fp32", "highest", False),
    "tf32": ("fp32", "high", False),
    "bf16": ("bf16", "high", False),
    "bf16 compiled": ("bf16", "high", True),
}


def cases(setting: Setting) -> Iterator[Case]:
    for width in setting.size((256, 768), (32,)):
        for mode in setting.size(tuple(MODES), ("fp32", "bf16")):
            yield Case(f"12 x {width}, {mode}", partial(compare, setting, width, mode))


def summarize(rows: Rows) -> Summary:
    """Return the step's rows of the table."""
    of_peak = {case: f"{row['share_of_peak']:.0%} of peak" for case, row in rows.items()}
    return [(case, f"{row['ms']:.3g} ms, {row['times_as_fast']:.2f} x plain, {of_peak[case]}") for case, row in rows.items()]


def compare(setting: Setting, width: int, mode: str) -> Values:
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
    ours, theirs, *peers = setting.interleaved(steps, least=0.2)
    torch.set_float32_matmul_precision(products)
    rate = rows * LENGTH / ours
    flops = 3 * trainer.fixed_costs["flops_per_token"] * rate
    peak = card.product(setting, "tf32" if mode == "tf32" else precision)["tflops"]
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

"""Train one run of a peer: ``python -m benchmarks.verdict.script PEER RUN.json OUT.json``.

A plain loop with the data, batches, learning rates, clipping and evaluations of attnlab's run. It prints the training loss
and writes the scores.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.tasks.base import Batch
from benchmarks.verdict.plain import SPARSE, LanguageModel, attention, sparse_mask

PLAIN, X_TRANSFORMERS = "plain PyTorch", "x-transformers"
Config = Mapping[str, Any]  # the fields of a resolved RunConfig


class XTransformers(nn.Module):
    """x-transformers' decoder for a cell: pre-norm, GELU, learned positions, its attention by PyTorch's fused kernel.

    It has no attention without output projection, with narrow projections or without projections. For these cells it is its
    standard attention with the cell's number of heads, and with the head width that brings its number of parameters nearest to
    the cell's.
    """

    mask: Tensor | None

    def __init__(self, config: Config, vocabulary: int) -> None:
        super().__init__()
        from x_transformers import Decoder, TransformerWrapper  # pyright: ignore[reportMissingImports]

        dim, depth, heads = (config["model"][name] for name in ("dim", "depth", "heads"))
        length, options = config["task"]["length"], dict(config["variant"])
        variant = options.pop("name")
        layers = Decoder(dim=dim, depth=depth, heads=heads, attn_dim_head=head_width(config), attn_flash=True)
        self.model = TransformerWrapper(num_tokens=vocabulary, max_seq_len=length, attn_layers=layers)
        mask = sparse_mask(variant, heads=heads, length=length, **options) if variant in SPARSE else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (b, t) to logits (b, t, vocabulary) of the next ones."""
        t = tokens.shape[1]
        return self.model(tokens) if self.mask is None else self.model(tokens, attn_mask=self.mask[:, :t, :t])


def head_width(config: Config) -> int:
    """Return the width of the heads that gives standard attention about as many parameters as the cell's."""
    dim, heads = config["model"]["dim"], config["model"]["heads"]
    return max(1, round(parameters(attention(config)) / (4 * dim * heads)))


PEERS: dict[str, Callable[[Config, int], nn.Module]] = {X_TRANSFORMERS: XTransformers, PLAIN: LanguageModel}


def parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in model.parameters())


def task_of(config: Config) -> Task:
    """Return the task of a configuration."""
    options = dict(config["task"])
    return TASKS.get(options.pop("name"))(**options)


def train(model: nn.Module, task: Task, config: Config) -> dict[str, float]:
    """Train a model, and return its bits per byte on ``valid`` and ``test``.

    Args:
        model: maps tokens (b, t) to logits (b, t, vocabulary).
        config: the fields of a resolved ``RunConfig``.
    """
    settings, limits = config["train"], config["evaluate"]
    optimizer = optimizer_of(model, settings)
    every, valid = settings["eval_every"] or settings["steps"], math.nan
    for step in range(settings["steps"]):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        batch = task.train_batch(step, seed=config["seed"], batch_size=settings["batch_size"])
        loss = train_step(model, optimizer, batch, settings)
        if (step + 1) % settings["log_every"] == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
        if (step + 1) % every == 0 or step + 1 == settings["steps"]:
            valid = evaluate(model, task, config, "valid", limit=limits["sample"] or limits["valid_limit"])
            print(f"step {step + 1}: {valid:.4f} bits per byte of valid", flush=True)
    if limits["sample"]:
        valid = evaluate(model, task, config, "valid", limit=limits["valid_limit"])
    return {"valid": valid, "test": evaluate(model, task, config, "test", limit=limits["test_limit"])}


def optimizer_of(model: nn.Module, settings: Config) -> torch.optim.AdamW:
    """Return the optimiser of a model, with weight decay of its matrices."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=tuple(settings["betas"]), fused=True)


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, settings: Config) -> Tensor:
    """Take a training step on a batch, and return its loss."""
    loss = F.cross_entropy(model(batch.inputs).flatten(0, 1), batch.targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), settings["grad_clip"])
    optimizer.step()
    optimizer.zero_grad()
    return loss


def evaluate(model: nn.Module, task: Task, config: Config, split: str, *, limit: int | None) -> float:
    """Return the bits per byte of ``valid`` or ``test``, or of ``limit`` bytes of it."""
    options, nats, count = config["evaluate"], 0.0, 0
    rows = options["batch_size"] or config["train"]["batch_size"]
    protocol = {"protocol": options["protocol"], "stride": options["stride"]}
    model.eval()
    with torch.inference_mode():
        for batch in task.eval_batches(split, batch_size=rows, limit=limit, **protocol):
            logits = model(batch.inputs).flatten(0, 1)
            nats += F.cross_entropy(logits, batch.targets.flatten(), reduction="sum").item()
            count += int((batch.targets >= 0).sum())
    model.train()
    return nats / math.log(2) / count


def learning_rate(step: int, settings: Mapping[str, Any]) -> float:
    """Return the learning rate of a step: a linear warm-up, then half a cosine."""
    warmup, total = settings["warmup"], settings["steps"]
    if step < warmup:
        return settings["lr"] * (step + 1) / warmup
    progress = (step - warmup) / (total - warmup)
    return settings["lr"] * (settings["final_lr"] + (1 - settings["final_lr"]) * (1 + math.cos(math.pi * progress)) / 2)


def main(peer: str, source: Path, out: Path) -> None:
    """Train a run and write its scores."""
    config = json.loads(source.read_text(encoding="utf-8"))
    task = task_of(config)
    torch.manual_seed(config["seed"])
    model = PEERS[peer](config, task.vocabulary)
    scores = train(model, task, config)
    out.write_text(json.dumps({**scores, "parameters": parameters(model)}), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))

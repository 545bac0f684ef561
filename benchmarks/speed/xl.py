"""Section ``xl``: Transformer-XL, one layer of it against the original, and evaluation with memory against sliding windows.

The original is the port of the authors' code that ``transformers`` shipped until 4.57: the same ``RelPartialLearnable...``
modules, relative shift by padding and copying, logits laid out (t, s, b, h). It receives position embeddings and a mask,
because its model makes them once for all layers; attnlab's layer makes its own.
"""

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.config.run import MachineConfig
from attnlab.models.block import Block
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training import device as machine
from attnlab.training.evaluate import evaluate
from benchmarks.speed import attnlab_step
from benchmarks.speed.case import EQUAL, OURS, PRECISIONS, SHIPPED, Case, Row, Size, check_finite, own_settings, timed

ORIGINAL = "original"
ATTENTION, LAYER = "attention", "layer"
MEMORY, SLIDING = "transformer_xl, memory", "dense, sliding by 1"
WINDOWS = {256: 128, 1024: 32, 3840: 4}  # context -> sliding windows that are timed
ROWS = 4  # rows that are read in parallel with memory, few enough that their logits stay small
RECURRENT: dict[str, Any] = {"variant": "transformer_xl", "position": "relative", "task__sampling": "contiguous"}
Layer = Callable[[Tensor, Tensor], Tensor]  # x (b, t, dim), memory (b, m, dim) -> (b, t, dim)


def cases(device: str) -> Iterator[Case]:
    """Yield layers in both precisions and settings, then evaluation at each context."""
    for part in (ATTENTION, LAYER):
        for precision in PRECISIONS:
            for settings in (SHIPPED, EQUAL):
                yield from (Case("xl", name, part, precision, settings, device) for name in (OURS, ORIGINAL))
    for context in WINDOWS:
        yield from (Case("xl", name, f"context {context}", "fp32", EQUAL, device) for name in (MEMORY, SLIDING))


def measure(case: Case, size: Size | None = None) -> list[Row]:
    """Measure forward and backward of a layer, or bytes/s of an evaluation."""
    size = size or Size()
    if case.part not in (ATTENTION, LAYER):
        return _evaluation(case, size, int(case.part.split()[1]))
    as_is = case.name == ORIGINAL and case.settings == SHIPPED
    machine.set_up(MachineConfig(device=case.device, **({} if as_is else own_settings(case))))
    block = _block(case, size)
    module, layer = (block, _ours(block, case.part)) if case.name == OURS else _original(block, case, size)
    rows = _train(layer, module, case, size)
    if case.name == ORIGINAL:
        rows.append(Row("difference", "", _difference(block, case, size)))
    return rows


def _block(case: Case, size: Size) -> Block:
    """Return attnlab's block, with the original's activation."""
    xl: dict[str, Any] = {"model__depth": 1, "model__mem_len": size.memory, "model__feed_forward": "relu"}
    config = attnlab_step.config(case, size, **RECURRENT, **xl)
    block = build(config, TASKS.get("pydocs")(**config.task.options)).stacks[0][0]
    assert isinstance(block, Block)
    return block.to(case.device)


def _ours(block: Block, part: str) -> Layer:
    def attention(x: Tensor, memory: Tensor) -> Tensor:
        context = block.norm_attention(torch.cat([memory, x], dim=1))
        return x + block.attention(context[:, -x.shape[1] :], context=context)

    return attention if part == ATTENTION else lambda x, memory: block(x, memory, None)


def _original(block: Block, case: Case, size: Size) -> tuple[nn.Module, Layer]:
    """Return the original's attention or whole layer, with the weights of ``block``, on tensors in its order (t, b, dim)."""
    from transformers.models.deprecated.transfo_xl import (  # pyright: ignore[reportMissingImports]
        modeling_transfo_xl as original,
    )

    dim, heads, d = size.dim, size.heads, size.dim // size.heads
    layer = original.RelPartialLearnableDecoderLayer(heads, dim, d, 4 * dim, 0.0, pre_lnorm=True).to(case.device)
    _copy(block, layer)
    t, s = size.length, size.memory + size.length
    distances = torch.arange(s - 1, -1, -1.0, device=case.device)
    r = original.PositionalEmbedding(dim).to(case.device)(distances)
    mask = torch.triu(torch.ones(t, s, dtype=torch.bool, device=case.device), diagonal=1 + size.memory)[:, :, None]
    part = layer.dec_attn if case.part == ATTENTION else layer

    def call(x: Tensor, memory: Tensor) -> Tensor:
        return part(x.transpose(0, 1), r, mask, memory.transpose(0, 1))[0].transpose(0, 1)

    return part, call


def _copy(block: Block, layer: nn.Module) -> None:
    """Give the original the weights of ``block``. Its sinusoids have all sines first; attnlab's alternate with the cosines."""
    own = {name: p.detach().clone() for name, p in block.named_parameters()}
    width = own["attention.position.distance.weight"].shape[1]
    order = [*range(0, width, 2), *range(1, width, 2)]
    names = {
        "dec_attn.qkv_net.weight": own["attention.project.weight"],
        "dec_attn.o_net.weight": own["attention.out.weight"],
        "dec_attn.r_net.weight": own["attention.position.distance.weight"][:, order],
        "dec_attn.r_w_bias": own["attention.position.u"],
        "dec_attn.r_r_bias": own["attention.position.v"],
    }
    for theirs, mine in (("dec_attn.layer_norm", "norm_attention"), ("pos_ff.layer_norm", "norm_feed_forward")):
        names |= {f"{theirs}.{kind}": own[f"{mine}.{kind}"] for kind in ("weight", "bias")}
    for theirs, mine in (("pos_ff.CoreNet.0", "feed_forward.widen"), ("pos_ff.CoreNet.3", "feed_forward.narrow")):
        names |= {f"{theirs}.{kind}": own[f"{mine}.{kind}"] for kind in ("weight", "bias")}
    layer.load_state_dict(names)


def _difference(block: Block, case: Case, size: Size) -> float:
    """Return the largest difference between the outputs of the original and of ``block`` with equal weights."""
    x, memory, _ = _tensors(case, size)
    with torch.no_grad():
        for name in ("u", "v"):
            block.get_parameter(f"attention.position.{name}").normal_()
        mine = _ours(block, case.part)(x, memory)
        return float((_original(block, case, size)[1](x, memory) - mine).abs().max())


def _tensors(case: Case, size: Size) -> tuple[Tensor, Tensor, Tensor]:
    """Return random x, memory and target."""
    torch.manual_seed(0)
    lengths = (size.length, size.memory, size.length)
    x, memory, wanted = (torch.randn(size.batch, n, size.dim, device=case.device) for n in lengths)
    return x, memory, wanted


def _train(layer: Layer, module: nn.Module, case: Case, size: Size) -> list[Row]:
    """Time forward and backward, including the input's gradient; the weights are updated between steps, untimed."""
    x, memory, wanted = _tensors(case, size)
    x.requires_grad_()
    adamw = torch.optim.AdamW(module.parameters(), lr=size.lr)

    def step() -> Tensor:
        with machine.autocast(torch.device(case.device), case.precision):
            loss = F.mse_loss(layer(x, memory).float(), wanted)
        loss.backward()
        return loss

    def move() -> None:
        adamw.step()
        adamw.zero_grad()
        x.grad = None

    return timed(step, case, size=size, after=move)


def _evaluation(case: Case, size: Size, context: int) -> list[Row]:
    """Time predicting every byte from at least ``context`` preceding bytes (fewer at the start of rows with memory)."""
    if case.name == MEMORY:
        rows = max(1, min(ROWS, 4096 // context))
        changes = {**RECURRENT, "model__mem_len": context, "evaluate__batch_size": rows}
        few, many = rows * size.length, None
    else:
        rows = max(1, 8192 // context)
        changes = {"task__length": context, "evaluate__protocol": "sliding", "evaluate__stride": 1}
        changes |= {"evaluate__batch_size": rows}
        few, many = context + 1, context + WINDOWS[context]
    config = attnlab_step.config(case, size, **changes)
    device = machine.set_up(config.machine)
    task = TASKS.get("pydocs")(**config.task.options)
    model = build(config, task).to(device)
    # A window counts one byte: the others of the first window are predicted only once.
    predicted = WINDOWS[context] if many else len(task.split("valid")) - 1
    for limit in (few, many):  # the first warms up
        limited = config.replace({"evaluate.valid_limit": limit})
        began = perf_counter()
        # This waits for the device, because it copies the scores back.
        scores = evaluate(model, task, "valid", config=limited, device=device)
        seconds = perf_counter() - began
    check_finite(scores["bits_per_byte"], case)
    return [Row("seconds", "", seconds), Row("bytes", "", predicted), Row("bytes_per_s", "", predicted / seconds)]

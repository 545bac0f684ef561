"""Section ``floor``: rates of matrix products at the step's shapes, which bound the time of a step from below."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from attnlab.config.run import MachineConfig
from attnlab.registry import TASKS
from attnlab.training import costs
from attnlab.training import device as machine
from benchmarks.speed import attnlab_step
from benchmarks.speed.case import OURS, PRECISIONS, Case, Row, Size, median_ms, timed

VOCABULARY = 256
WAYS = (("fp32", "highest"), ("fp32", "medium"), ("bf16", "medium"))  # precision, matmul_precision


@dataclass(frozen=True)
class Product:
    """``batch`` products of (m, k) by (k, n), taken ``count`` times in a forward pass."""

    name: str
    batch: int
    m: int
    k: int
    n: int
    count: int

    @property
    def gflop(self) -> float:
        """GFLOP of one product."""
        return 2e-9 * self.batch * self.m * self.k * self.n


def products(size: Size) -> list[Product]:
    """Return all matrix products of a forward pass of dense attention."""
    tokens, dim, t, d = size.batch * size.length, size.dim, size.length, size.dim // size.heads
    pairs, depth = size.batch * size.heads, size.depth
    return [
        Product("queries, keys, values", 1, tokens, dim, 3 * dim, depth),
        Product("logits", pairs, t, d, t, depth),
        Product("weights by values", pairs, t, t, d, depth),
        Product("attention's output", 1, tokens, dim, dim, depth),
        Product("widen", 1, tokens, dim, 4 * dim, depth),
        Product("narrow", 1, tokens, 4 * dim, dim, depth),
        Product("head", 1, tokens, dim, VOCABULARY, 1),
    ]


def cases(device: str) -> Iterator[Case]:
    """Yield the rates, each in a process of its own, and attnlab's step."""
    yield from (Case("floor", "products", way, precision, way, device) for precision, way in WAYS)
    yield from (Case("floor", OURS, "medium", precision, "medium", device) for precision in PRECISIONS)


def measure(case: Case, size: Size | None = None) -> list[Row]:
    """Measure milliseconds and GFLOP of ``products``, forward and backward, or attnlab's step and its GFLOP."""
    size = size or Size()
    if case.name == OURS:
        config = attnlab_step.config(case, size)
        figures = costs.plan_figures(config, TASKS.get(config.task.name)(**config.task.options))
        forward = 1e-9 * figures["flops_per_token"] * size.batch * size.length
        return [Row("forward_gflop", "", forward), *timed(attnlab_step.stepper(attnlab_step.training(config)), case, size=size)]
    device = machine.set_up(MachineConfig.model_validate({"device": case.device, "matmul_precision": case.settings}))
    rows = []
    for product in products(size):
        rows.append(Row("gflop", product.name, product.gflop))
        rows.append(Row("count", product.name, product.count))
        for item, act in three(product, device, torch.float32 if case.precision == "fp32" else torch.bfloat16).items():
            rows.append(Row("ms", f"{product.name}: {item}", median_ms(act, device)))
    return rows


def three(product: Product, device: torch.device, kind: torch.dtype) -> dict[str, Callable[[], torch.Tensor]]:
    """Return a product as in a forward pass, with a transposed right factor, and the two products of its backward pass."""
    b, m, k, n = product.batch, product.m, product.k, product.n
    left, right, grad = (torch.randn(b, *shape, device=device).to(kind) for shape in ((m, k), (n, k), (m, n)))
    if b == 1:
        left, right, grad = left[0], right[0], grad[0]
    return {
        "forward": lambda: left @ right.mT,
        "gradient of the left": lambda: grad @ right,
        "gradient of the right": lambda: grad.mT @ left,
    }

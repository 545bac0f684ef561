"""The chunked recurrences against the same recurrences step by step: lengths around a chunk, decays, precisions, cost."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.nn.linear_attention import CHUNK, delta_rule, linear_attention, sum_over_keys
from attnlab.training.costs import count_flops
from tests.oracles import linear_attention as paper

LENGTHS = (1, 2, 3, 31, 61, CHUNK - 1, CHUNK, CHUNK + 1, 131)
B, H, D, E = 2, 3, 5, 7


def draw(s: int, t: int | None = None, *, decay_width: int = 1, strength: float = 1.0) -> list[Tensor]:
    """Return q, k of length 1, v, beta and log decays in float64, leaves of a graph."""
    generator = torch.Generator().manual_seed(s)

    def normal(*shape: int) -> Tensor:
        return torch.randn(B, H, *shape, dtype=torch.float64, generator=generator)

    k = F.normalize(normal(s, D), dim=-1)
    beta = 2 * torch.rand(B, H, s, 1, dtype=torch.float64, generator=generator)
    log_decay = -strength * normal(s, decay_width).abs()
    tensors = [normal(s if t is None else t, D), k, normal(s, E), beta, log_decay]
    return [tensor.requires_grad_() for tensor in tensors]


def step_by_step(q: Tensor, k: Tensor, v: Tensor, beta: Tensor | None, log_decay: Tensor) -> Tensor:
    """Return the outputs of each row and head from the recurrence of the papers; without ``beta``, that of linear attention."""
    rows = []
    for b in range(B):
        heads = []
        for h in range(H):
            decay = log_decay[b, h].exp()
            after = paper.decayed(k[b, h], v[b, h], decay) if beta is None else paper.delta(k[b, h], v[b, h], beta[b, h], decay)
            heads.append(paper.outputs(q[b, h], after))
        rows.append(torch.stack(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("rule", ["heads decay", "channels decay", "delta", "channels delta"])
@pytest.mark.parametrize(("s", "t"), [*((s, s) for s in LENGTHS), (131, 61), (97, 1), (CHUNK + 1, 1), (2 * CHUNK, CHUNK)])
def test_chunks_give_the_recurrence_and_its_gradients(rule: str, s: int, t: int) -> None:
    """Queries may cover the last t of s positions, as after a memory."""
    q, k, v, beta, log_decay = draw(s, t, decay_width=D if rule.startswith("channels") else 1)
    inputs = [q, k, v, log_decay, *([beta] if rule.endswith("delta") else [])]
    expected = step_by_step(q, k, v, beta if rule.endswith("delta") else None, log_decay)
    y, _ = delta_rule(q, k, v, beta, log_decay) if rule.endswith("delta") else linear_attention(q, k, v, log_decay)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-10)
    weights = torch.randn_like(y)
    for ours, theirs in zip(
        torch.autograd.grad((y * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rule", ["heads decay", "channels decay", "delta", "channels delta"])
def test_a_state_continues_a_sequence(rule: str) -> None:
    q, k, v, beta, log_decay = draw(131, decay_width=D if rule.startswith("channels") else 1)
    gates = (beta, log_decay) if rule.endswith("delta") else (log_decay,)
    run = delta_rule if rule.endswith("delta") else linear_attention
    whole, last = run(q, k, v, *gates)
    parts, state = [], None
    for start, end in itertools.pairwise((0, 1, 67, 70, 131)):
        part = slice(start, end)
        y, state = run(*(z[:, :, part] for z in (q, k, v, *gates)), state=state)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=2), whole)
    torch.testing.assert_close(state, last)


def test_no_decay_is_the_sum_over_all_keys_at_the_last_position() -> None:
    q, k, v, _, _ = draw(131)
    y, state = linear_attention(q, k, v)
    all_keys, total = sum_over_keys(q, k, v)
    torch.testing.assert_close(y[:, :, -1], all_keys[:, :, -1])
    torch.testing.assert_close(state, total)
    more, _ = sum_over_keys(q, k[:, :, :0], v[:, :, :0], state=total)
    torch.testing.assert_close(more, all_keys)


@pytest.mark.parametrize("decay_width", [1, D])
@pytest.mark.parametrize("strength", [1e-3, 1.0, 30.0, 1e3])
def test_weak_and_strong_decays_are_exact_in_float32(decay_width: int, strength: float) -> None:
    """Over a chunk, a decay of e^-1000 a position leaves the range of float32 by far."""
    tensors = draw(131, decay_width=decay_width, strength=strength)
    q, k, v, _, log_decay = (z.detach().float().requires_grad_() for z in tensors)
    y, _ = linear_attention(q, k, v, log_decay)
    exact, _ = linear_attention(*(z.double() for z in (q, k, v, log_decay)))
    assert (y - exact).abs().max() <= 2e-4 * exact.abs().max()
    gradients = torch.autograd.grad(y.square().sum(), [q, k, v, log_decay])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_a_long_sequence_with_negative_eigenvalues_stays_accurate_in_float32() -> None:
    """With beta = 2 and no decay the transitions are reflections: a state neither grows nor shrinks."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 2048, D, generator=generator).unbind()
    k, v = F.normalize(k, dim=-1), v * (torch.arange(2048) < 5)[:, None]
    beta = torch.full((1, 2, 2048, 1), 2.0)
    y, state = delta_rule(q, k, v, beta)
    exact, _ = delta_rule(*(z.double() for z in (q, F.normalize(k.double(), dim=-1), v, beta)))
    assert (y - exact).abs().max() <= 1e-3 * exact.abs().max()
    written = delta_rule(q[:, :, :5], k[:, :, :5], v[:, :, :5], beta[:, :, :5])[1]
    torch.testing.assert_close(state.norm(dim=(-2, -1)), written.norm(dim=(-2, -1)), rtol=1e-3, atol=0)


@pytest.mark.parametrize("autocast", [False, True])
def test_bf16_is_accumulated_in_float32(autocast: bool) -> None:
    """A sum of 4,001 ones is exact; bf16 would end at 256."""
    n, dtype = 4001, torch.float32 if autocast else torch.bfloat16
    ones = torch.ones(1, 1, n, 1, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y, state = linear_attention(ones, ones, ones)
    assert y.dtype == dtype and state.dtype == torch.float32
    assert state.item() == n
    torch.testing.assert_close(y.flatten().float(), torch.arange(1.0, n + 1), rtol=2**-8, atol=0)


@pytest.mark.parametrize("rule", ["heads decay", "channels decay", "delta", "channels delta"])
def test_operations_grow_linearly(rule: str) -> None:
    """On the meta device, as the plan counts them. The triangular system is part of them."""

    def flops(s: int) -> int:
        d = 16
        q, k, v, channels = (torch.empty(1, 2, s, d, device="meta") for _ in range(4))
        gate = torch.empty(1, 2, s, 1, device="meta")
        if rule.endswith("delta"):
            return count_flops(lambda: delta_rule(q, k, v, gate, channels if rule == "channels delta" else gate))
        return count_flops(lambda: linear_attention(q, k, v, gate if rule == "heads decay" else channels))

    assert math.isclose(flops(4096), 8 * flops(512), rel_tol=1e-9)
    if rule.endswith("delta"):
        assert flops(CHUNK) > 2 * CHUNK**2 * 32  # the system alone: two heads, 32 right sides of 64 numbers

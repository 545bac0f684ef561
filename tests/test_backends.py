"""Backends compute the same function; where one cannot run, it says so."""

import itertools

import pytest
import torch
from torch import Tensor

from attnlab.backends import attend, resolve, unavailable

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


def tensors(t: int, s: int, *, dtype: torch.dtype = torch.float64, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(5)
    shapes = [(2, 3, t, 8), (2, 3, s, 8), (2, 3, s, 16)]
    return [torch.randn(*shape, dtype=torch.float64).to(device, dtype).requires_grad_() for shape in shapes]


def masks(t: int, s: int, *, device: str = "cpu") -> dict[str, Tensor | None]:
    padded = torch.ones(2, 1, 1, s, dtype=torch.bool, device=device)
    padded[0, ..., s // 2 :] = False
    return {"none": None, "padding": padded}


CASES = list(itertools.product([(7, 7), (5, 11)], [False, True], ["none", "padding"], [False, True]))


@pytest.mark.parametrize(("sizes", "causal", "mask", "biased"), CASES)
def test_sdpa_equals_reference_with_its_gradients(sizes: tuple[int, int], causal: bool, mask: str, biased: bool) -> None:
    t, s = sizes
    torch.manual_seed(1)
    bias = torch.randn(3, t, s, dtype=torch.float64, requires_grad=True) if biased else None
    outcome = []
    for backend in ("reference", "sdpa"):
        q, k, v = tensors(t, s)
        y = attend(q, k, v, backend=backend, causal=causal, allowed=masks(t, s)[mask], bias=bias)
        leaves = [q, k, v] + ([bias] if bias is not None else [])
        outcome.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)])
    for one, other in zip(*outcome, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_a_query_that_sees_nothing_yields_zeros(backend: str) -> None:
    q, k, v = tensors(5, 5)
    allowed = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    allowed[1] = False
    y = attend(q, k, v, backend=backend, allowed=allowed)
    assert (y[1] == 0).all() and (y[0] != 0).all()
    y.sum().backward()
    assert all(z.grad is not None and z.grad.isfinite().all() for z in (q, k, v))


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_queries_end_where_keys_end(backend: str) -> None:
    q, k, v = tensors(3, 8)
    q.data.zero_()  # all visible keys weigh the same
    y = attend(q, k, v, backend=backend, causal=True)
    torch.testing.assert_close(y[:, :, 0], v[:, :, :6].mean(2))
    torch.testing.assert_close(y[:, :, 2], v.mean(2))


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_dropout_keeps_the_expectation(backend: str) -> None:
    torch.manual_seed(0)
    q, k, v = (z.detach() for z in tensors(4, 6))
    without = attend(q, k, v, backend=backend)
    samples = torch.stack([attend(q, k, v, backend=backend, dropout=0.3) for _ in range(4000)])
    assert not torch.allclose(samples[0], samples[1])
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - without).abs() < 5 * error + 1e-9).all()


def test_bf16_is_close_to_float64() -> None:
    exact = attend(*tensors(9, 9), causal=True)
    for backend in ("reference", "sdpa"):
        rough = attend(*tensors(9, 9, dtype=torch.bfloat16), backend=backend, causal=True)
        torch.testing.assert_close(rough.double(), exact, rtol=0.05, atol=0.05)


def test_xformers_says_why_it_cannot_run_here() -> None:
    assert unavailable("xformers", "cpu") == "backend xformers needs a CUDA device (its attention has no operator for cpu)"
    assert unavailable("sdpa", "cpu") is None and unavailable("reference", "cuda") is None


@pytest.mark.parametrize(
    ("device", "length", "hook", "dropout", "offered", "expected"),
    [
        ("cpu", 256, "embed", 0.0, ("reference", "sdpa"), "reference"),
        ("cpu", 1024, "embed", 0.0, ("reference", "sdpa"), "sdpa"),
        ("cpu", 1024, "embed", 0.1, ("reference", "sdpa"), "reference"),
        ("cpu", 1024, "bias", 0.0, ("reference", "sdpa"), "reference"),
        ("cuda", 256, "rotate", 0.1, ("reference", "sdpa"), "sdpa"),
        ("cuda", 256, "rotate", 0.0, ("reference",), "reference"),
    ],
)
def test_auto_is_resolved_by_rule(
    device: str, length: int, hook: str, dropout: float, offered: tuple[str, ...], expected: str
) -> None:
    assert resolve(device, length=length, hook=hook, dropout=dropout, offered=offered) == expected


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("sizes", "causal", "mask", "biased"), CASES)
def test_xformers_equals_reference(
    sizes: tuple[int, int], causal: bool, mask: str, biased: bool, dtype: torch.dtype, device: str
) -> None:
    t, s = sizes
    bias = torch.randn(3, t, s, device=device, dtype=dtype) if biased else None
    allowed = masks(t, s, device=device)[mask]
    q, k, v = tensors(t, s, dtype=dtype, device=device)
    y = attend(q, k, v[..., :8], backend="xformers", causal=causal, allowed=allowed, bias=bias)
    exact = attend(*(z.double() for z in (q, k, v[..., :8])), causal=causal, allowed=allowed, bias=bias)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(y.double(), exact, rtol=tolerance, atol=tolerance)

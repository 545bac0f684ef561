"""All backends compute the same function; one that cannot run gives the reason."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from attnlab.nn import blocked
from attnlab.nn.attention import BACKENDS, AttentionMask, RelativeLogits, attend, resolve_backend, unsupported
from attnlab.nn.layers import relative_shift

HERE = ("reference", "blocked", "sdpa")  # the backends that run on a CPU
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


@pytest.mark.parametrize("other", ["blocked", "sdpa"])
@pytest.mark.parametrize(("sizes", "causal", "mask", "biased"), CASES)
def test_backends_equal_reference_with_their_gradients(
    other: str, sizes: tuple[int, int], causal: bool, mask: str, biased: bool, small_blocks: None
) -> None:
    t, s = sizes
    torch.manual_seed(1)
    bias = torch.randn(3, t, s, dtype=torch.float64, requires_grad=True) if biased else None
    results = []
    for backend in ("reference", other):
        q, k, v = tensors(t, s)
        y = attend(q, k, v, AttentionMask(causal=causal, attn_mask=masks(t, s)[mask]), bias, backend=backend)
        leaves = [q, k, v] + ([bias] if bias is not None else [])
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("sizes", "causal", "mask", "biased"), CASES)
def test_xformers_computes_the_same(
    sizes: tuple[int, int], causal: bool, mask: str, biased: bool, xformers_on_cpu: list[str]
) -> None:
    t, s = sizes
    bias = torch.randn(3, t, s, dtype=torch.float64) if biased else None
    expected, actual = (
        attend(*tensors(t, s), mask=AttentionMask(causal=causal, attn_mask=masks(t, s)[mask]), bias=bias, backend=backend)
        for backend in ("reference", "xformers")
    )
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "mask",
    [
        AttentionMask(),
        AttentionMask(causal=True),
        AttentionMask(causal=True, window=3),
        AttentionMask(attn_mask=masks(7, 7)["padding"]),
    ],
)
def test_xformers_gets_the_dtype_of_the_values(mask: AttentionMask, xformers_on_cpu: list[str]) -> None:
    q, k, v = (z.detach() for z in tensors(7, 7, dtype=torch.float32))
    rough = attend(q, k, v.bfloat16(), mask, backend="xformers")  # the dtypes under autocast after q and k are normalized
    assert rough.dtype == torch.bfloat16
    torch.testing.assert_close(rough.float(), attend(q, k, v, mask), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("window", [1, 3, 20])
@pytest.mark.parametrize("backend", [*HERE, "xformers"])
@pytest.mark.parametrize(("sizes", "mask"), itertools.product([(7, 7), (5, 11)], ["none", "padding"]))
def test_a_window_hides_earlier_positions(
    sizes: tuple[int, int], mask: str, backend: str, window: int, xformers_on_cpu: list[str]
) -> None:
    (t, s), (q, k, v) = sizes, tensors(*sizes)
    near = torch.tensor([[0 <= i + s - t - j < window for j in range(s)] for i in range(t)])
    attn_mask = masks(t, s)[mask]
    y = attend(q, k, v, AttentionMask(causal=True, window=window, attn_mask=attn_mask), backend=backend)
    exact = attend(q, k, v, AttentionMask(attn_mask=near if attn_mask is None else near & attn_mask))
    torch.testing.assert_close(y, exact, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("backend", HERE)
def test_a_query_that_sees_nothing_yields_zeros(backend: str) -> None:
    q, k, v = tensors(5, 5)
    attn_mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    attn_mask[1] = False
    y = attend(q, k, v, AttentionMask(attn_mask=attn_mask), backend=backend)
    assert (y[1] == 0).all() and (y[0] != 0).all()
    y.sum().backward()
    assert all(z.grad is not None and z.grad.isfinite().all() for z in (q, k, v))


@pytest.mark.parametrize("backend", HERE)
def test_queries_end_where_keys_end(backend: str) -> None:
    q, k, v = tensors(3, 8)
    q.data.zero_()  # all visible keys weigh the same
    y = attend(q, k, v, AttentionMask(causal=True), backend=backend)
    torch.testing.assert_close(y[:, :, 0], v[:, :, :6].mean(2))
    torch.testing.assert_close(y[:, :, 2], v.mean(2))


@pytest.mark.parametrize("backend", HERE)
def test_dropout_keeps_the_expectation(backend: str) -> None:
    torch.manual_seed(0)
    q, k, v = (z.detach() for z in tensors(4, 6))
    without = attend(q, k, v, backend=backend)
    samples = torch.stack([attend(q, k, v, backend=backend, dropout=0.3) for _ in range(4000)])
    assert not torch.allclose(samples[0], samples[1])
    error = samples.std(0) / len(samples) ** 0.5
    assert ((samples.mean(0) - without).abs() < 5 * error + 1e-9).all()


class DistanceBias:
    """A bias that has ``relative_logits``: scale * relative_shift(distance r^T)."""

    def __init__(self, distance: Tensor, r: Tensor) -> None:
        self.distance, self.r = distance, r

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:
        return relative_shift(self.distance * scale @ self.r.mT, k.shape[-2])

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits:
        return RelativeLogits(q, self.distance, self.r)


@pytest.mark.parametrize(("sizes", "causal"), list(itertools.product([(7, 7), (5, 11)], [False, True])))
def test_blocks_shift_logits_by_distance_into_place(sizes: tuple[int, int], causal: bool, small_blocks: None) -> None:
    t, s = sizes
    results = []
    for backend in ("reference", "blocked"):
        q, k, v = tensors(t, s)
        distance, r = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 3, t, 8), (3, s + t, 8)))
        bias = DistanceBias(distance, r[:, : s + 1] if causal else r)
        y = attend(q, k, v, AttentionMask(causal=causal), bias, backend=backend)
        results.append([y, *torch.autograd.grad((y * y.detach().cos()).sum(), [q, k, v, distance, r])])
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-9)


def test_blocks_drop_the_same_weights_on_the_way_back(small_blocks: None) -> None:
    def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(0)
        return attend(q, k, v, AttentionMask(causal=True), backend="blocked", dropout=0.5)

    assert torch.autograd.gradcheck(dropped, tensors(5, 7), fast_mode=True)


@pytest.mark.parametrize("again", [torch.autograd.grad, lambda y, x: y.backward()], ids=["grad", "backward"])
def test_blocks_refuse_a_second_derivative_instead_of_leaving_it_out(again: Callable[[Tensor, Tensor], object]) -> None:
    """For a loss that is quadratic in y, the first gradient has a graph even without them, so nothing else would raise."""
    q, k, v = tensors(5, 7)
    y = attend(q, k, v, backend="blocked").square().sum()
    with pytest.raises(RuntimeError, match="blocked .* second derivative.* reference"):
        again(torch.autograd.grad(y, q, create_graph=True)[0].square().sum(), q)
    y = attend(q, k, v).square().sum()
    again(torch.autograd.grad(y, q, create_graph=True)[0].square().sum(), q)


def test_blocks_under_activation_checkpointing_have_the_same_gradients() -> None:
    gradients = []
    for call in (lambda run, *x: run(*x), lambda run, *x: checkpoint(run, *x, use_reentrant=False)):
        x = tensors(5, 7)
        torch.manual_seed(0)
        y = call(lambda q, k, v: attend(q, k, v, backend="blocked", dropout=0.5), *x)
        gradients.append(torch.autograd.grad(y.square().sum(), x))
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_saved_bytes_of_long_sequences_grow_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "MAX_SAVED_ROW", 63)
    saved = []
    for t in (64, 128):
        with saved_tensors_hooks(lambda z: saved.append(z.numel()) or z, lambda z: z):
            attend(*tensors(t, t), mask=AttentionMask(causal=True), backend="blocked")
    one, two = sum(saved[:3]), sum(saved[3:])
    assert len(saved) == 6 and two == 2 * one


def test_a_bias_of_heads_leaves_sdpa_its_fast_path() -> None:
    (q, k, v), bias = tensors(64, 64), torch.randn(3, 64, 64, dtype=torch.float64)
    saved = []
    with saved_tensors_hooks(lambda z: saved.append(z.numel()) or z, lambda z: z):
        attend(q, k, v[..., :8], bias=bias, backend="sdpa")
    assert max(saved) == bias.numel(), "it must save no logits, which have a batch dimension"


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("sizes", [(3, 0), (0, 3)], ids=["no keys", "no queries"])
def test_nothing_attended_to_is_zero_with_its_gradients(
    sizes: tuple[int, int], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty_like", lambda z: torch.full_like(z, float("nan")))  # unwritten memory becomes visible
    inputs = tensors(*sizes)
    y = attend(inputs[0], inputs[1], inputs[2], backend=backend)
    assert y.shape == (2, 3, sizes[0], 16) and not y.any()
    y.sum().backward()
    assert all(z.grad is not None and not z.grad.any() for z in inputs)


@pytest.mark.parametrize("relative", [True, False], ids=["relative logits", "bias"])
def test_sums_over_blocks_and_sequences_keep_small_terms_in_bf16(relative: bool, small_blocks: None) -> None:
    """Every sequence adds a small term to the one gradient of a bias or of relative positions."""
    torch.manual_seed(3)
    shapes = [(400, 2, 7, 4)] * 4 + [(2, 8, 4), (2, 7, 7)]
    rounded = [torch.randn(*shape).bfloat16() for shape in shapes]
    gradients = []
    for dtype in (torch.float64, torch.bfloat16):
        q, k, v, distance, r, bias = (z.to(dtype).requires_grad_() for z in rounded)
        y = attend(q, k, v, AttentionMask(causal=True), DistanceBias(distance, r) if relative else bias, backend="blocked")
        gradients.append(torch.autograd.grad(y.square().sum(), r if relative else bias)[0])
    exact, rough = gradients
    assert (rough.double() - exact).norm() < 0.01 * exact.norm()


def test_bf16_is_close_to_float64() -> None:
    exact = attend(*tensors(9, 9), mask=AttentionMask(causal=True))
    for backend in HERE:
        rough = attend(*tensors(9, 9, dtype=torch.bfloat16), mask=AttentionMask(causal=True), backend=backend)
        torch.testing.assert_close(rough.double(), exact, rtol=0.05, atol=0.05)


def test_xformers_says_why_it_cannot_run_here() -> None:
    reason = unsupported("xformers", device="cpu")
    assert reason is not None and "xformers" in reason and "CUDA device" in reason
    assert unsupported("sdpa", device="cpu") is None and unsupported("reference", device="cuda") is None


@pytest.mark.parametrize(("precision", "multiple"), [("fp32", 4), ("bf16", 8)])
def test_head_widths_without_a_kernel_are_unsupported(precision: str, multiple: int) -> None:
    reason = unsupported("xformers", device="cuda", head_dim=multiple // 2, precision=precision)
    assert reason is not None and f"a multiple of {multiple} in {precision}, got {multiple // 2}" in reason
    assert unsupported("sdpa", device="cuda", head_dim=multiple // 2, precision=precision) is None


@pytest.mark.parametrize(
    ("device", "hook", "backends", "expected"),
    [
        ("cpu", "embed", BACKENDS, "blocked"),
        ("cpu", "bias", BACKENDS, "blocked"),
        ("cpu", "embed", ("reference", "sdpa"), "sdpa"),
        ("cpu", "bias", ("sdpa", "reference"), "reference"),
        ("cuda", "rotate", BACKENDS, "sdpa"),
        ("cuda", "bias", BACKENDS, "reference"),
        ("cuda", "rotate", ("reference",), "reference"),
    ],
)
def test_auto_is_resolved_by_rule(device: str, hook: str, backends: tuple[str, ...], expected: str) -> None:
    assert resolve_backend(device, hook=hook, backends=backends) == expected


@pytest.mark.parametrize(("hook", "expected"), [("embed", "sdpa"), ("bias", "reference")])
def test_auto_is_the_same_on_each_device_where_it_is_compiled(hook: str, expected: str) -> None:
    assert [resolve_backend(device, hook=hook, backends=BACKENDS, compiled=True) for device in ("cpu", "cuda")] == [
        expected
    ] * 2


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("sizes", "causal", "mask", "biased"), CASES)
def test_xformers_equals_reference(
    sizes: tuple[int, int], causal: bool, mask: str, biased: bool, dtype: torch.dtype, device: str
) -> None:
    t, s = sizes
    bias = torch.randn(3, t, s, device=device, dtype=dtype) if biased else None
    attn_mask = masks(t, s, device=device)[mask]
    q, k, v = tensors(t, s, dtype=dtype, device=device)
    y = attend(q, k, v[..., :8], AttentionMask(causal=causal, attn_mask=attn_mask), bias, backend="xformers")
    exact = attend(*(z.double() for z in (q, k, v[..., :8])), mask=AttentionMask(causal=causal, attn_mask=attn_mask), bias=bias)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(y.double(), exact, rtol=tolerance, atol=tolerance)

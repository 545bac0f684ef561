"""Backend ``flex`` computes what ``reference`` does, and is refused where FlexAttention cannot train.

Without a GPU, only the forward pass is compared, without compilation. The tests marked ``gpu`` compare compiled kernels and
gradients.
"""

from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attnlab.errors import UserError
from attnlab.nn import flex
from attnlab.nn.attention import AttentionMask, attend, resolve_backend, unsupported
from attnlab.nn.flex import _element_of
from attnlab.nn.functions import ScoreFunction

T, S = 5, 11


def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (s - 0.2 * (i - j) * (h + 1) + 0.1 * b).tanh()


def every_third(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return (i - j) % 3 != h


def hidden(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return j > i + S


PADDING = torch.arange(S) >= torch.tensor([0, 8]).view(2, 1, 1, 1)
BIAS = torch.randn(3, T, S, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
CASES: dict[str, tuple[AttentionMask, Tensor | None, list[ScoreFunction]]] = {
    "plain": (AttentionMask(), None, []),
    "score and bias of a causal window": (AttentionMask(causal=True, window=3), BIAS, [capped, capped]),
    "functions, a window and padding": (AttentionMask(window=4, attn_mask=PADDING, functions=(every_third,)), None, [capped]),
    "a bias of the keys": (AttentionMask(causal=True), BIAS[:, :1], []),
    "no visible key": (AttentionMask(functions=(hidden,)), None, []),
}


def drawn(device: str, dtype: torch.dtype, *, width: int = 16) -> list[Tensor]:
    torch.manual_seed(5)
    shapes = [(2, 3, T, width), (2, 3, S, width), (2, 3, S, width)]
    return [torch.randn(*shape, dtype=torch.float64).to(device, dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_equals_reference(case: str) -> None:
    mask, bias, scores = CASES[case]
    q, k, v = (z.detach() for z in drawn("cpu", torch.float64))
    results = [attend(q, k, v, mask, bias, scores=scores, backend=name) for name in ("reference", "flex")]
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-10)


class Recorder(TorchDispatchMode):
    """Records the names of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(T, S), (3, T, S), (3, 1, S), (2, 3, T, S), (2, 1, T, S), (2, 3, T, 1)])
def test_a_bias_is_only_indexed(shape: tuple[int, ...]) -> None:
    """The kernels for CUDA refuse any other operation on a tensor that requires a gradient."""
    element = _element_of(torch.randn(shape, requires_grad=True))
    indices = [torch.tensor([i]) for i in (1, 2, 3, 0)]
    with Recorder() as recorder:
        element(*indices)
    assert recorder.names == ["aten::index.Tensor"]


@pytest.mark.parametrize("sizes", [(3, 0), (0, 3)], ids=["no keys", "no queries"])
def test_nothing_attended_to_is_zero(sizes: tuple[int, int]) -> None:
    q, k, v = (torch.randn(2, 3, n, 16) for n in (sizes[0], sizes[1], sizes[1]))
    y = attend(q, k, v, backend="flex")
    assert y.shape == (2, 3, sizes[0], 16) and not y.any()


def test_weights_and_dropout_are_refused() -> None:
    q, k, v = drawn("cpu", torch.float64)
    with pytest.raises(ValueError, match="weights .*reference or blocked.*flex"):
        attend(q, k, v, weights=lambda logits, visible: logits.sigmoid(), backend="flex")
    with pytest.raises(ValueError, match=r"dropout=0\.5"):
        attend(q, k, v, dropout=0.5, backend="flex")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"device": "cpu"}, ("CUDA device, got cpu", "backward")),
        ({"device": "cuda", "head_dim": 8}, ("head width", "got 8")),
        ({"device": "cuda", "dropout": 0.1}, ("model.attention_dropout", "got 0.1")),
    ],
)
def test_is_refused_with_the_reason(settings: dict, words: tuple[str, ...]) -> None:
    reason = unsupported("flex", **settings)
    assert reason is not None and all(word in reason for word in words)
    assert unsupported("flex", device="cuda", head_dim=16) is None


@pytest.mark.parametrize(
    ("device", "hook", "backends", "expected"),
    [
        ("cuda", "rotate", ("reference", "blocked", "flex"), "flex"),
        ("cuda", "rotate", ("reference", "blocked", "sdpa", "flex"), "sdpa"),
        ("cuda", "bias", ("reference", "blocked", "flex"), "reference"),
        ("cuda", "rotate", ("reference", "blocked"), "reference"),
        ("cpu", "rotate", ("reference", "blocked", "flex"), "blocked"),
    ],
)
def test_auto_selects_it_where_functions_need_it(device: str, hook: str, backends: tuple[str, ...], expected: str) -> None:
    assert resolve_backend(device, hook=hook, backends=backends) == expected


def test_more_kernels_than_are_compiled_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "_compiled", cache(partial(torch.compile, fullgraph=True, backend="eager")))
    q, k, v = (z.detach().float() for z in drawn("cpu", torch.float64))
    options = {"score_mod": None, "scale": 0.25}
    for mask in (AttentionMask(causal=True), AttentionMask(window=2), AttentionMask(window=3, functions=(every_third,))):
        expected = attend(q, k, v, mask, scale=0.25)
        torch.testing.assert_close(flex._with_kernels(q, k, v, mask, options), expected)
    monkeypatch.setattr(flex, "KERNELS", 2)
    with pytest.raises(UserError, match="backend flex: expected at most 2"):
        flex._with_kernels(q, k, v, AttentionMask(attn_mask=PADDING), options)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_reference_with_their_gradients(case: str, dtype: torch.dtype, device: str = "cuda") -> None:
    mask, bias, scores = CASES[case]
    if mask.attn_mask is not None:
        mask = AttentionMask(mask.causal, mask.window, mask.attn_mask.to(device), mask.functions)
    results = []
    for backend, precision in (("reference", torch.float64), ("flex", dtype)):
        inputs = drawn(device, precision, width=32)
        leaves = inputs if bias is None else [*inputs, bias.to(device, precision).requires_grad_()]
        y = attend(*inputs[:3], mask=mask, bias=None if bias is None else leaves[3], scores=scores, backend=backend)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)])
    for expected, actual in zip(*results, strict=True):
        if expected is not None and actual is not None:
            tolerance = 1e-3 if dtype == torch.float32 else 5e-2
            torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)

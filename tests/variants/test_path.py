"""PaTH attention against its paper, matrix by matrix, in output and every gradient."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.models.decoding import key_value_cache
from attnlab.registry import VARIANTS
from attnlab.testing import check
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants import path as path_module
from attnlab.variants.path import Path
from tests.oracles import linear_attention as paper
from tests.oracles.attention import attention, behind, concatenated, heads_of
from tests.oracles.recurrent import sigmoid
from tests.variants.test_variants import DIM, HEADS, M, T, assert_same, inputs, whole_matrix, with_ones

D = DIM // HEADS


def make(cls: str | type[Variant], *, bias: bool = False, **options: Any) -> Variant:
    torch.manual_seed(7)
    config = AttentionConfig(DIM, HEADS, role="causal", bias=bias)
    return (VARIANTS.get(cls) if isinstance(cls, str) else cls)(config, **options).double()


def path(variant: Variant, x: Tensor, context: Tensor) -> Tensor:
    """s_ij = k_j^T H_(j+1) ... H_i q_i / sqrt(d), matrix by matrix."""
    t, s, weight, parameters = len(x), len(context), whole_matrix(variant, "project"), dict(variant.named_parameters())
    w_q, w_k, w_v = weight.chunk(3)
    q, k, v = heads_of(with_ones(x, w_q), w_q, HEADS), *(heads_of(with_ones(context, w), w, HEADS) for w in (w_k, w_v))
    w = context @ parameters["turn.0.weight"].T @ parameters["turn.1.weight"].T
    if "convolution.weight" in parameters:
        w = paper.convolved(w, parameters["convolution.weight"], None)
    w = paper.unit(paper.silu(w).unflatten(-1, (HEADS, D)))  # (s, h, d)
    beta = 2 * sigmoid(context @ parameters["beta.weight"].T + parameters["beta.bias"])

    matrices = torch.eye(D, dtype=torch.float64) - beta[..., None, None] * w[..., :, None] * w[..., None, :]  # (s, h, d, d)

    def logit(h: int, query: Tensor, key: Tensor, i: int, j: int) -> Tensor:
        for n in range(j + 1, s - t + i + 1):
            key = key @ matrices[n, h]
        return key @ query / D**0.5

    y = concatenated(attention(q, k, v, visible=lambda h, i, j: behind(t, s, i, j) >= 0, logit=logit))
    out = whole_matrix(variant, "out")
    return with_ones(y, out) @ out.T


@pytest.mark.parametrize("block", [64, 4])
@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize(("options", "bias"), [({}, True), ({"rank": 2, "short_conv": 0}, False)])
def test_path_multiplies_the_matrices_between_query_and_key(
    options: dict[str, int], bias: bool, memory: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_module, "BLOCK", block)
    variant = make("path", bias=bias, **options)
    assert_same(variant, lambda x, context: path(variant, x, context), memory=memory)


class TurnsAtTheKey(Path):
    """Starts the product at the key itself."""

    def _householder(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return tuple(z.roll(-1, 2) for z in super()._householder(source, mask))  # type: ignore[return-value] of two


class HalfReflections(Path):
    """Has beta between 0 and 1."""

    def _householder(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        w, beta = super()._householder(source, mask)
        return w, beta / 2


@pytest.mark.parametrize("mutant", [TurnsAtTheKey, HalfReflections])
def test_the_formula_of_path_catches_its_mutants(mutant: type[Variant]) -> None:
    variant = make(mutant)
    with pytest.raises(AssertionError):
        assert_same(variant, lambda x, context: path(variant, x, context))


@pytest.mark.parametrize("block", [64, 3])
def test_decoding_transforms_the_cached_keys(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_module, "BLOCK", block)
    variant = make("path")
    x, mask = torch.randn(2, T, DIM, dtype=torch.float64), torch.ones(2, T, dtype=torch.bool)
    mask[0, :2] = False
    with torch.no_grad():
        for seen in (None, mask):
            y = variant(x, mask=seen)
            with key_value_cache(variant) as caches:
                ends = (5, 6, 10, T)
                parts = [
                    variant(x[:, start:end], mask=None if seen is None else seen[:, :end])
                    for start, end in zip((0, *ends), ends, strict=False)
                ]
                assert caches.nbytes == 2 * (2 * T * DIM + 2 * DIM) * 8, "keys, values and two inputs of the convolution"
            torch.testing.assert_close(torch.cat(parts, dim=1), y)


def test_padding_of_path_transforms_nothing() -> None:
    variant = make("path", short_conv=0)
    x, _ = inputs()
    mask = torch.ones(2, T, dtype=torch.bool)
    mask[0, [0, 3, 4]] = False
    torch.testing.assert_close(variant(x, mask=mask)[0][mask[0]], variant(x[:1, mask[0]])[0])


@pytest.mark.parametrize("options", [{"rank": 0}, {"short_conv": -1}])
def test_widths_of_path_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    [refused] = check("path", options=options, only=["shapes"], roles=["causal"])
    assert refused.status == "refused" and "at least" in refused.detail

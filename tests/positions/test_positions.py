"""Tests of position schemes against their papers and declared properties."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from attnlab.nn.layers import angles, relative_distance, relative_shift, sinusoids
from attnlab.positions import PositionConfig
from attnlab.positions.alibi import Alibi, slopes
from attnlab.positions.learned import Learned
from attnlab.positions.none import NoPosition
from attnlab.positions.relative import Relative
from attnlab.positions.rotary import Rotary
from attnlab.positions.sinusoidal import Sinusoidal
from tests.oracles import positions as papers

CONFIG = PositionConfig(dim=10, heads=3, head_dim=4, length=13, role="causal")


def replace(**changes: object) -> PositionConfig:
    return PositionConfig(**{**vars(CONFIG), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [1, 7, 10])
def test_sinusoids_follow_vaswani(dim: int) -> None:
    positions = [0, 1, 5, -3, 10_000]
    expected = torch.stack([papers.sinusoid(p, dim) for p in positions])
    torch.testing.assert_close(sinusoids(torch.tensor(positions), dim), expected, rtol=0, atol=1e-9)


def test_sinusoidal_goes_beyond_the_trained_length() -> None:
    scheme = Sinusoidal(CONFIG)
    torch.testing.assert_close(scheme.embed(20)[:13], scheme.embed(13))
    assert scheme.embed(20).shape == (20, 10)
    assert not list(scheme.parameters())


def test_learned_has_a_vector_a_position_and_no_more() -> None:
    scheme = Learned(CONFIG)
    assert scheme.embed(5).shape == (5, 10)
    with pytest.raises(ValueError, match="at most 13, got 14"):
        scheme.embed(14)


@pytest.mark.parametrize("heads", sorted(papers.ALIBI_SLOPES))
def test_alibi_slopes_follow_press(heads: int) -> None:
    assert slopes(heads) == pytest.approx(papers.ALIBI_SLOPES[heads], rel=1e-12)


def test_alibi_counts_beyond_what_bf16_can() -> None:
    q = torch.zeros(1, 3, 600, 4, dtype=torch.bfloat16)
    bias = Alibi(replace(length=600)).bias(q, q, scale=1.0)
    assert bias[0, 599, 0] == pytest.approx(-599 / 16)


def test_rotary_products_depend_on_the_difference_of_positions_only() -> None:
    scheme = Rotary(CONFIG)
    torch.manual_seed(0)
    q, k = torch.randn(2, 4, dtype=torch.float64)
    turned_q, turned_k = scheme.rotate(q.expand(1, 3, 13, 4), k.expand(1, 3, 13, 4))
    relative_logits = torch.einsum("bhtd,bhsd->bhts", turned_q, turned_k)[0, 0]
    distance = relative_distance(13, 13)
    for n in (-12, -1, 0, 4):
        same = relative_logits[distance == n]
        torch.testing.assert_close(same, same[:1].expand_as(same))
    assert relative_logits[5, 4] != pytest.approx(relative_logits[4, 5].item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("t", "s"), [(13, 13), (5, 13), (20, 20), (5, 20)])
def test_rotary_turns_by_its_table_and_beyond_it_by_the_same_angles(t: int, s: int, dtype: torch.dtype) -> None:
    q, k = (torch.randn(2, 3, n, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (t, s))
    turned = Rotary(CONFIG).rotate(q.to(dtype), k.to(dtype))
    angle = angles(torch.arange(s), 4)
    for x, y, first in ((q.to(dtype), turned[0], s - t), (k.to(dtype), turned[1], 0)):
        x1, x2 = x[..., 0::2].double(), x[..., 1::2].double()
        cos, sin = angle.cos()[first:], angle.sin()[first:]
        exact = torch.stack([x1 * cos - x2 * sin, x1 * sin + x2 * cos], dim=-1).flatten(-2)
        assert y.dtype == dtype and ((y.double() - exact).abs() <= 4 * torch.finfo(dtype).eps * x.abs().amax()).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rotary_is_the_same_when_it_is_compiled(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = torch.randn(2, 2, 3, 13, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    eager = Rotary(CONFIG).rotate(q, k)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    compiled = Rotary(CONFIG).rotate(q, k)
    tolerance = 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(eager, compiled, atol=tolerance, rtol=tolerance)


def test_rotary_takes_sines_once_and_keeps_them_out_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme = deepcopy(Rotary(CONFIG))
    assert not scheme.state_dict() and scheme.to("meta").cos.device.type == "meta"
    scheme, x = deepcopy(Rotary(CONFIG)), torch.randn(1, 3, 13, 4)
    taken: list[int] = []

    def counted(positions: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        taken.append(len(positions))
        return angles(positions, *args, **options)

    monkeypatch.setattr("attnlab.positions.rotary.angles", counted)
    scheme.rotate(x, x)
    scheme.rotate(x[:, :, :5], x)
    assert taken == []
    scheme.rotate(x, torch.cat([x, x], dim=2))
    assert taken == [26]


def test_rotary_refuses_an_odd_head_width() -> None:
    assert "even head width, got 5" in (Rotary.unsupported(replace(head_dim=5)) or "")
    assert Rotary.unsupported(CONFIG) is None


@pytest.mark.parametrize("scheme", [Rotary, Alibi, Relative])
def test_schemes_on_pairs_refuse_cross_attention(scheme: type) -> None:
    assert "two different sequences" in (scheme.unsupported(replace(role="cross")) or "")
    assert NoPosition.unsupported(replace(role="cross")) is None


@pytest.mark.parametrize(("t", "s", "ahead"), [(1, 1, 1), (5, 5, 1), (5, 12, 1), (5, 5, 5), (5, 12, 5), (1, 7, 1)])
def test_shift_puts_every_distance_in_its_place(t: int, s: int, ahead: int) -> None:
    by_distance = torch.arange(s - 1, -ahead - 1, -1.0).expand(2, 3, t, s + ahead).contiguous()  # each entry is its distance
    shifted = relative_shift(by_distance, s)
    assert shifted.shape == (2, 3, t, s)
    assert shifted.data_ptr() == by_distance.data_ptr() + (t - 1) * by_distance.element_size(), "it must be a view"
    held = relative_distance(t, s) >= 1 - ahead
    assert (shifted[0, 0] == relative_distance(t, s))[held].all()

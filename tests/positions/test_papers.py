"""Position schemes against the formulas of their papers, in every value and gradient, and the mutants that these catch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.positions import Position, PositionConfig
from attnlab.positions.cope import Cope
from attnlab.positions.fire import Fire
from attnlab.positions.kerple import Kerple
from attnlab.positions.pope import Pope
from attnlab.positions.rotary import Rotary
from attnlab.positions.t5 import T5, bucket_starts
from tests.mutants.formulas import FORMULA_MUTANTS
from tests.oracles import positions as papers

B, H, D = 2, 3, 6
SIZES = [(5, 5), (2, 7)]  # (t, s): the whole sequence, and with memory
Logit = Callable[[int, Tensor, Tensor, int, int], Tensor]  # (head, q (t, d), k (s, d), i, j), i counted from the first key


def build(cls: type[Position], role: str = "causal", *, length: int = 7, **options: Any) -> Position:
    """Return a scheme in float64 with random parameters: zeros would hide mistakes."""
    torch.manual_seed(5)
    config = PositionConfig(dim=H * D, heads=H, head_dim=D, length=length, role=role)
    assert cls.unsupported(config, options=options) is None
    scheme = cls(config, **options).double()
    for parameter in scheme.parameters():
        nn.init.normal_(parameter)
    return scheme


def assert_follows(scheme: Position, logit: Logit, sizes: list[tuple[int, int]]) -> None:
    """Compare the scaled logits of visible pairs, and the gradients of q, k and each parameter, with those of the paper."""
    scale = D**-0.5
    for t, s in sizes:
        q, k = (torch.randn(B, H, n, D, dtype=torch.float64).requires_grad_() for n in (t, s))
        leaves = [q, k, *scheme.parameters()]
        if scheme.hook == "bias":
            ours = scale * (q @ k.mT) + scheme.bias(q, k, scale=scale)
        else:
            rotated_q, rotated_k = scheme.rotate(q, k)
            ours = scale * (rotated_q @ rotated_k.mT)
        pairs = [(i, j) for i in range(s - t, s) for j in range(s if scheme.config.role != "causal" else i + 1)]
        seen = [(b, h, i, j) for b in range(B) for h in range(H) for i, j in pairs]
        theirs = torch.stack([logit(h, q[b, h], k[b, h], i, j) for b, h, i, j in seen])
        ours = torch.stack([ours[b, h, i - (s - t), j] for b, h, i, j in seen])
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
        weights = torch.randn_like(ours)
        for one, other in zip(
            torch.autograd.grad((ours * weights).sum(), leaves, materialize_grads=True),
            torch.autograd.grad((theirs * weights).sum(), leaves, materialize_grads=True),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


def plain(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """Return q_i . k_j / sqrt(d); queries end where keys end."""
    return q[i - (len(k) - len(q))] @ k[j] / D**0.5


def check_t5(cls: type[Position], role: str = "causal", buckets: int = 32, max_distance: int = 128) -> None:
    scheme = build(cls, role, buckets=buckets, max_distance=max_distance)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        bucket = papers.t5_bucket(i - j, buckets=buckets, max_distance=max_distance, role=role)
        return plain(q, k, i, j) + scheme.table[bucket, h]  # type: ignore[index]

    assert_follows(scheme, logit, SIZES)


def check_kerple(cls: type[Position], kernel: str = "log", role: str = "causal") -> None:
    scheme = build(cls, role, kernel=kernel)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        rho_1, rho_2 = scheme.rho_1[h], scheme.rho_2[h]  # type: ignore[index]
        r1 = (1 + rho_1.exp()).log()
        r2 = (1 + rho_2.exp()).log() if kernel == "log" else 2 / (1 + (-rho_2).exp())
        return plain(q, k, i, j) + papers.kerple_bias(i - j, r1, r2, kernel=kernel)

    assert_follows(scheme, logit, SIZES)


def check_fire(cls: type[Position], threshold: float = 3.0) -> None:
    scheme = build(cls, threshold=threshold)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        layers = {name: list(getattr(scheme, name).parameters()) for name in ("hidden", "out")}
        c, largest = scheme.c.abs(), (scheme.factor * threshold).abs()  # type: ignore[operator, union-attr]
        return plain(q, k, i, j) + papers.fire_bias(i, j, c=c, threshold=largest, **layers)[h]

    assert_follows(scheme, logit, SIZES)


def check_cope(cls: type[Position], positions: int = 3) -> None:
    scheme = build(cls, positions=positions)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        q_i = q[i - (len(k) - len(q))]
        return plain(q, k, i, j) + papers.cope_bias(q_i, k[: i + 1], j, scheme.embedding)  # type: ignore[arg-type]

    assert_follows(scheme, logit, SIZES)


def check_pope(cls: type[Position], role: str = "causal", length: int = 7) -> None:
    scheme = build(cls, role, length=length, base=50.0)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        q_i = q[i - (len(k) - len(q))]
        return papers.pope_logit(q_i, k[j], scheme.delta[h], i - j, base=50.0)  # type: ignore[index]

    assert_follows(scheme, logit, SIZES)


def check_rotary(cls: type[Position], scaling: str = "yarn", s: int = 31, length: int = 29) -> None:
    scheme = build(cls, length=length, scaling=scaling, base=30.0)

    def logit(h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
        q_i = q[i - (len(k) - len(q))]
        if s <= length:
            return papers.rotated(q_i, i, 30.0) @ papers.rotated(k[j], j, 30.0) / D**0.5
        return papers.scaled_logit(q_i, k[j], i - j, scaling=scaling, length=length, s=s, base=30.0)

    assert_follows(scheme, logit, [(1, s)])


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 3), (8, 5), (6, 16)])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
def test_t5_follows_raffel(role: str, buckets: int, max_distance: int) -> None:
    check_t5(T5, role, buckets, max_distance)


def test_t5_buckets_begin_where_they_do_in_the_paper() -> None:
    assert [0, *bucket_starts(32, 128)] == papers.T5_STARTS
    assert bucket_starts(8, 256)[3:] == [4, 12, 32, 91]  # 4 * 64^(i / 4): whole numbers exactly at the border
    scheme = build(T5, length=300)
    q = torch.zeros(1, H, 300, D, dtype=torch.float64)
    last = scheme.bias(q[:, :, -1:], q, scale=1.0)[0, 0].flip(0)  # by distance
    for bucket, (start, end) in enumerate(zip(papers.T5_STARTS, [*papers.T5_STARTS[1:], 300], strict=True)):
        assert (last[start:end] == scheme.table[bucket, 0]).all()  # type: ignore[index]


@pytest.mark.parametrize("role", ["causal", "bidirectional"])
@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_follows_chi(kernel: str, role: str) -> None:
    check_kerple(Kerple, kernel, role)


@pytest.mark.parametrize("kernel", ["log", "power"])
def test_kerple_starts_in_the_ranges_of_the_authors(kernel: str) -> None:
    config = PositionConfig(dim=4_000, heads=1_000, head_dim=4, length=7, role="causal")
    torch.manual_seed(0)
    scheme = Kerple(config, kernel=kernel)  # type: ignore[arg-type]
    r1 = nn.functional.softplus(scheme.rho_1)
    r2 = nn.functional.softplus(scheme.rho_2) if kernel == "log" else 2 * scheme.rho_2.sigmoid()
    scale, power = (r2, r1) if kernel == "log" else (r1, r2)
    for values, largest in ((scale, 1.0), (power, 2.0)):
        assert values.min() >= 0.0099 and values.max() <= largest
        assert values.mean().item() == pytest.approx(largest / 2, abs=0.05 * largest)


@pytest.mark.parametrize("threshold", [3.0, 50.0])
def test_fire_follows_li(threshold: float) -> None:
    check_fire(Fire, threshold)


@pytest.mark.parametrize("positions", [2, 3, 64])
def test_cope_follows_golovneva(positions: int) -> None:
    check_cope(Cope, positions)


def test_cope_counts_only_the_keys_that_a_query_may_attend_to() -> None:
    scheme = build(Cope)
    q, k = (torch.randn(1, H, 7, D, dtype=torch.float64) for _ in range(2))
    keep = torch.tensor([0, 1, 3, 4, 6])
    visible = torch.ones(7, 7, dtype=torch.bool).tril()
    visible[:, [2, 5]] = False
    masked = scheme.bias(q, k, scale=0.5, visible=visible)[:, :, keep][..., keep]  # type: ignore[call-arg]
    alone = scheme.bias(q[:, :, keep], k[:, :, keep], scale=0.5)
    torch.testing.assert_close(masked.tril(), alone.tril(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("length", [7, 3])
@pytest.mark.parametrize("role", ["causal", "bidirectional"])
def test_pope_follows_gopalakrishnan(role: str, length: int) -> None:
    check_pope(Pope, role, length)


def test_pope_starts_without_delta_or_with_angles_of_a_whole_turn() -> None:
    assert not build_fresh(Pope).delta.any()  # type: ignore[union-attr, operator]
    delta = build_fresh(Pope, delta="uniform").delta
    assert delta.min() >= -2 * torch.pi and delta.max() <= 0 and delta.std() > 1  # type: ignore[operator, union-attr]


def build_fresh(cls: type[Position], **options: Any) -> Position:
    torch.manual_seed(0)
    return cls(PositionConfig(dim=H * D, heads=H, head_dim=D, length=7, role="causal"), **options)


@pytest.mark.parametrize("scaling", ["none", "interpolation", "ntk", "yarn"])
@pytest.mark.parametrize(("s", "length"), [(31, 29), (70, 29), (29, 29)])
def test_rotary_scales_longer_sequences_as_its_papers_do(scaling: str, s: int, length: int) -> None:
    check_rotary(Rotary, scaling, s, length)


def test_yarn_has_pairs_that_keep_their_angles_and_pairs_that_are_interpolated() -> None:
    """At length 256 with base 30 and three pairs: none, some and all of the range between alpha and beta."""
    turns = [256 * 30 ** (-2 * i / D) / (2 * torch.pi) for i in range(D // 2)]
    assert turns[0] > 32 and 1 < turns[1] < 32 and 1 < turns[2] < 32
    check_rotary(Rotary, "yarn", 300, 256)


@pytest.mark.parametrize("scaling", ["none", "yarn"])
def test_partial_rotary_rotates_the_first_features_alone(scaling: str) -> None:
    whole = build(Rotary, length=7, scaling=scaling)
    part = build_part(scaling)
    for s in (7, 12):
        q, k = (torch.randn(1, H, s, D, dtype=torch.float64) for _ in range(2))
        narrow = Rotary(PositionConfig(dim=H * 4, heads=H, head_dim=4, length=7, role="causal"), scaling=scaling)  # type: ignore[arg-type]
        for rotated, expected, x in zip(part.rotate(q, k), narrow.rotate(q[..., :4], k[..., :4]), (q, k), strict=True):
            torch.testing.assert_close(rotated[..., :4], expected)
            scale = rotated[..., 4:] / x[..., 4:]
            assert torch.allclose(scale, scale.flatten()[0]) and (scale.flatten()[0] > 1.01) == (scaling == "yarn" and s > 7)
        assert not torch.allclose(part.rotate(q, k)[1], whole.rotate(q, k)[1])


def build_part(scaling: str) -> Position:
    return build(Rotary, length=7, scaling=scaling, fraction=4 / D)


@pytest.mark.parametrize("base", [100.0, 500_000.0])
def test_rotary_takes_another_base(base: float) -> None:
    scheme = build(Rotary, base=base)
    q, k = (torch.randn(1, H, 7, D, dtype=torch.float64) for _ in range(2))
    expected = torch.stack([papers.rotated(k[0, 0, j], j, base) for j in range(7)])
    torch.testing.assert_close(scheme.rotate(q, k)[1][0, 0], expected)


@pytest.mark.parametrize(
    ("cls", "role", "options", "words"),
    [
        (T5, "causal", {"buckets": 1}, "at least 2 buckets, got 1"),
        (T5, "bidirectional", {"buckets": 5}, "even number of at least 4 buckets"),
        (T5, "causal", {"buckets": 32, "max_distance": 16}, "max_distance above 16"),
        (Fire, "bidirectional", {}, "role bidirectional"),
        (Fire, "causal", {"width": 0}, "positive width, got 0"),
        (Cope, "bidirectional", {}, "role bidirectional"),
        (Cope, "causal", {"positions": 1}, "at least 2 positions, got 1"),
        (Pope, "causal", {"base": 1.0}, "base above 1, got 1.0"),
        (Rotary, "causal", {"base": 0.5}, "base above 1, got 0.5"),
        (Rotary, "causal", {"fraction": 0.5}, "even number of features, got 0.5"),
        (Rotary, "causal", {"fraction": 0.0}, "even number of features, got 0.0"),
        (Rotary, "causal", {"fraction": 1.5}, "even number of features, got 1.5"),
        (Rotary, "causal", {"fraction": 1 / 3, "scaling": "ntk"}, "at least 4 rotated features"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_line(
    cls: type[Position], role: str, options: dict[str, Any], words: str
) -> None:
    config = PositionConfig(dim=H * D, heads=H, head_dim=D, length=7, role=role)
    reason = cls.unsupported(config, options=options)
    assert reason is not None and words in reason and "\n" not in reason


@pytest.mark.parametrize("cls", [T5, Kerple, Fire, Cope, Pope])
def test_schemes_of_one_sequence_refuse_cross_attention(cls: type[Position]) -> None:
    config = PositionConfig(dim=H * D, heads=H, head_dim=D, length=7, role="cross")
    assert "two different sequences" in (cls.unsupported(config) or "")


CHECKS: dict[str, list[Callable[[type[Position]], None]]] = {
    "t5": [partial(check_t5, role=role, buckets=8, max_distance=5) for role in ("causal", "bidirectional")],
    "kerple": [check_kerple],
    "fire": [check_fire],
    "cope": [check_cope],
    "pope": [check_pope],
    "rotary": [check_rotary],
}


@pytest.mark.parametrize(("name", "mutant"), FORMULA_MUTANTS, ids=lambda value: getattr(value, "__name__", value))
def test_the_formulas_catch_their_mutants(name: str, mutant: type[Position]) -> None:
    with pytest.raises(AssertionError, match="not close"):
        for follows in CHECKS[name]:
            follows(mutant)

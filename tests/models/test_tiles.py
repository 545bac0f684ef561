"""Tests of draws in tiles: the shape of a tensor decides how many values are drawn, and none of the values."""

from collections.abc import Callable
from itertools import combinations, product

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from attnlab.models.build import TILE_SIZE, initialize

SIDE = round(TILE_SIZE**0.5)


def draw(values: Callable[[], Tensor], seed: int = 0) -> Tensor:
    """Return a tensor drawn under the name "values"."""

    def construct() -> nn.Module:
        module = nn.Module()
        module.register_buffer("values", values())
        return module

    return initialize(construct, seed).get_buffer("values")


FILLS: dict[str, Callable[[tuple[int, ...]], Tensor]] = {
    "uniform_": lambda shape: torch.empty(shape).uniform_(-2, 3),
    "normal_": lambda shape: torch.empty(shape).normal_(1, 0.5),
    "exponential_": lambda shape: torch.empty(shape).exponential_(2.0),
    "bernoulli_": lambda shape: torch.empty(shape).bernoulli_(0.3),
    "trunc_normal_": lambda shape: nn.init.trunc_normal_(torch.empty(shape), std=0.5, a=-0.4, b=0.4),
    "trunc_normal_ far from its mean": lambda shape: nn.init.trunc_normal_(torch.empty(shape), a=1.5, b=3),
    "rand": lambda shape: torch.rand(shape),
    "randn": lambda shape: torch.randn(*shape) * 3,
    "randn, half precision": lambda shape: torch.randn(shape, dtype=torch.bfloat16),
    "randn_like": lambda shape: torch.randn_like(torch.zeros(shape)),
    "randint": lambda shape: torch.randint(3, 90, shape),
    "normal": lambda shape: torch.normal(1.0, 2.0, shape),
    "a part of a tensor": lambda shape: torch.zeros(*shape, 2)[..., 1].normal_(),
    "transposed": lambda shape: torch.empty(shape[::-1]).permute(*reversed(range(len(shape)))).normal_(),
}
SHAPES = [
    ((5,), (31,)),
    ((TILE_SIZE + 7,), (2 * TILE_SIZE + 1,)),
    ((3, SIDE + 1), (SIDE, SIDE)),
    ((SIDE + 5, 2 * SIDE), (2 * SIDE + 1, 3)),
    ((30, 2, 7), (29, 29, 3)),
    ((2, 3, 2, 3), (3, 2, 13, 2)),
]


@pytest.mark.parametrize(("shape", "other"), SHAPES)
@pytest.mark.parametrize("name", FILLS)
def test_tensors_of_two_shapes_agree_in_their_leading_slice(name: str, shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    one, two = (draw(lambda s=s: FILLS[name](s)) for s in (shape, other))
    common = tuple(slice(min(n, m)) for n, m in zip(shape, other, strict=True))
    assert one.shape == shape and two.shape == other
    assert torch.equal(one[common], two[common]) and len(one[common].unique()) > 1


@pytest.mark.parametrize("name", FILLS)
def test_values_and_their_neighbors_are_distributed_as_without_tiles(name: str) -> None:
    """Kolmogorov-Smirnov test of values, differences along rows and columns, and differences across the border of tiles."""
    shape, levels = (SIDE + 40, SIDE + 40), []
    ours = draw(lambda: FILLS[name](shape)).double()
    torch.manual_seed(1)
    plain = FILLS[name](shape).double()
    for of in (
        lambda z: z,
        lambda z: z[1:] - z[:-1],
        lambda z: z[:, 1:] - z[:, :-1],
        lambda z: z[:40] - z[SIDE:],  # one place of two tiles
        lambda z: z[:, :40] - z[:, SIDE:] if z.shape[1] == SIDE + 40 else z,
        lambda z: z[:40, :40] - z[SIDE:, SIDE:],
    ):
        levels.append(stats.ks_2samp(of(ours)[::2].flatten(), of(plain)[::2].flatten())[1])
    assert min(levels) > 1e-4, levels


def test_every_tile_has_a_stream_of_its_own() -> None:
    z = draw(lambda: torch.randn(2 * SIDE, 3 * SIDE))
    tiles = [z[i * SIDE : (i + 1) * SIDE, j * SIDE : (j + 1) * SIDE] for i, j in product(range(2), range(3))]
    for one, other in combinations(tiles, 2):
        assert abs(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]) < 5 / SIDE
    assert not torch.equal(z, draw(lambda: torch.randn(2 * SIDE, 3 * SIDE), seed=1))


def test_draws_that_are_not_independent_keep_their_meaning() -> None:
    permutation = draw(lambda: torch.randperm(1000))
    assert sorted(permutation.tolist()) == list(range(1000)) and permutation.tolist() != list(range(1000))
    chosen = draw(lambda: torch.multinomial(torch.tensor([0.0, 1.0, 1.0, 0.0]), 500, replacement=True))
    assert set(chosen.tolist()) == {1, 2}
    probabilities = torch.tensor([0.0, 1.0]).repeat(50)
    assert torch.equal(draw(lambda: torch.bernoulli(probabilities)), probabilities)
    orthogonal = draw(lambda: nn.init.orthogonal_(torch.empty(20, 20)))
    assert torch.allclose(orthogonal @ orthogonal.T, torch.eye(20), atol=1e-5)
    own = draw(lambda: torch.randn(40, generator=torch.Generator().manual_seed(7)))
    assert torch.equal(own, torch.randn(40, generator=torch.Generator().manual_seed(7)))
    assert draw(lambda: torch.randn(0, 5)).shape == (0, 5) and draw(lambda: torch.randn(())).shape == ()


def test_values_do_not_depend_on_the_number_of_threads() -> None:
    threads, results = torch.get_num_threads(), []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            results.append(draw(lambda: nn.init.trunc_normal_(torch.empty(SIDE + 3, 2 * SIDE))))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)

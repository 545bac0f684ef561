"""Random draws that do not depend on the shape: a narrower and a wider tensor agree in their common leading slice.

PyTorch fills a tensor with consecutive numbers of its generator, so that the value at row 3 and column 5 depends on the
number of columns. ``draw_in_tiles`` cuts the tensor into tiles of a fixed shape and draws each from a separate stream: the
value at row 3 and column 5 depends on the stream of the first tile only, and on the parameters of the distribution. Tensors
of shapes (a, b) and (a', b') start alike in their first min(a, a') rows and min(b, b') columns, up to the scale that an
initializer derives from the shape.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

TILE_SIZE = 16384  # values of a tile: large enough that seeding takes a small part of the time of drawing


def draw_in_tiles(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed_of: Callable[..., int]) -> Any:
    """Return the result of ``func(*args, **kwargs)``, an operation that draws random numbers, drawn tile by tile.

    Elements that are independent and identically distributed are drawn in tiles: in-place operations such as ``normal_``,
    ``torch.randn`` and others that take a shape, and ``torch.rand_like``. Other draws, such as permutations and those with a
    generator of their own, depend on the shape.

    Args:
        func: an operator of ``torch.ops.aten`` with the tag ``nondeterministic_seeded``.
        args: its positional arguments.
        kwargs: its keyword arguments.
        seed_of: the seed of the tile at an index, one number for each dimension; without an index, that of the whole draw.
    """
    place = _place_of_shape(func, args, kwargs)
    shape = () if place is None else _shape(args[place])
    if place is None or 0 in shape:
        torch.default_generator.manual_seed(seed_of())
        return func(*args, **kwargs)
    side = round(TILE_SIZE ** (1 / max(1, len(shape))))
    is_in_place = func._schema.name.endswith("_")
    result = args[place] if is_in_place else None
    before, like, after = args[:place], args[place], args[place + 1 :]
    for index, slices in _tiles(shape, side):
        torch.default_generator.manual_seed(seed_of(*index))
        template = like.new_empty([side] * len(shape)) if isinstance(like, Tensor) else [side] * len(shape)
        tile = func(*before, template, *after, **kwargs)
        if result is None:
            result = tile.new_empty(shape)
        target = result[slices]
        target.copy_(tile[tuple(slice(n) for n in target.shape)])
    return result


def _place_of_shape(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Return the place of the argument that decides the shape of independent, identically distributed draws, or None."""
    if kwargs.get("generator") is not None:
        return None
    tensors = [i for i, value in enumerate(args) if isinstance(value, Tensor)]
    sizes = [i for i, value in enumerate(args) if isinstance(value, list | tuple)]
    if func._schema.name.endswith(("_", "_like")):
        return 0 if tensors == [0] and not sizes else None
    return sizes[0] if len(sizes) == 1 and not tensors else None


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape if isinstance(value, Tensor) else value)


def _tiles(shape: tuple[int, ...], side: int) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """Yield the index of each tile in ``shape``, and its place."""
    for index in product(*(range(-(-n // side)) for n in shape)):
        yield index, tuple(slice(i * side, (i + 1) * side) for i in index)

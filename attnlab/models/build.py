"""Construction of the model of a configuration, with its initial values.

Initial values: each tensor of a model is drawn from separate random streams, named after its place in the model.

Constructors draw from PyTorch's generator in the order in which they are written, so an additional layer would move the
values of all layers after it. ``initialize`` removes the effect of the order:

1. It constructs the model and follows each random draw, through all operations, to the tensor of the model that it reaches.
2. It constructs the model again and seeds each draw with the name of its tensor, such as
   ``backbone.blocks.3.attention.out.weight``, in tiles of a fixed shape (``draw_in_tiles``).

The distributions are those that the constructors choose. Two models with one seed start every tensor that has the same name,
and is drawn in the same manner, from the same values. Of tensors with different shapes, for example the feed-forward of a cell
that is matched to the parameters of its baseline, the common leading slice agrees, up to the scale that the initializer
derives from the shape. Leading slices ignore what rows mean: with fewer heads of the same width, the remaining heads agree;
with heads of another width, rows of one head of the first model belong to another head of the second. Tensors of different
shapes share nothing if their draws are transformed as a whole, as by ``nn.init.orthogonal_`` and ``nn.init.sparse_``.

**Tiles.** PyTorch fills a tensor with consecutive numbers of its generator, so that the value at row 3 and column 5 depends on
the number of columns. ``draw_in_tiles`` cuts the tensor into tiles of a fixed shape and draws each from a separate stream: the
value at row 3 and column 5 depends on the stream of the first tile only, and on the parameters of the distribution. Tensors of
shapes (a, b) and (a', b') start alike in their first min(a, a') rows and min(b, b') columns, up to the scale that an
initializer derives from the shape.

**GPT-2.** With ``model.initialization: gpt2``, GPT-2's initial values replace the constructors' values. Radford et al. 2019,
"Language Models are Unsupervised Multitask Learners", section 2.3, divide the weights of N residual layers by sqrt(N). The
standard deviation of 0.02 follows the first GPT (Radford et al. 2018, section 4.1).

    linear layers, embeddings        N(0, 0.02)
    residual projections             N(0, 0.02 / sqrt(2 depth)): two sublayers of each block write to the residual stream
    biases                           0

The scale is the same in an encoder-decoder, although its decoder blocks have three sublayers, and with ``ff_mult: 0``,
where blocks have one.

Residual projections are the linear layers that a module names in ``residual_projections``: the variant's, and W_2 of the
feed-forward. A variant that declares none, for example ``no_wo`` and ``gru``, writes to the residual stream unscaled. Norms,
recurrent layers, convolutions and parameters that a class defines itself keep the values of their constructor, except
embeddings (``attnlab.nn.roles``): learned positions, value embeddings, and the class token.

Departures from the released code: positions have the standard deviation of tokens, as in ``transformers``; there it is 0.01.
"""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import sqrt
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnlab._util.rng import derive_seed
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.base import Model, TaskShape, model_class
from attnlab.models.parts import connect_components
from attnlab.nn.layers import Projections

STD = 0.02
TILE_SIZE = 16384  # values of a tile: large enough that seeding takes a small part of the time of drawing
M = TypeVar("M", bound=nn.Module)
DrawNames = list[list[str]]  # for each call that draws, the tensors that its draws reach; "" for none

MAX_PASSES = 8  # only rejection sampling in a user's constructor needs more than two
TORCH = str(Path(torch.__file__).parent)

logger = logging.getLogger(__name__)


def initialize(construct: Callable[[], M], seed: int) -> M:
    """Return the module that ``construct`` constructs, each of its tensors drawn from the streams of its name.

    The global generator of the CPU is unchanged afterwards. Draws that reach no tensor of the module, such as the draws of a
    list of numbers, are numbered in a separate stream.

    Args:
        construct: constructs the module on the CPU; called twice. On the meta device or with fake tensors, which have no
            values, it is called once.
        seed: the seed of a run.

    Examples:
        >>> small = initialize(lambda: nn.ModuleDict({"out": nn.Linear(2, 2)}), seed=0)
        >>> large = initialize(lambda: nn.ModuleDict({"gate": nn.Linear(3, 3), "out": nn.Linear(2, 2)}), seed=0)
        >>> torch.equal(small["out"].weight, large["out"].weight)
        True
        >>> wide = initialize(lambda: nn.ModuleDict({"out": nn.Linear(2, 5)}), seed=0)
        >>> torch.equal(small["out"].weight, wide["out"].weight[:2])
        True
    """
    if torch.get_default_device().type == "meta":  # as in a plan, which constructs many models
        return construct()
    module, names = _construct(construct, seed, [])
    if not _has_values(module):
        return module
    assumed: DrawNames = []
    for _ in range(MAX_PASSES):
        if names == assumed:
            return module
        assumed = names
        module, names = _construct(construct, seed, assumed)
    changed = [name for one, other in zip(assumed, names, strict=False) if one != other for name in other if name]
    logger.warning(
        "the constructor of %s repeats random draws depending on their values: "
        "its tensors may start from other values in cells with the same seed",
        changed[0].rpartition(".")[0] if changed else type(module).__name__,
    )
    return module


def _construct(construct: Callable[[], M], seed: int, assumed: DrawNames) -> tuple[M, DrawNames]:
    """Return the module, its draws seeded by the names that they are assumed to have, and the names that they have."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "initialisation"))  # also seeds the generators of other devices
        with _NamedDraws(seed, assumed) as draws:
            module = construct()
        return module, draws.names(module)


class _NamedDraws(TorchDispatchMode):
    """Draw each tensor from streams of its name, and record the storages that each draw reaches.

    Args:
        seed: the seed of a run.
        assumed: the names of the draws, found in an earlier pass; [] in the first pass, which discards the values.
    """

    def __init__(self, seed: int, assumed: DrawNames) -> None:
        super().__init__()
        self._seed, self._assumed = seed, assumed
        self._calls: list[list[int]] = []  # the draws of each call, numbered in order
        self._frame: FrameType | None = None  # of the last call
        self._total = 0
        self._drawn_into: dict[int, int] = {}  # draw -> address of the storage that it filled
        self._reached: dict[int, frozenset[int]] = {}  # address of a storage -> the draws that its values depend on
        self._alive: dict[int, torch.UntypedStorage] = {}  # these storages, so that no address is reused
        self._count: Counter[str] = Counter()  # of the draws of each name

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # PyTorch would import torch._dynamo, which takes seconds, to exclude this mode from compilation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [self._reached.get(_address(z), frozenset()) for z in _tensors((args, kwargs))]
        draws = frozenset[int]().union(*inputs)
        draw = self._count_draw(sys._getframe(1)) if torch.Tag.nondeterministic_seeded in func.tags else None
        if draw is not None and self._assumed:
            result = draw_in_tiles(func, args, kwargs, self._stream())
        else:
            result = func(*args, **kwargs)
        for z in _tensors(result):
            fills = draw is not None and any(z is argument for argument in args)  # in place: no old value remains
            self._record(z, draws if draw is None else draws | {draw}, filled_by=draw if fills else None)
        return result

    def __exit__(self, *error: Any) -> None:
        self._frame = None  # it refers to its callers, and so to this object: the module would live until garbage collection
        super().__exit__(*error)

    def _count_draw(self, frame: FrameType | None) -> int:
        """Assign the next draw to its call, and return its number.

        The draws of one call are counted together: by rejection sampling (``nn.init.trunc_normal_``) a call may draw more
        often in one pass than in another.
        """
        frame = _caller(frame)
        if frame is not self._frame or not self._calls:
            self._calls.append([])
            self._frame = frame
        draw, self._total = self._total, self._total + 1
        self._calls[-1].append(draw)
        return draw

    def _stream(self) -> Callable[..., int]:
        """Return the stream of the last draw: a function from the index of a tile to its seed."""
        call = len(self._calls) - 1
        names = self._assumed[call] if call < len(self._assumed) else [""]
        name = names[min(len(self._calls[-1]), len(names)) - 1]
        count = self._count[name]
        self._count[name] += 1
        return partial(derive_seed, self._seed, "initialisation", name, count)

    def _record(self, z: Tensor, draws: frozenset[int], *, filled_by: int | None) -> None:
        """Record that the storage of ``z`` depends on ``draws``, or on ``filled_by`` alone if this draw filled all of it."""
        address = _address(z)
        if filled_by is not None:
            self._drawn_into[filled_by] = address
        if filled_by is not None and z.numel() * z.element_size() == z.untyped_storage().nbytes():
            draws = frozenset({filled_by})
        else:
            draws = draws | self._reached.get(address, frozenset())
        if draws:
            self._reached[address] = draws
            self._alive[address] = z.untyped_storage()

    def names(self, module: nn.Module) -> DrawNames:
        """Return the names of the draws of each call: the tensor that it filled, else the first that it reaches."""
        reached = [(name, _address(z), self._reached.get(_address(z), frozenset())) for name, z in _named_tensors(module)]
        owner: dict[int, str] = {}
        for filled in (True, False):
            for name, address, draws in reached:
                for draw in draws:
                    if not filled or self._drawn_into.get(draw) == address:
                        owner.setdefault(draw, name)
        return [_without_repeated_end([owner.get(draw, "") for draw in call]) for call in self._calls]


def _caller(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of a function of ``torch.nn`` or outside of PyTorch, from ``frame`` outwards."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(TORCH) or file.startswith(f"{TORCH}/nn/"):
            return frame
        frame = frame.f_back
    return None


def _without_repeated_end(names: list[str]) -> list[str]:
    """Drop the end of the names that further draws of the call repeat: the last name, or "" for a draw without effect.

    Rejection sampling draws as often as its values require, and its last draw may only show that all values are accepted.
    """
    end = len(names)
    while end > 1 and names[end - 1] in ("", names[end - 2]):
        end -= 1
    return names[:end]


def _has_values(module: nn.Module) -> bool:
    return not any(z.is_meta or isinstance(z, FakeTensor) for _, z in _named_tensors(module))


def _named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters, buffers and tensor attributes with their qualified names."""
    for path, part in module.named_modules():
        for name, value in {**part._parameters, **part._buffers, **vars(part)}.items():
            if isinstance(value, Tensor):
                yield f"{path}.{name}".removeprefix("."), value


def _tensors(tree: Any) -> list[Tensor]:
    return [z for z in tree_leaves(tree) if isinstance(z, Tensor) and z.layout == torch.strided]


def _address(z: Tensor) -> int:
    return z.untyped_storage()._cdata


def draw_in_tiles(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], seed_of: Callable[..., int]) -> Any:
    """Return the result of ``func(*args, **kwargs)``, an operation that draws random numbers, drawn tile by tile.

    Elements that are independent and identically distributed are drawn in tiles: in-place operations such as ``normal_``,
    ``torch.randn`` and others that take a shape, and ``torch.rand_like``. Other draws, such as permutations and those with a
    separate generator, depend on the shape.

    Args:
        func: an operator of ``torch.ops.aten`` with the tag ``nondeterministic_seeded``.
        args: its positional arguments.
        kwargs: its keyword arguments.
        seed_of: the seed of the tile at an index, one number for each dimension; without an index, the seed of the whole draw.
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


@torch.no_grad()
def initialize_as_gpt2(model: nn.Module, *, depth: int) -> None:
    """Draw the linear layers and embeddings of a model, in place.

    Args:
        model: the model, on any device.
        depth: its number of blocks.

    Raises:
        UserError: ``residual_projections`` of a module names something that is not one of its linear layers.
    """
    residual = {id(layer) for module in model.modules() for layer in _residual_projections(module)}
    drawn: set[int] = set()
    for module in model.modules():
        std = STD / sqrt(2 * depth) if id(module) in residual else STD
        for parameter in _drawn_parameters(module):
            if id(parameter) in drawn:  # tied embeddings
                continue
            drawn.add(id(parameter))
            # W_Q, W_K and W_V each by itself, as in the constructor of Projections.
            parts = parameter.split(module.widths) if isinstance(module, Projections) else [parameter]
            for part in parts:
                nn.init.normal_(part, std=std)
        if isinstance(module, nn.Linear | Projections) and module.bias is not None:
            nn.init.zeros_(module.bias)


def _drawn_parameters(module: nn.Module) -> Iterator[Tensor]:
    """Yield the weights of a linear layer or of embeddings."""
    if isinstance(module, nn.Linear | nn.Embedding | Projections):
        yield module.weight
    for name, role in getattr(module, "parameter_roles", {}).items():
        if role == "embedding":
            yield getattr(module, name)
    if (token := getattr(module, "class_token", None)) is not None:
        yield token


def _residual_projections(module: nn.Module) -> Iterator[nn.Linear]:
    """Yield the linear layers of a module that write to the residual stream."""
    for name in getattr(module, "residual_projections", None) or ():
        layer = getattr(module, name, None)
        if isinstance(layer, nn.Identity):  # a component has removed it
            continue
        if not isinstance(layer, nn.Linear):
            cls = type(module).__name__
            raise UserError(
                f"{cls}.residual_projections: expected names of linear layers, got {name!r}, a {type(layer).__name__}"
            )
        yield layer


def build(config: RunConfig, task: TaskShape, *, reproducible: bool = True) -> Model:
    """Return the model of a resolved configuration, on the CPU in float32.

    Its seed and the name of each tensor determine the initial values.

    Args:
        config: the configuration, with ``auto`` resolved.
        task: the task; its kind decides the model if the configuration names none.
        reproducible: False draws any initial values, several times as fast, for a model whose values do not matter.

    Raises:
        UserError: no model has this name.
    """
    model = model_class(config, task)

    def construct() -> Model:
        constructed = model(config, task, **config.model.options)
        if config.model.initialization == "gpt2":
            initialize_as_gpt2(constructed, depth=config.model.depth)
        connect_components(constructed)
        return constructed

    if reproducible:
        return initialize(construct, config.seed)
    with torch.random.fork_rng(devices=[]):
        return construct()

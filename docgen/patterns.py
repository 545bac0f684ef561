"""Pictures of the gallery: masks, patterns of dependence and position schemes, drawn from the classes at a small length."""

import io

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from attnlab.components import Component, ComponentConfig
from attnlab.positions import Position, PositionConfig
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS, options_of
from attnlab.testing.checks.target import perturb_constant_parameters
from attnlab.variants import AttentionConfig, Variant

LENGTH, DIM, HEADS = 32, 32, 4
INK = np.array([26, 35, 126])  # of the largest value; the smallest is white
DRAWS = 8  # random directions of an output, over which its dependence is averaged
REQUIRED = {"size": 8}  # values of options without a default


def variant(name: str, *components: str) -> Variant:
    """Return a freshly initialized causal layer with components."""
    cls = VARIANTS.get(name)
    torch.manual_seed(0)
    added = {component: _component(component) for component in components}
    heads = HEADS if cls.has_heads else 1
    config = AttentionConfig(dim=DIM, heads=heads, role="causal", position=_bias_of(cls), components=added)
    return cls(config, **cls.recommended_options(LENGTH)).eval()


def dependence(layer: nn.Module) -> np.ndarray:
    """Return (t, t): the norm of the derivative of output i with respect to input j; the largest of each row is 1."""
    torch.manual_seed(1)
    x = torch.randn(1, LENGTH, DIM).expand(LENGTH * DRAWS, -1, -1).clone().requires_grad_()
    outputs = layer(x).view(LENGTH, DRAWS, LENGTH, DIM)
    direction = torch.randn(DRAWS, DIM)
    torch.stack([(outputs[i, :, i] * direction).sum() for i in range(LENGTH)]).sum().backward()
    assert x.grad is not None
    squares = x.grad.view(LENGTH, DRAWS, LENGTH, DIM).square().sum(dim=(1, 3)).sqrt()
    return (squares / squares.amax(dim=1, keepdim=True).clamp(min=1e-12)).numpy()


def masks(layer: Variant) -> list[np.ndarray]:
    """Return the masks of the first and the last head of a variant that states them; else none."""
    visible = getattr(layer, "visible", None)
    if visible is None:
        return []
    rows = range(LENGTH)
    return [np.array([[float(visible(head, i, j)) for j in rows] for i in rows]) for head in (0, HEADS - 1)]


def component_pattern(name: str) -> np.ndarray | None:
    """Return the dependence of ``dense`` with a component that changes logits or mask by position, else None."""
    cls = COMPONENTS.get(name)
    if cls.permutation_equivariant or not {"score", "visible"} & set(cls.places()):
        return None
    return dependence(variant("dense", name))


def position_pattern(name: str) -> np.ndarray | None:
    """Return a picture of a position scheme; None for ``none`` and for vectors that are learned.

    A scheme that is added to the embeddings is drawn as (t, dim), one that rotates as the products of equal queries and keys,
    one that acts by bias as the bias of the first head. Parameters that start as constants are drawn at random first.
    """
    cls = POSITIONS.get(name)
    torch.manual_seed(0)
    scheme = cls(PositionConfig(dim=DIM, heads=HEADS, head_dim=DIM // HEADS, length=LENGTH, role="causal"))
    perturb_constant_parameters(scheme)
    with torch.no_grad():
        if cls.hook == "embed" and not list(scheme.parameters()):
            return scheme.embed(LENGTH).numpy()
        if cls.hook == "rotate":
            q, k = scheme.rotate(*(torch.ones(1, 1, LENGTH, DIM // HEADS),) * 2)
            return _causal((q @ k.mT)[0, 0])
        if cls.hook == "bias":
            q, k = torch.randn(2, 1, HEADS, LENGTH, DIM // HEADS)
            bias = scheme.bias(q, k, scale=(DIM // HEADS) ** -0.5)
            return _causal(bias.expand(1, HEADS, LENGTH, LENGTH)[0, 0])
    return None


def png(values: np.ndarray) -> bytes:
    """Return an image with one pixel for each value, from white (the smallest) to dark (the largest); NaN is white."""
    low, high = np.nanmin(values), np.nanmax(values)
    share = np.nan_to_num((values - low) / max(high - low, 1e-12))[..., None]
    file = io.BytesIO()
    Image.fromarray((255 - share * (255 - INK)).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def _causal(values: Tensor) -> np.ndarray:
    return values.masked_fill(torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), torch.nan).numpy()


def _component(name: str) -> Component:
    cls = COMPONENTS.get(name)
    options = {key: REQUIRED[key] for key, option in options_of(cls).items() if option.default is option.empty}
    config = ComponentConfig(dim=DIM, heads=HEADS, head_dim=DIM // HEADS, role="causal", length=LENGTH, vocabulary=DIM)
    return cls(config, **options)


def _bias_of(cls: type[Variant]) -> Position | None:
    """Return the default position scheme of a variant, if it acts within attention."""
    scheme = POSITIONS.get(cls.default_position)
    if scheme.hook not in ("rotate", "bias"):
        return None
    blockwise = cls.blockwise_bias
    return scheme(PositionConfig(DIM, HEADS, DIM // HEADS, LENGTH, "causal", blockwise_bias=blockwise))

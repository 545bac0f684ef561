"""Position schemes: how attention learns the order of its input.

A scheme acts through exactly one hook:

``embed``
    is added to the token embeddings, once, before the first block. One instance for the model.
``rotate``
    changes queries and keys before their products are computed. One instance for each block.
``bias``
    is added to the scaled logits, and may depend on the queries and keys. One instance for each block.
``none``
    does nothing: attention sees a set.

Keys may cover more positions than queries (``s > t``, memory in front): query ``i`` is at position ``i + s - t``.

Some variants compute their logits in parts, and request the bias of one part at a time: see ``Position.bias``.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from torch import Tensor, nn

from attnlab.nn.attention import RelativeLogits


@dataclass(frozen=True)
class PositionConfig:
    """Settings that a position scheme is constructed with.

    Attributes:
        dim: model width.
        heads: number of heads.
        head_dim: width of one head's queries and keys.
        length: the longest sequence in training, memory included; evaluation of a trained model may use longer ones.
        role: ``causal``, ``bidirectional`` or ``cross``.
        blockwise_bias: True when the variant requests ``bias`` in parts (``Variant.blockwise_bias``).
    """

    dim: int
    heads: int
    head_dim: int
    length: int
    role: str
    blockwise_bias: bool = False


class Position(nn.Module):
    """Base class of position schemes. A subclass sets ``hook`` and implements the method of that name.

    Attributes:
        hook: ``embed``, ``rotate``, ``bias`` or ``none``.
        relative: True for a scheme that depends only on distances, so that the start of the sequence does not matter.
        reads_mask: True for a scheme that acts by ``bias`` and depends on the keys that each query may attend to, for example
            because it counts them. ``bias`` then takes ``visible``.
        extrapolates: True for a scheme that supports positions beyond the length it was constructed for. Otherwise a trained
            model is not evaluated at longer sequences.
        paper: the citation, for example ``"Press et al. 2022"``.

    Examples:
        >>> import torch
        >>> from attnlab.nn import relative_distance
        >>> from attnlab.positions import Position, PositionConfig
        >>> class Decay(Position):
        ...     hook = "bias"
        ...     relative = True
        ...     def bias(self, q, k, *, scale):
        ...         return -relative_distance(q.shape[-2], k.shape[-2]).abs()
        >>> scheme = Decay(PositionConfig(dim=4, heads=1, head_dim=4, length=3, role="causal"))
        >>> q = torch.zeros(1, 1, 3, 4)
        >>> scheme.bias(q, q, scale=1.0)
        tensor([[ 0, -1, -2],
                [-1,  0, -1],
                [-2, -1,  0]])
    """

    hook: ClassVar[str] = "none"
    relative: ClassVar[bool] = False
    reads_mask: ClassVar[bool] = False
    extrapolates: ClassVar[bool] = True
    paper: ClassVar[str] = ""

    def __init__(self, config: PositionConfig) -> None:
        super().__init__()
        self.config = config

    @classmethod
    def unsupported(cls, config: PositionConfig, *, options: Mapping[str, Any] = MappingProxyType({})) -> str | None:
        """Return the reason why this scheme does not support ``config``, or None. The plan calls it for every cell.

        Args:
            config: the settings that it would be constructed with.
            options: every option of the constructor with its value, defaults included.
        """
        if config.role == "cross" and cls.hook in ("rotate", "bias"):
            return "does not support the role cross: queries and keys are positions in two different sequences"
        if config.blockwise_bias and cls.hook == "bias" and not cls.has_blockwise_bias():
            return "the variant computes its logits in blocks, which requires a bias() that takes heads, step and offset"
        return None

    @classmethod
    def has_blockwise_bias(cls) -> bool:
        """Return True when ``bias`` has the parameters that select a part of the logits."""
        return {"heads", "step", "offset"} <= set(inspect.signature(cls.bias).parameters)

    def embed(self, t: int) -> Tensor:
        """Return the tensor (t, dim) to add to the embeddings of positions 0 .. t-1."""
        raise NotImplementedError

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return q (b, h, t, d) and k (b, h, s, d), changed according to their positions.

        Both may become wider, by the same amount, but the scale of the logits does not change: 1 / sqrt(d) in most variants.
        """
        raise NotImplementedError

    def logit_factor(self, s: int) -> float:
        """Return the factor by which ``rotate`` multiplies the products q . k of s keys in addition to the rotation.

        1, unless the scheme has a temperature. When a variant rotates only some features of q and k, it should multiply the
        products of the others by this factor.
        """
        return 1.0

    def bias(
        self, q: Tensor, k: Tensor, *, scale: float, heads: slice = slice(None), step: int = 1, offset: Tensor | int = 0
    ) -> Tensor:
        """Return the bias of the logits, which are already multiplied by ``scale``.

        A scheme with ``reads_mask`` also takes ``visible``: a boolean tensor, broadcastable to (b, h, t, s), True = may be
        attended to, or None when only the role decides.

        A scheme may omit ``heads``, ``step`` and ``offset``. It then receives q (b, h, t, d) and k (b, h, s, d) of all heads
        and of neighboring positions, and the plan refuses it for variants that request parts. A scheme with these parameters
        must apply them. Key ``j`` of a part is behind query ``i`` by ``relative_distance(t, s)[i, j] * step + offset``.

        Args:
            q: (..., h, t, d).
            k: (..., h, s, d). The leading dimensions of q and k broadcast.
            scale: factor of the products q . k.
            heads: the heads of the scheme that q and k hold.
            step: distance between neighboring queries, and between neighboring keys.
            offset: an integer, or a tensor of integers (..., 1, 1, 1), greater than -step and less than step.

        Returns:
            Broadcastable to (..., h, t, s). In a causal role, values for keys ahead of their query are ignored.
        """
        raise NotImplementedError

    def relative_logits(self, q: Tensor, s: int) -> RelativeLogits | None:
        """Return ``scale * q k^T + bias(q, k)`` as two products, or None when the bias has no such form.

        With it, backend ``blocked`` never holds the whole bias.

        Args:
            q: (b, h, t, d) of all heads and of neighboring positions.
            s: number of keys.
        """
        return None

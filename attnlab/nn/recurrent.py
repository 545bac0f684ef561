"""The recurrence over the real positions of a sequence that the recurrent variants share, in one or two directions."""

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from attnlab.errors import UserError


class Recurrence(nn.Module):
    """A recurrent layer from left to right and, if bidirectional, another from right to left (Schuster & Paliwal 1997).

    Two directions share the width; of an odd width, the layer from the left has one feature more. Padding at any position is
    skipped: the state after it is the state before it.

    Args:
        layer_class: ``nn.GRU`` or ``nn.LSTM``; its states start at zero.
        dim: width of the input and of the output.
        bidirectional: whether a second layer reads from the right.

    Raises:
        UserError: ``dim`` is too small for two directions.
    """

    def __init__(self, layer_class: type[nn.GRU] | type[nn.LSTM], dim: int, *, bidirectional: bool) -> None:
        super().__init__()
        if bidirectional and dim < 2:
            raise UserError(f"{layer_class.__name__}: expected a width of at least 2 for two directions, got {dim}")
        width = dim // 2 if bidirectional else 0
        self.from_left = layer_class(dim, dim - width, batch_first=True)
        self.from_right = layer_class(dim, width, batch_first=True) if bidirectional else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the state after each position (b, t, dim).

        Args:
            x: (b, t, dim).
            mask: (b, t), True = a real position; None: all are.
        """
        left = _skip_padding(self.from_left, x, mask)
        if self.from_right is None:
            return left
        right = _skip_padding(self.from_right, x.flip(1), None if mask is None else mask.flip(1)).flip(1)
        return torch.cat([left, right], dim=-1)


def _skip_padding(layer: nn.GRU | nn.LSTM, x: Tensor, mask: Tensor | None) -> Tensor:
    """Run ``layer`` with the real positions moved to the front, so that the padding behind them cannot change their states."""
    if mask is None:
        return _states(layer, x)
    order = (~mask).byte().argsort(dim=1, stable=True).unsqueeze(-1)  # (b, t, 1)
    y = _states(layer, x.take_along_dim(order, dim=1))
    return y.take_along_dim(order.argsort(dim=1), dim=1)


def _states(layer: nn.GRU | nn.LSTM, x: Tensor) -> Tensor:
    if not (x.is_meta or isinstance(x, FakeTensor)):
        return layer(x)[0]
    # The plan estimates the cost with fake tensors. The same products for all positions at once take it milliseconds, where
    # position by position takes seconds. The gates that are saved for the backward pass are about what cuDNN reserves.
    h = x.new_empty(*x.shape[:2], layer.hidden_size)
    w_x, w_h = (layer.get_parameter(name) for name in ("weight_ih_l0", "weight_hh_l0"))
    return (F.linear(x, w_x) + F.linear(h, w_h)).sigmoid()[..., : layer.hidden_size]

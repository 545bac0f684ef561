"""What the recurrent variants share: a recurrence over the real positions of a sequence, in one direction or in both."""

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from attnlab.errors import UserError


class Recurrence(nn.Module):
    """A recurrent layer from the left, and where the role is bidirectional another from the right (Schuster & Paliwal 1997).

    Two directions share the width: the left has one feature more where it is odd. Padding, wherever it stands, is passed over:
    the state after it is the state before it.

    Args:
        kind: ``nn.GRU`` or ``nn.LSTM``; its states start at zero.
        dim: the width of the input and of the output.
    """

    def __init__(self, kind: type[nn.GRU] | type[nn.LSTM], dim: int, *, both: bool) -> None:
        super().__init__()
        if both and dim < 2:
            raise UserError(f"expected a width of at least 2 to share between two directions, got {dim}")
        width = dim // 2 if both else 0
        self.from_left = kind(dim, dim - width, batch_first=True)
        self.from_right = kind(dim, width, batch_first=True) if both else None

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """x (b, t, dim), mask (b, t) True = a real position -> the states after each position (b, t, dim)."""
        left = _over_real(self.from_left, x, mask)
        if self.from_right is None:
            return left
        right = _over_real(self.from_right, x.flip(1), None if mask is None else mask.flip(1)).flip(1)
        return torch.cat([left, right], dim=-1)


def _over_real(layer: nn.GRU | nn.LSTM, x: Tensor, mask: Tensor | None) -> Tensor:
    """States after each position, real positions moved to the front: what comes behind them changes none of theirs."""
    if mask is None:
        return _states(layer, x)
    order = (~mask).byte().argsort(dim=1, stable=True).unsqueeze(-1)  # (b, t, 1)
    y = _states(layer, x.take_along_dim(order, dim=1))
    return y.take_along_dim(order.argsort(dim=1), dim=1)


def _states(layer: nn.GRU | nn.LSTM, x: Tensor) -> Tensor:
    if not (x.is_meta or isinstance(x, FakeTensor)):
        return layer(x)[0]
    # Only the cost is asked for: the same products at once, where position by position takes a plan seconds. The gates
    # that it saves for the backward pass are about what cuDNN reserves.
    h = x.new_empty(*x.shape[:2], layer.hidden_size)
    w_x, w_h = (layer.get_parameter(name) for name in ("weight_ih_l0", "weight_hh_l0"))
    return (F.linear(x, w_x) + F.linear(h, w_h)).sigmoid()[..., : layer.hidden_size]

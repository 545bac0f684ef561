"""Position-wise feed-forward networks.

Vaswani et al. 2017, arXiv:1706.03762, section 3.3, with one of several activations f, and the gated network of Shazeer 2020,
arXiv:2002.05202, equation 6:

    f:       y = W_2 f(W_1 x + b_1) + b_2
    swiglu:  y = W_2 (silu(V x + c) * (W_1 x + b_1)) + b_2

    relu       max(0, z)                                             Vaswani et al. 2017, equation 2
    relu2      max(0, z)^2                                           So et al. 2021, arXiv:2109.08668
    gelu       z Phi(z), Phi the normal distribution function        Hendrycks & Gimpel 2016, arXiv:1606.08415
    gelu_tanh  z (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) / 2     the same paper, section 2; used by GPT-2

Departures from the papers: Shazeer 2020 and So et al. 2021 have no biases; ``bias=False`` removes them.
Glossary: ``widen`` W_1, b_1; ``narrow`` W_2, b_2; ``gate`` V, c.
"""

from functools import partial
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.nn.layers import Dropout


def squared_relu(x: Tensor) -> Tensor:
    """Return the square of the positive part of each element."""
    return F.relu(x).square()


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "relu2": squared_relu,
    "swiglu": F.silu,
}


class FeedForward(nn.Module):
    """Two linear layers around an activation, or three with a gate, applied to each position separately.

    The inner width is ``multiple * dim``. For ``swiglu`` it is 2/3 of this, as in Shazeer 2020, section 3, so that its three
    matrices have as many parameters as the two matrices of the other kinds.

    Args:
        dim: width of the input and of the output.
        multiple: ratio of the inner width to ``dim``; the inner width is rounded to a whole number, at least 1.
        kind: a key of ``ACTIVATIONS``.
        dropout: probability of dropping an inner feature.
        bias: False for linear layers without biases.
    """

    residual_projections: ClassVar[tuple[str, ...]] = ("narrow",)

    def __init__(self, dim: int, multiple: float, *, kind: str, dropout: float, bias: bool = True) -> None:
        super().__init__()
        is_gated = kind == "swiglu"
        inner = max(1, round(dim * multiple * 2 / 3 if is_gated else dim * multiple))
        self.gate = nn.Linear(dim, inner, bias=bias) if is_gated else None
        self.widen = nn.Linear(dim, inner, bias=bias)
        self.narrow = nn.Linear(inner, dim, bias=bias)
        self.activation = ACTIVATIONS[kind]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of x (b, t, dim) separately: (b, t, dim)."""
        h = self.widen(x)
        h = self.activation(h) if self.gate is None else self.activation(self.gate(x)) * h
        return self.narrow(self.dropout(h))

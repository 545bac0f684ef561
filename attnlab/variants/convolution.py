"""Gated convolution along the sequence. Not attention: a variant to compare attention with.

Gehring et al. 2017, arXiv:1705.03122, "Convolutional Sequence to Sequence Learning", section 3.2; the gate is from
Dauphin et al. 2017, arXiv:1612.08083, equation 1.

    y_i = (sum_j A_j x_(i-j) + a) * sigmoid(sum_j B_j x_(i-j) + b)        j = 0 .. k-1, of k positions

Causal: position i sees itself and the k - 1 positions before it, with zeros before the beginning. Bidirectional: position i is
in the middle of its k positions. n blocks together see n (k - 1) positions away.

Departures from the paper: no weight normalization and no dropout inside, and the residual connection around it is the
model's. Padding counts as zeros, as positions outside the sequence do.
Cost: time O(t k dim^2), all positions in parallel; 2 k dim^2 + 2 dim parameters for each block, against 4 dim^2 of ``dense``.
Of a memory it reads only the last k - 1 positions.
Glossary: ``convolve`` A and B stacked, with a and b; ``kernel`` k.
"""

from types import MappingProxyType

from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.variants.base import AttentionConfig, Variant


class Convolution(Variant):
    """A weighted sum of the neighboring positions, multiplied by a gate that is another. It has no heads and no logits.

    Args:
        kernel: k, the number of positions that one output sees, including the output's; odd in a bidirectional role.

    Raises:
        UserError: ``kernel`` is less than 1, or even in a bidirectional role.
    """

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    supports_memory = True
    default_position = "none"  # the kernel depends on the order
    has_heads = False
    has_attention_dropout = False
    permutation_equivariant = False
    residual_projections = ()
    parameter_roles = MappingProxyType({"convolve.weight": "matrix"})  # of k positions at once
    cost_exponent = 1.0
    paper = "Gehring et al. 2017"

    def __init__(self, config: AttentionConfig, *, kernel: int = 3) -> None:
        super().__init__(config)
        if kernel < 1:
            raise UserError(f"convolution: expected a kernel of at least 1, got {kernel}")
        if not self.causal and kernel % 2 == 0:
            raise UserError(f"convolution: expected an odd kernel in a bidirectional role, got {kernel}")
        self.before = kernel - 1 if self.causal else kernel // 2  # positions that are seen to the left
        self.after = kernel - 1 - self.before
        self.convolve = nn.Conv1d(config.dim, 2 * config.dim, kernel)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        t = x.shape[1]
        s = x if context is None else context[:, -(t + self.before) :]
        if mask is not None:
            s = s.masked_fill(~mask[:, -s.shape[1] :, None], 0.0)
        y = self.convolve(F.pad(s.mT, (self.before, self.after))).mT  # (b, s, 2 dim)
        return F.glu(y, dim=-1)[:, -t:]

"""A sigmoid of each logit instead of the softmax of all.

Ramapuram et al. 2024, arXiv:2409.04431, "Theory, Analysis, and Best Practices for Sigmoid Self-Attention".

    w_ij = sigmoid(s_ij - log n)

The weights of a query are independent and need not sum to 1; with logits near 0, - log n makes their sum about 1 at first.

Departures from the paper: n is the number of keys that query i may attend to, not the length of the sequence, of which a causal
model must not depend on the part ahead. The paper's models add LayerScale, and some of them a norm of
queries and keys, which is ``qk_norm``.
Cost: O(h t s); no parameters.
"""

from torch import Tensor

from attnlab.components.base import Component


class Sigmoid(Component):
    """Independent weights of the keys."""

    paper = "Ramapuram et al. 2024"

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        n = visible.expand(*visible.shape[:-1], logits.shape[-1]).sum(-1, keepdim=True).clamp(min=1)
        return (logits - n.to(logits.dtype).log()).sigmoid()

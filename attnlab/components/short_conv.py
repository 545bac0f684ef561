"""Short convolution of queries, keys and values, the multi-DConv-head attention of Primer.

So et al. 2021, arXiv:2109.08668, "Primer: Searching for Efficient Transformers for Language Modeling".

    q_t <- sum_{k < 3} w_k * q_{t-k},    and k, v likewise

with one weight for each feature and distance k. It is the convolution of ``delta`` and its relatives (``short_conv``), without
silu; ``token_shift_qkv`` adds its mixture to q_t, k_t and v_t instead.

Departures from the paper: none known. Weights are initialized like PyTorch's convolutions.
Cost: O(t dim); 9 dim parameters.
Glossary: ``shift_q.weight``, ``shift_k.weight``, ``shift_v.weight`` w_k.
"""

from attnlab.components.base import ComponentConfig
from attnlab.components.token_shift_qkv import TokenShiftQKV
from attnlab.nn.shift import ShortConvolution


class ShortConv(TokenShiftQKV):
    """A mixture of the last ``width`` queries, keys and values instead of each."""

    kind = ShortConvolution
    paper = "So et al. 2021"

    def __init__(self, config: ComponentConfig, *, width: int = 3) -> None:
        super().__init__(config, width=width)

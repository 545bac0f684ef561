"""Gated recurrent units. Not attention: a variant to compare attention with.

Cho et al. 2014, arXiv:1406.1078, "Learning Phrase Representations using RNN Encoder-Decoder", section 2.3.

    r_i  = sigmoid(W_r x_i + U_r h_(i-1))                            (5) reset gate
    z_i  = sigmoid(W_z x_i + U_z h_(i-1))                            (6) update gate
    h_i  = z_i * h_(i-1) + (1 - z_i) * h~_i                          (7)
    h~_i = tanh(W x_i + r_i * (U h_(i-1)))                           (8)

The output at i is h_i, from h_0 = 0. In a bidirectional role a second layer reads from the right, each layer has half of the
width, and the output is the concatenation of both states.

Departures from the paper: in (8) the paper resets before the product, U (r_i * h_(i-1)); ``torch.nn.GRU`` resets after it.
Every product has a bias. A memory is read again from h_0 = 0, so the state that is carried is the one after the memory.
Cost: time O(t dim^2), in t sequential steps; a state of dim. 6 dim^2 + 6 dim parameters for each block, against 4 dim^2 of
``dense``; 4.5 dim^2 + 6 dim in a bidirectional role.
Glossary: ``weight_ih_l0`` W_r, W_z, W stacked; ``weight_hh_l0`` U_r, U_z, U; i counts positions, the paper's <t>.
"""

from torch import Tensor, nn

from attnlab.nn.recurrent import Recurrence
from attnlab.variants.base import AttentionConfig, Variant


class Gru(Variant):
    """A recurrence of gated recurrent units. It has no heads and no logits."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    supports_memory = True
    default_position = "none"  # a recurrence depends on the order
    has_heads = False
    has_attention_dropout = False
    permutation_equivariant = False
    cost_exponent = 1.0
    residual_projections = ()
    recurrent_layers = (nn.GRU,)
    supports_compile = False  # by default torch.compile breaks the graph at nn.GRU
    paper = "Cho et al. 2014"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.recurrence = Recurrence(nn.GRU, config.dim, bidirectional=not self.causal)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        h = self.recurrence(x if context is None else context, mask)  # (b, s, dim)
        return h[:, -x.shape[1] :]

"""Long short-term memory. Not attention: a variant to compare attention with.

Hochreiter & Schmidhuber 1997, doi:10.1162/neco.1997.9.8.1735, with the forget gate of Gers et al. 2000,
doi:10.1162/089976600300015015.

    i_i = sigmoid(W_i x_i + U_i h_(i-1))              input gate
    f_i = sigmoid(W_f x_i + U_f h_(i-1))              forget gate
    g_i = tanh(W_g x_i + U_g h_(i-1))                 candidate values
    o_i = sigmoid(W_o x_i + U_o h_(i-1))              output gate
    c_i = f_i * c_(i-1) + i_i * g_i                   the cell; 1997 has no f_i
    h_i = o_i * tanh(c_i)

The output at position i is h_i, from h_0 = c_0 = 0. In a bidirectional role a second layer reads from the right, each layer
has half of the width, and the output is the concatenation of both states.

Departures from the paper of 1997: the forget gate; gates see every unit of the layer before, not blocks of cells; tanh in
place of its shifted sigmoids; gradients are not truncated. Every product has a bias, which starts near zero in the forget gate
as well. A memory is read again from zero, so the state that is carried is the one after the memory.
Cost: time O(t dim^2), in t sequential steps; a state of 2 dim. 8 dim^2 + 8 dim parameters for each block, against 4 dim^2 of
``dense``; 6 dim^2 + 8 dim in a bidirectional role.
Glossary: ``weight_ih_l0`` W_i, W_f, W_g, W_o stacked; ``weight_hh_l0`` U_i, U_f, U_g, U_o stacked.
"""

from torch import Tensor, nn

from attnlab.nn.recurrent import Recurrence
from attnlab.variants.base import AttentionConfig, Variant


class Lstm(Variant):
    """A recurrence of a state and a cell. It has no heads and no logits."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    supports_memory = True
    default_position = "none"  # a recurrence depends on the order
    has_heads = False
    has_attention_dropout = False
    permutation_equivariant = False
    cost_exponent = 1.0
    residual_projections = ()
    recurrent_layers = (nn.LSTM,)
    supports_compile = False  # by default torch.compile breaks the graph at nn.LSTM
    paper = "Hochreiter & Schmidhuber 1997"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.recurrence = Recurrence(nn.LSTM, config.dim, bidirectional=not self.causal)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        h = self.recurrence(x if context is None else context, mask)  # (b, s, dim)
        return h[:, -x.shape[1] :]

"""Long short-term memory: Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000.

    i_i = sigmoid(W_i x_i + U_i h_(i-1))              input gate
    f_i = sigmoid(W_f x_i + U_f h_(i-1))              forget gate
    g_i = tanh(W_g x_i + U_g h_(i-1))                 what may be stored
    o_i = sigmoid(W_o x_i + U_o h_(i-1))              output gate
    c_i = f_i * c_(i-1) + i_i * g_i                   the cell; 1997 has no f_i
    h_i = o_i * tanh(c_i)

The output at position i is h_i, from h_0 = c_0 = 0. In a bidirectional role a second layer reads from the right, each with half
of the width, and the output is both states side by side. A recurrence, not attention: it is here to be compared with.

Departures from 1997: the forget gate; gates see every unit of the layer before, not blocks of cells; tanh in place of its
shifted sigmoids; gradients in full, not truncated. Every product has a bias, which starts near zero in the forget gate too.
Memory is read by running over it again, from zero: the state that is carried is the one after the memory.

Cost: time O(t dim^2), of which t steps cannot run side by side; a state of 2 dim. 8 dim^2 + 8 dim parameters a block, against
4 dim^2 of ``dense``; 6 dim^2 + 8 dim in a bidirectional role.

Code to paper: ``weight_ih_l0`` W_i, W_f, W_g, W_o stacked; ``weight_hh_l0`` the U.
"""

from torch import Tensor, nn

from attnlab.nn.recurrent import Recurrence
from attnlab.variants import AttentionConfig, Variant


class Lstm(Variant):
    """A state and a cell that are carried from position to position. It has no heads and no logits."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    memory = True
    default_position = "none"  # it reads in order
    has_heads = False
    has_attention_dropout = False
    permutation_equivariant = False
    cost_exponent = 1.0
    recurrent_layers = (nn.LSTM,)
    compiles = False  # torch.compile does not take nn.LSTM unless told to
    paper = "Hochreiter & Schmidhuber 1997"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.recurrence = Recurrence(nn.LSTM, config.dim, both=not self.causal)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        h = self.recurrence(x if context is None else context, mask)  # (b, s, dim)
        return h[:, -x.shape[1] :]

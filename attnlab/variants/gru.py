"""Gated recurrent units: Cho et al. 2014, section 2.3.

    r_i  = sigmoid(W_r x_i + U_r h_(i-1))                            (5) reset gate
    z_i  = sigmoid(W_z x_i + U_z h_(i-1))                            (6) update gate
    h_i  = z_i * h_(i-1) + (1 - z_i) * h~_i                          (7)
    h~_i = tanh(W x_i + r_i * (U h_(i-1)))                           (8)

The output at i is h_i, from h_0 = 0. In a bidirectional role a second unit reads from the right, each with half of the width,
and the output is both states side by side. A recurrence, not attention: it is here to be compared with.

Departures: in (8) the paper resets before the product, U (r_i * h_(i-1)); ``torch.nn.GRU`` after it. Every product has a bias.
Memory is read by running over it again, from h_0 = 0: the state that is carried is the one after the memory.

Cost: time O(t dim^2), of which t steps cannot run side by side; a state of dim. 6 dim^2 + 6 dim parameters a block, against
4 dim^2 of ``dense``; 4.5 dim^2 + 6 dim in a bidirectional role.

Code to paper: ``weight_ih_l0`` W_r, W_z, W stacked; ``weight_hh_l0`` U_r, U_z, U; i counts positions, the paper's <t>.
"""

from torch import Tensor, nn

from attnlab.nn.recurrent import Recurrence
from attnlab.variants import AttentionConfig, Variant


class Gru(Variant):
    """A state that is carried from position to position, by gated recurrent units. It has no heads and no logits."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    memory = True
    default_position = "none"  # it reads in order
    has_heads = False
    has_attention_dropout = False
    permutation_equivariant = False
    cost_exponent = 1.0
    recurrent_layers = (nn.GRU,)
    compiles = False  # torch.compile does not take nn.GRU unless told to
    paper = "Cho et al. 2014"

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.recurrence = Recurrence(nn.GRU, config.dim, both=not self.causal)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        h = self.recurrence(x if context is None else context, mask)  # (b, s, dim)
        return h[:, -x.shape[1] :]

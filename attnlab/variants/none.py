"""No mixing along the sequence. Not attention: a control that a study must find to be worse.

A study that cannot tell attention from no attention cannot tell two kinds of attention apart either, so a verdict of
"equivalent" needs a cell like this one (assay sensitivity; ICH 2000, guideline E10, section 1.5).

    y_i = W_O W_V x_i

This is ``dense`` with a weight of 1 on each query's position: every head returns its own value, the heads' values together
are W_V x_i, and W_Q and W_K have nothing to choose. Each position sees its own input and, with a position scheme that is added
to the input, its own place. A language model of such blocks predicts a token from the one before it alone. A classifier still
averages (or takes the maximum) over positions at its end, so it is a bag of words.

Departures from the paper: none; there is no paper.
Cost: time O(t dim^2); 2 dim^2 parameters for each block, against 4 dim^2 of ``dense``. ``{name: none, match: params}`` widens
the feed-forward layers until it has the baseline's number of parameters.
Glossary: ``value`` W_V; ``out`` W_O, which starts from the values of ``dense`` with the same seed.
"""

from torch import Tensor, nn

from attnlab.variants.base import AttentionConfig, Variant


class NoMixing(Variant):
    """Value and output projection of each position's input. It has no heads and no logits, and ignores a memory."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed"})
    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    has_heads = False
    has_attention_dropout = False
    mixes_positions = False
    cost_exponent = 1.0

    def __init__(self, config: AttentionConfig) -> None:
        super().__init__(config)
        self.value = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.out = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return self.out(self.value(x))

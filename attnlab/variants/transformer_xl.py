"""Transformer-XL attention: segment recurrence with relative positions. A preset of ``dense``.

Dai et al. 2019, arXiv:1901.02860, "Transformer-XL", sections 3.2 and 3.3.

    h~     = [SG(memory); h]                                       keys and values run over h~, queries over h
    q_i    = W_q h_i,   k_j = W_kE h~_j,   v_j = W_v h~_j
    A_ij   = q_i . k_j + q_i . r_(i-j) + u . k_j + v . r_(i-j)     the last three terms by the position scheme ``relative``
    y      = Concat(softmax(A / sqrt(d)) v) W_O

The class is ``dense`` with another default position scheme. The model keeps the memory (``model.mem_len`` positions of each
block's input, without gradient) and passes [memory; h] as ``context``; the scheme ``relative`` adds the last three terms.
Without memory, the variant ablates the position encoding alone.

Departures from the paper: see ``positions/relative.py``.
Cost: time O(t (t + memory) dim), and a state of memory x dim for each block; 4 dim^2 parameters plus the parameters of
    ``relative``.
Glossary: ``project`` W_q, W_kE, W_v stacked; ``out`` W_O; see ``positions/relative.py`` for r, u and v.
"""

from attnlab.variants.dense import Dense


class TransformerXL(Dense):
    """Attention over [memory; segment]."""

    roles = frozenset({"causal", "bidirectional"})
    default_position = "relative"
    paper = "Dai et al. 2019"

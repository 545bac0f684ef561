"""A forget gate: logits that decay with the data between key and query.

Lin et al. 2025, arXiv:2503.02130, "Forgetting Transformer".

    f_t  = sigmoid(x_t w_f + b_f)                                   for each head
    s_ij <- s_ij + sum_{l = j+1..i} log f_l

It needs no position scheme.

Departures from the paper: none.
Cost: O(h t s); (dim + 1) h parameters.
Glossary: ``forget`` w_f, b_f; ``decay`` the cumulative sum of log f.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.components.base import Component, ComponentConfig
from attnlab.nn.cache import SequenceCache
from attnlab.nn.functions import ScoreFunction


class ForgetGate(Component):
    """A decay of the logits that the inputs between key and query decide."""

    roles = frozenset({"causal"})
    permutation_equivariant = False
    paper = "Lin et al. 2025"

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__(config)
        self.forget = nn.Linear(config.dim, config.heads)
        nn.init.zeros_(self.forget.bias)
        self.cache: SequenceCache | None

    def new_cache(self) -> SequenceCache:
        return SequenceCache()

    def score_function(self, context: Tensor, mask: Tensor | None) -> ScoreFunction:
        log_f = F.logsigmoid(self.forget(context))  # (b, s, h)
        if mask is not None:  # padding forgets nothing
            log_f = log_f.masked_fill(~mask[:, mask.shape[1] - log_f.shape[1] :, None], 0.0)
        if self.cache is not None:
            log_f = self.cache.extend(log_f)
        exact = torch.promote_types(log_f.dtype, torch.float32)  # differences of long sums, which bf16 would round
        decay = log_f.to(exact).cumsum(1).mT  # (b, h, s)
        decay_of_keys = decay.clone()  # FlexAttention differentiates one indexing of a tensor

        def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + (decay[b, h, i] - decay_of_keys[b, h, j]).to(s.dtype)

        return score

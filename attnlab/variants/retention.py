"""Multi-scale retention.

Sun et al. 2023, arXiv:2307.08621, "Retentive Network: A Successor to Transformer for Large Language Models".

    S_n     = gamma S_(n-1) + K_n^T V_n          Retention(X)_n = Q_n S_n
    gamma   = 1 - 2^(-5 - arange(0, h))          head_i = Retention(X, gamma_i)
    Y       = GroupNorm_h(Concat(head_1, ..., head_h))
    MSR(X)  = (swish(X W_G) * Y) W_O

Head i forgets at a fixed rate gamma_i: it reaches back about 2^(5 + i) positions. The rotation of queries and keys by
their positions, Theta in the paper, is the position scheme ``rotary``, the default of this variant; it is a separate axis.

Departures from the paper: the angles are as in ``rotary``; the normalizations of the logits other than 1 / sqrt(d), which
cancel in GroupNorm but for its epsilon, are left out. GroupNorm has no gain and no bias. Weights are drawn as in all other
variants. The paper pays for wide values with a smaller feed-forward network: lower ``model.ff_mult``, or ``expand: 1``.
Cost: time O(t (C + d) dim) in chunks of C = 64 positions; a state of 2 d^2 numbers a head; with ``expand`` m, (2 + 3 m) dim^2
parameters, 8 dim^2 by default.
Glossary: ``query``, ``key``, ``value`` W_Q, W_K, W_V; ``gate`` W_G; ``out`` W_O; ``log_gamma`` log gamma.
"""

from math import sqrt

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError
from attnlab.nn.cache import State
from attnlab.nn.layers import merge_heads
from attnlab.nn.linear_attention import linear_attention
from attnlab.variants.base import AttentionConfig
from attnlab.variants.linear_recurrence import EPS, LinearRecurrence


class Retention(LinearRecurrence):
    """Linear attention with a fixed decay of each head.

    Args:
        expand: width of the values, as a multiple of the model width.

    Raises:
        UserError: ``expand`` is less than 1.
    """

    hooks = frozenset({"embed", "rotate"})
    supports_cache = True
    supports_attention_bias = True
    default_position = "rotary"
    paper = "Sun et al. 2023"

    def __init__(self, config: AttentionConfig, *, expand: int = 2) -> None:
        super().__init__(config)
        if expand < 1:
            raise UserError(f"retention: expected an expand of at least 1, got {expand}")
        dim, bias = config.dim, config.bias
        self.query = nn.Linear(dim, dim, bias=bias)
        self.key = nn.Linear(dim, dim, bias=bias)
        self.value = nn.Linear(dim, expand * dim, bias=bias)
        self.gate = nn.Linear(dim, expand * dim, bias=bias)
        self.out = nn.Linear(expand * dim, dim, bias=bias)
        gamma = 1 - 2 ** (-5 - torch.arange(config.heads, dtype=torch.float64))
        self.register_buffer("log_gamma", gamma.log()[:, None, None], persistent=False)  # (h, 1, 1)
        self.log_gamma: Tensor

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q = self.project_heads(self.query, x) / sqrt(self.head_width)
        k, v = self.project_heads(self.key, source), self.project_heads(self.value, source)
        q, k = self._rotate(q, k)
        log_decay = self.log_gamma.expand(len(x), self.heads, k.shape[2], 1)
        y = self.recur(linear_attention, q, k, v, log_decay, mask=mask)
        y = merge_heads(F.layer_norm(y, y.shape[-1:], eps=EPS))
        return self.out(F.silu(self.gate(x)) * y)

    def _rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys, which follow the positions that are in the cache."""
        if not (isinstance(self.cache, State) and self.cache.length):
            return self.rotate(q, k)
        start = self.cache.length
        q, k = self.rotate(q, F.pad(k, (0, 0, start, 0)))  # a scheme counts positions from the first key
        return q, k[:, :, start:]

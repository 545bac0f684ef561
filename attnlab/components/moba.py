"""Mixture of block attention: each query attends to the blocks of keys that fit it best.

Lu et al. 2025, arXiv:2502.13189, "MoBA: Mixture of Block Attention for Long-Context LLMs", section 2.

    k_n  = mean of the keys of block n, positions n B ... (n + 1) B - 1
    M_i  = {j <= i : j is in the block of i, or in one of the k - 1 earlier blocks n with the largest q_i . k_n}

Blocks are counted from the first key, and the query's block is always seen, up to the query. Queries and keys are taken after
the position scheme. There are no parameters: the choice has no gradient, the keys learn by the attention that they receive.

Departures from the paper: padding does not count in the means. Decoding chooses blocks as training does; the authors generate
with full attention. The logits of hidden keys are computed and masked: the component shows what the sparsity costs in quality,
in rows of some hundreds of positions, and saves no time.
Cost: as much as attention to all keys, and O(t s dim / B) for the choice; no parameters.
Glossary: ``size`` B; ``count`` k, including the query's block.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.components.base import Component, ComponentConfig, Setting
from attnlab.nn.linear_attention import without_autocast
from attnlab.nn.mask import MaskFunction


class Moba(Component):
    """Attention to the query's block and to the blocks with the best mean key.

    Args:
        size: positions of a block.
        count: blocks of a query, including the one that it is in.
    """

    roles = frozenset({"causal"})
    supports_memory = False  # blocks are counted from the first key, which a memory moves
    permutation_equivariant = False
    paper = "Lu et al. 2025"

    def __init__(self, config: ComponentConfig, *, size: int, count: int = 3) -> None:
        super().__init__(config)
        self.size, self.count = size, count

    @property
    def most_keys(self) -> int:
        """The largest number of keys that a query sees."""
        return self.size * self.count

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        options = setting.options
        if options["size"] < 1 or options["count"] < 1:
            return f"expected a size and a count of at least 1, got {options['size']} and {options['count']}"
        return super().unsupported(setting)

    @torch.no_grad()
    def visible_function(self, q: Tensor, k: Tensor, mask: Tensor | None) -> MaskFunction:
        t, s = q.shape[2], k.shape[2]
        exact = torch.promote_types(q.dtype, torch.float32)
        means, counts = self.mean_keys(k.to(exact), mask)
        with without_autocast(q.device):  # nearly equal scores would change places in bf16
            scores = q.to(exact) @ means.mT  # (b, h, t, n)
        own = torch.arange(s - t, s, device=q.device)[:, None] // self.size  # (t, 1)
        blocks = torch.arange(scores.shape[-1], device=q.device)
        scores = scores.masked_fill((blocks >= own) | (counts.mT == 0), float("-inf"))
        best = scores.topk(min(self.count - 1, scores.shape[-1]), dim=-1)
        chosen = (blocks == own).expand_as(scores).scatter(-1, best.indices, best.values > float("-inf"))
        chosen = chosen | (blocks == own)

        def visible(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return chosen[b, h, i - (s - t), j // self.size]

        return visible

    def mean_keys(self, k: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the mean key (b, h, n, d) and the number of keys (b or 1, 1, n, 1) of each block of k (b, h, s, d).

        Keys that mask (b, s) hides do not count.
        """
        real = k.new_ones(1, k.shape[2]) if mask is None else mask.to(k.dtype)
        real = real[:, None, :, None]
        sums, counts = (
            F.pad(z, (0, 0, 0, -z.shape[2] % self.size)).unflatten(2, (-1, self.size)).sum(3) for z in (k * real, real)
        )
        return sums / counts.clamp(min=1), counts

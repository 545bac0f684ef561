"""DeepSeek sparse attention: an indexer of a few narrow heads chooses the keys of each query.

DeepSeek-AI 2025, arXiv:2512.02556, "DeepSeek-V3.2", equations 1 to 4.

    I_ts = sum_j w^I_tj relu(q^I_tj . k^I_s)                                  the indexer, of n_I heads j     (1)
    S_t  = {s <= t : I_ts is among the k largest of its row}
    u_t  = W_O Concat(softmax_(s in S_t)(q_t . k_s / sqrt(d)) v_s)            of each head                    (2)
    p_t  = mean over heads of softmax_(s <= t)(q_t . k_s / sqrt(d))
    L^I  = mean over real t of KL(p_t || softmax_(s <= t)(I_t))                                               (3)

All heads share S_t. The choice has no gradient, so the indexer learns by a separate loss, L^I, towards the distribution of
the attention: its input and p_t are constants for L^I, which therefore reaches the rest of the model only through the common
norm that ``train.grad_clip`` clips. The backward pass of any loss adds the gradient of L^I
(``attnlab.nn.functions.with_gradient_of``); the reported training loss does not contain it.

Departures from the paper: attention is sparse from the first step on, and L^I compares over all visible keys, equation 3. The
paper does so while attention is dense, and then compares over the chosen keys (4). L^I is a mean over queries, in the paper a
sum. Attention is as in ``dense``, not ``latent``, and q^I is linear in x_t, where the paper computes it from the compressed
query of ``latent``. The authors' code applies a LayerNorm to k^I and multiplies I_ts by 1 / sqrt(n_I d_I); here both are
missing: the factor does not change S_t, but without it softmax(I_t) is sharper. When the position scheme rotates, all features
of the indexer's queries and keys are rotated as by ``rotary``, in the authors' code a part of them. Among equal scores, later
keys come first. All logits are computed and other keys masked: the variant shows what the sparsity costs in quality, in rows
of up to about 1,000 positions, and saves no time.
Cost: as ``dense``, twice the logits in training, and O(t s n_I d_I) for the indexer; 4 dim^2 +
(n_I d_I + d_I + n_I) dim parameters. Decoding also caches k^I, d_I numbers a position.
Glossary: ``project`` W_Q, W_K, W_V; ``indexer`` has ``query`` q^I, ``key`` k^I and ``weight`` w^I; ``count`` k; ``index_heads``
n_I; ``index_dim`` d_I; ``out`` W_O.
"""

import torch
from torch import Tensor, nn

from attnlab.nn.attention import AttentionMask
from attnlab.nn.cache import Cache, KeyValueCache
from attnlab.nn.functions import with_gradient_of
from attnlab.nn.layers import Projections, merge_heads, split_heads
from attnlab.positions import PositionConfig
from attnlab.positions.rotary import Rotary
from attnlab.variants.base import AttentionConfig, Setting, Variant


class Dsa(Variant):
    """Attention to the keys that an indexer chooses.

    Args:
        count: k, the keys of a query.
        index_heads: n_I, the heads of the indexer.
        index_dim: d_I, their width; even.
    """

    roles = frozenset({"causal"})
    hooks = frozenset({"embed", "rotate"})
    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    backends = ("reference", "blocked", "sdpa")
    trained_apart = ("indexer",)
    paper = "DeepSeek-AI 2025"

    def __init__(self, config: AttentionConfig, *, count: int = 32, index_heads: int = 2, index_dim: int = 16) -> None:
        super().__init__(config)
        self.count = count
        self.project = Projections(config.dim, config.dim, heads=config.heads, bias=config.bias)
        rotates = config.position is not None
        self.indexer = Indexer(config.dim, heads=index_heads, width=index_dim, bias=config.bias, rotates=rotates)
        self.out = nn.Linear(config.dim, config.dim, bias=config.bias)

    @property
    def most_keys(self) -> int:
        """The largest number of keys that a query sees."""
        return self.count

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        options = setting.options
        least = min(options.get(name, 2) for name in ("count", "index_heads", "index_dim"))
        if least < 1 or options.get("index_dim", 2) % 2:
            return f"expected a count and index_heads of at least 1 and an even index_dim, got {dict(options)}"
        return super().unsupported(setting)

    def new_cache(self) -> Cache:
        return _IndexCache()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.project(x, context)
        source = x if context is None else context
        scores = self.indexer(x.detach(), source.detach(), self.cache if isinstance(self.cache, _IndexCache) else None)
        t, s = scores.shape[-2:]
        keys = None if mask is None else mask[:, None, :]
        visible = AttentionMask(causal=True, attn_mask=keys).dense(t, s, device=x.device)
        assert visible is not None
        y = self.attend(q, k, v, mask, attn_mask=_largest(scores, visible, self.count)[:, None])
        y = self.out(merge_heads(y))
        if self.cache is not None or not torch.is_grad_enabled():
            return y
        real = None if mask is None else mask[:, s - t :]
        return with_gradient_of(_divergence(scores, self._distribution(q, k, visible), visible, real), y)

    @torch.no_grad()
    def _distribution(self, q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """Return p (b, t, s), the mean of the weights that the heads of attention to all visible keys have."""
        scale = q.shape[-1] ** -0.5
        q, k = self.rotate(q, k)
        logits = (scale * (q @ k.mT)).masked_fill(~visible.unsqueeze(-3), torch.finfo(q.dtype).min)
        return logits.softmax(-1).mean(1) * visible


class Indexer(nn.Module):
    """Scores of keys, by a few narrow heads that share one key a position.

    Args:
        dim: model width.
        heads: number of heads.
        width: features of a head.
        bias: add biases to the projections.
        rotates: rotate queries and keys by their positions.
    """

    def __init__(self, dim: int, *, heads: int, width: int, bias: bool, rotates: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, heads * width, bias=bias)
        self.key = nn.Linear(dim, width, bias=bias)
        self.weight = nn.Linear(dim, heads, bias=bias)
        self.position = Rotary(PositionConfig(dim, heads, width, length=1, role="causal")) if rotates else None

    def forward(self, x: Tensor, source: Tensor, cache: "_IndexCache | None") -> Tensor:
        """Return I (b, t, s) of x (b, t, dim) and source (b, s, dim), which follows the positions of the cache."""
        q, k = split_heads(self.query(x), self.heads), self.key(source)
        if cache is not None:
            k = cache.extend_index(k)
        k = k[:, None]  # (b, 1, s, width)
        if self.position is not None:
            q, k = self.position.rotate(q, k)
        return ((q @ k.mT).relu() * self.weight(x).mT[..., None]).sum(1)


class _IndexCache(KeyValueCache):
    """Keys and values, and the keys of the indexer.

    Attributes:
        index_keys: (b, s, width); None before the first call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.index_keys: Tensor | None = None

    def extend_index(self, k: Tensor) -> Tensor:
        """Append k (b, n, width) of new positions; return k of all positions."""
        self.index_keys = k if self.index_keys is None else torch.cat([self.index_keys, k], dim=1)
        return self.index_keys


@torch.no_grad()
def _largest(scores: Tensor, visible: Tensor, count: int) -> Tensor:
    """Return True for the ``count`` largest visible scores (b, t, s) of each row, later ones first among equal ones."""
    scores = scores.masked_fill(~visible, float("-inf")).flip(-1)
    order = scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True).flip(-1) & visible


def _divergence(scores: Tensor, p: Tensor, visible: Tensor, real: Tensor | None) -> Tensor:
    """Return the mean over real queries (b, t) of KL(p || softmax(scores)), up to the entropy of p, which is a constant."""
    log_q = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).log_softmax(-1)
    rows = -(p * log_q.masked_fill(~visible, 0.0)).sum(-1)
    return rows.mean() if real is None else (rows * real).sum() / real.sum().clamp(min=1)

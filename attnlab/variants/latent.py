"""Multi-head latent attention.

DeepSeek-AI 2024, arXiv:2405.04434, "DeepSeek-V2".

    c_t         = RMSNorm(W_DKV h_t)
    k^C_t, v_t  = W_UK c_t, W_UV c_t
    q^C_t, q^R_t = W_Q h_t                                                                          of each head
    k^R_t       = W_KR h_t                    one for all heads
    q_t,i = [q^C_t,i; RoPE(q^R_t,i)]          k_t,i = [k^C_t,i; RoPE(k^R_t)]
    o_t,i = sum_j softmax_j(q_t,i . k_j,i / sqrt(d + d_R)) v_j,i          u_t = W_O [o_t,1; ...]

Keys and values are computed from a latent vector c_t, so decoding caches c_t and k^R_t alone: ``latent_dim`` + d_R numbers a
position, against 2 dim of ``dense``. The position scheme acts on q^R and k^R, a key of d_R features that all heads share, half
as many as the head width has, rounded to an even number. The factor of YaRN (``rotary`` with ``scaling: yarn``) multiplies
the whole logit, as in DeepSeek's code.

Departures from the paper: RoPE is the position scheme ``rotary``, a separate axis. Decoding expands the cached latents at
each position; the paper multiplies W_UK into W_Q and W_UV into W_O, which gives the same numbers. The width of c_t is a quarter
of the model width unless ``latent_dim`` sets it; the paper has 4 d with 128 heads.
Cost: time O(t s dim (1 + d_R / d)); O(h t s) memory for the logits where a backend materializes them; (2 + d_R / d) dim^2 +
3 ``latent_dim`` dim + d_R dim parameters without ``query_latent_dim``.
Glossary: ``query`` W_Q, or W_DQ, RMSNorm and W_UQ with W_QR; ``compress`` W_DKV, ``norm`` its RMSNorm; ``expand`` W_UK and
W_UV, next to each other for each head; ``shared_key`` W_KR; ``rotary_width`` d_R; ``out`` W_O.
"""

import torch
from torch import Tensor, nn

from attnlab.errors import UserError
from attnlab.nn.cache import Cache, SequenceCache
from attnlab.nn.layers import merge_heads, split_heads
from attnlab.variants.base import AttentionConfig, Variant

EPS = 1e-6  # added to the mean square of a latent vector


class Latent(Variant):
    """Attention with keys and values computed from one small vector of each position.

    Args:
        latent_dim: width of the vector that keys and values are computed from; None: a quarter of the model width.
        query_latent_dim: width of a vector that queries are computed from; None: queries are computed from the input.

    Raises:
        UserError: a width is less than 1.
    """

    hooks = frozenset({"embed", "rotate"})
    supports_memory = True
    supports_cache = True
    supports_attention_bias = True
    residual_projections = ("out",)
    backends = ("reference", "blocked", "sdpa")
    paper = "DeepSeek-AI 2024"

    def __init__(self, config: AttentionConfig, *, latent_dim: int | None = None, query_latent_dim: int | None = None) -> None:
        super().__init__(config)
        dim, heads, bias = config.dim, config.heads, config.bias
        latent_dim = max(1, dim // 4) if latent_dim is None else latent_dim
        if latent_dim < 1 or (query_latent_dim is not None and query_latent_dim < 1):
            expected = "expected a latent_dim and a query_latent_dim of at least 1"
            raise UserError(f"latent: {expected}, got {latent_dim} and {query_latent_dim}")
        self.rotary_width = self.head_dim(dim, heads)
        self.widths = (latent_dim, self.rotary_width)
        query_width = dim + heads * self.rotary_width
        self.query: nn.Module = nn.Linear(dim, query_width, bias=bias)
        if query_latent_dim is not None:
            self.query = nn.Sequential(
                nn.Linear(dim, query_latent_dim, bias=bias),
                nn.RMSNorm(query_latent_dim, eps=EPS),
                nn.Linear(query_latent_dim, query_width, bias=bias),
            )
        self.compress = nn.Linear(dim, latent_dim, bias=bias)
        self.norm = nn.RMSNorm(latent_dim, eps=EPS)
        self.expand = nn.Linear(latent_dim, 2 * dim, bias=bias)
        self.shared_key = nn.Linear(dim, self.rotary_width, bias=bias)
        self.out = nn.Linear(dim, dim, bias=bias)

    @classmethod
    def head_dim(cls, dim: int, heads: int) -> int:
        return 2 * max(1, dim // heads // 4)

    def new_cache(self) -> Cache:
        return SequenceCache()

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        source = x if context is None else context
        q = split_heads(self.query(x), self.heads)  # (b, h, t, d + d_R)
        kept = torch.cat([self.norm(self.compress(source)), self.shared_key(source)], dim=-1)
        if isinstance(self.cache, SequenceCache):
            kept = self.cache.extend(kept)
        latent, shared_key = kept.split(self.widths, dim=-1)  # (b, s, latent_dim), (b, s, d_R)
        k, v = split_heads(self.expand(latent), self.heads).chunk(2, dim=-1)  # (b, h, s, d)
        k = torch.cat([k, shared_key[:, None].expand(-1, self.heads, -1, -1)], dim=-1)
        return self.out(merge_heads(self.attend(q, k, v, mask)))

    def rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the position scheme to the last ``rotary_width`` features of queries and keys, and its factor to all."""
        d = q.shape[-1] - self.rotary_width
        rotated = super().rotate(q[..., d:], k[..., d:])
        factor = 1.0 if self.position is None else self.position.logit_factor(k.shape[-2])
        if factor != 1:
            q = factor * q
        q, k = (torch.cat([z[..., :d], part], dim=-1) for z, part in zip((q, k), rotated, strict=True))
        return q, k

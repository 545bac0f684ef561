"""A block of a model: attention and feed-forward, each with a residual connection and a norm.

Vaswani et al. 2017, arXiv:1706.03762, section 3, with f attention or feed-forward:

    post:  x = Norm(x + f(x))           pre:  x = x + f(Norm(x)), and a Norm after the last block

with Norm a layer norm (Ba et al. 2016, arXiv:1607.06450) or RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467).

To try another block, norm or feed-forward, subclass ``Block``, and name it as ``block`` of a model
(``examples/my_model/blocks.py`` is an example).
"""

import torch
from torch import Tensor, nn

from attnlab.config.run import ModelConfig
from attnlab.errors import UserError
from attnlab.nn.dropout import Dropout
from attnlab.nn.feed_forward import FeedForward
from attnlab.variants import Variant

NORM_EPS = 1e-5  # added to the variance, or to the mean square


class Block(nn.Module):
    """Attention and feed-forward, each with a residual connection, and a norm before (``pre``) or after (``post``) it.

    Args:
        attention: the attention of the block.
        config: the settings of the model.
    """

    def __init__(self, attention: Variant, *, config: ModelConfig) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = self.make_feed_forward(config)
        self.norm_attention = self.make_norm(config)
        self.norm_feed_forward = self.make_norm(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    @staticmethod
    def make_norm(config: ModelConfig) -> nn.Module:
        """Return a norm of vectors (..., dim): ``norm_type``, with a bias only in a layer norm.

        The model calls it, too, for the norm after the last block and that of the embeddings.
        """
        if config.norm_type == "rms":
            return nn.RMSNorm(config.dim, eps=NORM_EPS)
        return nn.LayerNorm(config.dim, eps=NORM_EPS, bias=config.bias)

    @staticmethod
    def make_feed_forward(config: ModelConfig) -> nn.Module:
        """Return the feed-forward network, which maps (b, t, dim) to (b, t, dim), each position by itself."""
        return FeedForward(config.dim, config.ff_mult, kind=config.feed_forward, dropout=config.dropout, bias=config.bias)

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Apply the block.

        Args:
            x: (b, t, dim).
            memory: (b, m, dim), earlier inputs of this block, or None.
            mask: (b, m + t), boolean, True = may be attended to; None: all.

        Returns:
            (b, t, dim).
        """
        if self.pre:
            x = x + self.dropout(self.attend(x, memory, mask))
            return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))
        x = self.norm_attention(x + self.dropout(self.attend(x, memory, mask)))
        return self.norm_feed_forward(x + self.dropout(self.feed_forward(x)))

    def attend(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the attention of x to itself and to the memory before it, (b, t, dim); with ``pre``, of their norms.

        Takes the arguments of ``forward``.
        """
        context = x if memory is None else torch.cat([memory, x], dim=1)
        if self.pre:
            context = self.norm_attention(context)
            x = context if memory is None else context[:, -x.shape[1] :]
        return apply_attention(self.attention, x, None if memory is None else context, mask)


def apply_attention(attention: Variant, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    """Apply a variant; raise ``UserError`` unless it returns a tensor of the shape of x, which could else broadcast."""
    y = attention(x, context=context, mask=mask)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else f"a {type(y).__name__}"
        name = type(attention).__name__
        raise UserError(f"{name}.forward: expected one tensor (b, t, dim), here {tuple(x.shape)}, got {got}")
    return y

"""A block of a model: attention and feed-forward, each with a residual connection and a norm.

Vaswani et al. 2017, arXiv:1706.03762, section 3, with f attention or feed-forward:

    post       x = Norm(x + f(x))
    pre        x = x + f(Norm(x))
    sandwich   x = x + Norm'(f(Norm(x)))       Gemma Team 2024, "Gemma 2", arXiv:2408.00118
    after      x = x + Norm(f(x))              OLMo Team 2024, "2 OLMo 2 Furious", arXiv:2501.00656

and, except with ``post``, a Norm after the last block. Norm is a layer norm (Ba et al. 2016, arXiv:1607.06450), RMSNorm (Zhang
& Sennrich 2019, arXiv:1910.07467), DyT (``attnlab.nn.layers.DynamicTanh``) or the identity (``norm_type: none``).

"x +" is the residual connection ``plain``; ``attnlab.models.residual`` has the others.

To try another block, norm or feed-forward, subclass ``Block``, and name it as ``block`` of a model
(``examples/my_model/blocks.py`` is an example).
"""

from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from attnlab.config.run import ModelConfig
from attnlab.errors import UserError
from attnlab.models.residual import STREAMS, EmbeddingResidual, Residual, make_residual
from attnlab.nn.feed_forward import FeedForward
from attnlab.nn.layers import Dropout, DynamicTanh
from attnlab.variants import Variant

NORM_EPS = 1e-5  # added to the variance, or to the mean square


class Block(nn.Module):
    """Attention and feed-forward, each with the norms of ``model.norm`` and the residual connection of ``model.residual``.

    Attributes:
        has_sublayers: True for a block that reads all values of ``norm``, ``residual`` and ``ff_mult``, as ``read``, ``join``
            and ``feed`` do. A subclass that overrides ``forward`` should declare it again; otherwise the plan refuses
            ``norm: sandwich | after``, ``residual: none | attention_residuals | hyper`` and ``ff_mult: 0``.
        pre: whether norms act on the inputs of sublayers.

    Args:
        attention: the attention of the block.
        config: the settings of the model.
    """

    has_sublayers: ClassVar[bool] = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "forward" in vars(cls) and "has_sublayers" not in vars(cls):
            cls.has_sublayers = False

    def __init__(self, attention: Variant, *, config: ModelConfig) -> None:
        super().__init__()
        self.attention = attention
        self.has_feed_forward = config.ff_mult > 0
        self.feed_forward = self.make_feed_forward(config) if self.has_feed_forward else nn.Identity()
        self.norm_attention = self.make_norm(config)
        self.norm_feed_forward = self.make_norm(config) if self.has_feed_forward else nn.Identity()
        self.output_norms = nn.ModuleDict()
        self.add_output_norm(config, "attention")
        if self.has_feed_forward:
            self.add_output_norm(config, "feed_forward")
        self.embedding_residual = EmbeddingResidual() if config.residual == "x0" else None
        self.residuals = nn.ModuleDict({"attention": make_residual(config)})
        if self.has_feed_forward:
            self.residuals["feed_forward"] = make_residual(config)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm in ("pre", "sandwich")
        self.norm = config.norm

    def add_output_norm(self, config: ModelConfig, sublayer: str) -> None:
        """With ``norm: sandwich``, add the norm of the output of a sublayer."""
        if config.norm == "sandwich":
            self.output_norms[sublayer] = self.make_norm(config)

    @classmethod
    def unsupported(cls, config: ModelConfig) -> str | None:
        """Return the reason why the block does not support the settings of a model, or None."""
        if config.norm == "post" and config.residual in STREAMS:
            reason = "does not form the sum that model.norm: post norms: expected pre, sandwich or after"
            return f"model.residual: {config.residual} {reason}"
        settings = {"norm": ("sandwich", "after"), "residual": ("none", *STREAMS), "ff_mult": (0,)}
        given = (f"model.{name}: {getattr(config, name)}" for name in settings if getattr(config, name) in settings[name])
        if cls.has_sublayers or (setting := next(given, None)) is None:
            return None
        return f"{cls.__name__} overrides forward without has_sublayers = True: it does not support {setting}"

    @staticmethod
    def make_norm(config: ModelConfig) -> nn.Module:
        """Return a norm of vectors (..., dim): ``norm_type``, with a bias only in a layer norm and in DyT.

        The model calls it, too, for the norm after the last block and for the norm of the embeddings.
        """
        if config.norm_type == "none":
            return nn.Identity()
        if config.norm_type == "rms":
            return nn.RMSNorm(config.dim, eps=NORM_EPS)
        if config.norm_type == "dyt":
            return DynamicTanh(config.dim, bias=config.bias)
        return nn.LayerNorm(config.dim, eps=NORM_EPS, bias=config.bias)

    @staticmethod
    def make_feed_forward(config: ModelConfig) -> nn.Module:
        """Return the feed-forward network, which maps (b, t, dim) to (b, t, dim), each position by itself."""
        return FeedForward(config.dim, config.ff_mult, kind=config.feed_forward, dropout=config.dropout, bias=config.bias)

    def forward(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Apply the block.

        Args:
            x: (b, t, dim), or the streams (b, t, n, dim) of the residual connection.
            memory: (b, m, dim) or (b, m, n, dim), earlier inputs of this block, or None.
            mask: (b, m + t), boolean, True = may be attended to; None: all.

        Returns:
            (b, t, dim), or the streams (b, t, n, dim). With ``attention_residuals``, n is larger than in x.
        """
        return self.feed(self.join(x, self.attend(x, memory, mask), "attention"))

    def attend(self, x: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return the attention (b, t, dim) of x to itself and to the memory before it; with ``pre``, both are normalized first.

        Takes the arguments of ``forward``.
        """
        context = self.read(x if memory is None else torch.cat([memory, x], dim=1), "attention")
        x = context if memory is None else context[:, -x.shape[1] :]
        return apply_attention(self.attention, x, None if memory is None else context, mask)

    def feed(self, x: Tensor) -> Tensor:
        """Apply the feed-forward sublayer to x, which is as in ``forward``; with ``ff_mult: 0``, return x."""
        if not self.has_feed_forward:
            return x
        return self.join(x, self.feed_forward(self.read(x, "feed_forward")), "feed_forward")

    def read(self, x: Tensor, sublayer: str) -> Tensor:
        """Return the input (b, t, dim) of a sublayer, with its norm if the norm acts on inputs.

        Args:
            x: (b, t, dim), or the streams (b, t, n, dim).
            sublayer: as in ``join``.
        """
        x = cast(Residual, self.residuals[sublayer]).read(x)
        return cast(nn.Module, getattr(self, f"norm_{sublayer}"))(x) if self.pre else x

    def join(self, x: Tensor, y: Tensor, sublayer: str) -> Tensor:
        """Return the stream, or the streams, after a sublayer.

        Args:
            x: (b, t, dim), or (b, t, n, dim): the stream before the sublayer, which ``read`` received.
            y: (b, t, dim), its output.
            sublayer: the end of the name of its norm: ``attention`` for ``norm_attention``.
        """
        norm = cast(nn.Module, getattr(self, f"norm_{sublayer}"))
        if self.norm == "after":
            y = norm(y)
        elif self.norm == "sandwich":
            y = self.output_norms[sublayer](y)
        x = cast(Residual, self.residuals[sublayer]).write(x, self.dropout(y))
        return norm(x) if self.norm == "post" else x


def apply_attention(attention: Variant, x: Tensor, context: Tensor | None, mask: Tensor | None) -> Tensor:
    """Apply a variant; raise ``UserError`` unless it returns a tensor of the shape of x, which could else broadcast."""
    y = attention(x, context=context, mask=mask)
    if not isinstance(y, Tensor) or y.shape != x.shape:
        got = tuple(y.shape) if isinstance(y, Tensor) else f"a {type(y).__name__}"
        name = type(attention).__name__
        raise UserError(f"{name}.forward: expected one tensor (b, t, dim), here {tuple(x.shape)}, got {got}")
    return y

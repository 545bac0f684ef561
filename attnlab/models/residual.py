"""Residual connections: what a sublayer f of a block reads, and where its output goes (``model.residual``).

``plain`` has one stream, x <- x + f(x) (He et al. 2015, arXiv:1512.03385); ``none``: x <- f(x). ``x0`` mixes the embeddings x_0
into the input of each block, a x + b x_0, with two learned scalars, 1 and 0 at first (Jordan et al. 2024,
https://github.com/KellerJordan/modded-nanogpt; there x_0 is normalized, as with ``embedding_norm``).

``attention_residuals``, Kimi Team 2026, "Attention Residuals", arXiv:2603.15031: f reads a weighted mean of the embeddings r_0
and of the outputs r_1, r_2, ... of all sublayers before it, with a learned vector w for each f, 0 at first:

    h = sum_i p_i r_i        p = softmax_i(w . RMSNorm(r_i))        r_next = f(h)

The norm after the last block reads such a mean, too.

``hyper``, Zhu et al. 2024, "Hyper-Connections", arXiv:2409.19606: n streams H (n, dim), which are copies of the embeddings at
first. For each f, with N a layer norm without parameters:

    h  = a(H)' H                       a(H) = s_a tanh(N(H) W_a) + a          (n)       the input side
    H <- A(H)' H + b(H) f(h)'          A(H) = s_a tanh(N(H) W_A) + A          (n, n)
                                       b(H) = s_b tanh(N(H) W_b) + b          (n)       the output side

At first W = 0, s = 0.01, a = e_(k mod n) for the k-th f of the stack, A = I and b = 1, which is ``plain``.

Departures from the papers: in ``attention_residuals``, the gain of the RMSNorm is part of w, and outputs are not summed in
blocks. In ``hyper``, the norm after the last block reads the mean of the streams, not their sum, so that initial values need no
correction by n; the gain of N is part of W.
Cost: ``attention_residuals``: O(t dim) for each output before a sublayer, O(t dim depth^2) in all; dim parameters for each
sublayer but the first, and for the last norm. ``hyper``: O(t dim n^2) and (n + 2) dim + n^2 + 2 n + 2 parameters for each
sublayer, and n times the activations between sublayers.
Glossary: ``query`` w; ``project`` W_a, W_A, W_b, transposed; ``read_bias`` a; ``mix_bias`` A; ``write_bias`` b;
``read_scale`` s_a; ``write_scale`` s_b.
"""

from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.config.run import ModelConfig
from attnlab.nn.linear_attention import without_autocast

STREAMS = ("attention_residuals", "hyper")  # residual connections with several streams (b, t, n, dim)
EPS = 1e-6  # added to the mean square, or to the variance


class EmbeddingResidual(nn.Module):
    """Mix the embeddings into the input of a block: a x + b x_0, with learned scalars (``model.residual: x0``).

    Attributes:
        stream: a, 1 at first.
        embedding: b, 0 at first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stream = nn.Parameter(torch.tensor(1.0))
        self.embedding = nn.Parameter(torch.tensor(0.0))

    def forward(self, x: Tensor, x0: Tensor) -> Tensor:
        """Mix x and x0, the input of the first block; both and the result are (b, t, dim)."""
        return self.stream * x + self.embedding * x0


class Residual(nn.Module):
    """The residual connection of one sublayer: one stream, to which outputs are added. It is the base of the others."""

    def set_index(self, index: int) -> None:
        """Receive the number of the connection in its stack, from 0."""

    def read(self, streams: Tensor) -> Tensor:
        """Return the input (b, t, dim) of the sublayer, before its norm, from the streams: (b, t, dim) or (b, t, n, dim)."""
        return streams

    def write(self, streams: Tensor, y: Tensor) -> Tensor:
        """Return the streams after the sublayer, which read ``streams`` and had the output y (b, t, dim)."""
        return streams + y


class NoResidual(Residual):
    """No residual connection: the output replaces the stream."""

    def write(self, streams: Tensor, y: Tensor) -> Tensor:
        return y


class AttentionResidual(Residual):
    """Attention over the outputs (b, t, n, dim) of all earlier sublayers, to which a sublayer appends its own.

    The first sublayer of a stack has no query, because there is only one output.
    """

    query: nn.Parameter | None

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(dim))

    def set_index(self, index: int) -> None:
        if index == 0:
            self.query = None

    def read(self, streams: Tensor) -> Tensor:
        if self.query is None:
            return streams[..., 0, :]
        with without_autocast(streams.device):
            logits = F.rms_norm(streams, streams.shape[-1:], eps=EPS) @ self.query  # (b, t, n)
            return (logits.softmax(-1).unsqueeze(-2) @ streams).squeeze(-2)

    def write(self, streams: Tensor, y: Tensor) -> Tensor:
        return torch.cat([streams, y.to(streams.dtype).unsqueeze(-2)], dim=-2)


class HyperConnection(Residual):
    """Dynamic hyper-connections between n streams (b, t, n, dim), which keep their dtype under autocast."""

    parameter_roles = MappingProxyType({"project": "matrix"})

    def __init__(self, dim: int, streams: int) -> None:
        super().__init__()
        self.streams = streams
        self.project = nn.Parameter(torch.zeros(streams + 2, dim))  # to a, the columns of A, and b
        self.read_scale, self.write_scale = (nn.Parameter(torch.tensor(0.01)) for _ in range(2))
        self.read_bias = nn.Parameter(torch.zeros(streams))
        self.mix_bias = nn.Parameter(torch.eye(streams).flatten())
        self.write_bias = nn.Parameter(torch.ones(streams))
        self.set_index(0)

    def set_index(self, index: int) -> None:
        """Choose the stream that the connection reads at first."""
        with torch.no_grad():
            self.read_bias.zero_()
            self.read_bias[index % self.streams] = 1.0

    def read(self, streams: Tensor) -> Tensor:
        with without_autocast(streams.device):
            weights = self.read_scale * self._dynamic(streams, slice(0, 1)).squeeze(-1) + self.read_bias  # (b, t, n)
            return (weights.unsqueeze(-2) @ streams).squeeze(-2)

    def write(self, streams: Tensor, y: Tensor) -> Tensor:
        with without_autocast(streams.device):
            mix = self.read_scale * self._dynamic(streams, slice(1, -1)) + self.mix_bias.view(self.streams, self.streams)
            weights = self.write_scale * self._dynamic(streams, slice(-1, None)) + self.write_bias.unsqueeze(-1)
            return mix.mT @ streams + weights * y.unsqueeze(-2)  # the products are (b, t, n, dim)

    def _dynamic(self, streams: Tensor, columns: slice) -> Tensor:
        """Return tanh(N(H) W) for some columns of ``project``: (b, t, n, columns)."""
        return (F.layer_norm(streams, streams.shape[-1:], eps=EPS) @ self.project[columns].mT).tanh()


class StackEnds(nn.Module):
    """The two ends of a stack of blocks with one stream: the embeddings enter, and the norm after the last block reads."""

    def enter(self, x: Tensor) -> Tensor:
        """Return the streams before the first block from x (b, t, dim)."""
        return x

    def leave(self, streams: Tensor) -> Tensor:
        """Return the output (b, t, dim) of the stack, before its norm."""
        return streams


class AttentionEnds(StackEnds):
    """The ends of a stack with ``attention_residuals``: the embeddings are the first output, and all outputs are read."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.residual = AttentionResidual(dim)

    def enter(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-2)

    def leave(self, streams: Tensor) -> Tensor:
        return self.residual.read(streams)


class HyperEnds(StackEnds):
    """The ends of a stack with ``hyper``: n copies enter, and their mean leaves."""

    def __init__(self, streams: int) -> None:
        super().__init__()
        self.streams = streams

    def enter(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-2).expand(*x.shape[:-1], self.streams, -1)

    def leave(self, streams: Tensor) -> Tensor:
        return streams.mean(-2)


def make_residual(config: ModelConfig) -> Residual:
    """Return the residual connection of one sublayer."""
    if config.residual == "attention_residuals":
        return AttentionResidual(config.dim)
    if config.residual == "hyper":
        return HyperConnection(config.dim, config.residual_streams)
    return NoResidual() if config.residual == "none" else Residual()


def make_ends(config: ModelConfig) -> StackEnds:
    """Return the ends of a stack of blocks."""
    if config.residual == "attention_residuals":
        return AttentionEnds(config.dim)
    return HyperEnds(config.residual_streams) if config.residual == "hyper" else StackEnds()


def input_shapes(config: ModelConfig) -> list[tuple[int, ...]]:
    """Return the shape of each block's input at one position: (dim,), or (n, dim) with several streams."""
    if config.residual == "hyper":
        return [(config.residual_streams, config.dim)] * config.depth
    if config.residual == "attention_residuals":
        sublayers = 2 if config.ff_mult else 1
        return [(1 + sublayers * i, config.dim) for i in range(config.depth)]
    return [(config.dim,)] * config.depth


def number_connections(blocks: nn.Module) -> None:
    """Tell each residual connection of a stack its number."""
    for index, connection in enumerate(module for module in blocks.modules() if isinstance(module, Residual)):
        connection.set_index(index)

"""The peers, as alike as their options allow: pre-norm, GELU, learned positions, no dropout, an output layer of its own.

Each of ``PEERS`` is a function of (size, vocabulary) that returns a module from (b, t) bytes to (b, t, vocabulary) logits; of
``READERS`` one from (b, t) words and a mask, (b, t) with True for a real word, to (b, 2) logits. Their packages are in the
peers' environment only.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.speed.case import Size


def x_transformers(size: Size, vocabulary: int, *, flash: bool = False) -> nn.Module:
    """x-transformers; its heads are 64 wide by default, which here would be twice the width of attnlab's."""
    from x_transformers import Decoder, TransformerWrapper  # pyright: ignore[reportMissingImports]

    layers = Decoder(dim=size.dim, depth=size.depth, heads=size.heads, attn_dim_head=size.dim // size.heads, attn_flash=flash)
    return TransformerWrapper(num_tokens=vocabulary, max_seq_len=size.length, attn_layers=layers)


def _encoder(size: Size) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        size.dim, size.heads, 4 * size.dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, size.depth, norm=nn.LayerNorm(size.dim), enable_nested_tensor=False)


class Encoder(nn.Module):
    """``torch.nn.TransformerEncoder`` under a causal mask, with embeddings and an output layer around it."""

    mask: Tensor

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size.dim)
        self.position = nn.Embedding(size.length, size.dim)
        self.encoder = _encoder(size)
        self.head = nn.Linear(size.dim, vocabulary)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(size.length))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (b, length) to logits (b, length, vocabulary)."""
        x = self.embedding(tokens) + self.position.weight
        return self.head(self.encoder(x, mask=self.mask, is_causal=True))


class GPT2(nn.Module):
    """transformers' GPT-2 from a configuration: its default attention, and no cache, which training never reads."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel  # pyright: ignore[reportMissingImports]

        sizes: dict[str, Any] = {"n_positions": size.length, "n_embd": size.dim, "n_layer": size.depth, "n_head": size.heads}
        still: dict[str, Any] = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        alike: dict[str, Any] = {"activation_function": "gelu", "tie_word_embeddings": False, "use_cache": False}
        ends: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}  # bytes have no special tokens
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, **sizes, **still, **alike, **ends))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (b, t) to logits (b, t, vocabulary)."""
        return self.model(input_ids=tokens).logits


PEERS: dict[str, Callable[[Size, int], nn.Module]] = {
    "x-transformers": x_transformers,
    "x-transformers, attn_flash": lambda size, vocabulary: x_transformers(size, vocabulary, flash=True),
    "torch.nn.TransformerEncoder": Encoder,
    "transformers GPT-2": GPT2,
}


class Reader(nn.Module):
    """``torch.nn.TransformerEncoder`` that sees words on both sides, and classifies the mean of its features."""

    def __init__(self, size: Size, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size.dim)
        self.position = nn.Embedding(size.length, size.dim)
        self.encoder = _encoder(size)
        self.head = nn.Linear(size.dim, 2)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        """Map words (b, t) and a mask (b, t) to logits (b, 2)."""
        x = self.embedding(words) + self.position.weight[: words.shape[1]]
        x = self.encoder(x, src_key_padding_mask=~mask) * mask.unsqueeze(-1)
        return self.head(x.sum(1) / mask.sum(1, keepdim=True))


def x_transformers_reader(size: Size, vocabulary: int) -> nn.Module:
    """Return x-transformers' own classifier, with the faster of its attention implementations; called like ``Reader``."""
    from x_transformers import Encoder, TransformerWrapper  # pyright: ignore[reportMissingImports]

    layers = Encoder(dim=size.dim, depth=size.depth, heads=size.heads, attn_dim_head=size.dim // size.heads, attn_flash=True)
    sizes = {"num_tokens": vocabulary, "max_seq_len": size.length, "logits_dim": 2}
    return TransformerWrapper(attn_layers=layers, average_pool_embed=True, **sizes)


READERS: dict[str, Callable[[Size, int], nn.Module]] = {
    "x-transformers, attn_flash": x_transformers_reader,
    "torch.nn.TransformerEncoder": Reader,
}

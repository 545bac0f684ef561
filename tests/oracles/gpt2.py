"""GPT-2 by ``transformers`` (``GPT2LMHeadModel``), with the weights of a language model of attnlab.

transformers is an independent implementation that loads the released weights; its linear layers are stored transposed.
"""

from typing import Any

import torch
from torch import Tensor


def gpt2(weights: dict[str, Tensor], *, depth: int, heads: int, length: int) -> Any:
    """Return the ``GPT2LMHeadModel`` with the weights of a language model, in evaluation mode, in their type."""
    from transformers import GPT2Config, GPT2LMHeadModel

    vocabulary, dim = weights["backbone.embedding.weight"].shape
    inner = len(weights["backbone.blocks.0.feed_forward.widen.weight"])
    config = GPT2Config(
        vocab_size=vocabulary, n_positions=length, n_embd=dim, n_layer=depth, n_head=heads, n_inner=inner, use_cache=False
    )
    model: Any = GPT2LMHeadModel(config)
    model.to(weights["backbone.embedding.weight"].dtype).eval()
    model.load_state_dict(named_as_gpt2(weights, depth=depth))
    return model


def named_as_gpt2(tensors: dict[str, Tensor], *, depth: int) -> dict[str, Tensor]:
    """Return the tensors of a language model, or their gradients, with the names and the layout of ``GPT2LMHeadModel``."""
    ours = {f"transformer.{name}": f"backbone.{place}" for name, place in _NAMES.items()}
    for i in range(depth):
        ours |= {f"transformer.h.{i}.{name}": f"backbone.blocks.{i}.{place}" for name, place in _NAMES_OF_BLOCK.items()}
    ours["lm_head.weight"] = "backbone.embedding.weight"
    transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    return {name: tensors[place].T if name.endswith(transposed) else tensors[place] for name, place in ours.items()}


_NAMES = {
    "wte.weight": "embedding.weight",
    "wpe.weight": "position.table",
    "ln_f.weight": "norm.weight",
    "ln_f.bias": "norm.bias",
}
_NAMES_OF_BLOCK = {
    "ln_1.weight": "norm_attention.weight",
    "ln_1.bias": "norm_attention.bias",
    "attn.c_attn.weight": "attention.project.weight",
    "attn.c_attn.bias": "attention.project.bias",
    "attn.c_proj.weight": "attention.out.weight",
    "attn.c_proj.bias": "attention.out.bias",
    "ln_2.weight": "norm_feed_forward.weight",
    "ln_2.bias": "norm_feed_forward.bias",
    "mlp.c_fc.weight": "feed_forward.widen.weight",
    "mlp.c_fc.bias": "feed_forward.widen.bias",
    "mlp.c_proj.weight": "feed_forward.narrow.weight",
    "mlp.c_proj.bias": "feed_forward.narrow.bias",
}


def gradients(model: Any, tokens: Tensor, weighing: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the logits (b, t, vocabulary) of tokens (b, t), and the gradients of their weighted sum by name."""
    parameters = dict(model.named_parameters())
    logits = model(tokens).logits
    return logits, dict(zip(parameters, torch.autograd.grad((logits * weighing).sum(), list(parameters.values())), strict=True))

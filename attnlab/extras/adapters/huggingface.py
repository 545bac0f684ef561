"""Adapter of the attention classes of transformers.

    hf:LlamaAttention, hf:GPT2Attention, hf:BertSelfAttention, hf:Qwen3Attention, ...

The class is built with the configuration of its model; its fields are the options, for example ``num_key_value_heads``. Masks
are made by transformers itself (``transformers.masking_utils``), and rotary positions by the model. The option
``attn_implementation`` is ``eager`` (the default) or ``sdpa``.
"""

import importlib
import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

from attnlab.errors import UserError, nearest, one_line
from attnlab.extras.adapters.base import Adapted, public
from attnlab.variants import AttentionConfig, Setting, Variant

PACKAGE = "transformers"
IMPLEMENTATIONS = ("eager", "sdpa")
ATTENTION_DROPOUT = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")  # names of one field
ARGUMENTS = {"self", "hidden_states", "position_embeddings", "attention_mask"}  # that a class may require


def huggingface_attention(name: str, options: dict[str, Any]) -> type[Variant]:
    """Return an attention class of transformers as a variant.

    Args:
        name: of the class, beginning with the name of its model: ``LlamaAttention``.
        options: fields of the model's configuration.

    Raises:
        UserError: transformers or the class is missing, the class takes other arguments than a configuration, hidden states
            and masks, or the configuration has no such field.
    """
    config_class, module = _model(name)
    options = {"attn_implementation": "eager", **options}
    layer_class = getattr(module, name)
    taken = _arguments(layer_class, name)
    default = _default_config(config_class, options, name)
    rotary_class = _rotary_class(module, name) if "position_embeddings" in taken else None

    class HuggingFace(Adapted):
        roles = _roles(layer_class, default)
        permutation_equivariant = rotary_class is None
        checked_dtype = torch.float32
        has_attention_dropout = any(hasattr(default, field) for field in ATTENTION_DROPOUT)

        def __init__(self, config: AttentionConfig) -> None:
            super().__init__(config)
            self.config = config_class(**{**_fields(default, config), **options})
            arguments = {"is_causal": self.causal, "is_cross_attention": config.role == "cross", "layer_idx": 0}
            self.layer = layer_class(self.config, **_taken(layer_class, arguments))
            for parameter in self.layer.parameters():
                if parameter.dim() > 1:  # the outputs of GPT-2's initial values are too small to be told from rounding
                    nn.init.xavier_normal_(parameter)
            self.rotary = None if rotary_class is None else rotary_class(self.config)

        @classmethod
        def unsupported(cls, setting: Setting) -> str | None:
            dim, heads = setting.dim, setting.heads
            if rotary_class is not None and dim // heads % 2:
                return f"rotary positions require an even width of a head, got {dim // heads}"
            if heads % (shared := options.get("num_key_value_heads") or 1):
                return f"num_key_value_heads {shared} does not divide {heads} heads"
            return super().unsupported(setting)

        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            x = x.contiguous()  # as behind the norm of a block: some classes call view()
            masks = importlib.import_module(f"{PACKAGE}.masking_utils")
            if context is not None:
                context = context.contiguous()
                visible = masks.create_bidirectional_mask(self.config, x, mask, encoder_hidden_states=context)
                key = "encoder_attention_mask" if "encoder_attention_mask" in taken else "attention_mask"
                arguments = {"encoder_hidden_states": context, key: visible}
            elif self.causal:
                arguments = {"attention_mask": masks.create_causal_mask(self.config, x, mask, past_key_values=None)}
            else:
                arguments = {"attention_mask": masks.create_bidirectional_mask(self.config, x, mask)}
            if self.rotary is not None:
                positions = torch.arange(x.shape[1], device=x.device)[None]
                arguments["position_embeddings"] = self.rotary(x, positions)
            return self.layer(x, **arguments)[0]

    return public(HuggingFace, name)


def _model(name: str) -> tuple[type, Any]:
    """Return the configuration class and the module of the model with an attention class."""
    ref = f"hf:{name}"
    try:
        transformers = importlib.import_module(PACKAGE)
    except ImportError as error:
        raise UserError(f"transformers cannot be imported ({error}): pip install transformers", ref) from error
    prefixes = [name[: match.start()] for match in re.finditer("[A-Z]|$", name)][::-1]  # the longest one first
    configs = (getattr(transformers, f"{prefix}Config", None) for prefix in prefixes if prefix)
    config_class = next((config for config in configs if config is not None), None)
    if config_class is None:
        raise UserError("no model of transformers has a name that begins like this class", ref)
    module = importlib.import_module(config_class.__module__.replace(".configuration_", ".modeling_"))
    classes = [key for key, value in vars(module).items() if key.endswith("Attention") and inspect.isclass(value)]
    if name not in classes:
        raise UserError(f"{module.__name__} has no such class{nearest(name, classes)}: expected {', '.join(classes)}", ref)
    annotation = inspect.signature(getattr(module, name)).parameters.get("config")
    annotated = None if annotation is None else annotation.annotation  # a part of a model may have a configuration of its own
    return (
        annotated if inspect.isclass(annotated) and issubclass(annotated, config_class.__mro__[-2]) else config_class
    ), module


def _arguments(layer_class: type[nn.Module], name: str) -> set[str]:
    """Return the arguments of ``forward``; raise ``UserError`` for a class that this adapter cannot call."""
    constructor = list(inspect.signature(layer_class).parameters)
    parameters = inspect.signature(layer_class.forward).parameters
    required = {key for key, value in parameters.items() if value.default is value.empty and value.kind != value.VAR_KEYWORD}
    if constructor[:1] != ["config"] or "attention_mask" not in parameters or not required <= ARGUMENTS:
        raise UserError(
            "no adapter for this class: expected __init__(self, config, ...) and forward(self, hidden_states, attention_mask), "
            f"got __init__({', '.join(constructor)}) and forward({', '.join(parameters)})",
            f"hf:{name}",
        )
    return set(parameters)


def _taken(layer_class: type[nn.Module], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that the constructor of a class takes."""
    own = inspect.signature(layer_class).parameters
    return {key: value for key, value in arguments.items() if key in own}


def _default_config(config_class: type, options: dict[str, Any], name: str) -> Any:
    """Return the default configuration of a model; raise ``UserError`` if a field does not exist or has no such value."""
    default: Any = config_class()
    if options["attn_implementation"] not in IMPLEMENTATIONS:
        expected = f"expected attn_implementation {' or '.join(IMPLEMENTATIONS)}"
        raise UserError(f"{expected}, got {options['attn_implementation']!r}", f"hf:{name}")
    for option in options.keys() - {"attn_implementation"}:
        if not hasattr(default, option):
            known = [key for key in vars(default) if not key.startswith("_")]
            raise UserError(f"{config_class.__name__} has no field {option!r}{nearest(option, known)}", f"hf:{name}")
    try:
        config_class(**options)
    except Exception as error:  # transformers has exceptions of its own for invalid values
        raise UserError(f"{config_class.__name__}: {one_line(' '.join(str(error).split()))}", f"hf:{name}") from error
    return default


def _roles(layer_class: type[nn.Module], default: Any) -> frozenset[str]:
    """Return the roles of a class: from its arguments, else from the attribute ``is_causal`` of an instance."""
    constructor, arguments = inspect.signature(layer_class).parameters, inspect.signature(layer_class.forward).parameters
    if "encoder_hidden_states" in arguments and "is_cross_attention" not in constructor:
        return frozenset({"cross"})
    cross = {"cross"} if "is_cross_attention" in constructor else set()
    if "is_causal" in constructor:
        return frozenset({"causal", "bidirectional", *cross})
    with torch.device("meta"):
        layer = layer_class(default, **_taken(layer_class, {"layer_idx": 0}))
    return frozenset({"causal" if getattr(layer, "is_causal", False) else "bidirectional", *cross})


def _rotary_class(module: Any, name: str) -> type[nn.Module]:
    """Return the class that computes the rotary positions of a model; raise ``UserError`` if they differ between layers."""
    classes = [value for key, value in vars(module).items() if key.endswith("RotaryEmbedding")]
    if len(classes) != 1 or "layer_type" in inspect.signature(classes[0].forward).parameters:
        raise UserError("no adapter for this class: expected one RotaryEmbedding, the same for all layers", f"hf:{name}")
    return classes[0]


def _fields(default: Any, config: AttentionConfig) -> dict[str, Any]:
    """Return the fields of a configuration for width, heads and dropout; other dropouts are 0."""
    heads, dim = config.heads, config.dim
    sizes = {"hidden_size": dim, "num_attention_heads": heads, "num_key_value_heads": heads, "head_dim": dim // heads}
    fields = {key: value for key, value in sizes.items() if hasattr(default, key)}
    dropouts = [key for key in vars(default) if re.search("dropout|pdrop", key)]
    return fields | {key: config.dropout if key in ATTENTION_DROPOUT else 0.0 for key in dropouts}

"""BERT by ``transformers`` (``BertForPreTraining``), with the weights of a masked language model of attnlab.

transformers is an independent implementation that loads the released weights.
"""

from typing import Any

import torch
from torch import Tensor

from attnlab.models.block import NORM_EPS
from attnlab.tasks import Batch


def bert(weights: dict[str, Tensor], *, depth: int, heads: int, length: int) -> Any:
    """Return ``BertForPreTraining`` with the weights of a masked language model, without dropout, in their type."""
    from transformers import BertConfig, BertForPreTraining

    vocabulary, dim = weights["backbone.embedding.weight"].shape
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=dim,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        intermediate_size=len(weights["backbone.blocks.0.feed_forward.widen.weight"]),
        max_position_embeddings=length,
        layer_norm_eps=NORM_EPS,  # 1e-12 in the released configurations
    )
    model: Any = BertForPreTraining(config)
    model.to(weights["backbone.embedding.weight"].dtype).eval()
    missing, unexpected = model.load_state_dict(named_as_bert(weights, depth=depth), strict=False)
    assert not unexpected and set(missing) <= {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}, missing
    model.tie_weights()
    return model


def named_as_bert(tensors: dict[str, Tensor], *, depth: int) -> dict[str, Tensor]:
    """Return the tensors of a masked language model, or their gradients, with the names of ``BertForPreTraining``."""
    named = {name: tensors[place] for name, place in _NAMES.items()}
    for i in range(depth):
        layer, block = f"bert.encoder.layer.{i}.", f"backbone.blocks.{i}."
        named |= {layer + name: tensors[block + place] for name, place in _NAMES_OF_BLOCK.items()}
        for kind in ("weight", "bias"):
            parts = tensors[f"{block}attention.project.{kind}"].chunk(3)
            named |= {f"{layer}attention.self.{n}.{kind}": z for n, z in zip(("query", "key", "value"), parts, strict=True)}
    return named


_NAMES = {
    "bert.embeddings.word_embeddings.weight": "backbone.embedding.weight",
    "bert.embeddings.position_embeddings.weight": "backbone.position.table",
    "bert.embeddings.token_type_embeddings.weight": "backbone.segment_embedding.weight",
    "bert.embeddings.LayerNorm.weight": "backbone.embedding_norm.weight",
    "bert.embeddings.LayerNorm.bias": "backbone.embedding_norm.bias",
    "bert.pooler.dense.weight": "pooler.weight",
    "bert.pooler.dense.bias": "pooler.bias",
    "cls.predictions.transform.dense.weight": "transform.weight",
    "cls.predictions.transform.dense.bias": "transform.bias",
    "cls.predictions.transform.LayerNorm.weight": "transform_norm.weight",
    "cls.predictions.transform.LayerNorm.bias": "transform_norm.bias",
    "cls.predictions.bias": "head.bias",
    "cls.seq_relationship.weight": "label_head.weight",
    "cls.seq_relationship.bias": "label_head.bias",
}
_NAMES_OF_BLOCK = {
    "attention.output.dense.weight": "attention.out.weight",
    "attention.output.dense.bias": "attention.out.bias",
    "attention.output.LayerNorm.weight": "norm_attention.weight",
    "attention.output.LayerNorm.bias": "norm_attention.bias",
    "intermediate.dense.weight": "feed_forward.widen.weight",
    "intermediate.dense.bias": "feed_forward.widen.bias",
    "output.dense.weight": "feed_forward.narrow.weight",
    "output.dense.bias": "feed_forward.narrow.bias",
    "output.LayerNorm.weight": "norm_feed_forward.weight",
    "output.LayerNorm.bias": "norm_feed_forward.bias",
}


def apply(model: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return the logits of tokens (b, t, vocabulary) and of labels (b, 2), and the sum of both losses."""
    output = model(
        batch.inputs,
        attention_mask=None if batch.mask is None else batch.mask.long(),
        token_type_ids=batch.segments,
        labels=batch.targets,
        next_sentence_label=batch.labels,
    )
    return output.prediction_logits, output.seq_relationship_logits, output.loss


def gradients(model: Any, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradients of a loss by name; of tied tensors under one name."""
    parameters = dict(model.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))

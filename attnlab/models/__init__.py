"""Models: the networks that variants are tried in, one for each kind of task. ``Model`` is the contract.

To add a model, subclass one of these and register it (``attnlab.register_model``); a study selects it by ``model.name``. When
only its blocks differ, set their class as ``block`` (``examples/my_model`` has another block, feed-forward network and norm).

Examples:
    >>> import torch
    >>> from attnlab.config.run import ModelConfig
    >>> from attnlab.registry import VARIANTS
    >>> from attnlab.variants import AttentionConfig
    >>> attention = VARIANTS.get("dense")(AttentionConfig(dim=12, heads=3, role="causal"))
    >>> block = Block(attention, config=ModelConfig(dim=12, heads=3))
    >>> block(torch.zeros(2, 7, 12), memory=None, mask=None).shape
    torch.Size([2, 7, 12])
"""

from attnlab.models.base import Model
from attnlab.models.block import Block
from attnlab.models.classifier import Classifier
from attnlab.models.encoder_decoder import DecoderBlock, EncoderDecoder
from attnlab.models.language_model import LanguageModel
from attnlab.models.masked_language_model import MaskedLanguageModel

__all__ = ["Block", "Classifier", "DecoderBlock", "EncoderDecoder", "LanguageModel", "MaskedLanguageModel", "Model"]

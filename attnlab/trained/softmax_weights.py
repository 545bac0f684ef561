"""Softmax weights of all layers of a model, or of one part of an encoder-decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan

from torch import Tensor, full, stack

from attnlab.config.run import PARTS
from attnlab.errors import UserError, nearest
from attnlab.models.base import Model
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.nn import attention
from attnlab.tasks import Task
from attnlab.variants import Variant


def layer_weights(apply: Callable[[], object], *, depth: int, size: tuple[int, ...], variant: str) -> Tensor:
    """Return the softmax weights (depth, b, heads, queries, keys) of a model with one attention layer a block, on the CPU.

    Args:
        apply: applies the model, with the backend ``reference``.
        depth: the number of blocks.
        size: (b, heads, queries, keys).
        variant: its name, for the message.

    Raises:
        UserError: the variant does not compute one matrix of weights for each layer and head.
    """
    with attention.record_attention_weights() as layers:
        apply()
    if len(layers) != depth or any(layer.shape != size for layer in layers):  # some heads only, or a padded sequence
        raise UserError(f"{variant} passes no whole matrix of weights a layer through the reference backend")
    return stack(layers).float().cpu()


def part_weights(model: Model, source: Tensor, target: Tensor, *, part: str) -> Tensor:
    """Return the softmax weights (depth, b, heads, queries, keys) of one part, on the CPU.

    Args:
        model: with the backend ``reference``.
        source: (b, s), the tokens of the encoder.
        target: (b, t), the inputs of the decoder.
        part: ``encoder`` (s x s), ``decoder`` (t x t) or ``cross`` (t x s).

    Raises:
        UserError: the model has no such part, or the variant of the part does not compute one matrix of weights for each
            layer and head.
    """
    if part not in PARTS:
        raise UserError(f"unknown part {part!r}{nearest(part, PARTS)}: expected {', '.join(PARTS[:-1])} or {PARTS[-1]}")
    if not isinstance(model, EncoderDecoder):
        raise UserError(f"{type(model).__name__} has no part {part!r}: expected a subclass of EncoderDecoder")
    queries, keys = (source if part == "encoder" else target), (target if part == "decoder" else source)
    variants = model.attention_layers(part)
    layers = _recorded_by_layer(variants, lambda: model(source, target))
    sizes = (len(queries), queries.shape[1], keys.shape[1])
    complete = [layer[0] for layer in layers if len(layer) == 1 and (len(layer[0]), *layer[0].shape[2:]) == sizes]
    if len(complete) < len(variants):
        name = type(variants[0]).__name__
        raise UserError(f"model.{part}: {name} passes no whole matrix of weights a layer through the reference backend")
    return stack(complete).float().cpu()


def pattern_weights(model: Model, apply: Callable[[], object], *, size: tuple[int, ...]) -> Tensor:
    """Return the softmax weights (depth, b, heads, queries, keys) of a model with several variants, on the CPU.

    The weights of a block are NaN when its variant computes no whole matrix of weights, for example a recurrent one.

    Args:
        model: with the backend ``reference`` and a pattern of layers.
        apply: applies the model.
        size: (b, heads, queries, keys).

    Raises:
        UserError: no block computes a whole matrix of weights.
    """
    variants = [variant for stack in model.stacks for variant in stack.modules() if isinstance(variant, Variant)]
    layers = _recorded_by_layer(variants, apply)
    complete = [layer[0].float().cpu() if [tuple(z.shape) for z in layer] == [size] else None for layer in layers]
    if all(layer is None for layer in complete):
        names = ", ".join(dict.fromkeys(type(variant).__name__ for variant in variants))
        raise UserError(f"{names} pass no whole matrix of weights a layer through the reference backend")
    return stack([full(size, nan) if layer is None else layer for layer in complete])


def _recorded_by_layer(variants: Sequence[Variant], apply: Callable[[], object]) -> list[list[Tensor]]:
    """Return the weights that each of the variants records while ``apply`` runs, in the order of their calls."""
    layers: list[list[Tensor]] = []
    with attention.record_attention_weights() as recorded:

        def keep(*_: object) -> None:  # the weights that one layer has recorded
            layers.append(recorded[:])
            recorded.clear()

        hooks = [variant.register_forward_pre_hook(lambda *_: recorded.clear()) for variant in variants]
        hooks += [variant.register_forward_hook(keep) for variant in variants]
        try:
            apply()
        finally:
            for hook in hooks:
                hook.remove()
    return layers


def decoder_inputs(task: Task, target: list[int]) -> list[int]:
    """Return the inputs of the decoder for a target: the begin token, and the target without its end token.

    Raises:
        UserError: the task defines no begin and end token (``Task.decoding_options``).
    """
    if not {"begin", "end"} <= special_tokens(task).keys():
        raise UserError(f"{type(task).__name__}.decoding_options: expected 'begin' and 'end', to encode a target, got neither")
    begin, end = (special_tokens(task)[name] for name in ("begin", "end"))
    return [begin, *(target[:-1] if target and target[-1] == end else target)]


def special_tokens(task: Task) -> dict[str, int]:
    """Return the tokens by name, ``begin`` and ``end``, between which a task decodes; {} of a task that decodes nothing."""
    if type(task).decoding_options is Task.decoding_options:
        return {}
    return {name: int(token) for name, token in task.decoding_options().items() if name in ("begin", "end")}

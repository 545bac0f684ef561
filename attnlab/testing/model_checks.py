"""The checks of the contract of models: order, padding of both sides, gradients, and decoding with a cache.

Internal: not part of the public interface.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from attnlab.config.run import ModelConfig, PartConfig, RunConfig, TrainConfig
from attnlab.config.types import Named, NamedVariant
from attnlab.models.base import Model
from attnlab.models.decoding import key_value_cache, without_cache
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.language_model import LanguageModel
from attnlab.nn.processor import DTYPES
from attnlab.tasks import Batch
from attnlab.testing.checks.modes import ADVICE as MODES_ADVICE
from attnlab.testing.checks.modes import LEAK
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import perturb_constant_parameters, seed_generators, trained_parameters
from attnlab.training.device import autocast

ROWS, LENGTH, SOURCE_LENGTH = 3, 7, 5  # prime and unequal, so that swapped dimensions do not go unnoticed
HEADS, DIM, DEPTH, VOCABULARY, CLASSES = 3, 21, 2, 17, 4
TOLERANCE = 1e-9  # in float64
CACHE_ADVICE = (
    "With a cache, the model receives the tokens from position `start` on: embed them at these positions, and let each "
    "attention add the keys and values of earlier calls."
)


@dataclass(frozen=True)
class Shape:
    """The attributes of a task that a model is constructed with."""

    kind: str
    role: str
    length: int = LENGTH
    vocabulary: int = VOCABULARY
    classes: int = CLASSES


@dataclass(frozen=True)
class ModelTarget:
    """A model with its options.

    Attributes:
        cls: the class to check.
        options: keyword arguments of its constructor.
        fields: fields of ``ModelConfig`` that differ from their default.
    """

    cls: type[Model]
    options: dict[str, Any]
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The task that the model is constructed for."""
        causal = self.cls.kind in ("language_model", "encoder_decoder")
        return Shape(self.cls.kind, "causal" if causal else "bidirectional")

    def construct(self) -> Model:
        """Return a model in float64 and in evaluation mode, with noise added to constant parameters."""
        seed_generators(0, "cpu")
        model = self.cls(_configuration(self.cls, self.shape, self.fields), self.shape, **self.options)
        perturb_constant_parameters(model)
        return model.double().eval()

    def batch(self, *, padded: bool = False) -> Batch:
        """Return a batch of random tokens.

        Args:
            padded: with padding on each side that the model reads: at the end, at the beginning and in the middle.
        """
        generator = torch.Generator().manual_seed(1)
        inputs, targets = torch.randint(VOCABULARY, (2, ROWS, LENGTH), generator=generator)
        source = torch.randint(VOCABULARY, (ROWS, SOURCE_LENGTH), generator=generator)
        batch = Batch(inputs, targets, _padding(LENGTH) if padded else None)
        if self.cls.kind == "encoder_decoder":
            batch = replace(batch, source=source, source_mask=_padding(SOURCE_LENGTH) if padded else None)
        return batch

    def require(self, *kinds: str) -> None:
        """Raise ``NotDeclared`` for a model of another kind."""
        if self.cls.kind not in kinds:
            raise NotDeclared(f"a model of the kind {self.cls.kind}")


def _configuration(cls: type[Model], shape: Shape, fields: dict[str, Any]) -> RunConfig:
    """Return a resolved configuration: ``dense`` with sinusoidal positions, none in cross-attention."""
    variant, position = NamedVariant(name="dense"), Named(name="sinusoidal")
    parts = {
        name: PartConfig(variant=variant, position=Named(name="none") if role == "cross" else position)
        for name, role in cls.roles(shape).items()
        if name
    }
    model = ModelConfig(dim=DIM, depth=DEPTH, heads=HEADS)
    config = RunConfig(
        task=Named(name="pydocs"),
        variant=variant,
        position=position,
        backend="reference",
        model=model.model_copy(update=parts),
        train=TrainConfig(steps=1),
    )
    return config.replace({f"model.{name}": value for name, value in fields.items()})


def _padding(length: int) -> Tensor:
    """Return a mask (rows, length): padding at the end of row 0 and in the middle of row 1."""
    mask = torch.ones(ROWS, length, dtype=torch.bool)
    mask[0, -2:] = mask[1, 2] = False
    return mask


def _outputs(model: Model, batch: Batch) -> Tensor:
    """Return the logits of a batch without gradients."""
    with torch.no_grad():
        output = model.forward_batch(batch)[0]
    return output if isinstance(output, Tensor) else output[0]


def _other(tokens: Tensor) -> Tensor:
    return (tokens + 1) % VOCABULARY


def shapes(target: ModelTarget) -> str:
    """The output of a batch has one row for each row, and one column for each token or class."""
    model, batch = target.construct(), target.batch()
    logits = _outputs(model, batch)
    expected = (ROWS, CLASSES) if target.cls.kind == "classifier" else (ROWS, LENGTH, VOCABULARY)
    if target.cls.kind != "masked_language_model" and tuple(logits.shape) != expected:
        raise Failure(
            f"expected logits of {expected}, got {tuple(logits.shape)}", "See attnlab.models.base.Model.forward_batch."
        )
    example = model.example_batch(target.shape, ROWS, device=torch.device("cpu"), padded=True)
    if example.inputs.shape != (ROWS, LENGTH):
        got = tuple(example.inputs.shape)
        raise Failure(f"example_batch: expected inputs of {(ROWS, LENGTH)}, got {got}", "Its rows have the length of the task.")
    _outputs(model, example)
    return f"logits of {tuple(logits.shape)}"


def causality(target: ModelTarget) -> str:
    """Changing input j changes no logits before j, and the logits at j."""
    target.require("language_model", "encoder_decoder")
    model, batch = target.construct(), target.batch()
    logits, worst = _outputs(model, batch), 0.0
    for j in range(LENGTH):
        inputs = batch.inputs.clone()
        inputs[:, j] = _other(inputs[:, j])
        changed = (_outputs(model, replace(batch, inputs=inputs)) - logits).abs().amax((0, 2))  # (t,)
        before = changed[:j].max().item() if j else 0.0
        if not before <= TOLERANCE:
            raise Failure(
                f"length {LENGTH}: changing input {j} changes the logits at {int(changed[:j].argmax())}, before it, by "
                f"{format_number(before)}",
                "The logits at a position predict the next token, so nothing may read later ones: construct the attention with "
                "the role causal, and take keys and values of cross-attention from the encoder alone.",
            )
        if not changed[j].item() > TOLERANCE:
            raise Failure(f"length {LENGTH}: changing input {j} does not change the logits at {j}", "Every input is read.")
        worst = max(worst, before)
    return f"logits before a changed input change by {format_number(worst)}"


def source(target: ModelTarget) -> str:
    """Every token of the source changes the logits at every position, the first one included."""
    target.require("encoder_decoder")
    model, batch = target.construct(), target.batch()
    logits = _outputs(model, batch)
    for j in range(SOURCE_LENGTH):
        tokens = cast(Tensor, batch.source).clone()
        tokens[:, j] = _other(tokens[:, j])
        changed = (_outputs(model, replace(batch, source=tokens)) - logits).abs().amax((0, 2))
        if not changed.min().item() > TOLERANCE:
            raise Failure(
                f"source of length {SOURCE_LENGTH}: changing token {j} does not change the logits at {int(changed.argmin())}",
                "Cross-attention reads the output of the encoder at every position.",
            )
    return f"each of {SOURCE_LENGTH} tokens changes the logits at each of {LENGTH} positions"


def padding(target: ModelTarget) -> str:
    """Neither the tokens nor the number of padded positions of either side changes the outputs of real positions."""
    target.require("classifier", "encoder_decoder", "masked_language_model")
    model, batch = target.construct(), target.batch(padded=True)
    logits, worst = _outputs(model, batch), 0.0
    for side, other in _with_other_padding(batch):
        gap = _real_gap(batch, logits, _outputs(model, other))
        advice = (
            "Pass `batch.mask` to the attention over the inputs, `batch.source_mask` to the encoder and to cross-attention; "
            "leave padding out of a mean."
        )
        worst = max(worst, require_small(gap, TOLERANCE, f"the {side} changes the logits of real positions", advice))
    return f"padding changes real outputs by {format_number(worst)}"


def _with_other_padding(batch: Batch) -> Iterator[tuple[str, Batch]]:
    """Yield the batch with other tokens at the padding of each side, and with further padding."""
    sides: list[tuple[str, str, str]] = [("inputs", "inputs", "mask"), ("source", "source", "source_mask")]
    for side, name, mask_name in sides:
        tokens, mask = cast(Tensor | None, getattr(batch, name)), getattr(batch, mask_name)
        if tokens is None:
            continue
        yield f"content of the padding of the {side}", replace(batch, **{name: torch.where(mask, tokens, _other(tokens))})
        if name == "source":  # inputs have at most the length of the task
            longer = torch.nn.functional.pad(tokens, (0, 2), value=1)
            yield (
                f"amount of padding of the {side}",
                replace(batch, **{name: longer, mask_name: torch.nn.functional.pad(mask, (0, 2), value=False)}),
            )


def _real_gap(batch: Batch, logits: Tensor, other: Tensor) -> float:
    if logits.dim() == 3 and batch.mask is not None and logits.shape[:2] == batch.mask.shape:
        return max_abs_diff(logits[batch.mask], other[batch.mask])
    return max_abs_diff(logits, other)


def rows(target: ModelTarget) -> str:
    """A row gives the same output alone as in a batch."""
    model, batch = target.construct(), target.batch(padded=target.cls.kind != "language_model")
    logits, worst = _outputs(model, batch), 0.0
    for i, row in enumerate(batch.split(ROWS)):
        gap = _real_gap(row, logits[i : i + 1], _outputs(model, row))
        case = f"row {i} differs alone and in a batch of {ROWS}"
        worst = max(worst, require_small(gap, TOLERANCE, case, "Look for an operation across rows."))
    return f"alone and in a batch, outputs differ by {format_number(worst)}"


def gradients(target: ModelTarget) -> str:
    """Every parameter receives a gradient."""
    model, batch = target.construct(), target.batch()
    outputs = tree_leaves(model.forward_batch(batch)[0])
    generator = torch.Generator().manual_seed(2)
    weighing = [torch.randn(output.shape, dtype=output.dtype, generator=generator) for output in outputs]
    torch.stack([(output * weight).sum() for output, weight in zip(outputs, weighing, strict=True)]).sum().backward()
    named = trained_parameters(model)
    idle = [name for name, parameter in named.items() if parameter.grad is None or not parameter.grad.any()]
    if idle:
        raise Failure(f"no gradient reaches {', '.join(idle[:3])}", "Use the parameter without detach(), or remove it.")
    return f"{len(named)} tensors"


def decoding(target: ModelTarget) -> str:
    """New tokens alone, over a cache of keys and values, give the outputs of the whole sequence."""
    target.require("language_model", "encoder_decoder")
    if target.cls.kind == "language_model":
        return _decode_language_model(target)
    if not issubclass(target.cls, EncoderDecoder):
        raise NotDeclared("not a subclass of EncoderDecoder")
    model, batch = cast(EncoderDecoder, target.construct()), target.batch(padded=True)
    if names := without_cache(model.decoder):
        raise NotDeclared(f"{', '.join(names)} has no cache")
    tokens, mask = batch.inputs, batch.source_mask
    with torch.no_grad():
        encoded = model.encode(cast(Tensor, batch.source), mask)
        whole = model.decode(tokens, encoded, mask)
        with key_value_cache(model.decoder):
            for i in range(LENGTH):
                features = model.decode(tokens[:, i : i + 1], encoded if i == 0 else encoded[:, :0], mask, start=i)
                gap = max_abs_diff(features, whole[:, i : i + 1])
                require_small(gap, TOLERANCE, f"position {i} differs from the whole target", CACHE_ADVICE)
    return f"{LENGTH} positions one at a time"


def _decode_language_model(target: ModelTarget) -> str:
    model, batch = target.construct(), target.batch()
    if not isinstance(model, LanguageModel):
        raise NotDeclared("not a subclass of LanguageModel")
    if names := without_cache(model):
        raise NotDeclared(f"{', '.join(names)} has no cache")
    whole, start = _outputs(model, batch), 0
    with torch.no_grad(), key_value_cache(model):
        for length in (3, 1, 1, 2):  # LENGTH tokens in all
            logits, _ = model(batch.inputs[:, start : start + length], start=start)
            gap = max_abs_diff(logits, whole[:, start : start + length])
            case = f"positions {start} .. {start + length - 1} differ from the whole sequence"
            require_small(gap, TOLERANCE, case, CACHE_ADVICE)
            start += length
    return f"{LENGTH} positions in 4 calls"


def precisions(target: ModelTarget) -> str:
    """In each precision and mode of a run, no row changes another and, in a causal model, no token the logits before it."""
    batch = target.batch(padded=target.cls.kind != "language_model")
    border = LENGTH // 2 if target.cls.kind in ("language_model", "encoder_decoder") else 0
    inputs = batch.inputs.clone()
    inputs[0, border:] = _other(inputs[0, border:])
    other, model = replace(batch, inputs=inputs), target.construct()
    if _leak(model, batch, other, border, "float64", training=False)[0] > LEAK["float64"]:
        raise NotDeclared("the property fails in float64, too")
    model.float()
    for precision, training in product(("fp32", *DTYPES), (True, False)):
        size, what = _leak(model, batch, other, border, precision, training=training)
        if not size <= LEAK[precision]:
            mode = f"{precision}, {'training' if training else 'evaluation'}"
            raise Failure(f"{mode}: {what} the logits by {format_number(size)}", MODES_ADVICE)
    return "fp32, bf16 and fp16, training and evaluation"


def _leak(model: Model, batch: Batch, other: Batch, border: int, precision: str, *, training: bool) -> tuple[float, str]:
    """Return the largest change of what must not change, relative to the outputs, and its description.

    Args:
        other: ``batch`` with other tokens in row 0, from ``border`` on.
    """
    worst, what = 0.0, ""
    outputs = [_in_mode(model, each, precision, training=training) for each in (batch, other)]
    for one, two in zip(*outputs, strict=True):
        gap = (one - two).abs() / one.square().mean().sqrt()
        kept = {"another row changes": gap[1:], "later tokens change": gap[0, :border]}
        for text, part in kept.items():
            if part.numel() and not part.max().item() <= worst:
                worst, what = part.max().item(), text
    return worst, what


def _in_mode(model: Model, batch: Batch, precision: str, *, training: bool) -> list[Tensor]:
    """Return the outputs with one value per row, in a mode of a run."""
    seed_generators(0, "cpu")
    mode = torch.enable_grad() if training else torch.inference_mode()
    with (
        warnings.catch_warnings(action="ignore"),
        mode,
        autocast(torch.device("cpu"), precision if precision in DTYPES else "fp32"),
    ):
        output = model.train(training).forward_batch(batch)[0]
    return [z.detach().double() for z in tree_leaves(output) if len(z) == ROWS]


_FUNCTIONS: dict[str, Callable[[ModelTarget], str]] = {
    "shapes": shapes,
    "causality": causality,
    "source": source,
    "padding": padding,
    "batch independence": rows,
    "gradient coverage": gradients,
    "decoding": decoding,
    "precisions and modes": precisions,
}
MODEL_CHECKS: dict[str, Check[ModelTarget]] = {name: Check(name, run) for name, run in _FUNCTIONS.items()}

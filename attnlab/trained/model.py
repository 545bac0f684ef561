"""Trained models of runs: loading them, applying them to one's input, and the softmax weights of their layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, full, stack
from torch.nn.utils.rnn import pad_sequence

from attnlab._util.files import describe_error
from attnlab._util.packages import require
from attnlab._util.rng import derive_seed
from attnlab.config.run import PARTS, RunConfig
from attnlab.errors import UserError, nearest
from attnlab.models.base import Model
from attnlab.models.build import build
from attnlab.models.decoding import decode
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.nn import attention
from attnlab.registry import TASKS
from attnlab.tasks import Task
from attnlab.tasks.validation import construct, prepare_task
from attnlab.trained.recorded_code import find_run, import_recorded_code
from attnlab.trained.sampling import sample
from attnlab.training import weights
from attnlab.training.device import resolve_device
from attnlab.training.evaluate import longest_positions
from attnlab.variants import Variant

ROWS = 64  # texts that are classified at a time
Input: TypeAlias = "str | Sequence[int] | Tensor"


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


def load_model(
    run: str | Path,
    *,
    backend: str | None = None,
    device: str | None = None,
    root: str | Path | None = None,
    imports: Sequence[str | Path] = (),
) -> TrainedModel:
    """Load the trained model of a run.

    Args:
        run: a run's folder, its MLflow ID or the beginning of it, its name (``no_wo s0``), or ``study/cell/seed``
            (``projection/no_wo/0``). The first two are in the columns ``folder`` and ``run_id`` of `load_runs`.
        backend: the backend of attention, which computes the same mathematics as the configured one; default: the configured
            one, or ``reference`` when the device does not support it.
        device: ``cpu``, ``cuda`` or ``cuda:N``; default: the device that the run was trained on if this machine has one,
            else ``cpu``.
        root: the folder of runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        imports: the Python files with the classes of the model, wherever they lie now, and the names of installed modules
            with some. A record alone imports no code.

    The folder of a run is all that a model needs: it can be copied to another machine, without the data.

    Raises:
        UserError: no run or several runs match; the run left no model; its files are damaged; one of the Python files
            that define the model has changed since it was trained, or is not among ``imports``.

    Examples:
        >>> import attnlab
        >>> model = {"dim": 16, "depth": 1, "heads": 2}
        >>> base = {"task": {"name": "pydocs", "length": 32}, "model": model, "train": {"steps": 2}}
        >>> base["evaluate"] = {"valid_limit": 500, "test_limit": 500}
        >>> result = attnlab.run({"study": "tiny", "base": base, "grid": {"variant": ["dense"]}})
        >>> trained = attnlab.load_model("tiny/dense/0")
        >>> trained.encode("abc")
        tensor([[97, 98, 99]])
        >>> trained("abc").shape  # logits of the byte after each
        torch.Size([1, 3, 256])
        >>> text = trained.generate("abc", length=5, temperature=0)
        >>> trained.attention_weights("abc").shape  # depth, batch, heads, queries, keys
        torch.Size([1, 1, 2, 3, 3])
    """
    name, folder = find_run(run, root=root)
    config, state, kept = weights.load(folder)
    device = device or _device(config)
    if backend is None and attention.unsupported(config.backend, device=device) is not None:
        backend = "reference"
    if backend is not None:
        config = config.model_copy(update={"backend": backend})
    config = import_recorded_code(config, where=str(folder / weights.CONFIG), imports=imports)
    task = TASKS.get(config.task.name).from_kept(kept, config.task.options)
    require(f"task {config.task.label}", *task.packages)
    try:
        model = build(config, task)
        weights.load_into(model, state)
    except (ValueError, RuntimeError) as error:
        raise UserError(f"the weights in {folder} do not fit their configuration: {describe_error(error)}") from error
    return TrainedModel(name, config, task, model.eval().to(device), torch.device(device))


def _device(config: RunConfig) -> str:
    """Return the device that a run was trained on if this machine has one, else "cpu"."""
    available = torch.cuda.is_available() or config.machine.device == "cpu"
    return resolve_device(config.machine.device if available else "cpu")


@dataclass(frozen=True)
class Prediction:
    """The label that a classifier gives a text.

    Attributes:
        label: the most probable one.
        probabilities: of each label, which sum to 1.
    """

    label: str
    probabilities: dict[str, float]


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """The trained model of a run, in evaluation mode; `load_model` returns it.

    Calling it returns logits for your own input: text, token ids (t,), or several rows of token ids (b, t).

    Attributes:
        name: a description of the run.
        config: the run's configuration.
        task: defines the tokens and the classes, as they were in training; it has no data (``read_data``).
        model: the network, a `torch.nn.Module`. A language model takes (tokens, memory) and returns (logits, memory); a
            classifier takes (tokens, mask) and returns logits.
        device: the device of ``model``.
    """

    name: str
    config: RunConfig
    task: Task
    model: Model
    device: torch.device

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"TrainedModel({self.name!r}, {type(self.model).__name__}, {parameters:,} parameters, {self.device})"

    def encode(self, text: str) -> Tensor:
        """Return the token ids (1, t) of a text, as the task encodes it; for a classifier, at most the task's length.

        Raises:
            UserError: the task has no text, or cannot encode this one.
        """
        self._require_method("encode")
        try:
            ids = torch.tensor([self.task.encode(text)], dtype=torch.int64)
        except Exception as error:  # any exception: the task may be the user's own
            message = f"task {self.config.task.label} cannot encode the text: {type(error).__name__}: {error}"
            raise UserError(message) from error
        if not ids.numel():
            raise UserError("expected a text of at least one token, got an empty one")
        return ids[:, : self.task.length] if self._reads_whole_rows else ids

    def predict(self, texts: str | Sequence[str]) -> list[Prediction]:
        """Return the label of each text, and the probabilities of all labels.

        A text that is longer than the task's length is cut at its end, as in training.

        Args:
            texts: one or several.

        Raises:
            UserError: the model is not a classifier, or its task cannot encode a text.

        Examples:
            >>> for prediction in trained.predict(["my parcel is late", "charged twice"]):  # doctest: +SKIP
            ...     print(prediction.label, prediction.probabilities)
        """
        if not self._is_classifier:
            raise UserError(f"expected a classifier, got a {self.task.kind.replace('_', ' ')} of {self.config.task.label}")
        rows = [self.encode(text)[0] for text in ([texts] if isinstance(texts, str) else texts)]
        labels = list(self.task.labels) or [str(number) for number in range(self.task.classes)]
        predictions: list[Prediction] = []
        for start in range(0, len(rows), ROWS):
            group = rows[start : start + ROWS]
            tokens = pad_sequence(group, batch_first=True)
            mask = torch.arange(tokens.shape[1]) < torch.tensor([len(row) for row in group])[:, None]
            shares = self(tokens, None if mask.all() else mask).softmax(-1)
            chosen = [labels[number] for number in shares.argmax(-1).tolist()]
            probabilities = [dict(zip(labels, row, strict=True)) for row in shares.tolist()]
            predictions += map(Prediction, chosen, probabilities)
        return predictions

    def read_data(self) -> Task:
        """Return the task of the run with its data, prepared.

        Raises:
            UserError: the data are not available, or have changed since the model was trained.
        """
        return prepare_task(construct(TASKS.get(self.config.task.name), self.config.task), self.config)

    @torch.no_grad()
    def __call__(self, inputs: Input, mask: Tensor | None = None, *, target: Input | None = None) -> Tensor:
        """Return the logits for your own input, in float32.

        A model with memory reads segments of the task's length, as in training.

        Args:
            inputs: text, token ids (t,), or several rows of them (b, t).
            mask: (b, t), boolean, True = a real token; for a classifier or a masked language model. None: all are.
            target: for an encoder-decoder with the source ``inputs``: a text, or the inputs of the decoder as token ids.

        Returns:
            (b, t, vocabulary), for the token after each token of the input (of the target in an encoder-decoder). A masked
            language model returns the logits of each token itself, and the text may contain ``[MASK]``. A classifier returns
            (b, classes).

        Raises:
            UserError: the task cannot encode the text, or the tokens are not valid for this model.
        """
        tokens = self._tokens(inputs, mask)
        if self.task.kind == "encoder_decoder":
            return self.model(tokens, self._target(target)).float()
        if self._is_classifier:
            return self.model(tokens, None if mask is None else mask.to(self.device)).float()
        if self._is_masked:
            return self.model(tokens, mask=None if mask is None else mask.to(self.device)).tokens.float()
        memory: list[Tensor] | None = None
        logits = []
        for segment in tokens.split(self.task.length if self.config.model.mem_len else tokens.shape[1], dim=1):
            part, memory = self.model(segment, memory)
            logits.append(part.float())
        return torch.cat(logits, dim=1)

    def generate(self, prompt: Input, *, length: int = 600, temperature: float = 0.5, seed: int = 0) -> str:
        """Sample a continuation of a prompt from a language model.

        Args:
            prompt: text or token ids (t,).
            length: the number of tokens to sample.
            temperature: divisor of the logits; 0 takes the most likely token.
            seed: the seed for sampling.

        Returns:
            The text after the prompt. It may contain control characters.

        Raises:
            UserError: the model is not a language model, or its task has no text.
        """
        self.require_generation()
        if self.task.kind == "encoder_decoder":
            raise UserError("expected a language model, got an encoder-decoder: use translate()")
        tokens = self.encode(prompt) if isinstance(prompt, str) else _token_ids(prompt, vocabulary=self.task.vocabulary)
        if len(tokens) != 1:
            raise UserError(f"expected one prompt, got {len(tokens)} rows")
        ids = tokens[0].tolist()
        drawn = sample(
            self.model,
            ids,
            task=self.task,
            device=self.device,
            temperature=temperature,
            length=length,
            seed=seed,
            has_memory=self.config.model.mem_len > 0,
        )
        return self.task.decode(drawn)

    def translate(
        self,
        source: Input,
        *,
        beam: int | None = None,
        length_penalty: float | None = None,
        temperature: float | None = None,
        seed: int = 0,
    ) -> str:
        """Translate a sentence with an encoder-decoder.

        Args:
            source: the sentence, a text or token ids (t,).
            beam: number of hypotheses that decoding keeps; 1 is greedy. None: as in the evaluation of the task.
            length_penalty: exponent of the length in the score of a hypothesis. None: as in the evaluation of the task.
            temperature: sample a translation with this divisor of the logits; 0 takes the most likely tokens. None: search for
                the most likely translation.
            seed: the seed for sampling.

        Raises:
            UserError: the model is not an encoder-decoder, its task has no text, the sentence is empty or too long, or a
                temperature is given together with ``beam`` or ``length_penalty``.
        """
        if self.task.kind != "encoder_decoder":
            kind = self.task.kind.replace("_", " ")
            raise UserError(f"expected an encoder-decoder, got a {kind} of {self.config.task.label}")
        self.require_generation()
        if isinstance(source, str) and not source.strip():
            raise UserError("expected a sentence, got an empty text")
        tokens = self._tokens(source)
        if len(tokens) != 1:
            raise UserError(f"expected one sentence, got {len(tokens)} rows")
        options = self.task.decoding_options()
        changes = {"beam": beam, "length_penalty": length_penalty}
        options |= {name: value for name, value in changes.items() if value is not None}
        if temperature is not None:
            for name in (name for name, value in changes.items() if value is not None):
                message = f"expected no {name} with a temperature: samples are not searched for"
                raise UserError(message, f"--{name.replace('_', '-')}")
            generator = torch.Generator().manual_seed(derive_seed(seed, "sampling"))
            options |= {"beam": 1, "temperature": temperature, "generator": generator}
        decoded: Any = decode(self.model, tokens, **options)  # type: ignore[arg-type]
        return self.task.decode(decoded[0])

    @torch.no_grad()
    def attention_weights(
        self, inputs: Input, mask: Tensor | None = None, *, target: Input | None = None, part: str = "cross"
    ) -> Tensor:
        """Return the softmax weights of every layer for your own input, as the backend ``reference`` computes them.

        Args:
            inputs: as for a call; for a model with memory, at most one segment.
            mask: as for a call.
            target: as for a call.
            part: for an encoder-decoder: ``encoder``, ``decoder`` or ``cross``.

        Returns:
            (depth, b, heads, t, t), on the CPU: for each query (fourth dimension), the weights of the keys (fifth). With a
            class token, t is one more than the number of tokens, and the class token comes first. In cross-attention, queries
            are positions of the target and keys are positions of the source: (depth, b, heads, t, s). With ``model.layers``,
            the weights of blocks without such a matrix are NaN.

        Raises:
            UserError: the variant does not compute one matrix of weights for each layer and head (sparse variants compute
                theirs in blocks, recurrent ones have none), or the input is not valid for this model.
        """
        tokens = self._tokens(inputs, mask)
        if self.task.kind == "encoder_decoder":
            if part == "cross" and self.config.model.encoder_pool is not None:
                raise UserError(f"cross-attention has one key (model.encoder_pool: {self.config.model.encoder_pool})")
            return part_weights(self._reference_model, tokens, self._target(target), part=part)
        if tokens.shape[1] > self.task.length and self.config.model.mem_len:
            raise UserError(f"expected at most one segment of {self.task.length} tokens, got {tokens.shape[1]}")
        options = {"mask": None if mask is None else mask.to(self.device)} if self._reads_whole_rows else {}
        t, model = tokens.shape[1] + self._has_class_token, self.config.model
        size = (len(tokens), model.heads, t, t)
        if model.layers is not None:
            return pattern_weights(self._reference_model, lambda: self._reference_model(tokens, **options), size=size)
        assert self.config.variant is not None, "a model without model.layers has one variant"
        return layer_weights(
            lambda: self._reference_model(tokens, **options), depth=model.depth, size=size, variant=self.config.variant.name
        )

    def words(self, inputs: Input) -> list[str]:
        """Return the text of each token of one row, after ``"[class]"`` when the model has a class token.

        When the task has no text, the text of a token is its number.
        """
        return ["[class]"] * self._has_class_token + [self._word(token) for token in self._tokens(inputs)[0].tolist()]

    def require_generation(self) -> None:
        """Raise `UserError` unless the model is a language model or an encoder-decoder, and its task has text."""
        if self._reads_whole_rows:
            kind = self.task.kind.replace("_", " ")
            raise UserError(f"expected a language model, got a {kind} of {self.config.task.label}")
        own = ("decoding_options",) if self.task.kind == "encoder_decoder" else ()
        for method in ("encode", "decode", *own):
            self._require_method(method)

    def _require_method(self, method: str) -> None:
        if getattr(type(self.task), method) is getattr(Task, method):
            raise UserError(f"task {self.config.task.label} has no text: expected a method {method}, got none")

    def _word(self, token: int) -> str:
        try:
            names = {number: name for name, number in special_tokens(self.task).items()}
            return self.task.decode([token]) or f"[{names.get(token, token)}]"
        except NotImplementedError:
            return f"{token} "  # with a space: words of one character are joined without one

    @property
    def _is_classifier(self) -> bool:
        return self.task.kind == "classifier"

    @property
    def _is_masked(self) -> bool:
        return self.task.kind == "masked_language_model"

    @property
    def _reads_whole_rows(self) -> bool:
        return self._is_classifier or self._is_masked

    @property
    def _has_class_token(self) -> bool:
        return type(self.model).has_class_token(self.config.model)

    @cached_property
    def _reference_model(self) -> Model:
        """The same model with the backend that materializes its softmax weights."""
        if self.config.backend == "reference":
            return self.model
        model = build(self.config.model_copy(update={"backend": "reference"}), self.task)
        weights.load_into(model, weights.distinct_tensors(self.model))
        return model.eval().to(self.device)

    def _tokens(self, inputs: Input, mask: Tensor | None = None) -> Tensor:
        """Return valid token ids (b, t) on the model's device."""
        tokens = self.encode(inputs) if isinstance(inputs, str) else _token_ids(inputs, vocabulary=self.task.vocabulary)
        t = tokens.shape[1]
        if mask is not None and (not self._reads_whole_rows or mask.shape != tokens.shape):
            raise UserError(f"expected a mask of shape {tuple(tokens.shape)}, of a classifier, got {tuple(mask.shape)}")
        too_long = t > self.task.length and not self.config.model.mem_len
        if too_long and (reason := longest_positions(self.config, self.task)):
            raise UserError(f"expected at most {self.task.length} tokens, got {t}: {reason}")
        return tokens.to(self.device)

    def _target(self, target: Input | None) -> Tensor:
        """Return the inputs of the decoder (b, t) for a target, on the model's device."""
        if target is None:
            raise UserError("expected a target for the decoder, got none")
        if isinstance(target, str):
            target = decoder_inputs(self.task, self.encode(target)[0].tolist())
        return self._tokens(target)


def _token_ids(inputs: Sequence[int] | Tensor, *, vocabulary: int) -> Tensor:
    """Return token ids (b, t) in int64; a single row (t,) becomes (1, t).

    Raises:
        UserError: they are not whole numbers from 0 to ``vocabulary`` - 1, or have another shape.
    """
    tokens = torch.as_tensor(inputs)
    tokens = tokens[None] if tokens.dim() == 1 else tokens
    if tokens.dim() != 2 or not tokens.numel() or tokens.is_floating_point() or tokens.dtype == torch.bool:
        shape = tuple(tokens.shape)
        raise UserError(f"expected token ids of shape (t,) or (b, t), whole numbers, got {tokens.dtype} of shape {shape}")
    least, most = int(tokens.min()), int(tokens.max())
    if least < 0 or most >= vocabulary:
        raise UserError(f"expected token ids from 0 to {vocabulary - 1}, got {least} to {most}")
    return tokens.long()

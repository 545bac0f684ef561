"""The contract of a task, and the helpers that tasks share.

The splits of a task are ``train``, ``valid`` and ``test``. Checkpoint selection uses ``valid`` only; ``test`` is read once, at
the end of a run that is reported. Training batches are a pure function of (step, seed, batch size): a resumed run needs
no state of the data, and two cells with the same seed see the same batches in the same order.

To add a task, subclass ``Task`` (``examples/my_task/recall.py`` is an example). A subclass defines the class attributes and
the methods ``identity``, ``prepare``, ``steps_per_epoch``, ``train_batch`` and ``eval_batches``. The other methods are
optional:

- ``loss`` and ``score``: by default cross-entropy, bits per byte of a language model, and accuracy and loss of a classifier.
  When you use another ``metric``, ``score`` should return it.
- ``target_logits``: for targets that the model does not predict at their positions.
- ``eval_tokens``: without it, ``attnlab plan`` omits the cost of evaluation.
- ``mean_length``: the tokens of a row, when rows are shorter than ``length``; ``attnlab plan`` counts them.
- ``encode`` and ``decode``: ``attnlab generate`` requires both; without ``decode``, attention maps show token numbers.
- ``kept``: what a trained model keeps of a task whose constructor, ``encode`` or ``decode`` reads data.
- ``vocabulary_identity``: the meaning of the token ids, for runs that start from the weights of another.
- ``unsupported``: the reason why the task does not support a configuration, for example memory when batches are not
  consecutive.
- ``reference_scores``: scores of simple methods without a network, which a report lists in addition to the variants.
- ``split_size``: the number of items of a split, which the plan and the report state.
- ``data_notes``: facts about the data that a reader of the results should know.
- ``generated_scores``, ``decoding_options`` and ``run_notes``: scores of generated text, for example BLEU.

``attnlab.tasks.validation`` checks the definition in the plan, and the first batch before the first training step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from attnlab._util.metrics import Score
    from attnlab.config.run import RunConfig
    from attnlab.tasks.reference_scores import Reference

SPLITS = ("train", "valid", "test")
SHAPE = ("kind", "role", "length", "vocabulary", "unit", "classes", "segments", "labels")  # what a model and its user need
IGNORED = -100  # a target that does not count


@dataclass(frozen=True)
class Batch:
    """A batch of ``b`` rows of ``t`` tokens.

    Args:
        inputs: (b, t) int64 token ids.
        targets: (b, t) int64 next tokens, ``IGNORED`` (-100) at positions without a target; or (b,) int64 classes.
        mask: (b, t) bool, True at real tokens and False at padding; None when there is no padding.
        fresh: True when the rows do not continue the previous batch, so that the model starts with an empty memory.
        items: (b,) int64 indices of the rows within an evaluation, independent of the batch size; None: in the order in which
            they are read.
        source: (b, s) int64 token ids for the encoder of an encoder-decoder; ``inputs`` are for the decoder.
        source_mask: (b, s) bool, True at real tokens of ``source``; None when there is no padding.
        segments: (b, t) int64, the sentence of each token of a pair: 0 or 1.
        labels: (b,) int64 classes of the rows, in addition to targets that are tokens.
        positions: (b, p) int64, the positions of a row at which a masked language model predicts tokens; a row with fewer
            positions repeats one that has no target. None: all positions.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor | None = None
    fresh: bool = False
    items: Tensor | None = None
    source: Tensor | None = None
    source_mask: Tensor | None = None
    segments: Tensor | None = None
    labels: Tensor | None = None
    positions: Tensor | None = None

    @cached_property
    def tokens(self) -> int:
        """Number of tokens without padding, of the source and the inputs together."""
        pairs = ((self.inputs, self.mask), (self.source, self.source_mask))
        return sum(z.numel() if mask is None else int(mask.sum()) for z, mask in pairs if z is not None)

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors that the model and the loss read."""
        return list(self._on_device().values())

    def _on_device(self) -> dict[str, Tensor]:
        """Return the tensors that ``to`` moves, by name: all but ``items``."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor) and name != "items"}

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on ``device``. Copies to CUDA are asynchronous, from pinned memory."""
        moved = replace(self, **{name: _to(tensor, device) for name, tensor in self._on_device().items()})
        vars(moved)["tokens"] = self.tokens  # counted on this side: counting there would synchronize with the device
        return moved

    def split(self, n: int) -> list[Batch]:
        """Split the rows into ``n`` micro-batches of nearly equal size, or into fewer if there are fewer rows.

        In all batches of one size, a row has the same place in the same micro-batch, so each micro-batch can keep a separate
        memory.
        """
        n = min(n, len(self.inputs))
        tensors = {name: value.tensor_split(n) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return [replace(self, **{name: rows[i] for name, rows in tensors.items()}) for i in range(n)]


def _to(tensor: Tensor, device: torch.device | str) -> Tensor:
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Task:
    """Base class of tasks.

    A subclass sets the class attributes and takes its options as keyword-only arguments with defaults. Its constructor
    should be cheap: data are fetched and read in ``prepare``.

    Attributes:
        kind: the kind of model that the task needs; also the name of the model that a study uses by default.
        role: ``causal`` if a position may attend only to itself and earlier ones, else ``bidirectional``.
        metric: the primary metric, one of the names that ``score`` or ``generated_scores`` returns.
        direction: ``min`` or ``max``: the better direction of the metric.
        other_metrics: the direction of each other metric that a study can compare instead of ``metric``.
        length: number of tokens in the longest row.
        vocabulary: number of token ids.
        unit: the name of a token in messages.
        classes: number of classes; 0 for language models.
        segments: number of segment embeddings, which are added to the token embeddings (``Batch.segments``); 0: none.
        item_metric: the metric that ``item_scores`` returns, when it is not the primary one.
        estimand: the number that summarizes the seeds of a cell: ``mean``, or ``solve_rate``
            when one seed of a configuration solves the task and the next does not (``attnlab.stats.exact_estimators``).
        threshold: the score that solves the task, for a ``solve_rate``.
        valid_sample: the value of ``evaluate.sample: auto``, in the unit of ``valid_limit``; None: evaluations during training
            read as much of ``valid`` as the final evaluation.
        shapes_vary: whether training batches have unequal shapes, which decides how freed memory is kept.
        files: the options that name a file. In a study, such a path is relative to the study's file.
        labels: the names of the classes, in the order of their numbers; default: their numbers.
        kept: the attributes, beside its shape, that ``encode``, ``decode`` and ``decoding_options`` read, for a task whose
            constructor or vocabulary depends on data. A trained model keeps them as JSON. None: the options define the task.
        packages: modules of attnlab's extras that the task needs (``attnlab._util.packages``), for example ``tokenizers``.
    """

    kind: Literal["language_model", "classifier", "encoder_decoder", "masked_language_model"]
    role: Literal["causal", "bidirectional"]
    metric: str
    direction: Literal["min", "max"]
    length: int
    vocabulary: int
    unit: str = "token"
    classes: int = 0
    segments: int = 0
    other_metrics: Mapping[str, Literal["min", "max"]] = MappingProxyType({})
    item_metric: str | None = None
    estimand: Literal["mean", "solve_rate"] = "mean"
    threshold: float | None = None
    valid_sample: int | None = 1_000
    shapes_vary: bool = False
    files: tuple[str, ...] = ("path",)
    labels: Sequence[str] = ()
    kept: tuple[str, ...] | None = None
    packages: tuple[str, ...] = ()

    def identity(self) -> str:
        """Return a string that identifies the data, for example a checksum. It should be cheap and fetch nothing."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Fetch, verify and prepare the data when this has not been done yet. Repeated calls should be cheap.

        Raises:
            UserError: the data are not available, or are not what is expected.
        """
        raise NotImplementedError

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches in one epoch over ``train``; callable before ``prepare``."""
        raise NotImplementedError

    def train_batch(self, step: int, *, seed: int, batch_size: int) -> Batch:
        """Return batch number ``step``, counted from 0 through all epochs: a pure function of the arguments."""
        raise NotImplementedError

    def eval_batches(
        self,
        split: str,
        *,
        batch_size: int,
        limit: int | None = None,
        protocol: str = "segment",
        stride: int | None = None,
    ) -> Iterator[Batch]:
        """Return the batches of one pass over a split.

        Args:
            split: ``train``, ``valid`` or ``test``.
            batch_size: rows of a batch.
            limit: evaluate at most this many items (bytes, reviews), always the same ones, spread over the split; None: all.
            protocol: ``segment``, or ``sliding`` with a ``stride`` in tokens (language models only).
        """
        raise NotImplementedError

    def eval_tokens(self, split: str, *, limit: int | None, protocol: str, stride: int | None) -> int | None:
        """Estimate the input tokens that ``eval_batches`` reads, with every row at full length; callable before ``prepare``.

        For an encoder-decoder, these are the tokens of the target; the plan adds as many for the source.

        None means unknown; the plan then omits the cost of evaluation.
        """
        return None

    def mean_length(self, split: str) -> float | None:
        """Return the mean number of tokens of a row of a split, without padding; by default ``length``.

        For an encoder-decoder, the mean of source and target. Return None when it is not known before ``prepare``, which the
        plan does not call; rows then count at full length, and the plan says so.
        """
        return float(self.length)

    def split_size(self, split: str) -> int | None:
        """Return the number of items of a split, which limits count (rows, or bytes or tokens of a text); None: unknown.

        The plan calls it without ``prepare``. When every item is drawn at random, a split has no size.
        """
        return None

    def encode(self, text: str) -> list[int]:
        """Return the token ids of ``text``."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        raise NotImplementedError

    def kept_state(self) -> dict[str, Any]:
        """Return what a trained model keeps of the task, as JSON: its shape and ``kept``, or {} if the options define it."""
        return {} if self.kept is None else {name: getattr(self, name) for name in (*SHAPE, *self.kept)}

    @classmethod
    def from_kept(cls, state: Mapping[str, Any], options: Mapping[str, Any]) -> Task:
        """Return the task of a trained model, which has no data: it encodes and decodes like the task that ``state`` is of."""
        if not state:
            return cls(**options)
        task = cls.__new__(cls)
        vars(task).update(state)
        return task

    def vocabulary_identity(self) -> str:
        """Return a string that identifies the meaning of the token ids, callable before ``prepare``; "" if none is stated.

        A run can start from the weights of another one only when these strings are equal, because embeddings belong to token
        ids.
        """
        return ""

    def unsupported(self, config: RunConfig) -> str | None:
        """Return the reason why this task does not support ``config``, or None. The plan calls it without ``prepare``."""
        return None

    def reference_scores(self) -> dict[str, Reference]:
        """Return the reference scores of the task by name: scores of simple methods without a network."""
        return {}

    def data_notes(self) -> list[str]:
        """Return notes for the plan and the report, for example on test data that also occur in ``train``.

        The plan calls it without ``prepare``: it reads what is there and fetches nothing.
        """
        return []

    def target_logits(self, logits: Tensor) -> Tensor:
        """Return the logits that predict the targets; by default ``logits``, with each target at its position.

        Args:
            logits: (b, t, vocabulary) of a language model or (b, classes) of a classifier.

        Returns:
            (b, t, n) with the targets 0 to n - 1, or (b, classes).
        """
        return logits

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean negative log-likelihood of the targets in nats, a differentiable scalar.

        Args:
            logits: (b, t, vocabulary) of a language model or (b, classes) of a classifier.
        """
        return mean_nats(self.target_logits(logits), batch.targets)

    def score(self, logits: Tensor, batch: Batch) -> dict[str, Score]:
        """Return every metric of one batch as (sum, count), with sums in float64 to stay exact over a long split.

        Both may be tensors, so that evaluation need not synchronize with the device after each batch.
        """
        logits, targets = self.target_logits(logits), batch.targets
        total = each_nats(logits, targets).double().sum()
        if self.kind == "language_model":
            return {"bits_per_byte": (total / math.log(2), (targets != IGNORED).sum())}
        correct = (logits.argmax(-1) == targets).sum().double()
        return {"accuracy": (correct, len(targets)), "loss": (total, len(targets))}

    def generated_scores(
        self, generate: Callable[..., list[list[int]]], split: str, *, batch_size: int, limit: int | None
    ) -> dict[str, float]:
        """Return scores of what an encoder-decoder generates from the sources of a split, for example BLEU.

        They are added to the means of ``score``.

        Args:
            generate: called with a batch and the keyword arguments of ``attnlab.models.decoding.decode``; returns the tokens
                that the model generates for each row.
            split: as for ``eval_batches``.
            batch_size: as for ``eval_batches``.
            limit: as for ``eval_batches``.
        """
        return {}

    def decoding_options(self) -> dict[str, int | float]:
        """Return the keyword arguments to decode this task with ``attnlab.models.decoding.decode``."""
        raise NotImplementedError

    def run_notes(self) -> dict[str, str]:
        """Return notes that are recorded with each run, for example the signature of a score, by name."""
        return {}

    def item_scores(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the primary metric of each row of a batch as sums (b,) and counts (b,).

        They should add up to the result of ``score``. A task that overrides ``score`` is scored row by row.
        """
        if type(self).score is not Task.score or self.metric not in ("bits_per_byte", "accuracy"):
            rows = zip(logits.split(1), batch.split(len(batch.inputs)), strict=True)
            pairs = [self.score(row_logits, row)[self.metric] for row_logits, row in rows]
            sums, counts = (
                torch.stack([torch.as_tensor(value).cpu() for value in column]) for column in zip(*pairs, strict=True)
            )
            return sums, counts
        logits = self.target_logits(logits)
        if self.kind == "language_model":
            nats = each_nats(logits, batch.targets)
            return nats.double().sum(1) / math.log(2), (batch.targets != IGNORED).sum(1)
        return (logits.argmax(-1) == batch.targets).double(), torch.ones_like(batch.targets)


def known_split(split: str) -> str:
    """Return ``split`` if it is one of ``SPLITS``, otherwise raise ``UserError``."""
    if split not in SPLITS:
        raise UserError(f"unknown split {split!r}{nearest(split, SPLITS)}; known: {', '.join(SPLITS)}")
    return split


def whole_number(value: object, *, name: str, least: int = 1) -> int:
    """Return ``value`` if it is an int of at least ``least``, otherwise raise ``UserError`` naming the option ``name``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UserError(f"{name}: expected a whole number of at least {least:,}, got {value!r}")
    return value


# Cross-entropy in float32 of logits in any precision. With a vocabulary of 10,000, the logits of a batch are its largest
# tensor, and ``torch.nn.functional.cross_entropy`` holds up to six copies of them in float32 at once. Here, the loss reads the
# logits in chunks, and its backward pass computes the softmax of each chunk again:
#
#     dL / dx_j = (softmax(x)_j - (1 - epsilon) [j = target] - epsilon / V) / n
#
# with label smoothing epsilon, V classes and n targets (Szegedy et al. 2016, arXiv:1512.00567, section 7).
CHUNK = 1 << 22  # logits; fewer are one chunk, by PyTorch's own function


def mean_nats(logits: Tensor, targets: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """Return the mean negative log-likelihood of the targets in nats, a scalar in float32; NaN when there is none.

    A loss of more than one chunk can be differentiated once.

    Args:
        logits: (..., classes).
        targets: (...) int64; ``IGNORED`` ones do not count.
        label_smoothing: share of each target's probability that is spread over all classes.
    """
    logits, targets = logits.flatten(0, -2), targets.flatten()
    if logits.numel() <= CHUNK:
        return F.cross_entropy(logits.float(), targets, ignore_index=IGNORED, label_smoothing=label_smoothing)
    return _MeanNats.apply(logits, targets, label_smoothing)


def each_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the negative log-likelihood of each target (...) in nats, in float32; 0 for ``IGNORED`` ones.

    Args:
        logits: (..., classes).
        targets: (...) int64.
    """
    # Of (b, classes, t), PyTorch's function is several times slower on a CPU.
    flat, flat_targets = logits.flatten(0, -2), targets.flatten()
    nats = [
        F.cross_entropy(flat[rows].float(), flat_targets[rows], ignore_index=IGNORED, reduction="none")
        for rows in _chunks(flat)
    ]
    return torch.cat(nats).view_as(targets)


def _chunks(logits: Tensor) -> Iterator[slice]:
    """Yield the rows of each chunk of (n, classes); one chunk if n is 0."""
    rows = max(1, CHUNK // max(1, logits.shape[1]))
    for start in range(0, max(1, len(logits)), rows):
        yield slice(start, start + rows)


class _MeanNats(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
        options: dict[str, Any] = {"ignore_index": IGNORED, "label_smoothing": label_smoothing, "reduction": "sum"}
        sums = [F.cross_entropy(logits[rows].float(), targets[rows], **options) for rows in _chunks(logits)]
        ctx.save_for_backward(logits, targets)
        ctx.label_smoothing = label_smoothing
        return torch.stack(sums).sum() / (targets != IGNORED).sum()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():  # create_graph=True
            raise RuntimeError("the cross-entropy of many logits does not support a second derivative")
        (logits, targets), epsilon = ctx.saved_tensors, ctx.label_smoothing
        counts = targets != IGNORED
        factors = (d_loss / counts.sum() * counts)[:, None]
        targets = targets.where(counts, 0)[:, None]
        d_logits = torch.empty_like(logits)
        for rows in _chunks(logits):
            d = logits[rows].float().softmax(-1)
            d.scatter_add_(1, targets[rows], d.new_full((1, 1), epsilon - 1).expand(len(d), 1))
            d_logits[rows] = d.sub_(epsilon / logits.shape[1]).mul_(factors[rows]) if epsilon else d.mul_(factors[rows])
        return d_logits, None, None

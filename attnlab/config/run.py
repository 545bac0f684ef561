"""The typed, frozen configuration of one run, and its fingerprint.

A field is one line of a section here: the JSON Schema, ``attnlab list config``, the fingerprint, the columns of the report
and the parameters of MLflow derive from it. ``types`` has the building blocks, ``validation`` the errors.
"""

import hashlib
import json
import re
from inspect import Parameter
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError, WithJsonSchema, field_validator, model_validator

from attnlab.config.types import (
    WITH,
    Betas,
    ComposedField,
    ComposedVariant,
    Count,
    Fraction,
    LayersConfig,
    LayersField,
    Lengths,
    Match,
    Named,
    NamedField,
    Section,
    VariantField,
    conflict,
    expected,
    layer_entries,
)
from attnlab.config.yaml import dotted, parse_assignments
from attnlab.registry import COMPONENTS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS, Registry, options_of

N = TypeVar("N", bound=Named)
V = TypeVar("V", bound=ComposedVariant)

__all__ = [
    "EvaluateConfig",
    "MachineConfig",
    "ModelConfig",
    "PartConfig",
    "RunConfig",
    "TrainConfig",
    "parse_assignments",
    "set_path",
]

PARTS = ("encoder", "decoder", "cross")  # sections of ``model``, for an encoder-decoder
# Of tasks: ``data`` identifies the content, so their folders do not count.
FILE_OPTIONS = ("path", "valid", "test", "source", "target", "valid_source", "valid_target", "test_source", "test_target")


class TrainConfig(Section):
    """Optimizer, schedule and length of training: exactly one of ``steps`` and ``epochs`` is set."""

    steps: Count | None = Field(default=None, description="optimizer steps")
    epochs: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="passes over the training split; when rows are drawn at random, as many tokens",
    )
    batch_size: Count = Field(default=32, description="sequences per optimizer step, over all micro-batches")
    gradient_accumulation: Count = Field(default=1, description="micro-batches per optimizer step; must divide batch_size")
    lr: float = Field(default=3e-4, gt=0, description="learning rate after the warm-up")
    layer_lr_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="multiply the learning rate by this factor from each layer to the one below it, from the output layers "
        "through the blocks to the embeddings",
    )
    frozen: Annotated[int, Field(ge=0)] | Literal["all"] | None = Field(
        default=None,
        description="number of leading blocks to freeze at their initial values, together with the embeddings (0: only the "
        "embeddings); all: freeze everything but the output layers; null: freeze nothing",
    )
    optimizer: NamedField = Field(
        default=Named(name="adamw"),
        description="a registered optimizer with its options, for example {name: sgd, momentum: 0.9}",
    )
    weight_decay: float = Field(default=0.01, ge=0, description="weight decay, as the optimizer defines it")
    decay: Literal["matrices", "no_embeddings", "all"] = Field(
        default="matrices",
        description="parameters with weight decay; matrices: weights of linear maps, and embeddings; no_embeddings: weights of "
        "linear maps; all: every parameter, including gains and biases",
    )
    cautious_decay: bool = Field(
        default=False,
        description="apply weight decay only where the update also moves the weight toward zero (Chen et al. 2025)",
    )
    betas: Betas = Field(default=(0.9, 0.98), description="for optimizers that take them, for example adamw")
    warmup: int | float = Field(default=0, description="a whole number of steps, or a fraction of the run between 0 and 1")
    schedule: Literal["constant", "cosine", "linear", "wsd"] = Field(
        default="cosine", description="after the warm-up; wsd: constant, then linear over the last fifth of the run"
    )
    final_lr: float = Field(
        default=0.0, ge=0, le=1, description="learning rate at the end of the schedule, as a fraction of lr"
    )
    grad_clip: Annotated[float, Field(gt=0)] | None = Field(default=1.0, description="maximum gradient norm; null: no clipping")
    activation_checkpointing: bool = Field(default=False, description="recompute activations in the backward pass")
    precision: Literal["fp32", "bf16", "fp16", "auto"] = Field(
        default="fp32",
        description="fp16: with loss scaling; auto: bf16 on a device that has instructions for it, else fp32",
    )
    compile: bool = Field(default=False, description="torch.compile the forward pass and the loss")
    eval_every: Count | None = Field(
        default=None, description="steps between evaluations; null: each epoch, or only at the end"
    )
    checkpoint_every: Count | None = Field(
        default=None, description="steps between checkpoints; null: at each evaluation, and about every 10 minutes"
    )
    log_every: Count = Field(default=10, description="steps between two points of a curve")
    checkpoint_selection: Literal["last", "best"] = Field(
        default="last", description="which weights to evaluate on the test split"
    )
    patience: Count | None = Field(
        default=None, description="stop training after this many evaluations without a better score; null: never"
    )
    stop_at: float | None = Field(
        default=None,
        description="stop training when an evaluation on valid reaches this score, in the metric of the task, for example 0.99 "
        "in a study of solve rates; null: never",
    )

    @property
    def may_end_early(self) -> bool:
        """True when a run may end before its last step, because of its scores on ``valid``."""
        return self.patience is not None or self.stop_at is not None

    @field_validator("warmup", mode="before")
    @classmethod
    def _warmup(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not whole and not (isinstance(value, float) and 0 <= value < 1):
            raise expected("a number of steps (whole), or a fraction of the run (at least 0, less than 1)")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.steps is not None and self.epochs is not None:
            raise conflict("expected one of 'steps' and 'epochs', got both", "epochs")
        if self.steps is None and self.epochs is None:
            raise conflict("expected one of 'steps' and 'epochs', got neither", "")
        if self.batch_size % self.gradient_accumulation:
            raise conflict(
                f"expected a divisor of batch_size {self.batch_size}, got {self.gradient_accumulation}", "gradient_accumulation"
            )
        for field in ("patience", "stop_at"):
            if getattr(self, field) is not None and self.eval_every is None and self.epochs is None:
                raise conflict(
                    f"expected 'eval_every' or 'epochs' together with {field!r}, got one evaluation, at the end", field
                )
        return self


class InitConfig(Section):
    """Start training from the weights of a stage: ``{from: pretrain}``, or ``pretrain`` for short."""

    model_config = ConfigDict(serialize_by_alias=True)

    stage: str = Field(alias="from", min_length=1, description="a name under stages")
    fingerprint: str = Field(default="", description="the fingerprint of the run with these weights; filled in by the plan")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"from": value}
        if not isinstance(value, dict):
            raise expected("the name of a stage, or {from: ...}")
        return value


_STAGE = {"type": "string", "minLength": 1}
_FROM = {"type": "object", "properties": {"from": _STAGE}, "required": ["from"], "additionalProperties": False}
InitField = Annotated[InitConfig, WithJsonSchema({"anyOf": [_STAGE, _FROM]})]


class PartConfig(Section):
    """A part of an encoder-decoder, with its variant and position scheme."""

    variant: ComposedField | None = Field(default=None, description="null: the variant of the cell, with its components")
    position: NamedField | None = Field(
        default=None, description="null: the position scheme of the cell, or none in cross-attention"
    )


class ModelConfig(Section):
    """The network around the attention variant."""

    name: str | None = Field(default=None, min_length=1, description="null: the model of the task's kind")
    options: dict[str, Any] = Field(default={}, description="options of a model that you wrote")
    dim: Count = Field(default=128, description="model width")
    depth: Count = Field(default=2, description="blocks")
    loops: Count = Field(
        default=1,
        exclude_if=lambda loops: loops == 1,  # the fingerprints of other models stay
        description="how many times the blocks are run one after the other, each time with the same weights",
    )
    layers: LayersField | None = Field(default=None, description="null: all blocks have the variant of the cell")
    heads: int = Field(default=4, ge=1, le=10_000, description="attention heads")
    ff_mult: float = Field(
        default=4.0,
        ge=0,
        le=1_000_000,
        description="width of the feed-forward, in multiples of dim; the three matrices of swiglu have 2/3 of this width each; "
        "0: no feed-forward",
    )
    feed_forward: Literal["gelu", "gelu_tanh", "relu", "relu2", "swiglu"] = Field(
        default="gelu", description="activation of the feed-forward; gelu_tanh: GPT-2's approximation; relu2: the squared ReLU"
    )
    norm: Literal["pre", "post", "sandwich", "after"] = Field(
        default="pre",
        description="what to normalize in each sublayer: its input (pre), the sum of input and output (post), input and output "
        "separately (sandwich), or its output (after)",
    )
    norm_type: Literal["layer", "rms", "dyt", "none"] = Field(
        default="layer", description="layer norm, RMSNorm, DyT (a learned tanh) or no norm, in blocks and after them"
    )
    residual: Literal["plain", "x0", "attention_residuals", "hyper", "none"] = Field(
        default="plain",
        description="residual connections; x0: each block reads a x + b x_0, where x_0 are the embeddings and a, b are two "
        "learned scalars; attention_residuals: each sublayer attends to all earlier outputs; hyper: hyper-connections of "
        "several streams; none: no residual connections",
    )
    residual_streams: int = Field(default=4, ge=1, le=64, description="number of streams with residual: hyper")
    bias: bool = Field(default=True, description="biases in the feed-forward, in layer norms and in DyT")
    attention_bias: bool | Literal["out"] = Field(
        default=False, description="biases in the projections of the variant; out: only in the output projection"
    )
    head_bias: bool = Field(default=True, description="bias of the output layer")
    dropout: Fraction = Field(default=0.0, description="probability of dropping an output of a sublayer in training")
    attention_dropout: Fraction = Field(default=0.0, description="probability of dropping an attention weight in training")
    embedding_norm: bool = Field(default=False, description="norm of the embeddings before the first block (BERT)")
    embedding_dropout: Fraction = Field(
        default=0.0, description="probability of dropping a feature of an embedding in training"
    )
    word_dropout: Fraction = Field(default=0.0, description="probability of blanking an input token in training")
    pool: Literal["mean", "max", "class", "first", "last"] = Field(
        default="mean",
        description="how a classifier reduces a sequence to one vector; class: the vector of a token that is added before the "
        "sequence; first, last: the vector of the first or last token, for example [CLS] or [SEP]",
    )
    tie_embeddings: bool = Field(
        default=False, description="share the weights of the token embedding and the output layer; not for classifiers"
    )
    scale_embeddings: bool = Field(default=True, description="multiply token embeddings by the square root of dim")
    initialization: Literal["default", "gpt2"] = Field(
        default="default",
        description="gpt2: N(0, 0.02) for linear layers and embeddings, divided by sqrt(2 depth) in residual projections",
    )
    mem_len: int = Field(
        default=0, ge=0, description="number of hidden states of earlier segments that queries also attend to (Transformer-XL)"
    )
    encoder_pool: Literal["mean", "max", "last"] | None = Field(
        default=None,
        description="in an encoder-decoder: reduce the output of the encoder to one vector, the only key and value of "
        "cross-attention; null: keep one for each token of the source",
    )
    encoder: PartConfig = PartConfig()
    decoder: PartConfig = PartConfig()
    cross: PartConfig = PartConfig()

    @field_validator("attention_bias", mode="before")
    @classmethod
    def _attention_bias(cls, value: Any) -> Any:
        if value != "out" and not isinstance(value, bool):
            raise expected("true, false or 'out'")
        return value


class EvaluateConfig(Section):
    """Evaluation on ``valid`` and ``test``."""

    protocol: Literal["segment", "sliding"] = "segment"
    stride: Count | None = Field(
        default=None, description="tokens between the starts of neighboring windows in the sliding protocol"
    )
    batch_size: Count | None = Field(default=None, description="null: the training batch size")
    valid_limit: Count | None = Field(
        default=None, description="rows, or bytes or tokens of a text, to evaluate, spread evenly over valid; null: all"
    )
    test_limit: Count | None = Field(
        default=None, description="rows, or bytes or tokens of a text, to evaluate, spread evenly over test; null: all"
    )
    sample: Count | Literal["auto"] | None = Field(
        default="auto",
        description="rows, or bytes or tokens of a text, spread evenly over valid, for evaluations during training, which "
        "select the checkpoint and decide early stopping; auto: the default of the task; null: as many as valid_limit",
    )
    test: bool = Field(default=True, description="false: never read the test split")
    lengths: Lengths = Field(default=(), description="other lengths at which to test the trained model")

    @property
    def sample_limit(self) -> int | None:
        """The number of ``sample``; None when evaluations during training read as much as the last one."""
        return self.sample if isinstance(self.sample, int) else None

    @property
    def limits(self) -> dict[str, int | None]:
        """The fields that limit an evaluation -> their numbers; None: no separate limit."""
        return {"valid_limit": self.valid_limit, "test_limit": self.test_limit, "sample": self.sample_limit}

    @field_validator("lengths")
    @classmethod
    def _in_order(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(lengths))

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.protocol == "sliding" and self.stride is None:
            raise conflict("expected a 'stride' with the protocol 'sliding', got none", "protocol")
        if self.protocol == "segment" and self.stride is not None:
            raise conflict("expected 'stride' only with the protocol 'sliding', got 'segment'", "stride")
        repeated = [length for length in self.lengths if self.lengths.count(length) > 1]
        if repeated:
            raise conflict(f"expected each length once, got {repeated[0]} again", "lengths")
        if self.lengths and not self.test:
            raise conflict("expected 'lengths' only with the test split, got 'test: false'", "lengths")
        return self


class MachineConfig(Section):
    """The machine that a run uses. Part of the fingerprint: speed, memory and the last bits depend on it."""

    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    threads: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="CPU threads; null: one for a small model, else all threads of the machine, divided among the workers; the "
        "same in all runs of a study",
    )
    matmul_precision: Literal["highest", "high", "medium"] = Field(
        default="highest",
        description="torch.set_float32_matmul_precision; highest: no TF32 on CUDA or in cuDNN; high, medium: TF32",
    )
    reuse_memory: bool = Field(default=False, description="keep freed buffers in the process (glibc mallopt)")
    processes_per_run: Count = Field(
        default=1, description="data-parallel processes per run, each with a share of the batch and a separate CUDA device"
    )

    @field_validator("device", mode="before")
    @classmethod
    def _device(cls, value: Any) -> Any:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(value)):
            raise expected("'auto', 'cpu', 'cuda' or 'cuda:N'")
        return value


class RunConfig(Section):
    """Everything that determines the numbers of one run."""

    task: NamedField
    variant: VariantField | None = Field(default=None, description="required unless model.layers is set")
    position: NamedField | None = Field(default=None, description="null: the default of the variant")
    backend: str = Field(default="auto", min_length=1, description="reference, blocked, sdpa, xformers or auto")
    model: ModelConfig = ModelConfig()
    train: TrainConfig
    evaluate: EvaluateConfig = EvaluateConfig()
    machine: MachineConfig = MachineConfig()
    init: InitField | None = Field(
        default=None, description="the stage that provides the initial weights, {from: NAME}; null: train from scratch"
    )
    seed: int = Field(default=0, ge=0)
    sources: dict[str, str] = Field(default={}, description="user files -> digests of their code; filled in by the plan")
    packages: dict[str, str] = Field(
        default={}, description="installed modules -> digests of their code; filled in by the plan"
    )
    data: str = Field(default="", description="the identity of the task's data; filled in by the plan")

    @model_validator(mode="after")
    def _one_variant(self) -> Self:
        if self.variant is None and self.model.layers is None:
            raise conflict("expected the key 'variant' (or 'model.layers'), got none", "")
        if self.variant is not None and self.model.layers is not None:
            raise conflict("expected one of 'variant' and 'model.layers', got both", "variant")
        return self

    @property
    def variant_label(self) -> str:
        """A short name of the variant, or of the variants of ``model.layers``: ``[gru x2, dense]``."""
        return self.model.layers.variant_label if self.model.layers else self.variant.label if self.variant else ""

    @property
    def match(self) -> Match | None:
        """The cost that the plan matches to the baseline."""
        return self.model.layers.match if self.model.layers else self.variant.match if self.variant else None

    def without_match(self) -> Self:
        """Return the configuration with ``match`` set to None."""
        if self.model.layers:
            layers = self.model.layers.model_copy(update={"match": None})
            return self.model_copy(update={"model": self.model.model_copy(update={"layers": layers})})
        return self.model_copy(update={"variant": self.variant and self.variant.model_copy(update={"match": None})})

    def fingerprint(self) -> str:
        """Return 16 hex digits over every field and attnlab's version.

        An option of a built-in class counts alike when it is left at its default. Folders do not count, only the names of user
        files and their code (without comments and docstrings), so that a project can be moved. ``init`` counts by the
        fingerprint of the run that provides the initial weights, not by the stage's name.
        """
        from attnlab._version import __version__

        fields = self.with_all_defaults(builtin=True).model_dump(mode="json")
        fields["sources"] = sorted(self.sources.values())
        del fields["init"]
        if self.init is not None:
            fields["init"] = self.init.fingerprint
        for section in (fields, *(fields["model"][part] for part in PARTS)):
            for kind in ("task", "variant", "position"):
                if section.get(kind) is not None:
                    section[kind] = _without_folders(section[kind])
        fields["train"]["optimizer"] = _without_folders(fields["train"]["optimizer"])
        for entry in layer_entries(fields["model"]["layers"]):
            entry |= _without_folders(entry)
            if "position" in entry:
                entry["position"] = _without_folders(entry["position"])
        if self.model.name is not None:
            fields["model"]["name"] = self.model.name.rpartition("/")[2]
        text = json.dumps({"version": __version__, **fields}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_all_defaults(self, *, builtin: bool = False) -> Self:
        """Return a configuration in which every option with a default is written out.

        Args:
            builtin: Only options of attnlab's own classes; no other class is imported.
        """

        def named(value: N, registry: Registry) -> N:
            if builtin and not registry.is_builtin(value.name):
                return value
            parameters = options_of(registry.get(value.name))
            defaults = {name: p.default for name, p in parameters.items() if _is_plain(p.default)}
            return value.model_copy(update={"options": {**defaults, **value.options}})

        def position(value: Named | None) -> Named | None:
            return value and named(value, POSITIONS)

        def variant(value: V) -> V:
            components = tuple(named(component, COMPONENTS) for component in value.components)
            return named(value, VARIANTS).model_copy(update={"components": components})

        def layers(value: LayersConfig) -> LayersConfig:
            entries = (entry.model_copy(update={"position": position(entry.position)}) for entry in value.pattern)
            return value.model_copy(update={"pattern": tuple(map(variant, entries))})

        model = self.model
        changes: dict[str, Any] = {"layers": model.layers and layers(model.layers)}
        for name in PARTS:
            part: PartConfig = getattr(model, name)
            changes[name] = PartConfig(variant=part.variant and variant(part.variant), position=position(part.position))
        optimizer = named(self.train.optimizer, OPTIMIZERS)
        return self.model_copy(
            update={
                "task": named(self.task, TASKS),
                "variant": self.variant and variant(self.variant),
                "position": position(self.position),
                "model": model.model_copy(update=changes),
                "train": self.train.model_copy(update={"optimizer": optimizer}),
            }
        )

    def to_json(self) -> str:
        """Return the configuration as JSON, with the keys of the YAML; ``from_json`` reads it."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the configuration that ``to_json`` wrote."""
        return cls.model_validate(json.loads(text))

    def value(self, path: str) -> Any:
        """Return the value of a field: ``config.value("train.lr")``."""
        return attrgetter(path)(self)

    def replace(self, changes: dict[str, Any]) -> Self:
        """Return a copy with dotted paths set: ``config.replace({"train.lr": 1e-3, "variant": "no_wo"})``.

        Raises:
            UserError: a path that is not a field, or a value that the field does not accept; its place is the path.
        """
        from attnlab.config.validation import validate

        fields = self.model_dump()
        for path, value in changes.items():
            set_path(fields, path, value)
        return validate(type(self), fields, where=lambda loc, /, *, key=False: ".".join(map(str, loc)))


def _without_folders(named: dict[str, Any]) -> dict[str, Any]:
    """Return a name with its options, of files only their names."""
    named = {**named, "name": named["name"].rpartition("/")[2]}
    for option in FILE_OPTIONS:
        if isinstance(value := named.get(option), str) and Path(value).is_absolute():  # as the plan resolves it
            named[option] = Path(value).name
    if WITH in named:
        named[WITH] = [_without_folders(component) for component in named[WITH]]
    return named


def set_path(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path in nested dicts, in place.

    A bare name on the way (``variant: dense``) becomes ``{name: dense}``; a dict that is set over a section is merged into it.
    """
    *parents, last = path.split(".")
    for parent in parents:
        child = fields.get(parent)
        if not isinstance(child, dict):
            child = {"name": child} if isinstance(child, str) else {}
        fields[parent] = child = dict(child)
        fields = child
    if isinstance(value, dict) and "name" not in value and isinstance(fields.get(last), dict):
        value = {**fields[last], **value}
    fields[last] = value


def accepts(path: str, value: Any) -> bool:
    """Return whether a field of a run accepts a value, for any values of the other fields."""
    fields: dict[str, Any] = {}
    set_path(fields, path, value)
    try:
        RunConfig.model_validate(fields)
    except ValidationError as error:
        return not any(dotted(problem["loc"]).startswith(path) for problem in error.errors())
    return True


def _is_plain(value: Any) -> bool:
    """Return True when a default exists and can be written to a configuration as JSON."""
    return value is not Parameter.empty and isinstance(value, str | int | float | bool | list | dict | None)

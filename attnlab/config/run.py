"""The typed, frozen configuration of one run: what decides its numbers, and the fingerprint of it.

What it is made of stands in ``fields``. A study file is read in ``grid.studyfile``, its grid multiplied in ``grid.cells``, a
mistake put into one line in ``grid.problems``.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from attnlab.config.types import Betas, Count, Fraction, Lengths, NamedField, Section, VariantField, conflict, expected
from attnlab.config.yaml import parse_assignments

__all__ = [
    "EvaluateConfig",
    "MachineConfig",
    "ModelConfig",
    "RunConfig",
    "TrainConfig",
    "parse_assignments",
    "set_path",
]


class ModelConfig(Section):
    """The network around the attention variant."""

    dim: Count = Field(default=128, description="model width")
    depth: Count = Field(default=2, description="blocks")
    heads: int = Field(default=4, ge=1, le=10_000, description="attention heads")
    ff_mult: float = Field(default=4.0, gt=0, description="width of the feed-forward, in multiples of dim")
    activation: Literal["relu", "gelu"] = "gelu"
    norm: Literal["pre", "post"] = Field(default="pre", description="layer norm before or after each sublayer")
    dropout: Fraction = Field(default=0.0, description="share of what each sublayer returns that is dropped in training")
    attention_dropout: Fraction = Field(default=0.0, description="share of the attention weights dropped in training")
    embedding_dropout: Fraction = Field(default=0.0, description="share of the embeddings dropped in training")
    word_dropout: Fraction = Field(default=0.0, description="share of the input tokens that are blanked in training")
    pool: Literal["mean", "max", "class"] = Field(default="mean", description="how a classifier sums up a sequence")
    tie_embeddings: bool = Field(default=False, description="the output layer of a language model is its embedding")
    mem_len: int = Field(default=0, ge=0, description="hidden states of earlier segments that keys also run over")


class TrainConfig(Section):
    """Optimiser, schedule and pace. Exactly one of ``steps`` and ``epochs`` says how long."""

    steps: Count | None = Field(default=None, description="optimiser steps")
    epochs: float | None = Field(
        default=None, gt=0, description="passes over the training split; of rows at random places, as many bytes as it has"
    )
    batch_size: Count = Field(default=32, description="sequences of one optimiser step, all micro-batches together")
    gradient_accumulation: Count = Field(default=1, description="micro-batches that a batch is split into; divides batch_size")
    lr: float = Field(default=3e-4, gt=0, description="learning rate after the warm-up")
    weight_decay: float = Field(default=0.01, ge=0, description="of AdamW")
    betas: Betas = Field(default=(0.9, 0.98), description="of AdamW")
    warmup: int | float = Field(default=0, description="steps (whole), or a fraction of the run (between 0 and 1)")
    schedule: Literal["constant", "cosine"] = "cosine"
    final_lr: float = Field(default=0.0, ge=0, le=1, description="where cosine ends, as a fraction of lr")
    grad_clip: Annotated[float, Field(gt=0)] | None = Field(default=1.0, description="largest gradient norm; null: any")
    activation_checkpointing: bool = Field(default=False, description="recompute activations in the backward pass")
    precision: Literal["fp32", "bf16", "auto"] = Field(
        default="fp32",
        description="auto: bf16 on CUDA, on a CPU only where it is measured to be faster; fp32 where a cell cannot run in bf16",
    )
    compile: bool = Field(default=False, description="torch.compile the blocks, for variants that declare it")
    eval_every: Count | None = Field(default=None, description="steps; null: each epoch, or only at the end")
    checkpoint_every: Count | None = Field(default=None, description="steps; null: at each evaluation")
    log_every: Count = Field(default=10, description="steps between two points of a curve")
    checkpoint_selection: Literal["last", "best"] = Field(default="last", description="weights that meet the test split")
    patience: Count | None = Field(
        default=None, description="evaluations without a better score that end the run early; null: never"
    )

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
        if self.patience is not None and self.eval_every is None and self.epochs is None:
            raise conflict("expected 'eval_every' or 'epochs' beside 'patience': got one evaluation, at the end", "patience")
        return self


class EvaluateConfig(Section):
    """How ``valid`` and ``test`` are read."""

    protocol: Literal["segment", "sliding"] = "segment"
    stride: Count | None = Field(default=None, description="tokens between two windows of the sliding protocol")
    batch_size: Count | None = Field(default=None, description="null: the training batch size")
    valid_limit: Count | None = Field(default=None, description="bytes or texts; null: all")
    test_limit: Count | None = Field(default=None, description="bytes or texts; null: all")
    test: bool = Field(default=True, description="false: the test split is never read")
    lengths: Lengths = Field(default=(), description="lengths at which the trained model is tested, too")

    @field_validator("lengths")
    @classmethod
    def _in_order(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(lengths))

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.protocol == "sliding" and self.stride is None:
            raise conflict("expected a 'stride' beside the protocol 'sliding', got none", "protocol")
        if self.protocol == "segment" and self.stride is not None:
            raise conflict("expected 'stride' only with the protocol 'sliding', got 'segment'", "stride")
        twice = [length for length in self.lengths if self.lengths.count(length) > 1]
        if twice:
            raise conflict(f"expected each length once, got {twice[0]} again", "lengths")
        if self.lengths and not self.test:
            raise conflict("expected 'lengths' only with the test split, got 'test: false'", "lengths")
        return self


class MachineConfig(Section):
    """What it runs on. Part of the fingerprint: speed, memory and the last bits depend on it."""

    device: str = Field(default="auto", description="auto, cpu, cuda or cuda:N")
    threads: Count | None = Field(default=None, description="null: what the machine has, shared among the workers")
    matmul_precision: Literal["highest", "high", "medium"] = Field(
        default="highest",
        description="torch.set_float32_matmul_precision; highest: no TF32 on CUDA, in cuDNN neither; high, medium: TF32",
    )
    reuse_memory: bool = Field(default=False, description="keep freed buffers in the process (glibc mallopt)")
    processes_per_run: Count = Field(
        default=1, description="that share one run; each takes its rows of a batch, and its own CUDA device"
    )

    @field_validator("device", mode="before")
    @classmethod
    def _device(cls, value: Any) -> Any:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", str(value)):
            raise expected("'auto', 'cpu', 'cuda' or 'cuda:N'")
        return value


class RunConfig(Section):
    """Everything that decides the numbers of one run."""

    task: NamedField
    variant: VariantField
    position: NamedField | None = Field(default=None, description="null: the variant's own default")
    backend: str = Field(default="auto", min_length=1, description="reference, blocked, sdpa, xformers or auto")
    model: ModelConfig = ModelConfig()
    train: TrainConfig
    evaluate: EvaluateConfig = EvaluateConfig()
    machine: MachineConfig = MachineConfig()
    seed: int = Field(default=0, ge=0)
    sources: dict[str, str] = Field(default={}, description="user files -> sha256; filled in by the plan")
    packages: dict[str, str] = Field(default={}, description="installed modules -> sha256; filled in by the plan")
    data: str = Field(default="", description="the identity of the task's data; filled in by the plan")

    def fingerprint(self) -> str:
        """16 hex digits over everything above and attnlab's version.

        Folders are left out (of user files their content counts), so that a project may be moved.
        """
        from attnlab._version import __version__

        fields = self.model_dump(mode="json")
        fields["sources"] = sorted(self.sources.values())
        for kind in ("task", "variant", "position"):
            if fields[kind] is not None:
                named = fields[kind] = dict(fields[kind])
                named["name"] = named["name"].rpartition("/")[2]
                if isinstance(named.get("path"), str):
                    named["path"] = Path(named["path"]).name
        text = json.dumps({"version": __version__, **fields}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The configuration as JSON, in the words of the YAML; ``from_json`` reads it back."""
        return self.model_dump_json(indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        return cls.model_validate(json.loads(text))

    def replace(self, changes: dict[str, Any]) -> Self:
        """A copy with dotted paths set: ``config.replace({"train.lr": 1e-3, "variant": "no_wo"})``.

        Raises:
            UserError: a path that names no field, or a value that the field does not take.
        """
        from attnlab.config.validation import validate

        fields = self.model_dump()
        for path, value in changes.items():
            set_path(fields, path, value)
        return validate(type(self), fields, where=lambda loc: ".".join(map(str, loc)))


def set_path(fields: dict[str, Any], path: str, value: Any) -> None:
    """Set a dotted path in nested dicts, in place.

    A bare name on the way (``variant: dense``) becomes ``{name: dense}``; a dict set over a section is merged
    into it.
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

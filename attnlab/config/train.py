"""The section ``train`` of a configuration."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from attnlab.config.types import Betas, Count, Named, NamedField, Section, conflict, expected


class TrainConfig(Section):
    """Optimizer, schedule and length of training: exactly one of ``steps`` and ``epochs`` is set."""

    steps: Count | None = Field(default=None, description="optimizer steps")
    epochs: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="passes over the training split; with random sampling, the same number of bytes",
    )
    batch_size: Count = Field(default=32, description="sequences in one optimizer step, all micro-batches together")
    gradient_accumulation: Count = Field(default=1, description="micro-batches of one optimizer step; divides batch_size")
    lr: float = Field(default=3e-4, gt=0, description="learning rate after the warm-up")
    layer_lr_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="factor of the learning rate from each layer to the one below it, from the output layers over the blocks "
        "to the embeddings",
    )
    frozen: Annotated[int, Field(ge=0)] | Literal["all"] | None = Field(
        default=None,
        description="keep the embeddings and this number of first blocks at their initial values (0: only the embeddings); "
        "all: everything but the output layers; null: nothing",
    )
    optimizer: NamedField = Field(
        default=Named(name="adamw"),
        description="a registered optimizer with its options, for example {name: sgd, momentum: 0.9}",
    )
    weight_decay: float = Field(default=0.01, ge=0, description="weight decay, as the optimizer defines it")
    decay: Literal["matrices", "no_embeddings", "all"] = Field(
        default="matrices",
        description="parameters with weight decay: all with two or more dimensions; these without embeddings; or all, "
        "including gains and biases",
    )
    betas: Betas = Field(default=(0.9, 0.98), description="for optimizers that take them, for example adamw")
    warmup: int | float = Field(default=0, description="steps (whole), or a fraction of the run (between 0 and 1)")
    schedule: Literal["constant", "cosine"] = "cosine"
    final_lr: float = Field(
        default=0.0, ge=0, le=1, description="learning rate at the end of the cosine schedule, as a fraction of lr"
    )
    grad_clip: Annotated[float, Field(gt=0)] | None = Field(default=1.0, description="maximum gradient norm; null: no clipping")
    activation_checkpointing: bool = Field(default=False, description="recompute activations in the backward pass")
    precision: Literal["fp32", "bf16", "auto"] = Field(
        default="fp32",
        description="auto: bf16 on CUDA, and on a CPU when training steps are measured to be faster; fp32 when a cell does not "
        "support bf16",
    )
    compile: bool = Field(default=False, description="torch.compile the blocks, for variants that support it")
    eval_every: Count | None = Field(
        default=None, description="steps between evaluations; null: each epoch, or only at the end"
    )
    checkpoint_every: Count | None = Field(
        default=None, description="steps between checkpoints; null: at each evaluation, and about every 10 minutes"
    )
    log_every: Count = Field(default=10, description="steps between two points of a curve")
    checkpoint_selection: Literal["last", "best"] = Field(
        default="last", description="weights that are evaluated on the test split"
    )
    patience: Count | None = Field(
        default=None, description="evaluations without a better score after which training stops; null: never"
    )
    stop_at: float | None = Field(
        default=None,
        description="end training when an evaluation on valid reaches this score, in the metric of the task, for example 0.99 "
        "in a study of solve rates; null: never",
    )

    @property
    def may_end_early(self) -> bool:
        """True if a run may end before its last step, because of its scores on ``valid``."""
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

"""A variant, a position scheme and a model each consist of one class and one registration: nothing else needs a change."""

import torch
from torch import Tensor, nn

import attnlab
from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.classifier import Classifier
from attnlab.nn import relative_distance
from attnlab.planning.plan import plan
from attnlab.positions import Position, PositionConfig
from attnlab.training.train import train
from attnlab.variants import AttentionConfig, Variant
from tests.support.small_runs import Reviews, tiny


class RunningMean(Variant):
    """The mean of the inputs so far, projected."""

    roles = frozenset({"causal", "bidirectional"})
    hooks = frozenset({"embed", "bias"})

    def __init__(self, config: AttentionConfig, *, gain: float = 1.0) -> None:
        super().__init__(config)
        self.out = nn.Linear(config.dim, config.dim, bias=False)
        self.gain = gain

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        q = torch.zeros_like(x).unsqueeze(1).expand(-1, self.heads, -1, -1)
        return self.gain * self.out(self.attend(q, q, x.unsqueeze(1), mask).mean(1))


class LearnedDecay(Position):
    """A learned penalty of the distance."""

    hook = "bias"
    relative = True

    def __init__(self, config: PositionConfig) -> None:
        super().__init__(config)
        self.rate = nn.Parameter(torch.full((config.heads, 1, 1), 0.1))

    def bias(self, q: Tensor, k: Tensor, *, scale: float) -> Tensor:  # type: ignore[override]
        return -self.rate * relative_distance(q.shape[-2], k.shape[-2], device=q.device).abs()


class Scaled(Classifier):
    """A classifier with a learned temperature."""

    def __init__(self, config: RunConfig, task: Reviews, *, scale: float = 1.0) -> None:
        super().__init__(config, task)
        self.scale = scale
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.scale * super().forward(tokens, mask) / self.temperature


def train_one_step(**cell: object) -> dict[str, float]:
    """Plan a study of one cell and train it for one step; return the summary of the run."""
    base = {"model": {"dim": 12, "depth": 1, "heads": 3}, "train": {"steps": 1, "batch_size": 2}}
    base["evaluate"] = {"valid_limit": 64, "test_limit": 64}
    base["machine"] = {"device": "cpu", "threads": 1}  # type: ignore[dict-item]
    task = cell.pop("task", {"name": "pydocs", "length": 24})
    planned = plan({"study": "extension", "base": {**base, "task": task}, "grid": {k: [v] for k, v in cell.items()}})
    (config,) = (one.config for one in planned.cells)
    assert not planned.refused and isinstance(config, RunConfig)
    return train(config).summary


def test_a_variant_is_its_class_and_one_registration() -> None:
    attnlab.register_variant("running_mean")(RunningMean)
    assert train_one_step(variant={"name": "running_mean", "gain": 2.0}, position="alibi")["bits_per_byte"] > 0


def test_a_position_scheme_is_its_class_and_one_registration() -> None:
    attnlab.register_position("learned_decay")(LearnedDecay)
    assert train_one_step(variant="dense", position="learned_decay")["bits_per_byte"] > 0


def test_a_model_is_its_class_and_one_registration() -> None:
    attnlab.register_model("scaled_classifier")(Scaled)
    attnlab.register_task("reviews")(Reviews)
    model = build(tiny(model__pool="class", model__name="scaled_classifier", model__options={"scale": 2.0}), Reviews())
    assert isinstance(model, Scaled) and model.scale == 2.0 and model.backbone.class_token is not None
    cell = {"task": "reviews", "variant": "dense", "model.name": "scaled_classifier", "model.options": {"scale": 2.0}}
    assert 0 <= train_one_step(**cell)["accuracy"] <= 1

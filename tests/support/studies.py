"""Study files for tests: a valid one of each kind, and helpers that return the message for an invalid one."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan

# read without a registry
GOOD = """\
# a comment
study: wo
base:
  task: {name: pydocs, length: 64}
  model: {dim: 32, depth: 1, heads: 2}
  train:
    steps: 20
    lr: 3e-4
grid:
  variant: [dense, no_wo, {name: strided_sparse, stride: 7}]
  train.lr: [1e-3, 3e-4]
skip:
  - where: {variant: strided_sparse, train.lr: 3e-4}
    because: seen before
seeds: [0, 1]
baseline: {variant: dense}
margin: 0.005
"""

# planned
STUDY = """\
study: s
base:
  task: {name: pydocs, length: 24}
  position: learned
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 5, batch_size: 3}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo, {name: strided_sparse, stride: 7}]
seeds: [3, 5]
baseline: {variant: dense}
"""

# planned, searched
SEARCH = """\
study: s
base:
  task: {name: pydocs, length: 24}
  position: learned
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 100, batch_size: 4, eval_every: 10}
  machine: {device: cpu}
grid:
  variant: [dense, no_wo]
search:
  trials: 8
  space:
    train.lr: {low: 1e-4, high: 1e-2, log: true}
    train.batch_size: {low: 2, high: 6}
    model.feed_forward: {choices: [relu, gelu]}
  sampler: {name: TPESampler, n_startup_trials: 3}
  pruner: {name: MedianPruner, n_startup_trials: 2}
confirm:
  seeds: [100, 101]
baseline: {variant: dense}
"""

COSINE = """
from attnlab import register_variant
from attnlab.variants import Projections, AttentionConfig, Variant, merge_heads


@register_variant("NAME")
class Cosine(Variant):
    roles = frozenset({"causal"})
    default_position = "none"

    def __init__(self, setting: AttentionConfig, *, power: int = 1) -> None:
        super().__init__(setting)
        self.project = Projections(setting.dim, setting.dim, heads=setting.heads)

    def forward(self, x, *, context=None, mask=None):
        q, k, v = self.project(x, context)
        return merge_heads(self.attend(q, k, v, mask))
"""


def write(folder: Path, text: str, *, name: str = "s.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def misread(path: Path, **kwargs: Any) -> str:
    """Return the one-line error of reading and expanding ``path``, without its folder."""
    with pytest.raises(UserError) as caught:
        expand(read_study(path, **kwargs))
    return _one_line(caught.value, path)


def misplanned(path: Path, **kwargs: Any) -> str:
    """Return the one-line error of planning ``path``, without its folder."""
    with pytest.raises(UserError) as caught:
        plan(path, **kwargs)
    return _one_line(caught.value, path)


def _one_line(error: UserError, path: Path) -> str:
    assert "\n" not in str(error)
    return str(error).replace(f"{path.parent}/", "")

"""Equal configurations: fields without effect on a run, and axes that change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any

from attnlab.config.grid import Cell
from attnlab.config.run import EvaluateConfig, ModelConfig, RunConfig, TrainConfig
from attnlab.config.study import StudyConfig
from attnlab.registry import OPTIMIZERS

SECTIONS = {"model": ModelConfig, "train": TrainConfig, "evaluate": EvaluateConfig}


def ineffective_fields(config: RunConfig, task: Any) -> dict[str, str]:
    """Return the fields that have no effect on a run of ``config``: dotted path -> reason.

    A run with another value of such a field has the same numbers and the same costs.
    """
    reasons: dict[str, str] = {}
    if task.kind != "classifier" and config.model.name is None:
        reasons["model.pool"] = "only a classifier pools"
    if task.kind != "encoder_decoder" and config.model.name is None:
        reasons["model.encoder_pool"] = "only an encoder-decoder has an encoder"
    if config.model.name is None:
        reasons |= _ineffective_fields_of_blocks(config.model)
    taken = signature(OPTIMIZERS.get(config.train.optimizer.name)).parameters
    for field in ("betas", "weight_decay"):
        if field not in taken:
            reasons[f"train.{field}"] = f"{config.train.optimizer.label} takes none"
    if "weight_decay" not in taken:
        reasons["train.decay"] = reasons["train.cautious_decay"] = reasons["train.weight_decay"]
    elif not config.train.weight_decay:
        reasons |= {f"train.{field}": "train.weight_decay is 0" for field in ("decay", "cautious_decay")}
    if config.train.schedule == "constant":
        reasons["train.final_lr"] = "train.schedule is constant"
    steps, every = config.train.steps, config.train.eval_every
    if steps is not None and (every is None or every >= steps):
        for field in ("checkpoint_selection", "patience", "stop_at"):
            reasons[f"train.{field}"] = "valid is read once, at the last step"
        reasons["evaluate.sample"] = "valid is read once, at the last step"
    if not config.evaluate.test:
        reasons["evaluate.test_limit"] = "evaluate.test is false"
    return reasons


def _ineffective_fields_of_blocks(model: ModelConfig) -> dict[str, str]:
    """Return the fields that have no effect on the blocks of a built-in model."""
    reasons: dict[str, str] = {}
    if model.norm_type == "none":
        reasons = {f"model.{field}": "model.norm_type is none" for field in ("norm", "embedding_norm")}
    if model.residual != "hyper":
        reasons["model.residual_streams"] = "model.residual is not hyper"
    if not model.ff_mult:
        reasons["model.feed_forward"] = "model.ff_mult is 0"
    return reasons


def without_ineffective_fields(config: RunConfig, task: Any) -> RunConfig:
    """Return ``config`` with the default value in every field that has no effect: equal for two runs that are equal."""
    changes: dict[str, dict[str, Any]] = {}
    for path in ineffective_fields(config, task):
        section, _, name = path.partition(".")
        changes.setdefault(section, {})[name] = SECTIONS[section].model_fields[name].default
    updated = {section: getattr(config, section).model_copy(update=values) for section, values in changes.items()}
    return config.model_copy(update=updated)


def dead_axes(study: StudyConfig, cells: Sequence[Cell]) -> list[str]:
    """Return the axes of the grid of which no two values make a difference, for any values of the other axes."""
    dead: list[str] = []
    for axis in study.grid:
        groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
        for cell in cells:
            others = tuple((other, index) for other, index in cell.chosen.items() if other != axis)
            groups.setdefault(others, []).append(cell.key)
        if any(len(group) > 1 for group in groups.values()) and all(len(set(group)) == 1 for group in groups.values()):
            dead.append(axis)
    return dead

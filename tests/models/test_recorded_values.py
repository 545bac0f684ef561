"""Tests that a default model starts from the values that earlier versions drew: options must not move the values of others."""

import torch
from torch import Tensor

from attnlab.models.build import build
from tests.models.test_initialization import Bytes, Reviews, config_of

# Checksums of the weights in version 0.6.0, before there were options of the block.
LANGUAGE_MODEL = {
    "backbone.embedding.weight": -5.85345,
    "backbone.blocks.0.attention.project.weight": 2.55257,
    "backbone.blocks.0.attention.out.weight": 1.29941,
    "backbone.blocks.0.feed_forward.widen.weight": 3.19721,
    "backbone.blocks.0.feed_forward.widen.bias": -1.06081,
    "backbone.blocks.0.feed_forward.narrow.weight": 1.3885,
    "backbone.blocks.0.feed_forward.narrow.bias": 0.09232,
    "backbone.blocks.1.attention.project.weight": 2.42682,
    "backbone.blocks.1.attention.out.weight": -0.86456,
    "backbone.blocks.1.feed_forward.widen.weight": -5.10146,
    "backbone.blocks.1.feed_forward.widen.bias": 0.26535,
    "backbone.blocks.1.feed_forward.narrow.weight": -1.66852,
    "backbone.blocks.1.feed_forward.narrow.bias": 0.1386,
    "head.weight": -2.95014,
    "head.bias": 0.26965,
}
CLASSIFIER = {
    "backbone.class_token": 2.29034,
    "backbone.embedding.weight": -5.85345,
    "backbone.position.table": -1.2682,
    "backbone.blocks.0.attention.project.weight": 2.55257,
    "backbone.blocks.0.attention.out.weight": 1.29941,
    "backbone.blocks.0.feed_forward.widen.weight": 3.19721,
    "backbone.blocks.0.feed_forward.widen.bias": -1.06081,
    "backbone.blocks.0.feed_forward.narrow.weight": 1.3885,
    "backbone.blocks.0.feed_forward.narrow.bias": 0.09232,
    "backbone.blocks.1.attention.project.weight": 2.42682,
    "backbone.blocks.1.attention.out.weight": -0.86456,
    "backbone.blocks.1.feed_forward.widen.weight": -5.10146,
    "backbone.blocks.1.feed_forward.widen.bias": 0.26535,
    "backbone.blocks.1.feed_forward.narrow.weight": -1.66852,
    "backbone.blocks.1.feed_forward.narrow.bias": 0.1386,
    "head.weight": 0.6338,
    "head.bias": -0.09743,
}


def checksum(z: Tensor) -> float:
    """Return a sum that depends on every value and its place."""
    return (z.double().flatten() * torch.arange(z.numel(), dtype=torch.float64).cos()).sum().item()


def assert_recorded(state: dict[str, Tensor], recorded: dict[str, float]) -> None:
    """Compare the drawn tensors with checksums, to the precision with which processors agree."""
    drawn = {name: z for name, z in state.items() if z.numel() > 1 and z.std() > 0}
    assert drawn.keys() == recorded.keys()
    for name, z in drawn.items():
        assert abs(checksum(z) - recorded[name]) < 1e-4, name
    constant = {name: z for name, z in state.items() if name not in drawn}
    assert all(torch.equal(z, torch.full_like(z, float(name.endswith("weight")))) for name, z in constant.items())


def test_a_default_language_model_starts_from_the_recorded_values() -> None:
    assert_recorded(build(config_of("dense", position="none"), Bytes()).state_dict(), LANGUAGE_MODEL)


def test_a_default_classifier_starts_from_the_recorded_values() -> None:
    config = config_of("dense", position="learned", model__pool="class", model__norm="post")
    assert_recorded(build(config, Reviews()).state_dict(), CLASSIFIER)

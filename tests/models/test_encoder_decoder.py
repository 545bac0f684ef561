"""Tests of the encoder-decoder: its parts, gradients and costs. The contract of models covers order, padding and decoding."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor

from attnlab.models.build import build
from attnlab.models.decoding import decode
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.planning import support
from attnlab.planning.plan import plan
from attnlab.registry import VARIANTS
from attnlab.tasks import IGNORED, Batch
from attnlab.tasks.parallel import Parallel
from attnlab.training.costs import decoding_flops, parameters, plan_figures, saved_mib
from tests.models.test_decoding import BUILT_IN_VARIANTS, PARTS, Pairs, configuration
from tests.support.small_translations import pairs, write

SHAPE = Pairs()
ROLES = {"encoder": "bidirectional", "decoder": "causal", "cross": "cross"}


def batch() -> Batch:
    """Return pairs with padding on both sides."""
    generator = torch.Generator().manual_seed(4)
    source, inputs, targets = (torch.randint(3, 31, (4, n), generator=generator) for n in (7, 5, 5))
    source_mask, mask = torch.ones(4, 7, dtype=torch.bool), torch.ones(4, 5, dtype=torch.bool)
    source_mask[0, -3:] = mask[1, -2:] = False
    return Batch(inputs, targets.masked_fill(~mask, IGNORED), mask, source=source, source_mask=source_mask)


def model(**changes: Any) -> EncoderDecoder:
    made = build(configuration(**changes), SHAPE)
    assert isinstance(made, EncoderDecoder)
    return made


def loss(made: EncoderDecoder) -> Tensor:
    pair = batch()
    logits, memory = made.forward_batch(pair)
    assert memory is None
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), pair.targets.flatten(), ignore_index=IGNORED)


@pytest.mark.parametrize("part", PARTS)
def test_every_variant_trains_in_the_parts_whose_role_it_has(part: str) -> None:
    trained = []
    for variant in BUILT_IN_VARIANTS:
        changes = {f"model__{part}": {"variant": variant, "position": "none"}}
        reason = support.unsupported(configuration(**changes), SHAPE)  # type: ignore[arg-type] a stand-in for a task
        assert (reason is None) == (ROLES[part] in VARIANTS.get(variant).roles), reason
        if reason is not None:
            assert reason.startswith(f"model.{part}: {variant}: does not support the role {ROLES[part]}")
            continue
        made = model(**changes)
        loss(made).backward()
        idle = [name for name, parameter in made.named_parameters() if parameter.grad is None or not parameter.grad.any()]
        assert not idle, (variant, idle)
        trained.append(variant)
    assert {"dense", "no_wo", "narrow", "wide", "basic"} <= set(trained)


def test_parts_have_variants_and_heads_of_their_own() -> None:
    """A variant without heads in one part leaves the heads of the others as they are."""
    made = model(
        model__cross={"variant": "basic", "position": "none"}, model__decoder={"variant": "no_wo", "position": "alibi"}
    )
    names = {part: {type(layer).__name__ for layer in made.attention_layers(part)} for part in PARTS}
    assert names == {"encoder": {"Dense"}, "decoder": {"NoWo"}, "cross": {"Basic"}}
    heads = {part: {layer.heads for layer in made.attention_layers(part)} for part in PARTS}
    assert heads == {"encoder": {3}, "decoder": {3}, "cross": {1}}


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative", "sinusoidal", "learned"])
def test_cross_attention_has_no_positions_of_its_own(position: str) -> None:
    changes = {"model__cross": {"variant": "dense", "position": position}}
    reason = support.unsupported(configuration(**changes), SHAPE)  # type: ignore[arg-type]
    assert reason and reason.startswith(f"model.cross: {position}: ")


def test_cells_that_differ_in_cross_attention_start_alike() -> None:
    first, second = (model(model__cross={"variant": name, "position": "none"}).state_dict() for name in ("dense", "no_wo"))
    assert set(first) - set(second) == {f"decoder.blocks.{i}.cross.out.weight" for i in range(2)}
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_both_sides_share_an_embedding_and_with_tied_embeddings_the_output_layer() -> None:
    separate, tied = model(), model(model__tie_embeddings=True)
    assert separate.encoder.embedding is separate.decoder.embedding
    assert tied.head.weight is tied.encoder.embedding.weight
    assert parameters(separate)["parameters"] - parameters(tied)["parameters"] == 31 * 12


@pytest.mark.parametrize("pool", ["mean", "max", "last"])
def test_one_vector_of_the_source_is_all_that_the_decoder_reads(pool: str) -> None:
    made, pair = model(model__encoder_pool=pool).double().eval(), batch()
    assert pair.source is not None and pair.source_mask is not None
    encoded = made.encode(pair.source, pair.source_mask)
    outputs = made.encoder(pair.source, mask=pair.source_mask)[0]
    for row, real, vectors in zip(encoded, pair.source_mask, outputs, strict=True):
        vectors = vectors[real]
        expected = {"mean": vectors.mean(0), "max": vectors.amax(0), "last": vectors[-1]}[pool]
        assert torch.allclose(row, expected[None])
    logits = made.forward_batch(pair)[0]
    by_hand = made.head(made.decoder(pair.inputs, encoded, None, mask=pair.mask))
    assert torch.allclose(logits, by_hand)
    options: dict[str, Any] = {"begin": 1, "end": 2, "max_length": 9, "beam": 2}
    assert decode(made, pair.source, pair.source_mask, cached=True, **options) == decode(
        made, pair.source, pair.source_mask, cached=False, **options
    )


def test_activation_checkpointing_changes_no_gradient() -> None:
    gradients = []
    for checkpointing in (False, True):
        made = model(train__activation_checkpointing=checkpointing, model__dropout=0.2).train()
        torch.manual_seed(1)
        loss(made).backward()
        gradients.append([parameter.grad for parameter in made.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True) if a is not None and b is not None)
    many = [model(model__depth=4, train__activation_checkpointing=on) for on in (False, True)]
    assert saved_mib(many[1], configuration(), SHAPE) < 0.5 * saved_mib(many[0], configuration(), SHAPE)


def flops_by_hand(*, n: int, d: int, depth: int, vocabulary: int) -> int:
    """Return 2 x multiply-accumulate operations of a pair with n tokens on each side, feed-forward width 4 d."""
    attention = 4 * n * d * d + 2 * n * n * d  # queries, keys, values and W_O; logits, and the weighted mean of the values
    feed_forward = 2 * n * d * 4 * d
    encoder, decoder = attention + feed_forward, 2 * attention + feed_forward
    return 2 * (depth * (encoder + decoder) + n * d * vocabulary)


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_flops_count_both_sides(backend: str) -> None:
    figures = plan_figures(configuration(backend=backend), SHAPE)
    expected = flops_by_hand(n=SHAPE.length, d=12, depth=2, vocabulary=31)
    assert figures["flops_per_token"] == expected // (2 * SHAPE.length), "per token of source and target"
    assert figures["parameters"] == parameters(model())["parameters"]


@pytest.fixture
def task(tmp_path: Path, folders: Path) -> dict[str, Any]:
    rows = pairs(60)
    options: dict[str, Any] = {"name": "translation", "vocabulary": 120, "length": 16}
    for split, own in (("train", rows[:40]), ("valid", rows[40:50]), ("test", rows[50:])):
        options |= write(tmp_path, split, own)
    return options


def test_a_plan_counts_both_sides_of_every_pair(task: dict[str, Any]) -> None:
    network, n = {"dim": 12, "depth": 2, "heads": 3, "cross": {"variant": "no_wo"}}, 40
    task = {**task, "length": n}
    base = {"task": task, "model": network, "train": {"steps": 7, "batch_size": 5}, "machine": {"device": "cpu"}}
    study = {
        "study": "s",
        "base": {**base, "variant": "dense", "backend": "reference"},
        "grid": {"model.cross.variant": ["dense", "no_wo"]},
    }
    dense, no_wo = plan(study).cells
    assert dense.refusal is None and no_wo.refusal is None
    pair = flops_by_hand(n=n, d=12, depth=2, vocabulary=120)
    made = Parallel(**{name: value for name, value in task.items() if name != "name"})
    share = {split: fmean(row_tokens(made, split)) / n for split in ("train", "valid", "test")}
    assert 0.2 < min(share.values()) < max(share.values()) < 0.8, "sentences are shorter than the length"
    assert dense.train_flops == pytest.approx(3 * pair * share["train"] * 7 * 5, rel=0.01)
    scored = pair * 10 * (share["valid"] + share["test"])  # ten pairs each
    decoded = [decoding_flops(dense.config, made, tokens=round(n * share[split])) for split in ("valid", "test")]
    assert dense.eval_flops == pytest.approx(scored + 10 * sum(decoded), rel=0.01)
    assert dense.parameters is not None and no_wo.parameters == dense.parameters - 2 * 12 * 12


def row_tokens(made: Parallel, split: str) -> list[float]:
    """Return the tokens of each pair, the mean of both sides, as its batches have them."""
    batches = list(made.eval_batches(split, batch_size=1))
    return [row.tokens / 2 for batch in batches for row in batch.split(len(batch.inputs))]


def test_decoding_of_evaluations_counts_the_beam(task: dict[str, Any]) -> None:
    base = {"variant": "dense", "model": {"dim": 12, "depth": 1, "heads": 3}, "train": {"steps": 1, "batch_size": 5}}
    costs = []
    for beam in (1, 4):
        study = {"study": "s", "base": {**base, "task": {**task, "beam": beam}, "machine": {"device": "cpu"}}}
        (cell,) = plan({**study, "grid": {"variant": ["dense"]}}).cells
        assert cell.eval_flops is not None
        costs.append(cell.eval_flops)
    assert costs[1] > 1.5 * costs[0]

"""Tests of the masked language model: what its outputs depend on, its costs, and its training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.models.build import build
from attnlab.models.classifier import Classifier
from attnlab.models.masked_language_model import MaskedLanguageModel
from attnlab.nn.layers import pool_last
from attnlab.tasks import IGNORED, Batch
from attnlab.tasks.imdb import Imdb
from attnlab.tasks.masked_text import MaskedText
from attnlab.training.costs import plan_figures
from attnlab.training.cuda_memory import cuda_peak_mib
from tests.support.documents import use_small_corpus
from tests.support.small_runs import recorded, tiny

TASK: dict[str, Any] = {"name": "masked_text", "length": 24, "vocabulary": 120}
PAPER = {"model__norm": "post", "model__embedding_norm": True, "model__tie_embeddings": True}


def config(**changes: Any) -> RunConfig:
    options = {"position": "learned", "evaluate__valid_limit": 64, "evaluate__test_limit": 64, **PAPER, **changes}
    task = {**TASK, **options.pop("task", {})}
    return tiny(task=task, **options)


def model_of(config: RunConfig, task: Any = None) -> Any:
    options = {name: value for name, value in config.task.options.items()}
    return build(config, task or MaskedText(**options)).eval()


def batch(rows: int = 3, t: int = 24) -> Batch:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(5, 120, (rows, t), generator=generator)
    tokens[:, 0] = 2
    mask = torch.arange(t) < torch.tensor([[t], [t - 5], [t - 9]])
    segments = ((torch.arange(t) > 9) & mask).long()
    targets = torch.full_like(tokens, IGNORED)
    positions = torch.tensor([[3, 7, 11], [1, 2, 10], [4, 5, 14]])
    targets.scatter_(1, positions, tokens.gather(1, positions))
    tokens = tokens.masked_fill(~mask, 0)
    return Batch(tokens, targets, mask, segments=segments, labels=torch.tensor([0, 1, 0]), positions=positions)


@torch.no_grad()
def test_the_output_layer_runs_at_the_predicted_positions_alone() -> None:
    model, rows = model_of(config()), batch()
    some, _ = model.forward_batch(rows)
    every, _ = model.forward_batch(replace(rows, positions=None))
    assert some.tokens.shape == (3, 3, 120) and every.tokens.shape == (3, 24, 120)
    index = rows.positions.unsqueeze(-1).expand(-1, -1, 120)  # type: ignore[union-attr]
    torch.testing.assert_close(some.tokens, every.tokens.gather(1, index))
    torch.testing.assert_close(some.labels, every.labels)


@torch.no_grad()
def test_nothing_depends_on_targets_labels_or_padding() -> None:
    model, rows = model_of(config()), batch()
    output, _ = model.forward_batch(rows)
    padding = torch.where(rows.mask, rows.inputs, 77)  # type: ignore[arg-type]
    targets = rows.targets.where(rows.targets == IGNORED, 9)
    for other in (replace(rows, inputs=padding), replace(rows, targets=targets, labels=1 - rows.labels)):  # type: ignore[operator]
        again, _ = model.forward_batch(other)
        torch.testing.assert_close(output, again)


@torch.no_grad()
def test_a_masked_token_is_predicted_from_both_sides_and_from_its_segment() -> None:
    model, rows = model_of(config()), batch()
    output = model.forward_batch(rows)[0].tokens[0, 1]  # position 7 of row 0
    for position in (0, 5, 9, 23):
        inputs = rows.inputs.clone()
        inputs[0, position] = 50
        assert not torch.allclose(output, model.forward_batch(replace(rows, inputs=inputs))[0].tokens[0, 1])
    segments = torch.zeros_like(rows.inputs)
    assert not torch.allclose(output, model.forward_batch(replace(rows, segments=segments))[0].tokens[0, 1])


@torch.no_grad()
def test_the_causal_model_sees_earlier_tokens_alone_and_predicts_everywhere() -> None:
    model, rows = model_of(config(task={"objective": "causal"})), replace(batch(), positions=None, labels=None)
    output, _ = model.forward_batch(rows)
    assert output.labels is None and output.tokens.shape == (3, 24, 120)
    inputs = rows.inputs.clone()
    inputs[:, 12] = 50
    again, _ = model.forward_batch(replace(rows, inputs=inputs))
    torch.testing.assert_close(output.tokens[:, :12], again.tokens[:, :12])
    assert not torch.allclose(output.tokens[0, 12:], again.tokens[0, 12:])


def test_a_classifier_has_the_backbone_of_the_pretrained_model() -> None:
    pretrained = model_of(config()).state_dict()
    task = Imdb(tokens="wordpiece", vocabulary=120, length=24)
    classifier = build(config(model__tie_embeddings=False, model__pool="first"), task)
    assert isinstance(classifier, Classifier)
    own = classifier.state_dict()
    taken = {name for name in own if name in pretrained and own[name].shape == pretrained[name].shape}
    assert own.keys() - taken == {"head.weight", "head.bias"}
    assert {name for name in pretrained if name.startswith("backbone.")} <= taken


def test_the_parts_of_the_network_follow_the_options() -> None:
    names = {name.split(".")[0] for name in model_of(config()).state_dict()}
    assert names == {"backbone", "transform", "transform_norm", "head", "pooler", "label_head"}
    without = model_of(config(task={"next_sentence": False}))
    assert {name.split(".")[0] for name in without.state_dict()} == names - {"pooler", "label_head"}
    tied = model_of(config())
    assert tied.head.weight is tied.backbone.embedding.weight
    untied = model_of(config(model__tie_embeddings=False, model__embedding_norm=False))
    assert untied.head.weight is not untied.backbone.embedding.weight
    assert "backbone.embedding_norm.weight" not in untied.state_dict()


def test_the_plan_counts_the_output_layer_at_the_chosen_positions() -> None:
    """With depth 1, width 12 and 120 tokens: the difference is the output layer at the other 20 of 24 positions."""
    masked, causal = (config(model__depth=1, task={"next_sentence": False, "objective": o}) for o in ("masked", "causal"))
    flops = [plan_figures(c, MaskedText(**c.task.options))["flops_per_token"] for c in (masked, causal)]
    assert 24 * (flops[1] - flops[0]) == pytest.approx(20 * 2 * (12 * 120 + 12 * 12), rel=0.01)
    assert cuda_peak_mib(masked, MaskedText(**masked.task.options)) < cuda_peak_mib(causal, MaskedText(**causal.task.options))


@pytest.mark.parametrize("options", [{}, {"next_sentence": False}, {"objective": "causal"}])
def test_a_run_learns(options: dict[str, Any], folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_corpus(monkeypatch)
    training = {"train__steps": 120, "train__batch_size": 16, "train__eval_every": 40}
    result, points = recorded(config(task=options, model__dim=24, **training))
    assert result.state == "completed"
    assert result.summary["bits_per_token"] < 6.6  # log2(120) = 6.9 is chance, 6.2 the entropy of single tokens
    accuracy = "token_accuracy" if options.get("objective") else "masked_accuracy"
    assert {f"valid/{name}" for name in ("bits_per_token", accuracy)} <= points[-1][1].keys()
    assert ("next_sentence_accuracy" in result.summary) == (not options)


def test_accumulation_agrees_with_the_whole_batch(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_corpus(monkeypatch)
    (one, _), (parts, _) = (recorded(config(train__gradient_accumulation=n, train__batch_size=8)) for n in (1, 2))
    assert one.summary["bits_per_token"] == pytest.approx(parts.summary["bits_per_token"], rel=1e-3)


def test_pool_last_takes_the_last_real_token() -> None:
    x = torch.arange(24.0).view(2, 4, 3)
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    assert pool_last(x, mask).tolist() == [x[0, 1].tolist(), x[1, 3].tolist()]
    assert pool_last(x, None).tolist() == x[:, -1].tolist()


def test_the_model_of_the_kind() -> None:
    assert isinstance(model_of(config()), MaskedLanguageModel)

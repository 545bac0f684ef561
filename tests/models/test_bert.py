"""The masked language model against ``BertForPreTraining`` of transformers: logits, losses and gradients."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnlab.models.build import build
from attnlab.tasks import IGNORED
from attnlab.tasks.masked_text import MaskedText
from tests.models.test_masked_language_model import PAPER, batch, config
from tests.oracles import bert as oracle

BERT: dict[str, Any] = {**PAPER, "model__attention_bias": True, "model__scale_embeddings": False, "model__depth": 3}


def randomized(**changes: Any) -> nn.Module:
    """Return the model in float64 with every parameter moved: gains of one and biases of zero would hide mistakes."""
    settings = config(**{**BERT, **changes})
    model = build(settings, MaskedText(**settings.task.options)).double().eval()
    torch.manual_seed(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=parameter.mean().item(), std=0.3)
    return model


def peer_of(model: nn.Module) -> Any:
    pytest.importorskip("transformers", reason="requires transformers: pip install attnlab[oracles]")
    weights = {name: z.detach() for name, z in model.named_parameters()}
    return oracle.bert(weights, depth=3, heads=3, length=24)


@pytest.mark.parametrize("variant", ["dense", "einsum"])
@pytest.mark.parametrize("padded", [True, False])
def test_logits_losses_and_gradients_are_those_of_transformers(variant: str, padded: bool) -> None:
    model, rows = randomized(variant=variant), batch()
    if not padded:
        rows = replace(rows, mask=None, inputs=rows.inputs.clamp(min=1))  # transformers never trains the embedding of token 0
    peer = peer_of(model)
    output, _ = model.forward_batch(replace(rows, positions=None))  # type: ignore[operator]
    tokens, labels, loss = oracle.apply(peer, rows)
    real = slice(None) if rows.mask is None else rows.mask
    torch.testing.assert_close(output.tokens[real], tokens[real], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(output.labels, labels, rtol=1e-10, atol=1e-10)

    # The loss of the task takes the predicted positions alone; it is the same, up to its float32 logits.
    task = MaskedText(vocabulary=120, length=24)
    predicted, _ = model.forward_batch(rows)  # type: ignore[operator]
    assert task.loss(predicted, rows).item() == pytest.approx(loss.item(), rel=1e-5)

    own = exact_loss(predicted, rows)
    torch.testing.assert_close(own, loss, rtol=1e-10, atol=1e-10)
    names = [name for name, _ in model.named_parameters()]
    grads = dict(zip(names, torch.autograd.grad(own, list(model.parameters())), strict=True))
    named, expected = oracle.named_as_bert(grads, depth=3), oracle.gradients(peer, loss)
    assert named.keys() == expected.keys()
    for name, gradient in expected.items():
        moves = "self.key.bias" not in name  # softmax does not depend on it
        assert not moves or gradient.abs().max() > 0, f"{name} gets no gradient"
        torch.testing.assert_close(named[name], gradient, rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def exact_loss(output: Any, rows: Any) -> Tensor:
    """Return the loss of ``MaskedText`` in float64."""
    targets = rows.targets.gather(1, rows.positions).flatten()
    loss = nn.functional.cross_entropy(output.tokens.flatten(0, 1), targets, ignore_index=IGNORED)
    return loss + nn.functional.cross_entropy(output.labels, rows.labels)


@pytest.mark.parametrize(
    "option",
    ["model__norm", "model__embedding_norm", "model__tie_embeddings", "model__attention_bias", "model__scale_embeddings"],
)
def test_every_option_of_bert_is_required(option: str) -> None:
    """With another value of one of the options, the weights do not fit transformers' model, or the logits differ."""
    other: Any = "pre" if option == "model__norm" else not BERT[option]
    model, rows = randomized(**{option: other}), batch()
    try:
        peer = peer_of(model)
    except KeyError:
        return  # a tensor of BERT is missing
    tokens, _, _ = oracle.apply(peer, rows)
    with torch.no_grad():
        output, _ = model.forward_batch(replace(rows, positions=None))  # type: ignore[operator]
    assert not torch.allclose(output.tokens[rows.mask], tokens[rows.mask], rtol=1e-6, atol=1e-6)

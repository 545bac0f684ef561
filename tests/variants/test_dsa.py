"""DeepSeek sparse attention against equations 1 to 3: the keys that it chooses, its output, and both kinds of gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.models.decoding import key_value_cache
from attnlab.nn.functions import with_gradient_of
from attnlab.registry import VARIANTS
from attnlab.testing import check
from attnlab.training import gradients
from attnlab.training.distributed import Group
from attnlab.training.gradients import LossScaler, Prefetcher, backward
from attnlab.training.trainer import Trainer
from attnlab.variants import AttentionConfig, Variant
from attnlab.variants.dsa import Dsa, Indexer, _divergence
from tests.oracles import positions
from tests.oracles.attention import attention, behind, concatenated, heads_of, scaled_product
from tests.support.small_runs import tiny
from tests.variants.test_variants import DIM, HEADS, M, T, inputs, scheme, whole_matrix, with_ones

COUNT, INDEX_HEADS, WIDTH = 4, 2, 6


def make(cls: type[Variant] | None = None, *, position: Any = None, bias: bool = False) -> Variant:
    torch.manual_seed(7)
    config = AttentionConfig(DIM, HEADS, role="causal", position=position, bias=bias)
    options: Any = {"count": COUNT, "index_heads": INDEX_HEADS, "index_dim": WIDTH}
    return (cls or VARIANTS.get("dsa"))(config, **options).double()


def index_scores(variant: Variant, x: Tensor, context: Tensor, *, rotary: bool) -> Tensor:
    """Equation 1 for one sequence: (t, s)."""
    parts = {name: whole_matrix(variant, f"indexer.{name}") for name in ("query", "key", "weight")}
    q = heads_of(with_ones(x, parts["query"]), parts["query"], INDEX_HEADS)
    k, w = with_ones(context, parts["key"]) @ parts["key"].T, with_ones(x, parts["weight"]) @ parts["weight"].T
    if rotary:
        start = len(context) - len(x)
        q = torch.stack([torch.stack([positions.rotated(row, start + i) for i, row in enumerate(head)]) for head in q])
        k = torch.stack([positions.rotated(row, j) for j, row in enumerate(k)])
    return sum(w[:, h, None] * (q[h] @ k.T).clamp(min=0) for h in range(INDEX_HEADS))  # type: ignore[return-value]


def oracle(variant: Variant, x: Tensor, context: Tensor, *, rotary: bool) -> tuple[Tensor, Tensor]:
    """Return the output (t, dim) of one sequence, and the loss of its indexer."""
    t, s, weight = len(x), len(context), whole_matrix(variant, "project")
    w_q, w_k, w_v = weight.chunk(3)
    q, k, v = heads_of(with_ones(x, w_q), w_q, HEADS), *(heads_of(with_ones(context, w), w, HEADS) for w in (w_k, w_v))
    if rotary:
        q = torch.stack([torch.stack([positions.rotated(row, s - t + i) for i, row in enumerate(head)]) for head in q])
        k = torch.stack([torch.stack([positions.rotated(row, j) for j, row in enumerate(head)]) for head in k])
    scores = index_scores(variant, x.detach(), context.detach(), rotary=rotary)
    chosen, loss = [], torch.zeros((), dtype=torch.float64)
    for i in range(t):
        keys = list(range(s - t + i + 1))
        chosen.append(sorted(keys, key=lambda j: (-scores[i, j].item(), -j))[:COUNT])
        weights = [torch.stack([scaled_product(h, q[h, i], k[h, j], i, j) for j in keys]).softmax(0) for h in range(HEADS)]
        p = (sum(weights) / HEADS).detach()  # type: ignore[operator] tensors
        loss = loss + (p * (p.log() - scores[i, : len(keys)].log_softmax(0))).sum() / t
    y = attention(q, k, v, visible=lambda h, i, j: behind(t, s, i, j) >= 0 and j in chosen[i], logit=scaled_product)
    out = whole_matrix(variant, "out")
    return with_ones(concatenated(y), out) @ out.T, loss


def differences(variant: Variant, *, memory: int = 0, rotary: bool = False) -> Iterator[str]:
    """Yield the name of each result that differs from the paper: the output, or the gradient of x or of a parameter."""
    x, context = inputs(memory)
    x_too = x.detach().clone().requires_grad_()
    y = variant(x, context=context)
    pairs = [oracle(variant, x_too[b], x_too[b] if context is None else context[b], rotary=rotary) for b in range(len(x))]
    y_too, loss = torch.stack([pair[0] for pair in pairs]), torch.stack([pair[1] for pair in pairs]).mean()
    weights, parameters = torch.randn_like(y), dict(variant.named_parameters())
    ours = torch.autograd.grad((y * weights).sum(), [x, *parameters.values()])
    theirs = torch.autograd.grad((y_too * weights).sum() + loss, [x_too, *parameters.values()])
    for name, one, other in zip(["y", "x", *parameters], [y, *ours], [y_too, *theirs], strict=True):
        if not torch.allclose(one, other, rtol=1e-8, atol=1e-10):
            yield name


@pytest.mark.parametrize("memory", [0, M])
@pytest.mark.parametrize(("position", "bias"), [(None, False), (None, True), ("rotary", False)])
def test_outputs_and_gradients_are_those_of_the_paper(position: str | None, bias: bool, memory: int) -> None:
    variant = make(position=position and scheme(position), bias=bias)
    assert not list(differences(variant, memory=memory, rotary=position is not None))


class LearnsThroughItsInput(Dsa):
    """Lets the loss of the indexer reach the rest of the model."""

    def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return super().forward(_Attached(x), context=context, mask=mask)


class _Attached(Tensor):  # type: ignore[misc] a view of the input that detach() leaves in the graph
    @staticmethod
    def __new__(cls, x: Tensor) -> Tensor:
        return x.as_subclass(cls)

    def detach(self) -> Tensor:
        return self.as_subclass(Tensor)


class ScoresWithoutRelu(Indexer):
    def forward(self, x: Tensor, source: Tensor, cache: Any) -> Tensor:
        q, k = self.query(x).unflatten(-1, (self.heads, -1)), self.key(source)
        return torch.einsum("bthd,bsd,bth->bts", q, k, self.weight(x))


class WithoutRelu(Dsa):
    """Sums the products of the indexer without relu."""

    def __init__(self, config: AttentionConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.indexer.__class__ = ScoresWithoutRelu


class OneKeyMore(Dsa):
    """Chooses one key more."""

    def __init__(self, config: AttentionConfig, *, count: int, **options: Any) -> None:
        super().__init__(config, count=count + 1, **options)


@pytest.mark.parametrize("mutant", [LearnsThroughItsInput, WithoutRelu, OneKeyMore])
def test_the_paper_catches_its_mutants(mutant: type[Variant]) -> None:
    found = set(differences(make(mutant)))
    assert found == {"x"} if mutant is LearnsThroughItsInput else "y" in found


def test_keys_beyond_the_count_make_it_dense() -> None:
    few = make()
    few.count = T  # type: ignore[assignment]
    dense = VARIANTS.get("dense")(AttentionConfig(DIM, HEADS, role="causal")).double()
    dense.load_state_dict({name: value for name, value in few.state_dict().items() if "indexer" not in name})
    x, _ = inputs()
    torch.testing.assert_close(few(x), dense(x))


def test_decoding_caches_the_keys_of_the_indexer() -> None:
    variant = make()
    x = torch.randn(2, T, DIM, dtype=torch.float64)
    with torch.no_grad():
        y = variant(x)
        with key_value_cache(variant) as caches:
            parts = [variant(part) for part in x.split([5, 1, T - 6], dim=1)]
            assert caches.nbytes == 2 * T * (2 * DIM + WIDTH) * 8
    torch.testing.assert_close(torch.cat(parts, dim=1), y)


def test_padding_does_not_change_the_loss_of_the_indexer() -> None:
    torch.manual_seed(0)
    p, scores = torch.rand(1, 3, 3, dtype=torch.float64), torch.randn(1, 3, 3, dtype=torch.float64)
    visible = torch.ones(3, 3, dtype=torch.bool).tril()[None]
    alone = _divergence(scores, p * visible, visible, None)
    pad = (0, 2, 0, 2)
    keys = torch.tensor([[True, True, True, False, False]])
    seen = torch.ones(5, 5, dtype=torch.bool).tril()[None] & keys[:, None]
    others = torch.rand(1, 5, 5, dtype=torch.float64)
    longer = [torch.where(keys[..., None], F.pad(z, pad), others) for z in (scores, p * visible)]
    torch.testing.assert_close(_divergence(longer[0], longer[1] * seen, seen, keys), alone)


def test_a_loss_of_its_own_adds_its_gradient_and_nothing_else() -> None:
    weight, y = torch.tensor(3.0, requires_grad=True), torch.tensor(5.0, requires_grad=True)
    result = with_gradient_of(weight.square(), 2 * y)
    assert result.item() == 10
    assert torch.autograd.grad(7 * result, [weight, y]) == (6, 14)


@pytest.mark.parametrize("options", [{"count": 0}, {"index_heads": 0}, {"index_dim": 5}])
def test_widths_that_cannot_be_are_refused(options: dict[str, int]) -> None:
    [refused] = check("dsa", options=options, only=["shapes"], roles=["causal"])
    assert refused.status == "refused" and "even index_dim" in refused.detail


@pytest.mark.parametrize(
    ("changes", "rel"),
    [({"train__gradient_accumulation": 4}, 1e-5), ({"train__precision": "fp16"}, 0.03)],
    ids=["micro-batches", "fp16"],
)
def test_the_gradient_of_the_indexer_has_the_size_of_the_whole_batch_in_fp32(
    changes: dict[str, Any], rel: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradients, "INITIAL_SCALE", 2.0**10)  # with 2^16, the first step overflows and is skipped

    def gradient(**changes: Any) -> Tensor:
        config = tiny(variant={"name": "dsa", "count": 4}, model__depth=1, **changes)
        trainer = Trainer(config, group=Group(), folder=None, device=torch.device("cpu"), report=lambda step, metrics: False)
        scaler = LossScaler(config.train.precision, torch.device("cpu"))
        feed = Prefetcher(trainer.task, config, group=Group(), device=torch.device("cpu"))
        context: Any = {"task": trainer.task, "config": config, "device": torch.device("cpu"), "group": Group()}
        backward(trainer.model, feed.take(0), None, scaler=scaler, **context)
        (key,) = (p for name, p in trainer.model.named_parameters() if name.endswith("indexer.key.weight"))
        assert key.grad is not None
        return key.grad / scaler.scale(torch.ones(()))

    whole, other = gradient(), gradient(**changes)
    assert (other - whole).norm() < rel * whole.norm()

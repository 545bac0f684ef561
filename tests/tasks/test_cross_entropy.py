"""Tests of the cross-entropy in chunks: the numbers of PyTorch's function, with less memory."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.tasks import IGNORED, base
from attnlab.tasks.base import each_nats, mean_nats
from attnlab.training.costs import saved_bytes

ROWS, LENGTH, CLASSES = 7, 5, 13


def drawn(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, LENGTH, CLASSES, generator=generator).mul(3).to(dtype).requires_grad_()
    targets = torch.randint(CLASSES, (ROWS, LENGTH), generator=generator)
    targets[2], targets[:, -1], targets[5, 0] = IGNORED, IGNORED, 0
    return logits, targets


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("chunk", [1, 3 * CLASSES, 10**6])
def test_a_loss_in_chunks_has_the_value_and_the_gradient_of_pytorch(
    chunk: int, dtype: torch.dtype, smoothing: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "CHUNK", chunk)
    (logits, targets), (same, _) = drawn(dtype), drawn(dtype)
    loss = mean_nats(logits, targets, label_smoothing=smoothing)
    expected = F.cross_entropy(same.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    (loss * 0.3).backward()
    (expected * 0.3).backward()
    assert logits.grad is not None and logits.grad.dtype == dtype
    torch.testing.assert_close(logits.grad, same.grad)
    nats = each_nats(logits, targets)
    assert nats.shape == targets.shape and not nats[targets == IGNORED].any()
    if not smoothing:
        torch.testing.assert_close(nats.sum() / (targets != IGNORED).sum(), loss)


def test_a_loss_without_targets_is_nan_and_scores_of_no_rows_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CHUNK", CLASSES)
    logits, targets = drawn()
    assert mean_nats(logits, torch.full_like(targets, IGNORED)).isnan()
    assert each_nats(logits[:0], targets[:0]).shape == (0, LENGTH)
    assert mean_nats(logits[:, 0], targets[:, 0].clamp(min=0)).isfinite(), "of a classifier"


def test_a_second_derivative_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CHUNK", CLASSES)
    logits, targets = drawn()
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(mean_nats(logits, targets), logits, create_graph=True)


def test_a_loss_in_chunks_saves_nothing_but_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's function saves a copy of the logits in float32."""
    monkeypatch.setattr(base, "CHUNK", CLASSES)
    logits, targets = drawn(torch.bfloat16)
    _, saved = saved_bytes(lambda: mean_nats(logits, targets, label_smoothing=0.1), torch.nn.Identity())
    assert saved == logits.nbytes + targets.nbytes

"""A trained masked language model: the tokens that it predicts for a text, and what it refuses."""

from pathlib import Path

import pytest
import torch

import attnlab
from attnlab.errors import UserError
from attnlab.tasks import subwords
from attnlab.training.train import train
from tests.models.test_masked_language_model import config
from tests.support.documents import use_small_corpus


@pytest.fixture
def trained(folders: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: ANN201
    use_small_corpus(monkeypatch)
    train(config(train__steps=1), folder=folders / "run")
    return attnlab.load_model(folders / "run")


def test_a_text_with_masks_gets_logits_of_every_token(trained: attnlab.TrainedModel) -> None:
    ids = trained.encode("bala [MASK] koso")
    assert ids[0, 0] == subwords.CLS and ids[0, -1] == subwords.SEP and (ids == subwords.MASK).sum() == 1
    logits = trained("bala [MASK] koso")
    assert logits.shape == (1, ids.shape[1], 120)
    padded = torch.cat([ids, torch.zeros_like(ids)], dim=1)
    mask = torch.arange(padded.shape[1]) < ids.shape[1]
    torch.testing.assert_close(trained(padded, mask[None])[:, : ids.shape[1]], logits)
    weights = trained.attention_weights("bala [MASK] koso")
    assert weights.shape == (2, 1, 3, ids.shape[1], ids.shape[1])


def test_it_does_not_generate(trained: attnlab.TrainedModel) -> None:
    with pytest.raises(UserError, match="got a masked language model of masked_text"):
        trained.generate("bala")

"""The model of a cell, and the variants and position schemes of its parts."""

from pathlib import Path

import pytest

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.models.parts import parts
from attnlab.planning.plan import plan
from attnlab.registry import MODELS, TASKS
from tests.support.small_runs import Reviews

MODEL = "from attnlab.models.classifier import Classifier\n\n\nclass Net(Classifier):\n"
MODEL += "    def __init__(self, config, task, *, width: int = 3):\n        super().__init__(config, task)\n"


class Twice(Model):
    """A model of two parts, which is only planned."""

    kind = "classifier"

    @classmethod
    def roles(cls, task: object) -> dict[str, str]:
        return {"encoder": "bidirectional", "cross": "cross"}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # relative paths of a study in Python start there
    monkeypatch.setitem(MODELS._registered, "twice", Twice)
    monkeypatch.setitem(TASKS._registered, "reviews", Reviews)


def config(tmp_path: Path, model: dict[str, object], **cell: object) -> RunConfig:
    base = {"task": "reviews", "model": {"dim": 12, "depth": 1, "heads": 3, **model}, "train": {"steps": 1}}
    base["machine"] = {"device": "cpu"}
    (tmp_path / "net.py").write_text(MODEL, encoding="utf-8")
    study = {"study": "s", "base": {**base, "variant": "dense", **cell}, "grid": {"train.lr": [1e-3]}}
    (one,) = plan(study).cells
    assert isinstance(one.config, RunConfig)
    return one.config


def test_a_part_takes_the_variant_and_the_position_scheme_of_the_cell_unless_it_has_its_own(tmp_path: Path) -> None:
    model = {"name": "twice", "cross": {"variant": "no_wo"}}
    encoder, cross = parts(config(tmp_path, model, variant="narrow", position="rotary"), Reviews())
    assert (encoder.variant.name, encoder.position.name, encoder.role) == ("narrow", "rotary", "bidirectional")
    assert (cross.variant.name, cross.position.name, cross.role) == ("no_wo", "none", "cross")


@pytest.mark.parametrize(
    ("model", "where", "words"),
    [
        ({"cross": {"variant": "no_wo"}}, "model.cross", "the model classifier has no part 'cross'"),
        ({"name": "language_model"}, "model.name", "expected a model of the kind classifier"),
        ({"name": "clasifier"}, "model.name", "did you mean 'classifier'"),
        ({"name": "net.py:Net", "options": {"with": 4}}, "model.options", "it takes width"),
        ({"name": "twice", "cross": {"variant": "dnse"}}, "model.cross.variant.name", "did you mean 'dense'"),
        (
            {"name": "twice", "encoder": {"position": {"name": "rotary", "bse": 2}}},
            "model.encoder.position.bse",
            "no option 'bse'",
        ),
    ],
)
def test_a_mistake_in_a_model_names_its_place(tmp_path: Path, model: dict[str, object], where: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        config(tmp_path, model)
    assert raised.value.where.endswith(where)


def test_a_model_in_a_file_has_options_and_counts_by_its_code(tmp_path: Path) -> None:
    planned = config(tmp_path, {"name": "net.py:Net", "options": {"width": 4}})
    assert planned.model.name == f"{tmp_path / 'net.py'}:Net" and str(tmp_path / "net.py") in planned.sources
    assert planned.fingerprint() != planned.replace({"model.options": {"width": 5}}).fingerprint()

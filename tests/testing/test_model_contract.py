"""The contract of models: the built-in ones pass, and each check catches its mutants."""

from itertools import combinations
from typing import Any

import pytest

from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.registry import MODELS
from attnlab.testing import CheckResult, check_model
from attnlab.testing.model_checks import MODEL_CHECKS
from tests.mutants.models import MODEL_MUTANTS, NECESSARY

CASES = [(name, mutant) for name, mutants in MODEL_MUTANTS.items() for mutant in mutants]
BUILT_IN = [name for name in MODELS.names() if MODELS.get(name).__module__.startswith("attnlab.")]


def failures(model: type[Model]) -> dict[str, CheckResult]:
    return {result.check: result for result in check_model(model) if result.status == "failed"}


@pytest.mark.parametrize("model", BUILT_IN)
def test_built_in_models_pass(model: str) -> None:
    results = check_model(model)
    assert [result.check for result in results] == list(MODEL_CHECKS)
    assert not [result for result in results if result.status == "failed"]
    passed = {result.check for result in results if result.status == "passed"}
    assert passed >= {"shapes", "batch independence", "gradient coverage"}
    assert model != "encoder_decoder" or passed == set(MODEL_CHECKS)


# Each pair of values of two fields occurs in one row.
BLOCKS = [
    dict(
        zip(("feed_forward", "norm", "norm_type", "bias", "attention_bias", "head_bias", "scale_embeddings"), row, strict=True)
    )
    for row in [
        ("gelu", "pre", "layer", True, True, True, False),
        ("gelu", "post", "rms", False, False, False, True),
        ("gelu_tanh", "pre", "rms", True, False, True, True),
        ("gelu_tanh", "post", "layer", False, True, False, False),
        ("relu", "pre", "layer", False, False, True, True),
        ("relu", "post", "rms", True, True, False, False),
        ("relu2", "pre", "rms", False, True, False, True),
        ("relu2", "post", "layer", True, False, True, False),
        ("swiglu", "pre", "layer", True, False, False, False),
        ("swiglu", "post", "rms", False, True, True, True),
    ]
]


@pytest.mark.parametrize("fields", BLOCKS, ids=lambda fields: "-".join(map(str, fields.values())))
@pytest.mark.parametrize("model", BUILT_IN)
def test_built_in_models_pass_with_every_block(model: str, fields: dict[str, Any]) -> None:
    assert not [result for result in check_model(model, fields=fields) if result.status == "failed"]


@pytest.mark.parametrize(
    "fields",
    [
        {"norm": "sandwich", "norm_type": "dyt", "residual": "x0", "attention_bias": "out"},
        {"norm": "after", "norm_type": "rms", "residual": "x0", "ff_mult": 0},
        {"norm": "post", "norm_type": "dyt", "residual": "none", "ff_mult": 2},
        {"norm_type": "none", "embedding_norm": True},
        {"norm": "sandwich", "residual": "attention_residuals", "norm_type": "rms"},
        {"norm": "pre", "residual": "hyper", "residual_streams": 3, "initialization": "gpt2"},
        {"norm": "after", "residual": "hyper", "norm_type": "none", "ff_mult": 0},
    ],
    ids=lambda fields: "-".join(map(str, fields.values())),
)
@pytest.mark.parametrize("model", BUILT_IN)
def test_built_in_models_pass_with_other_norms_and_residual_connections(model: str, fields: dict[str, Any]) -> None:
    if model == "encoder_decoder" and fields.get("residual") == "none":
        pytest.skip("all rows of an untrained encoder are equal to 1e-9 (rank collapse), so no query matters to the check")
    assert not [result for result in check_model(model, fields=fields) if result.status == "failed"]


def test_every_pair_of_values_of_two_fields_is_tried() -> None:
    for one, other in combinations(BLOCKS[0], 2):
        pairs = {(row[one], row[other]) for row in BLOCKS}
        assert len(pairs) == len({row[one] for row in BLOCKS}) * len({row[other] for row in BLOCKS}), (one, other)


def test_an_unknown_field_is_a_user_error() -> None:
    with pytest.raises(UserError) as error:
        check_model("classifier", fields={"norm_typ": "rms"})
    assert "norm_type" in error.value.message


@pytest.mark.parametrize(("name", "mutant"), CASES, ids=lambda value: getattr(value, "__name__", str(value).replace(" ", "_")))
def test_a_mutant_is_caught_by_its_check_alone(name: str, mutant: type[Model]) -> None:
    caught = failures(mutant)
    assert set(caught) == {name} | NECESSARY.get(mutant, set()), caught
    assert not caught[name].traceback, "the property must fail, not the model raise"
    assert caught[name].detail and caught[name].advice


def test_every_check_has_a_mutant() -> None:
    assert MODEL_MUTANTS.keys() == MODEL_CHECKS.keys()


@pytest.mark.parametrize(
    ("model", "options", "only", "words"),
    [
        ("encoder_decoders", None, None, "did you mean 'encoder_decoder'"),
        ("encoder_decoder", {"width": 4}, None, "width"),
        ("encoder_decoder", None, ["shape"], "did you mean 'shapes'"),
        (dict, None, None, "attnlab.models.base.Model"),
    ],
)
def test_invalid_arguments_are_user_errors(model: str, options: dict | None, only: list[str] | None, words: str) -> None:
    with pytest.raises(UserError) as error:
        check_model(model, options=options, only=only)
    assert words in error.value.message


def test_the_command_checks_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "encoder_decoder", "--only", "padding"]) == 0
    assert "padding" in capsys.readouterr().out
    assert main(["check", "encoder_decoder", "--heads", "2"]) == 2, "an option of variants"
    assert "--heads" in capsys.readouterr().err

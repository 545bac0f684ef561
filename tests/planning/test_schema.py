"""The schema that `attnlab schema` prints accepts the committed studies and marks names and options that do not exist."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from attnlab.planning.samplers import classes
from attnlab.planning.schema import schema_text, study_schema
from attnlab.registry import COMPONENTS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS
from tests.support.paths import ROOT

STUDIES = sorted([*(ROOT / "ablations").glob("*.yaml"), *(ROOT / "examples").glob("*/*.yaml")])
STUDY = {
    "study": "s",
    "base": {
        "task": {"name": "pydocs", "length": 32},
        "position": {"name": "rotary", "base": 500.0},
        "train": {"optimizer": {"name": "sgd", "momentum": 0.9}},
        "model": {"layers": ["gru", {"name": "strided_sparse", "stride": 4}]},
    },
    "grid": {"variant": ["dense", {"name": "dense", "with": [{"name": "gate", "per": "head"}], "position": "none"}]},
    "search": {
        "trials": 2,
        "space": {"train.lr": {"low": 1e-4, "high": 1e-2}},
        "sampler": {"name": "TPESampler", "n_startup_trials": 3},
        "pruner": "MedianPruner",
    },
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(json.dumps(study_schema()))


def mistakes(study: Any, schema: dict[str, Any]) -> list[list[str | int]]:
    """Return the places that an editor marks."""
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    return [list(error.absolute_path) for error in validator(schema).iter_errors(study)]


def test_all_known_names_are_in_the_schema(schema: dict[str, Any]) -> None:
    names = {kind: schema["$defs"][kind]["properties"]["name"]["anyOf"][0]["enum"] for kind in ("sampler", "pruner")}
    assert names == {kind: list(classes(kind)) for kind in names} and "TPESampler" in names["sampler"]
    for kind, registry in (("variant", VARIANTS), ("component", COMPONENTS), ("position", POSITIONS), ("task", TASKS)):
        assert schema["$defs"][kind]["properties"]["name"]["anyOf"][0]["enum"] == registry.names()
    assert len(schema["$defs"]["optimizer"]["allOf"]) == len(OPTIMIZERS.names())


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_committed_studies_have_no_mistake(path: Path, schema: dict[str, Any]) -> None:
    study = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert mistakes(study, json.loads(schema_text(path)) if study.get("imports") else schema) == []


def test_the_schema_is_one_and_accepts_a_study_without_mistakes(schema: dict[str, Any]) -> None:
    pytest.importorskip("jsonschema").Draft202012Validator.check_schema(schema)
    assert mistakes(STUDY, schema) == []


def test_named_patterns_of_layers_are_checked(schema: dict[str, Any]) -> None:
    patterns: dict[str, Any] = {"hybrid": ["gru", {"name": "dense", "position": "rotary"}], "full": ["dense"]}
    study: dict[str, Any] = {"study": "s", "base": {"task": "pydocs"}, "grid": {"model.layers": patterns}, "seeds": [0]}
    assert mistakes(study, schema) == []
    patterns["full"] = ["dens"]
    assert mistakes(study, schema) == [["grid", "model.layers"]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["base", "task"], "pydoc"),
        (["base", "task", "lenght"], 32),
        (["base", "task", "length"], "long"),
        (["base", "position", "base"], "long"),
        (["base", "position", "name"], "rotaty"),
        (["base", "train", "optimizer", "betas"], [0.9, 0.99]),
        (["base", "model", "layers", 0], "grü"),
        (["base", "model", "layers", 1, "strides"], 4),
        (["grid", "variant", 0], "dens"),
        (["grid", "variant", 1, "with", 0, "per"], 3),
        (["grid", "variant", 1, "with", 0, "name"], "gates"),
        (["grid", "variant", 1, "position"], "nope"),
        (["search", "sampler", "seed"], 3),
        (["search", "sampler", "startup"], 3),
        (["search", "pruner"], "MeanPruner"),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_mistake_is_marked_in_its_section(path: list[str | int], value: Any, schema: dict[str, Any]) -> None:
    study: Any = copy.deepcopy(STUDY)
    section = study
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    places = mistakes(study, schema)
    assert places and all(place == path[: len(place)] for place in places)


def test_classes_of_a_path_may_have_any_option(schema: dict[str, Any]) -> None:
    study = {**STUDY, "grid": {"variant": ["cosine.py:Cosine", {"name": "my.lab:Cosine", "gain": 2}]}}
    assert mistakes(study, schema) == []


def test_a_study_adds_the_classes_of_its_files(schema: dict[str, Any]) -> None:
    study = {**STUDY, "grid": {"variant": ["dense", {"name": "cosine", "length": 8}]}}
    assert mistakes(study, schema)
    own = json.loads(schema_text(ROOT / "examples" / "my_variant" / "my_study.yaml"))
    assert mistakes(study, own) == []
    (case,) = (case for case in own["$defs"]["variant"]["allOf"] if case["if"]["properties"]["name"]["const"] == "cosine")
    assert case["then"]["properties"]["length"] == {"type": "integer", "default": 128}

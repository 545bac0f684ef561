"""Tests of the components of a variant in a configuration: `with`, its labels, axes over it, and mistakes in it."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.axes import labels
from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.config.run import RunConfig
from attnlab.config.stages import stage_of
from attnlab.config.types import NamedVariant
from attnlab.errors import UserError
from tests.support.studies import misread, write

COMPOSED = {"name": "dense", "with": ["qk_norm", {"name": "gate", "per": "head"}]}
STUDY = """\
study: parts
base:
  variant: {name: dense, with: [qk_norm, {name: gate, per: head}]}
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 5, batch_size: 3}
"""


def run_config(variant: Any, **model: Any) -> RunConfig:
    return RunConfig.model_validate({"task": "pydocs", "variant": variant, "train": {"steps": 5}, "model": model})


def variant_of(config: RunConfig) -> NamedVariant:
    assert config.variant is not None
    return config.variant


def grid(folder: Path, axes: str) -> list[str]:
    text = STUDY.replace("variant: {name: dense, with: [qk_norm, {name: gate, per: head}]}", "variant: dense")
    return [cell.name for cell in expand(read_study(write(folder, text + axes)))[0]]


def test_components_are_names_with_options_and_part_of_the_label() -> None:
    variant = variant_of(run_config(COMPOSED))
    assert [(component.name, component.options) for component in variant.components] == [
        ("qk_norm", {}),
        ("gate", {"per": "head"}),
    ]
    assert variant.options == {}
    assert variant.label == "dense with qk_norm, gate per=head"


def test_options_precede_components_in_the_label_and_paths_show_their_class() -> None:
    variant = variant_of(run_config({"name": "strided_sparse", "with": ["lab/gates.py:Mine"], "stride": 4}))
    assert variant.options == {"stride": 4}
    assert variant.label == "strided_sparse stride=4 with Mine"


def test_a_single_component_needs_no_list() -> None:
    assert run_config({"name": "dense", "with": "gate"}) == run_config({"name": "dense", "with": ["gate"]})
    assert run_config({"name": "dense", "with": {"name": "gate", "per": "head"}}).variant_label == "dense with gate per=head"


def test_a_configuration_with_components_round_trips_through_json() -> None:
    config = run_config(COMPOSED, cross={"variant": {"name": "dense", "with": ["gate"]}})
    again = RunConfig.from_json(config.to_json())
    assert again == config and again.fingerprint() == config.fingerprint()
    assert again.model.cross.variant is not None and again.model.cross.variant.label == "dense with gate"


def test_components_their_options_and_their_order_are_part_of_the_fingerprint() -> None:
    gated = [{"name": "gate", "per": "head"}, "qk_norm"]
    variants = ["dense", *({"name": "dense", "with": names} for names in (["qk_norm"], ["gate"], gated[:1], gated))]
    assert len({run_config(variant).fingerprint() for variant in (*variants, COMPOSED)}) == 6
    assert run_config({"name": "dense", "with": []}).fingerprint() == run_config("dense").fingerprint()


def test_folders_of_a_component_are_no_part_of_the_fingerprint() -> None:
    here, there = ({"name": "dense", "with": [{"name": f"/{folder}/gates.py:Mine"}]} for folder in ("here", "there"))
    assert run_config(here).fingerprint() == run_config(there).fingerprint()


def test_replace_sets_the_components_by_their_key_in_yaml() -> None:
    config = run_config("dense").replace({"variant.with": ["gate"]})
    assert config.variant_label == "dense with gate"
    with pytest.raises(UserError) as error:
        run_config("dense").replace({"variant.with": 3})
    assert error.value.where == "variant.with"


def test_an_axis_over_components_names_its_cells_by_them(tmp_path: Path) -> None:
    axis = "grid: {variant.with: [[], [gate], [qk_norm, {name: gate, per: head}]]}\n"
    assert grid(tmp_path, axis) == ["with=none", "with=gate", "with=qk_norm,gate per=head"]


def test_cells_of_one_variant_are_named_by_their_components(tmp_path: Path) -> None:
    axis = "grid: {variant: [dense, {name: dense, with: [gate]}, {name: dense, with: [qk_norm, {name: gate, per: head}]}]}\n"
    assert grid(tmp_path, axis) == ["dense", "dense with gate", "dense with qk_norm, gate per=head"]


def test_an_assignment_replaces_components(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, STUDY), sets={"variant.with": ["sink"]})
    assert expand(study)[0][0].config.variant_label == "dense with sink"


def test_two_components_of_one_class_name_have_two_labels() -> None:
    values = [{"name": "dense", "with": [f"{folder}/gates.py:Mine"]} for folder in ("here", "there")]
    assert len(set(labels(values))) == 2


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("[qk_norm, {name: gate, per: head}]", "3", "s.yaml:3:32", "expected a list of components"),
        ("qk_norm,", "4,", "s.yaml:3:33", "got 4"),
        ("qk_norm,", "gate,", "s.yaml:3:39", "expected each component once, got 'gate' again"),
        ("qk_norm,", "lab/x.py:gate,", "s.yaml:3:48", "expected each component once, got 'gate' again"),
        ("{name: gate, per", "{nam: gate, per", "s.yaml:3:42", "'name'"),
    ],
)
def test_mistakes_in_components_have_a_place(old: str, new: str, place: str, words: str, tmp_path: Path) -> None:
    text = STUDY.replace(old, new)
    assert text != STUDY
    with pytest.raises(UserError) as error:
        expand(read_study(write(tmp_path, text)))
    assert error.value.where.endswith(place) and words in error.value.message


@pytest.mark.parametrize("value", ["[[gate, gate]]", "[[], 3]", "[[qk_norm], [qk_norm]]"])
def test_mistakes_in_an_axis_over_components_have_a_place(value: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        expand(read_study(write(tmp_path, f"{STUDY}grid: {{variant.with: {value}}}\n")))
    assert ":7:" in error.value.where


def test_two_axes_must_not_both_set_components(tmp_path: Path) -> None:
    axes = "grid: {variant: [dense, {name: dense, with: [gate]}], variant.with: [[], [qk_norm]]}\n"
    message = misread(write(tmp_path, STUDY + axes))
    assert "s.yaml:7:39" in message and "variant.with" in message


def test_components_are_written_as_with(tmp_path: Path) -> None:
    message = misread(write(tmp_path, f"{STUDY}grid: {{variant.components: [[gate]]}}\n"))
    assert "write variant.with" in message


def test_levels_of_an_axis_add_components_to_those_of_the_base(tmp_path: Path) -> None:
    axis = """\
grid:
  kind: {low: {model.depth: 1}, gated: {with: sink, model.depth: 2}}
  softer: {no: {model.norm: pre}, yes: {with: [softcap]}}
"""
    cells = expand(read_study(write(tmp_path, STUDY.replace(", {name: gate, per: head}", "") + axis)))[0]
    assert {cell.name: cell.config.variant_label for cell in cells} == {
        "low no": "dense with qk_norm",
        "low yes": "dense with qk_norm, softcap",
        "gated no": "dense with qk_norm, sink",
        "gated yes": "dense with qk_norm, sink, softcap",
    }


def test_a_stage_has_the_components_of_the_cell_that_starts_from_it(tmp_path: Path) -> None:
    stages = """\
stages: {pretrain: {train: {steps: 7}}}
grid:
  init: [{from: pretrain}]
  kind: {low: {model.depth: 1}, gated: {with: sink}}
"""
    cells = expand(read_study(write(tmp_path, STUDY + stages)))[0]
    stages_of = [stage_of(cell) for cell in cells]
    assert [stage.config.variant_label for stage in stages_of if stage] == [cell.config.variant_label for cell in cells]
    assert [cell.config.variant_label for cell in cells][1].endswith("gate per=head, sink")

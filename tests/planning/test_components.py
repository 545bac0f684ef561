"""Components in a plan: names, options and files, what they require of the cell, and what they cost."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.components import Component
from attnlab.config.grid import Cell
from attnlab.config.run import RunConfig
from attnlab.config.types import Named
from attnlab.errors import UserError
from attnlab.models.base import Model
from attnlab.models.parts import parts
from attnlab.planning.plan import plan
from attnlab.registry import COMPONENTS, MODELS, TASKS
from tests.support.small_runs import Reviews

DIM, HEADS, DEPTH = 12, 3, 2
LAB = '''"""A component of one's own."""

from attnlab.components import Component


class Temperature(Component):
    def __init__(self, config, *, value: float = 2.0):
        super().__init__(config)
        self.value = value  # MISTAKE

    def score(self, s, b, h, i, j):
        return s / self.value


class Nothing(Component):
    pass
'''


class OtherWeights(Component):
    """Weights that are no softmax, without a cache."""

    supports_cache = False
    supports_memory = False

    def weights(self, logits, visible):  # type: ignore[no-untyped-def]
        return logits.sigmoid()


class Twice(Model):
    """A model of two parts, which is only planned."""

    kind = "classifier"

    @classmethod
    def roles(cls, task: object) -> dict[str, str]:
        return {"encoder": "bidirectional", "cross": "cross"}


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # relative paths of a study in Python start there
    monkeypatch.setitem(COMPONENTS._registered, "other_weights", OtherWeights)
    monkeypatch.setitem(MODELS._registered, "twice", Twice)
    monkeypatch.setitem(TASKS._registered, "reviews", Reviews)
    (tmp_path / "lab.py").write_text(LAB, encoding="utf-8")


def study(*variants: Any, **base: Any) -> dict[str, Any]:
    fields = {
        "task": {"name": "pydocs", "length": 24},
        "model": {"dim": DIM, "depth": DEPTH, "heads": HEADS},
        "train": {"steps": 2},
        "machine": {"device": "cpu"},
    }
    return {"study": "s", "base": {**fields, **base}, "grid": {"variant": list(variants)}, "baseline": {"variant": variants[0]}}


def cells(*components: Any, variant: str = "dense", sets: dict[str, Any] | None = None, **base: Any) -> list[Cell]:
    """Return the cells of one variant with each of some lists of components."""
    return plan(study(*({"name": variant, "with": names} for names in components), **base), sets=sets).cells


def components_of(cell: Cell) -> tuple[Named, ...]:
    assert cell.config.variant is not None
    return cell.config.variant.components


def refusal(*components: Any, variant: str = "dense", sets: dict[str, Any] | None = None, **base: Any) -> str:
    (cell,) = cells(list(components), variant=variant, sets=sets, **base)
    assert cell.refusal is not None
    return cell.refusal


@pytest.mark.parametrize(
    ("components", "where", "words"),
    [
        (["gaet"], "grid.variant[0].with[0].name", ["unknown component 'gaet'", "did you mean 'gate'"]),
        (["gate", {"name": "window", "sizes": 3}], "grid.variant[0].with[1].sizes", ["no option 'sizes'", "'size'"]),
        ([{"name": "gate", "per": "haed"}], "grid.variant[0].with[0].per", ["'element' or 'head'"]),
        (["window"], "grid.variant[0].with[0]", ["requires the option 'size'"]),
        (["lab.py:Temprature"], "grid.variant[0].with[0].name", ["did you mean 'Temperature'"]),
        (["lob.py:Temperature"], "grid.variant[0].with[0].name", ["there is no 'lob.py'", "lab.py"]),
        (["attnlab.variants.dense:Dense"], "grid.variant[0].with[0].name", ["expected a subclass", "Component"]),
    ],
)
def test_mistakes_have_the_place_of_the_component(components: list[Any], where: str, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        cells(components)
    assert error.value.where == where and all(word in error.value.message for word in words)


def test_a_component_at_a_place_that_the_variant_does_not_support_is_refused() -> None:
    reason = refusal("gate", variant="lstm", position="none")
    assert reason.startswith("gate: changes head_outputs") and "lstm" in reason and "input" in reason


def test_two_components_that_replace_one_computation_are_refused_by_name() -> None:
    reason = refusal("sink", "gate", "other_weights")
    assert "sink and other_weights" in reason and "weights" in reason and "gate" not in reason


@pytest.mark.parametrize(
    ("component", "sets", "words"),
    [
        ("softcap", {"backend": "sdpa"}, ["changes score", "reference or blocked", "sdpa"]),
        ("sink", {"backend": "sdpa"}, ["changes weights", "reference or blocked", "sdpa"]),
        ("other_weights", {"model.mem_len": 5}, ["memory"]),
        ("lab.py:Nothing", {}, ["changes no place"]),
        ({"name": "window", "size": 0}, {}, ["size of at least 1, got 0"]),
        ({"name": "softcap", "cap": -2.0}, {}, ["positive cap, got -2"]),
        ({"name": "temperature", "value": 0.0}, {}, ["positive value, got 0"]),
    ],
)
def test_what_a_component_does_not_support_is_refused(
    component: str | dict[str, Any], sets: dict[str, Any], words: list[str]
) -> None:
    reason = refusal(component, sets=sets, position="relative")
    name = component if isinstance(component, str) else component["name"]
    assert reason.startswith(name.rpartition(":")[2]) and "Error" not in reason and all(word in reason for word in words)


def test_a_component_is_refused_in_a_role_that_it_does_not_support() -> None:
    model = {"name": "twice", "dim": DIM, "depth": 1, "heads": HEADS}
    reason = refusal({"name": "window", "size": 3}, task="reviews", model=model)
    assert reason.startswith("model.cross: window size=3: ") and "cross" in reason


def test_a_name_that_parameters_cannot_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPONENTS._registered, "values", OtherWeights)
    assert "another name" in refusal("values")


def test_auto_is_a_backend_that_every_component_supports() -> None:
    gate, sink = cells(["gate"], ["gate", "sink"])
    assert (gate.config.backend, gate.cuda_backend) == ("blocked", "sdpa")
    assert (sink.config.backend, sink.cuda_backend) == ("blocked", "reference")


def test_an_error_of_a_constructor_refuses_the_cell_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(LAB.replace("MISTAKE", "\n        raise ValueError('too hot')"), encoding="utf-8")
    assert "ValueError: too hot (lab.py:10)" in refusal("lab.py:Temperature")


def test_costs_include_those_of_components() -> None:
    bare, gated, per_head = cells([], ["gate"], [{"name": "gate", "per": "head"}])
    assert bare.parameters is not None and gated.parameters is not None and per_head.parameters is not None
    assert gated.parameters - bare.parameters == DEPTH * DIM * DIM
    assert per_head.parameters - bare.parameters == DEPTH * DIM * HEADS
    assert bare.attention_parameters is not None and gated.attention_parameters is not None
    assert gated.attention_parameters - bare.attention_parameters == DEPTH * DIM * DIM
    assert bare.flops_per_token is not None and gated.flops_per_token is not None
    assert gated.flops_per_token - bare.flops_per_token == 2 * DEPTH * DIM * DIM


def test_a_variant_with_components_is_matched_to_its_baseline() -> None:
    matched = {"name": "dense", "with": ["gate"], "match": "params"}
    dense, cell = plan(study("dense", matched)).cells
    assert cell.name == "dense match=params with gate" and "model.ff_mult 4.0 becomes" in cell.matched
    assert cell.config.variant_label == "dense with gate" and cell.config.model.ff_mult < 4
    assert cell.parameters == pytest.approx(dense.parameters, rel=0.01)


def test_the_output_projection_is_removed_by_a_component_as_by_the_variant() -> None:
    variant, component = plan(study("no_wo", {"name": "dense", "with": "no_wo"})).cells
    assert (variant.parameters, variant.flops_per_token) == (component.parameters, component.flops_per_token)


def test_the_files_of_components_are_sources_of_the_run(tmp_path: Path) -> None:
    with_default, with_value = (["lab.py:Temperature"], [{"name": "lab.py:Temperature", "value": 2.0}])
    bare, cell = cells([], with_default)
    assert components_of(cell)[0].name == f"{tmp_path / 'lab.py'}:Temperature"
    assert list(cell.config.sources) == [str(tmp_path / "lab.py")] and not bare.config.sources
    before = cell.config.fingerprint()
    (tmp_path / "lab.py").write_text(LAB.replace("s / self.value", "s * self.value"), encoding="utf-8")
    assert cells(with_default)[0].config.fingerprint() != before
    planned = plan(study(*({"name": "dense", "with": names} for names in (with_default, with_value))))
    assert len(planned.doubles) == 1, "a default that is written out changes nothing"


def test_a_component_of_an_imported_file_is_known_by_its_name(tmp_path: Path) -> None:
    registered = LAB.replace("class Temperature", '@register_component("temperature_of_lab")\nclass Temperature')
    (tmp_path / "lab2.py").write_text(f"from attnlab import register_component\n{registered}", encoding="utf-8")
    try:
        (cell,) = plan({**study({"name": "dense", "with": "temperature_of_lab"}), "imports": ["lab2.py"]}).cells
        assert cell.refusal is None and list(cell.config.sources) == [str(tmp_path / "lab2.py")]
    finally:
        COMPONENTS._registered.pop("temperature_of_lab", None)


def test_parts_inherit_components_unless_they_have_a_variant_of_their_own() -> None:
    model = {"name": "twice", "dim": DIM, "depth": 1, "heads": HEADS, "cross": {"variant": {"name": "dense", "with": "sink"}}}
    (cell,) = cells(["qk_norm", "gate"], task="reviews", model=model)
    encoder, cross = parts(cell.config, Reviews())
    assert encoder.variant.label == "dense with qk_norm, gate" and cross.variant.label == "dense with sink"
    assert RunConfig.from_json(cell.config.to_json()) == cell.config


def test_a_mistake_in_a_part_has_its_place() -> None:
    model = {"name": "twice", "cross": {"variant": {"name": "dense", "with": ["snik"]}}}
    with pytest.raises(UserError) as error:
        cells([], task="reviews", model=model)
    assert error.value.where == "base.model.cross.variant.with[0].name"


@pytest.mark.parametrize("design", ["full", "leave_one_out", "fractional"])
def test_a_design_whose_factors_exclude_each_other_is_refused(design: str) -> None:
    fields = {key: value for key, value in study("dense").items() if key not in ("grid", "baseline")}
    factors = {"factors": ["qk_norm", "softmax1", {"name": "sigmoid"}], "design": design}
    with pytest.raises(UserError) as error:
        plan({**fields, "base": {**fields["base"], "variant": "dense"}, **factors})
    assert error.value.where == "factors[2]"
    assert all(word in error.value.message for word in ("softmax1", "sigmoid", "weights"))


def test_component_factors_are_planned_with_their_options() -> None:
    fields = {key: value for key, value in study("dense").items() if key not in ("grid", "baseline")}
    factors = ["qk_norm", {"name": "gate", "per": "head"}, "sink", "value_residual"]
    planned = plan({**fields, "base": {**fields["base"], "variant": "dense"}, "factors": factors, "design": "fractional"})
    assert len(planned.cells) == 8 and all(cell.refusal is None for cell in planned.cells)
    per_head = [components_of(cell) for cell in planned.cells if "gate" in cell.name]
    assert all({"per": "head"} in [component.options for component in components] for components in per_head)


def test_a_mistake_in_a_factor_has_the_place_of_its_component() -> None:
    fields = {key: value for key, value in study("dense").items() if key not in ("grid", "baseline")}
    with pytest.raises(UserError) as error:
        plan(
            {**fields, "base": {**fields["base"], "variant": "dense"}, "factors": ["qk_norm", {"name": "gate", "par": "head"}]}
        )
    assert error.value.where == "factors[1].par" and "'per'" in error.value.message


@pytest.mark.parametrize(
    ("axis", "value", "names"),
    [
        ("variant", "dense with qk_norm, gate per=head", ["dense with qk_norm, gate per=head"]),
        ("variant", "dense,dense with sink", ["dense", "dense with sink"]),
        ("variant", "[dense, dense with sink]", None),
        ("variant.with", "none,sink", ["with=none", "with=sink"]),
        ("variant.with", ["qk_norm", {"name": "gate", "per": "head"}], ["with=qk_norm,gate per=head"]),
        ("variant.with", "qk_norm,gate per=head", ["with=qk_norm,gate per=head"]),
        ("with", ["sink"], ["with=sink"]),
    ],
)
def test_cells_are_selected_by_their_components(axis: str, value: Any, names: list[str] | None) -> None:
    lists: list[list[Any]] = [[], ["sink"], ["qk_norm", {"name": "gate", "per": "head"}]]
    if axis == "variant":
        fields = study(*({"name": "dense", "with": components} if components else "dense" for components in lists))
    else:
        fields = {**study("dense"), "grid": {"variant.with": lists}, "baseline": {"variant.with": []}}
        fields["base"]["variant"] = "dense"
    if names is None:
        with pytest.raises(UserError):
            plan(fields, only={axis: value})
    else:
        assert [cell.name for cell in plan(fields, only={axis: value}).cells] == names


def test_components_are_written_in_the_entries_of_a_pattern_of_layers() -> None:
    fields = {key: value for key, value in study("dense").items() if key not in ("grid", "baseline")}
    layers = [{"name": "dense", "with": ["sink"]}, "dense"]
    base = {**fields["base"], "model": {"dim": DIM, "depth": DEPTH, "heads": HEADS, "layers": layers}}
    factors = {"norm": {"model.norm": "post"}, "wide": {"model.ff_mult": 5}}
    assert all(cell.refusal is None for cell in plan({**fields, "base": base, "factors": factors}).cells)
    with pytest.raises(UserError) as error:
        plan({**fields, "base": base, "factors": ["qk_norm", "gate"]})
    assert "factors" in error.value.where and "model.layers" in error.value.message

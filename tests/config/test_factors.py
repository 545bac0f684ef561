"""Tests of the section `factors`: the cells of each design, their names and places, and what cannot be built."""

from pathlib import Path

import pytest

from attnlab.config.factors import factorial_design
from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from tests.support.studies import misread, write

FACTORS = """\
study: parts
base:
  variant: dense
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 5, batch_size: 3}
factors:
  no_wo: {variant: no_wo}
  position: [learned, rotary]
  model.ff_mult: [4, 2]
design: full
seeds: [0, 1]
"""
SIZES = "  size: {small: {}, medium: {model.depth: 2}, large: {model: {depth: 3}, train.lr: 1e-3}}\ndesign:"


def names(folder: Path, text: str) -> list[str]:
    return [cell.name for cell in expand(read_study(write(folder, text)))[0]]


def test_a_full_design_has_every_combination_named_by_what_is_on(tmp_path: Path) -> None:
    cells, skipped = expand(read_study(write(tmp_path, FACTORS)))
    assert not skipped
    assert [cell.name for cell in cells] == [
        "all off",
        "ff_mult=2",
        "rotary",
        "rotary+ff_mult=2",
        "no_wo",
        "no_wo+ff_mult=2",
        "no_wo+rotary",
        "all on",
    ]
    last = cells[-1]
    assert last.axes == {"no_wo": "on", "position": "rotary", "model.ff_mult": 2}
    assert last.config.position is not None
    assert (last.config.variant_label, last.config.position.name, last.config.model.ff_mult) == ("no_wo", "rotary", 2)
    assert cells[0].config.variant_label == "dense" and cells[0].config.model.ff_mult == 4
    assert last.where("variant").endswith("s.yaml:8:20") and last.where("position").endswith("s.yaml:9:23")


def test_the_default_design_is_full_and_levels_may_have_names(tmp_path: Path) -> None:
    text = FACTORS.replace("design: full\n", SIZES.partition("design:")[0]).replace("  position: [learned, rotary]\n", "")
    cells = names(tmp_path, text)
    assert len(cells) == 12 and cells[:3] == ["all off", "size=medium", "size=large"]
    assert cells[-1] == "no_wo+ff_mult=2+size=large", "with three levels nothing is simply on"


def test_leave_one_out_is_all_on_each_off_and_all_off(tmp_path: Path) -> None:
    cells = names(tmp_path, FACTORS.replace("full", "leave_one_out"))
    assert cells == ["all on", "all but no_wo", "all but rotary", "all but ff_mult=2", "all off"]


def test_a_fraction_has_half_of_the_combinations(tmp_path: Path) -> None:
    assert names(tmp_path, FACTORS.replace("full", "fractional")) == ["ff_mult=2", "rotary", "no_wo", "all on"]
    four = FACTORS.replace("design: full", "  model.depth: [1, 2]\ndesign: {name: fractional, cells: 8}")
    design = factorial_design(read_study(write(tmp_path, four)))
    assert design is not None and design.resolution == 4 and len(names(tmp_path, four)) == 8


def test_a_study_with_factors_can_be_written_out_and_read_again(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, FACTORS))
    fields = study.model_dump(mode="json", exclude_defaults=True)
    assert "grid" not in fields
    again = read_study(fields)
    assert [cell.config for cell in expand(again)[0]] == [cell.config for cell in expand(study)[0]]


def test_two_levels_with_one_name_are_told_apart(tmp_path: Path) -> None:
    """A factor that is called like the value of another one must not give two cells one name."""
    text = FACTORS.replace("  no_wo: {variant: no_wo}\n", "  rotary: {model.depth: 2}\n")
    cells = names(tmp_path, text)
    assert len(set(cells)) == 8 and "position=rotary" in cells and "rotary=on" in cells


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "design: full",
            "design: half",
            "s.yaml:11:9: design.name: expected 'full', 'leave_one_out' or 'fractional', got 'half'",
        ),
        ("design: full", "design: {name: full, cells: 4}", "s.yaml:11:29: design.cells: expected 'cells' only in a fractional"),
        (
            "design: full",
            "design: {name: fractional, cells: 5}",
            "s.yaml:11:9: design.cells: expected one of 4 (resolution III) for 3 factors, got 5; the full design has 8",
        ),
        ("factors:", "grid: {train.lr: [1e-3]}\nfactors:", "s.yaml:7:1: grid: expected none in a study with 'factors'"),
        ("seeds:", "over: {train.steps: [5, 10]}\nseeds:", "s.yaml:12:1: over: expected none in a study with 'factors'"),
        (
            "seeds:",
            "sweep: {train.lr: [1e-3, 3e-3, 1e-2]}\nseeds:",
            "s.yaml:12:1: sweep: expected none in a study with 'factors'",
        ),
        ("seeds:", "baseline: {no_wo: off}\nseeds:", "s.yaml:12:1: baseline: expected none in a study with 'factors'"),
        (
            "seeds:",
            "skip: [{where: {no_wo: on}, because: x}]\nseeds:",
            "s.yaml:12:1: skip: expected none in a study with 'factors'",
        ),
        ("[4, 2]", "[4]", "s.yaml:10:18: factors.model.ff_mult: expected the fields that are set when it is on, or at least"),
        ("{variant: no_wo}", "{varaint: no_wo}", "s.yaml:8:11: 'varaint' is not a field of a run (did you mean 'variant'?)"),
        ("{variant: no_wo}", "{model.dim: wide}", "s.yaml:8:22: model.dim: expected a whole number, got 'wide'"),
        (
            "{variant: no_wo}",
            "{model.ff_mult: 2}",
            "s.yaml:8:11: factors.no_wo: expected no 'model.ff_mult': the axis 'model.ff",
        ),
        ("{variant: no_wo}", "5", "s.yaml:8:10: factors.no_wo: expected a list of values, or a mapping of the fields"),
        ("  no_wo:", "  loss:", "s.yaml:8:3: factors: expected another name for the axis 'loss'"),
        (
            "design: full",
            f"{SIZES} fractional",
            "s.yaml:11:9: design: fractional expects factors with two levels, got 'size' with 3",
        ),
        ("design: full", f"{SIZES} leave_one_out", "s.yaml:11:9: design: leave_one_out expects factors with two levels"),
        ("  position: [learned, rotary]\n  model.ff_mult: [4, 2]\n", "", "s.yaml:7:1: factors: expected at least two, got one"),
    ],
)
def test_a_design_that_cannot_be_built_is_one_line(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert FACTORS.count(old) == 1
    assert misread(write(tmp_path, FACTORS.replace(old, new))).startswith(expected)


def test_two_factors_have_no_fraction(tmp_path: Path) -> None:
    text = FACTORS.replace("  position: [learned, rotary]\n", "").replace("full", "fractional")
    assert misread(write(tmp_path, text)).startswith("s.yaml:10:9: design: a fractional design expects 3 to 15 factors, got 2")


def test_a_design_needs_factors(tmp_path: Path) -> None:
    text = FACTORS.replace("factors:", "grid:").replace("  no_wo: {variant: no_wo}\n", "")
    assert misread(write(tmp_path, text)).startswith("s.yaml:10:1: design: expected 'factors' in a study with 'design'")


def test_too_many_combinations_are_refused_before_they_are_made(tmp_path: Path) -> None:
    many = "".join(f"  f{i}: {{model.dropout: 0.{i}}}\n" for i in range(1, 4))
    assert "expected no 'model.dropout'" in misread(write(tmp_path, FACTORS.replace("design:", f"{many}design:")))
    steps = "  train.steps: [{}]\n".format(", ".join(str(n) for n in range(1, 2000)))
    message = misread(write(tmp_path, FACTORS.replace("design:", f"{steps}design:")))
    assert message.startswith("s.yaml:7:1: factors: expected a product of at most 10,000 cells, got 15,992")


PARTS = """\
study: parts
base:
  variant: dense
  task: {name: pydocs, length: 24}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 5, batch_size: 3}
factors:
  - qk_norm
  - {name: gate, per: head}
  - sink
"""


def test_a_list_of_components_is_a_factor_each(tmp_path: Path) -> None:
    cells, _ = expand(read_study(write(tmp_path, PARTS)))
    labels = {cell.name: cell.config.variant_label for cell in cells}
    assert labels == {
        "all off": "dense",
        "sink": "dense with sink",
        "gate": "dense with gate per=head",
        "gate+sink": "dense with gate per=head, sink",
        "qk_norm": "dense with qk_norm",
        "qk_norm+sink": "dense with qk_norm, sink",
        "qk_norm+gate": "dense with qk_norm, gate per=head",
        "all on": "dense with qk_norm, gate per=head, sink",
    }
    assert cells[-1].axes == {"qk_norm": "on", "gate": "on", "sink": "on"}


def test_components_of_factors_follow_those_of_the_base(tmp_path: Path) -> None:
    text = PARTS.replace("variant: dense", "variant: {name: dense, with: softcap}")
    labels = [cell.config.variant_label for cell in expand(read_study(write(tmp_path, text)))[0]]
    assert labels[0] == "dense with softcap" and labels[-1] == "dense with softcap, qk_norm, gate per=head, sink"


def test_a_factor_of_a_mapping_may_add_several_components_beside_other_fields(tmp_path: Path) -> None:
    factors = """\
factors:
  bare: {variant: no_wo}
  calm: {with: [qk_norm, sink], model.norm: post}
  gate: {with: {name: gate, per: head}}
  position: [learned, rotary]
"""
    study = read_study(write(tmp_path, PARTS.partition("factors:")[0] + factors))
    cells = {cell.name: cell for cell in expand(study)[0]}
    on = cells["all on"].config
    assert on.variant_label == "no_wo with qk_norm, sink, gate per=head" and on.model.norm == "post"
    assert cells["calm"].config.variant_label == "dense with qk_norm, sink"
    assert cells["calm+gate"].where("variant", "with", 2, "per").endswith("s.yaml:10:34")
    assert cells["calm+gate"].where("variant", "with", 1).endswith("s.yaml:9:26")


def test_a_factor_that_sets_the_variant_keeps_the_components_of_the_base(tmp_path: Path) -> None:
    """Its effect would otherwise be that of their removal, too."""
    base = PARTS.partition("factors:")[0].replace("variant: dense", "variant: {name: dense, with: [qk_norm]}")
    factors = "factors:\n  bare: {variant: no_wo}\n  plain: {variant.with: []}\n"
    with pytest.raises(UserError, match="plain"):  # two factors must not both set the components
        expand(read_study(write(tmp_path, base + factors)))
    factors = "factors:\n  variant: [dense, {name: no_wo, position: rotary}, {name: dense, with: []}]\n  gate: {with: gate}\n"
    labels = [cell.config.variant_label for cell in expand(read_study(write(tmp_path, base + factors)))[0]]
    assert labels == [
        "dense with qk_norm",
        "dense with qk_norm, gate",
        "no_wo with qk_norm",
        "no_wo with qk_norm, gate",
        "dense",
        "dense with gate",
    ]


def test_a_component_of_a_list_of_factors_has_its_place(tmp_path: Path) -> None:
    base = PARTS.replace("variant: dense", "variant: {name: dense, with: softcap}")
    cells = {cell.name: cell for cell in expand(read_study(write(tmp_path, base)))[0]}
    on = cells["all on"]
    places = [on.where("variant", "with", i, "name").removeprefix(str(tmp_path)) for i in range(4)]
    assert places == ["/s.yaml:3:32", "/s.yaml:8:5", "/s.yaml:9:12", "/s.yaml:10:5"]
    assert on.where("variant", "with", 2, "per").endswith("s.yaml:9:23")
    assert cells["sink"].where("variant", "with", 1).endswith("s.yaml:10:5"), "the index is that of the cell"


def test_a_study_with_a_list_of_factors_can_be_written_out_and_read_again(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, PARTS))
    again = read_study(study.model_dump(mode="json", exclude_defaults=True))
    assert [cell.config for cell in expand(again)[0]] == [cell.config for cell in expand(study)[0]]


def test_components_of_the_base_can_be_assigned_in_a_study_with_component_factors(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, PARTS), sets={"variant.with": ["softcap"]})
    assert expand(study)[0][1].config.variant_label == "dense with softcap, sink"


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("- sink", "- {position: [learned, rotary]}", "s.yaml:10:5", ["factors[2]", "expected a component", "as a mapping"]),
        ("- sink", "- 3", "s.yaml:10:5", ["expected a component", "got 3"]),
        ("- sink", "- gate", "s.yaml:10:5", ["each component once", "'gate'"]),
        ("- sink", "- lab.py:gate", "s.yaml:10:5", ["each component once", "'gate'"]),
        ("  - qk_norm\n  - {name: gate, per: head}\n", "", "s.yaml:7:1", ["at least two"]),
        ("- sink", "- heads", "s.yaml:10:5", ["another name", "'heads'"]),
        ("variant: dense", "variant: {name: dense, with: sink}", "s.yaml:10:5", ["each component once", "'sink'"]),
    ],
)
def test_mistakes_in_a_list_of_factors(old: str, new: str, place: str, words: list[str], tmp_path: Path) -> None:
    message = misread(write(tmp_path, PARTS.replace(old, new)))
    assert place in message and all(word in message for word in words), message

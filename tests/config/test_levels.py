"""Tests of axes with named levels that set several fields, and of position schemes in the entry of a variant."""

from pathlib import Path

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.planning.plan import plan
from tests.support.studies import SEARCH, STUDY, misplanned, misread, write

SIZE = """\
  size:
    small: {model.dim: 12, train.lr: 2e-3}
    large: {model: {dim: 24, depth: 2}, task: {name: pydocs, length: 32}}
"""
SIZED = STUDY.replace("seeds:", f"{SIZE}seeds:").replace(", {name: strided_sparse, stride: 7}", "")


def test_a_level_sets_several_fields(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, SIZED))
    cells, _ = expand(study)
    assert [cell.name for cell in cells] == ["dense small", "dense large", "no_wo small", "no_wo large"]
    assert cells[0].axes == {"variant": "dense", "size": "small"}
    small, large = cells[0].config, cells[1].config
    assert (small.model.dim, small.model.depth, small.train.lr, small.task.options) == (12, 1, 2e-3, {"length": 24})
    assert (large.model.dim, large.model.depth, large.train.lr, large.task.options) == (24, 2, 3e-4, {"length": 32})
    assert cells[1].where("model", "dim").endswith("s.yaml:12:26") and cells[0].place.endswith("s.yaml:11:12")
    again = read_study(study.model_dump(mode="json", exclude_defaults=True))
    assert [cell.config for cell in expand(again)[0]] == [cell.config for cell in cells]


def test_levels_are_selected_skipped_and_compared_by_name(tmp_path: Path) -> None:
    skip = "skip:\n  - where: {variant: no_wo, size: large}\n    because: too slow\n"
    text = SIZED.replace("baseline: {variant: dense}", "baseline: {size: small}")
    planned = plan(write(tmp_path, text + skip), only={"size": "small,large"})
    assert [cell.name for cell in planned.cells] == ["dense small", "dense large", "no_wo small"]
    assert planned.baseline_of(planned.cells[1]) is planned.cells[0]
    assert [cell.name for cell in plan(write(tmp_path, SIZED), only={"size": "large"}).cells] == ["dense large", "no_wo large"]
    assert "did you mean 'large'?" in misplanned(write(tmp_path, SIZED), only={"size": "larg"})


def test_what_a_level_sets_is_neither_searched_nor_assigned(tmp_path: Path) -> None:
    message = misread(write(tmp_path, SIZED), sets={"model.depth": 3})
    assert message.startswith("model.depth=3: the axis 'size' of the grid sets this field")
    text = SEARCH.replace("search:", "  size: {small: {train.lr: 1e-3}, large: {model: {dim: 24}}}\nsearch:")
    assert "the axis 'size' of the grid sets it" in misread(write(tmp_path, text))
    match = "{name: no_wo, match: {cost: params, by: model.dim}}"
    assert "grid sets model.dim already" in misplanned(write(tmp_path, SIZED.replace("no_wo", match)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  size:", "  model:", "s.yaml:10:3: grid.model: expected a list of values; named levels that set several fields"),
        ("  size:", "  train.lr:", "s.yaml:10:3: grid.train.lr: expected a list of values; named levels"),
        ("  size:", "  state:", "s.yaml:10:3: grid: expected another name for the axis 'state'"),
        ("  size:", "  how big:", "s.yaml:10:3: grid: expected the name of an axis in letters"),
        ("small:", "'s, m':", "s.yaml:11:5: grid.size: expected the name of a level without spaces"),
        ("{model.dim: 12, train.lr: 2e-3}", "12", "s.yaml:11:12: grid.size.small: expected the fields that this level sets"),
        ("{model.dim: 12, train.lr: 2e-3}", "{}", "s.yaml:11:12: grid.size.small: expected the fields that this level sets"),
        (
            "{model.dim: 12, train.lr: 2e-3}",
            "{model: {}}",
            "s.yaml:11:12: grid.size.small: expected the fields that this level",
        ),
        ("model.dim: 12", "seed: 12", "s.yaml:11:13: expected 'seeds: [...]' at the top level, got 'seed'"),
        ("model.dim: 12", "model.dmi: 12", "s.yaml:11:13: 'model.dmi' is not a field of a run"),
        ("model.dim: 12", "model.dim: wide", "s.yaml:11:24: model.dim: expected a whole number, got 'wide'"),
        ("depth: 2", "depht: 2", "s.yaml:12:30: 'model.depht' is not a field of a run"),
        ("depth: 2", "depth: two", "s.yaml:12:37: model.depth: expected a whole number, got 'two'"),
        ("train.lr: 2e-3", "model: {dim: 12}", "s.yaml:11:36: grid.size.small: expected each field once, got model.dim"),
        ("{model: {dim: 24, depth: 2}", "{variant: gru", "s.yaml:12:13: grid.size: expected no 'variant': the axis 'variant'"),
        (SIZE, "  size: {}\n", "s.yaml:10:9: grid.size: expected at least one value in the list, got an empty mapping"),
        (SIZE, "  size: 5\n", "s.yaml:10:9: grid.size: expected a list, got 5"),
    ],
)
def test_a_mistake_in_a_level_is_one_line(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert SIZED.count(old) == 1, f"{old!r} must stand once in the good file"
    assert misread(write(tmp_path, SIZED.replace(old, new))).startswith(expected)


PLACED = STUDY.replace(
    "no_wo, {name: strided_sparse, stride: 7}", "{name: dense, position: rotary}, {name: no_wo, position: {name: none}}"
)


def test_a_variant_may_name_its_position_scheme(tmp_path: Path) -> None:
    cells = plan(write(tmp_path, PLACED)).cells
    assert [(cell.name, cell.config.position.name) for cell in cells if cell.config.position] == [
        ("dense", "learned"),
        ("dense position=rotary", "rotary"),
        ("no_wo position=none", "none"),
    ]
    assert all(cell.config.variant.options == {} for cell in cells)  # type: ignore[union-attr]
    same = plan(write(tmp_path, PLACED.replace("position: rotary", "position: learned")))
    assert same.doubles == {"dense position=learned": "dense"}


def test_the_base_and_a_level_may_name_both(tmp_path: Path) -> None:
    base = PLACED.replace(
        "grid:\n  variant: [dense, ",
        "  variant: {name: dense, position: alibi}\ngrid:\n  train.lr: [1e-3]\n  kind:\n    a: {variant: ",
    )
    text = base[: base.index("{variant: ")] + "{variant: {name: no_wo, position: none}}\n    b: {train.warmup: 1}\nseeds: 0-1\n"
    configs = [cell.config for cell in expand(read_study(write(tmp_path, text)))[0]]
    assert [(config.variant.name, config.position.name) for config in configs if config.position] == [  # type: ignore[union-attr]
        ("no_wo", "none"),
        ("dense", "alibi"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("position: rotary", "position: rotray", "s.yaml:9:44: unknown position scheme 'rotray' (did you mean 'rotary'?)"),
        ("position: rotary", "position: 5", "s.yaml:9:44: position: expected a name, or {name: ..., option: ...}, got 5"),
        ("position: rotary", "position: {name: rotary, bse: 2}", "s.yaml:9:59: "),
        ("seeds:", "  position: [none]\nseeds:", "s.yaml:9:34: grid.variant: expected no 'position': the axis 'position'"),
    ],
)
def test_a_mistake_in_the_position_of_a_variant(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert misplanned(write(tmp_path, PLACED.replace(old, new, 1) if old != "seeds:" else PLACED.replace(old, new))).startswith(
        expected
    )


def test_a_mistake_in_an_axis_is_found_before_axes_are_compared(tmp_path: Path) -> None:
    text = SIZED.replace(SIZE, SIZE + "  task: {name: pydocs, length: 24}\n")
    assert "grid.task: expected a list of values" in misread(write(tmp_path, text))

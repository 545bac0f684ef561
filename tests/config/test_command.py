"""Tests of studies of a program: their parts, the command lines of their runs, and the mistakes in them."""

import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.command import CommandConfig
from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from attnlab.study.execution.command import parse_object, parse_point
from tests.support.paths import ROOT

STUDY = """\
study: program
command: python train.py --model {model} --lr {lr} --seed {seed}
base: {lr: 1e-3}
grid:
  model: [small, "large one"]
seeds: 0-1
baseline: {model: small}
metric: {name: loss, direction: min}
margin: 0.01
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("X = 1\n")
    (tmp_path / "data.txt").write_text("text")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "s.yaml"
    path.write_text(text)
    return path


def commands(folder: Path, text: str = STUDY, **sets: Any) -> list[list[str]]:
    """Return the words of every run's command line."""
    runs = plan(write(folder, text), sets=sets).runs
    return [run.settings.arguments for run in runs if isinstance(run.settings, CommandConfig)]


def test_a_run_is_a_command_line_with_its_values(folder: Path) -> None:
    lines = commands(folder)
    assert lines[0] == ["python", "train.py", "--model", "small", "--lr", "0.001", "--seed", "0"]
    assert lines[3] == ["python", "train.py", "--model", "large one", "--lr", "0.001", "--seed", "1"], "a value is one word"


def test_an_assignment_replaces_a_value_of_the_base(folder: Path) -> None:
    assert commands(folder, lr=0.5)[0][5] == "0.5"


def test_levels_set_several_values_and_switch_words_off(folder: Path) -> None:
    text = STUDY.replace('model: [small, "large one"]', "size: {small: {model: a, flag: ''}, large: {model: b, flag: --gate}}")
    text = text.replace("baseline: {model: small}", "baseline: {size: small}").replace("--lr", "{flag} --lr")
    lines = commands(folder, text)
    assert lines[0][2:6] == ["--model", "a", "--lr", "0.001"] and lines[2][2:7] == ["--model", "b", "--gate", "--lr", "0.001"]
    assert [cell.name for cell in plan(write(folder, text)).cells] == ["small", "large"]


def test_braces_are_doubled_and_names_may_have_dots(folder: Path) -> None:
    text = STUDY.replace("--lr {lr}", "--set={{{lr}}} train.depth={train.depth}")
    text = text.replace("grid:\n", "grid:\n  train.depth: [2, 4]\n")
    assert commands(folder, text)[0][4:6] == ["--set={0.001}", "train.depth=2"]


def test_names_of_fields_of_attnlab_are_free_for_axes(folder: Path) -> None:
    text = STUDY.replace("model: [small", "variant: [a, b]\n  task: [1, true]\n  data.x: [x]\n  model: [small")
    text = text.replace("--lr", "{variant} {task} {data.x} --lr")
    names = [cell.name for cell in plan(write(folder, text)).cells]
    assert names[0] == "a task=1 x=x model=small" and names[2] == "a task=true x=x model=small", (
        "numbers have the names of their axes"
    )


def test_skip_leaves_cells_out(folder: Path) -> None:
    text = STUDY + "skip:\n- {where: {model: large one}, because: too slow}\n"
    cells, skipped = expand(read_study(write(folder, text)))
    assert [cell.name for cell in cells] == ["model=small"] and skipped[0].because == "too slow"


def test_the_fingerprint_covers_the_command_the_files_and_the_environment(folder: Path) -> None:
    def keys(text: str = STUDY) -> list[str]:
        return [run.key for run in plan(write(folder, text)).runs]

    before = keys()
    assert len(set(before)) == 4 and keys() == before
    assert set(keys(STUDY.replace("1e-3", "2e-3"))).isdisjoint(before)
    assert set(keys(STUDY + "env: {MODE: fast}\n")).isdisjoint(before)
    assert set(keys(STUDY + "pattern: 'loss (.*)'\n")).isdisjoint(before)
    (folder / "train.py").write_text("# a comment\nimport helper\n")
    assert keys() == before
    (folder / "helper.py").write_text("X = 2\n")
    assert set(keys()).isdisjoint(before)


def test_the_path_of_the_result_is_no_part_of_the_identity(folder: Path) -> None:
    (cell, *_) = plan(write(folder, STUDY.replace("--lr", "--out={result} --lr"))).cells
    config = cell.settings
    assert isinstance(config, CommandConfig) and config.has_result_file
    assert config.arguments[4] == "--out=result.json" and config.words("/a/b.json")[4] == "--out=/a/b.json"


def test_a_study_as_a_dict_keeps_its_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = read_study(write(folder, STUDY), sets={"lr": 0.5})
    monkeypatch.chdir(folder)
    again = read_study(study.model_dump(mode="json", exclude_defaults=True) | {"base": {"lr": 0.5}})
    assert [cell.command.arguments for cell in expand(again)[0]] == [cell.command.arguments for cell in expand(study)[0]]


def test_the_page_of_the_documentation_is_valid(folder: Path) -> None:
    text = (ROOT / "docs" / "how-to" / "command.md").read_text(encoding="utf-8")
    (first,) = re.findall(r'^```yaml title="study.yaml"\n(.*?)^```', text, flags=re.DOTALL | re.MULTILINE)
    planned = plan(write(folder, first))
    assert len(planned.runs) == 10 and [cell.name for cell in planned.cells] == ["dense", "gated"]
    lines = re.findall(r"^\{.*\}$", text, flags=re.MULTILINE)
    assert [parse_point(line)[0] for line in lines] == [100, 200, None] and "bits_per_byte" in parse_object(lines[-1])


MISTAKES = [
    # (replaced, by, place, words of the message)
    ("command: python train.py --model {model} --lr {lr} --seed {seed}", "command: ''", "2:10", ()),
    ("--seed {seed}", "", "2:10", ("{seed}", "one run repeated")),
    ("--lr {lr}", "", "3:8", ("{lr} in the command", "does not use it")),
    ("--model {model}", "", "5:3", ("{model} in the command",)),
    ("--lr {lr}", "--lr {lr} {rate}", "2:10", ("{rate}",)),
    ("--lr {lr}", "--lr {lr:.3f}", "2:10", ("only a name in a placeholder",)),
    ("--lr {lr}", "--lr {lr} {", "2:10", ("doubled",)),
    ("--lr {lr}", "--lr {lr} 'open", "2:10", ("expected words and placeholders", "quotation")),
    ("python train.py", "no_such_program train.py", "2:10", ("no executable 'no_such_program' in PATH",)),
    ("python train.py", "./train.py", "2:10", ("no executable './train.py' in",)),
    ("{lr: 1e-3}", "{lr: [1, 2]}", "3:12", ("base.lr: expected a finite number, a text, true or false", "a list of 2")),
    ("{lr: 1e-3}", "{lr: 1, seed: 3}", "3:15", ("seeds: [...]",)),
    ("{lr: 1e-3}", "{lr: 1, 'a b': 3}", "3:15", ("letters, digits",)),
    ("{lr: 1e-3}", "{lr: 1, model: x}", None, ()),  # the grid sets it over the base
    ("model: [small", "state: [small", "5:3", ("names a column of the runs",)),
    ('model: [small, "large one"]', "seed: {small: {model: x}, large: {model: y}}", "5:3", ("seed",)),
    ('model: [small, "large one"]', "a b: {small: {model: x}, large: {model: y}}", "5:3", ("letters, digits",)),
    ('[small, "large one"]', "[small, small]", "5:18", ("each value once",)),
    ('[small, "large one"]', "[small, '']", "5:18", ("name the levels",)),
    ('[small, "large one"]', "[small, null]", "5:18", ("grid.model[1]: expected a finite number", "nothing (null)")),
    ('model: [small, "large one"]', "model: {small: {model: x}, large: {model: x}}", "5:37", ("sets the same",)),
    ('model: [small, "large one"]', "model: {small: {model: x}, large: {}}", "5:37", ("the values that this level sets",)),
    ('model: [small, "large one"]', "model: {small: {model: x}, 'a b': {model: y}}", "5:30", ("without spaces",)),
    ('model: [small, "large one"]', "model: [small]\n  size: {a: {model: x}}", "5:3", ("'model'", "'size' sets it")),
    ("metric: {name: loss, direction: min}\n", "", "2:10", ("metric: expected the name and the direction",)),
    ("{name: loss, direction: min}", "loss", "8:9", ("the name and the direction",)),
    ("direction: min", "direction: mix", "8:33", ("min or max (did you mean 'min'?)",)),
    ("name: loss", "name: valid/loss", "8:16", ("write valid_loss",)),
    ("name: loss", "name: lr", "8:16", ("another name",)),
    ("margin: 0.01", "margin: 5 % of steps", "9:9", ("the unit of the metric",)),
    ("name: loss", 'name: ""', "8:16", ("can be recorded", "empty")),
    ("name: loss", "name: ..", "8:16", ("can be recorded",)),
    ("name: loss", f"name: {'x' * 300}", "8:16", ("can be recorded", "250")),
    ("margin: 0.01", "files: [no_such_*.txt]", "9:9", ("'no_such_*.txt'",)),
    ("margin: 0.01", "files: [/etc/pass*]", "9:9", ("relative to the study",)),
    ("margin: 0.01", "pattern: 'loss'", "9:10", ("one group",)),
    ("margin: 0.01", "pattern: '('", "9:10", ("a regular expression",)),
    ("{lr: 1e-3}", "{lr: 1, result: x}", "3:15", ("{result}",)),
    ("python train.py", "cd code && python train.py", "2:10", ("'&&'", "sh -c")),
    ("--lr {lr}", "--lr {lr} > log.txt", "2:10", ("'>'", "sh -c")),
    ("--lr {lr}", "--lr {lr} 2>&1 | tee log.txt", "2:10", ("'>&'", "sh -c")),
    ("python train.py", "export A=1; python train.py", "2:10", ("';'", "sh -c")),
    ("--lr {lr}", "--lr {lr} '>' \"a;b\" c\\;d", None, ()),  # quoted
    ("margin: 0.01", "env: {A B: 1}", "9:12", ("the name of a variable",)),
    ("margin: 0.01", "env: {A: [1]}", "9:10", ()),
    ("margin: 0.01", "imports: [train.py]", "9:1", ("imports: expected none in a study with 'command'",)),
    ("margin: 0.01", "reference_scores: [gzip]", "9:1", ("reference_scores: expected none",)),
    ("margin: 0.01", "stages: {first: {lr: 1}}", "9:1", ("stages: expected none", "weights")),
    ("margin: 0.01", "over: {steps: [1, 2]}", "9:1", ("over: expected none",)),
    ("margin: 0.01", "factors: {gate: {lr: 3}}", "9:1", ("factors: expected none",)),
    ("margin: 0.01", "sweep: {train.lr: [0.1, 0.2, 0.3]}", "9:1", ("sweep: expected none", "validation")),
    ("margin: 0.01", "search: {trials: 3, space: {train.lr: {low: 0.1, high: 1}}}", "9:1", ("search: expected none",)),
    ("margin: 0.01", "estimand: solve_rate", "9:11", ("expected a threshold",)),
    ("margin: 0.01", "task: enwik8", "9:1", ("'task'",)),
    (
        "command: python train.py --model {model} --lr {lr} --seed {seed}",
        "env: {A: 1}",
        None,
        ("env: expected 'command'",),
    ),
]


@pytest.mark.parametrize(("old", "new", "place", "words"), MISTAKES)
def test_a_mistake_is_one_line_with_its_place(
    old: str, new: str, place: str | None, words: tuple[str, ...], folder: Path
) -> None:
    assert STUDY.count(old) == 1
    path = write(folder, STUDY.replace(old, new))
    if not place and not words:
        assert plan(path).cells
        return
    with pytest.raises(UserError) as caught:
        plan(path)
    text = str(caught.value)
    assert "\n" not in text and all(word in text for word in words), text
    assert place is None or caught.value.where == f"{path}:{place}", caught.value.where


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"model": "large"}, "--only"),
        ({"lrr": 1}, "did you mean 'lr'?"),
        ({"lr": [1]}, "a list of 1"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(sets: dict[str, Any], words: str, folder: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_study(write(folder, STUDY), sets=sets)
    assert words in str(caught.value)


def test_a_study_without_a_grid_is_refused(folder: Path) -> None:
    text = STUDY.replace('grid:\n  model: [small, "large one"]\n', "").replace("baseline: {model: small}\n", "")
    with pytest.raises(UserError) as caught:
        read_study(write(folder, text.replace("--model {model} ", "")))
    assert "expected the key 'grid'" in str(caught.value)


@pytest.mark.parametrize("value", [".inf", "-.inf", "1e400"])
def test_an_infinite_level_is_refused_where_it_stands(value: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.replace("lr: 1e-3", f"lr: {value}"))
    with pytest.raises(UserError, match="expected a finite number"):
        plan(path)

"""Reading a study: every kind of mistake is one line with its place; good files become the right cells."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.cells import expand
from attnlab.config import RunConfig, parse_assignments
from attnlab.errors import UserError
from attnlab.studyfile import read_study
from attnlab.yamlfile import parse

GOOD = """\
# a comment
study: wo
base:
  task: {name: pydocs, length: 64}
  model: {dim: 32, depth: 1, heads: 2}
  train:
    steps: 20
    lr: 3e-4
grid:
  variant: [dense, no_wo, {name: strided_sparse, stride: 7}]
  train.lr: [1e-3, 3e-4]
skip:
  - where: {variant: strided_sparse, train.lr: 3e-4}
    because: seen before
seeds: [0, 1]
baseline: {variant: dense}
margin: 0.005
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "wo.yaml"
    path.write_text(text)
    return path


def mistake(path: Path, **kwargs: Any) -> str:
    """The one line that reading (and expanding) ``path`` ends in, without the folder."""
    with pytest.raises(UserError) as caught:
        expand(read_study(path, **kwargs))
    text = str(caught.value)
    assert "\n" not in text
    return text.replace(f"{path.parent}/", "")


def test_a_good_study_becomes_its_cells(tmp_path: Path) -> None:
    study = read_study(write(tmp_path, GOOD))
    cells, skipped = expand(study)
    assert [cell.name for cell in cells] == [
        "dense lr=0.001",
        "dense lr=0.0003",
        "no_wo lr=0.001",
        "no_wo lr=0.0003",
        "strided_sparse stride=7 lr=0.001",
    ]
    assert [(cell.name, cell.because) for cell in skipped] == [
        ("strided_sparse stride=7 lr=0.0003", "seen before")
    ]
    assert cells[4].config.variant.options == {"stride": 7}
    assert cells[0].axes == {"variant": "dense", "train.lr": 1e-3}
    assert cells[0].config.task.options == {"length": 64}
    assert study.seeds == [0, 1] and study.baseline == {"variant": "dense"}
    assert study.where("grid", "variant", 1).endswith("wo.yaml:10:20")
    assert cells[1].where("train", "lr").endswith("wo.yaml:11:20")
    assert cells[1].where("model", "dim").endswith("wo.yaml:5:16")


# what is replaced in GOOD, by what, the place of the complaint, and words that must be in it
MISTAKES = {
    "null for a list": ("seeds: [0, 1]", "seeds:", "15:1", "seeds: expected a list, got nothing (null)"),
    "unknown key at the top": (
        "margin:",
        "margn:",
        "17:1",
        "'margn' (did you mean 'margin'?): expected one of",
    ),
    "unknown section": ("  model:", "  modle:", "5:3", "'modle' in base (did you mean 'model'?)"),
    "unknown key, deep": ("    lr: 3", "    lrr: 3", "8:5", "'lrr' in base.train (did you mean 'lr'?)"),
    "unknown key, flow style": (
        "depth: 1",
        "dept: 1",
        "5:20",
        "'dept' in base.model (did you mean 'depth'?)",
    ),
    "unknown key in skip": ("because", "becuase", "14:5", "'becuase' in skip[0] (did you mean 'because'?)"),
    "misspelt study": ("study:", "studdy:", "2:1", "'studdy' (did you mean 'study'?)"),
    "no study": ("study: wo\n", "", "2:1", "expected the key 'study', got none"),
    "wrong type": ("depth: 1", "depth: two", "5:27", "base.model.depth: expected a whole number, got 'two'"),
    "number in quotes": ("steps: 20", "steps: '20'", "7:12", "expected a whole number, got '20'"),
    "a fraction for a whole": ("steps: 20", "steps: 20.5", "7:12", "expected a whole number, got 20.5"),
    "true for a whole": ("depth: 1", "depth: true", "5:27", "expected a whole number, got true"),
    "true for a number": ("lr: 3e-4\ng", "lr: true\ng", "8:9", "base.train.lr: expected a number, got true"),
    "no for a bool": ("heads: 2", "tied: no", "5:36", "base.model.tied: expected true or false, got 'no'"),
    "1 for a bool": ("heads: 2", "tied: 1", "5:36", "expected true or false, got 1"),
    "null for a number": ("depth: 1", "depth: null", "5:27", "expected a whole number, got nothing (null)"),
    "infinite": ("lr: 3e-4\ng", "lr: .inf\ng", "8:9", "expected a finite number, got inf"),
    "too small": ("depth: 1", "depth: 0", "5:27", "expected a number of at least 1, got 0"),
    "too small, open": ("lr: 3e-4\ng", "lr: 0\ng", "8:9", "expected a number greater than 0, got 0"),
    "too large": ("heads: 2", "dropout: 1.0", "5:39", "expected a number less than 1, got 1.0"),
    "not one of the choices": (
        "heads: 2",
        "activation: rleu",
        "5:42",
        "expected 'relu' or 'gelu', got 'rleu' (did you mean 'relu'?)",
    ),
    "bad warm-up": (
        "steps: 20",
        "warmup: 1.5",
        "7:13",
        "base.train.warmup: expected a number of steps (whole), or",
    ),
    "bad betas": (
        "steps: 20",
        "betas: [0.9, 1.5]",
        "7:18",
        "betas[1]: expected a number less than 1, got 1.5",
    ),
    "one beta": (
        "steps: 20",
        "betas: [0.9]",
        "7:12",
        "train.betas: expected a list of more than 1, got a list of 1",
    ),
    "three betas": ("steps: 20", "betas: [0.9, 0.9, 0.9]", "7:12", "expected a list of 2, got a list of 3"),
    "bad device": ("seeds:", "  machine.device: [cpu, gpu]\nseeds:", "0:0", ""),
    "a section that is a word": (
        "{dim: 32, depth: 1, heads: 2}",
        "big",
        "5:10",
        "expected a mapping of keys, got 'big'",
    ),
    "a task without a name": (
        "name: pydocs, ",
        "",
        "4:9",
        "expected the key 'name' beside the options, got a mapping",
    ),
    "a task that is a number": ("{name: pydocs, length: 64}", "7", "4:9", "expected a name, or {name: ...,"),
    "duplicate key": ("    lr: 3e-4", "    steps: 30", "8:5", "got 'steps' again (first in line 7)"),
    "duplicate key at the top": (
        "margin: 0.005",
        "seeds: [2]",
        "17:1",
        "got 'seeds' again (first in line 15)",
    ),
    "empty grid": (
        GOOD[GOOD.index("  variant") : GOOD.index("skip")],
        "",
        "9:1",
        "grid: expected at least one axis, such as",
    ),
    "empty grid, flow": (
        GOOD[GOOD.index("\n  variant") : GOOD.index("skip")],
        " {}\n",
        "9:7",
        "at least one axis",
    ),
    "empty axis": (
        "[1e-3, 3e-4]",
        "[]",
        "11:13",
        "grid.train.lr: expected at least one value in the list, got an empty",
    ),
    "an axis that is no list": ("[1e-3, 3e-4]", "1e-3", "11:13", "grid.train.lr: expected a list, got 0.001"),
    "an axis that names no field": (
        "  train.lr:",
        "  train.lrr:",
        "11:3",
        "'train.lrr' names no field of a run (did you",
    ),
    "an axis without its section": ("  train.lr:", "  lr:", "11:3", "(did you mean 'train.lr'?)"),
    "an axis too deep": ("  train.lr:", "  train.lr.x:", "11:3", "names no field of a run"),
    "the seed as an axis": ("  train.lr:", "  seed:", "11:3", "expected 'seeds: [...]' at the top"),
    "a wrong value on an axis": (
        "[1e-3, 3e-4]",
        "[1e-3, fast]",
        "11:20",
        "train.lr: expected a number, got 'fast'",
    ),
    "a value out of range": (
        "[1e-3, 3e-4]",
        "[1e-3, -1]",
        "11:20",
        "train.lr: expected a number greater than 0, got -1",
    ),
    "a value twice": (
        "[1e-3, 3e-4]",
        "[1e-3, 0.001]",
        "11:20",
        "grid.train.lr: expected each value once, got 0.001",
    ),
    "a variant twice": ("no_wo, ", "{name: dense}, ", "10:20", "expected each value once, got dense again"),
    "a bad skip axis": (
        "train.lr: 3e-4}",
        "train.lrr: 3e-4}",
        "13:38",
        "'train.lrr' is no axis of the grid (did you mean",
    ),
    "a bad skip value": (
        "train.lr: 3e-4}",
        "train.lr: 5e-4}",
        "13:48",
        "expected one of 0.001, 0.0003, got 0.0005",
    ),
    "skip without a reason": (
        "    because: seen before\n",
        "",
        "13:5",
        "expected the key 'because' in skip[0], got none",
    ),
    "a bad baseline axis": (
        "{variant: dense}",
        "{varant: dense}",
        "16:12",
        "'varant' is no axis of the grid (did you mean",
    ),
    "a bad baseline value": (
        "{variant: dense}",
        "{variant: dens}",
        "16:21",
        "got 'dens' (did you mean 'dense'?)",
    ),
    "an empty baseline": ("{variant: dense}", "{}", "16:11", "expected at least one axis"),
    "duplicate seeds": ("[0, 1]", "[0, 1, 0]", "15:15", "expected each seed once, got 0 again"),
    "negative seed": ("[0, 1]", "[0, -1]", "15:12", "seeds[1]: expected a number of at least 0, got -1"),
    "no seeds": ("[0, 1]", "[]", "15:8", "expected at least one value in the list"),
    "a seed in the base": (
        "  task:",
        "  seed: 3\n  task:",
        "4:3",
        "expected 'seeds: [...]' at the top of the study",
    ),
    "what the plan fills in": ("  task:", "  data: x\n  task:", "4:3", "unknown key 'data' in base"),
    "both steps and epochs": (
        "    lr: 3e-4",
        "    epochs: 3",
        "8:13",
        "expected one of 'steps' and 'epochs', got both",
    ),
    "neither steps nor epochs": (
        "    steps: 20\n",
        "",
        "7:5",
        "expected one of 'steps' and 'epochs', got neither",
    ),
    "accumulate does not divide": (
        "lr: 3e-4\ng",
        "accumulate: 5\ng",
        "8:17",
        "a divisor of batch_size 32, got 5",
    ),
    "sliding without a stride": (
        "grid:",
        "  evaluate: {protocol: sliding}\ngrid:",
        "9:24",
        "expected a 'stride'",
    ),
    "no variant": (GOOD[GOOD.index("grid") : GOOD.index("seeds")], "", "0:0", ""),
    "search": ("margin: 0.005", "search: {trials: 3}", "17:1", "the key 'search' is planned, but"),
    "confirm": ("margin: 0.005", "confirm: {seeds: [1]}", "17:1", "the key 'confirm' is planned, but"),
    "match": ("no_wo, ", "{name: no_wo, match: params}, ", "10:34", "the option 'match' is planned, but"),
    "a bad study name": (
        "study: wo",
        "study: w/o",
        "2:8",
        "expected letters, digits, '_', '-' and '.' only, got 'w/o'",
    ),
    "a margin that is none": ("0.005", "0", "17:9", "margin: expected a number greater than 0, got 0"),
    "bad syntax": ("[0, 1]", "[0, 1", "16:9", "not YAML: "),
    "a second colon": ("study: wo", "study: wo: x", "2:10", "not YAML: expected no second ':' here"),
    "tabs": ("    steps", "\tsteps", "7:1", "not YAML: expected spaces for indentation, got a tab"),
    "a tag": ("wo\n", "!py wo\n", "2:8", "got one with the tag '!py'"),
    "a merge key": ("  task:", "  <<: {a: 1}\n  task:", "4:3", "expected the name of a key, got '<<'"),
    "a number as a key": ("  task:", "  5: 6\n  task:", "4:3", "expected the name of a key, got '5'"),
    "two documents": ("margin", "---\nmargin", "17:1", "not YAML: expected one document"),
    "an unknown alias": ("wo\n", "*wo\n", "2:8", "not YAML: found undefined alias 'wo'"),
    "a control character": ("wo\n", "w\x01o\n", "2:9", "expected text, got a control character"),
}
MISTAKES["bad device"] = (
    "  train.lr: [1e-3, 3e-4]",
    "  machine.device: [cpu, gpu]",
    "11:25",
    "'cpu', 'cuda' or 'cuda:N'",
)
MISTAKES["no variant"] = (
    "  variant:",
    "  backend:",
    "10:27",
    "backend: expected a text, got a mapping of keys",
)


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(kind: str, tmp_path: Path) -> None:
    old, new, place, words = MISTAKES[kind]
    assert GOOD.count(old) == 1, f"{old!r} must stand once in the good file"
    text = mistake(write(tmp_path, GOOD.replace(old, new)))
    assert text.startswith(f"wo.yaml:{place}: "), text
    assert words in text, text


def test_missing_variant_points_at_the_base(tmp_path: Path) -> None:
    text = mistake(write(tmp_path, "study: a\nbase:\n  task: pydocs\n  train: {steps: 5}\n"))
    assert text == "wo.yaml:3:3: expected the key 'variant', got none"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "wo.yaml:1:1: expected a study (a mapping of keys), got an empty file"),
        (b"# nothing\n", "wo.yaml:1:1: expected a study (a mapping of keys), got an empty file"),
        (b"\n- dense\n- no_wo\n", "wo.yaml:2:1: expected a study (a mapping of keys), got a list of 2"),
        (b"study: x\nmetric: \xff\n", "wo.yaml:2:9: expected text in UTF-8, got the byte 0xff"),
        (b"a: &x {b: *x}\n", "wo.yaml:1:4: expected a value, got an alias of something that contains it"),
    ],
)
def test_a_file_that_is_no_study(data: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "wo.yaml"
    path.write_bytes(data)
    assert mistake(path) == expected


def test_a_study_file_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    assert mistake(tmp_path / "w0.yaml") == (
        "w0.yaml: expected a study, but there is no such file (did you mean 'wo.yaml'?)"
    )
    assert "nor a folder" in mistake(tmp_path / "nowhere" / "wo.yaml")
    assert "expected a study that can be read: Is a directory" in mistake(tmp_path)


def test_yaml_traps_are_closed() -> None:
    value, _ = parse(
        "[1e-3, 3e-4, 20_000, no, off, yes, on, 0x10, 1:30, '8', true, ~, 2001-01-01, -.5]", name="x"
    )
    expected = [1e-3, 3e-4, 20000, "no", "off", "yes", "on", 16, "1:30", "8", True, None, "2001-01-01", -0.5]
    assert value == expected and [type(v) for v in value] == [type(v) for v in expected]


def test_an_axis_over_a_section_and_over_an_option(tmp_path: Path) -> None:
    text = GOOD.replace(
        "  train.lr: [1e-3, 3e-4]", "  task.length: [32, 64]\n  model: [{dim: 16}, {dim: 64, heads: 4}]"
    )
    cells, _ = expand(read_study(write(tmp_path, text.replace(", train.lr: 3e-4", ""))))
    assert [cell.name for cell in cells[:2]] == [
        "dense length=32 model=dim=16",
        "dense length=32 model=dim=64 heads=4",
    ]
    assert (cells[0].config.model.dim, cells[0].config.model.heads) == (16, 2)
    assert cells[0].config.task.options == {"length": 32}


def test_sets_go_over_the_base_and_name_themselves(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    study = read_study(path, sets=parse_assignments(["train.epochs=0.5", "model.dim=64", "seeds=[7]"]))
    config = expand(study)[0][0].config
    assert (config.train.steps, config.train.epochs, config.model.dim, study.seeds) == (None, 0.5, 64, [7])
    for item, message in {
        "train.steps=fast": "train.steps=fast: expected a whole number, got 'fast'",
        "train.stepps=5": "train.stepps=5: 'train.stepps' names no field of a run (did you mean",
        "train.lr=0.1": "train.lr=0.1: the axis 'train.lr' of the grid sets it in each cell",
        "seeds=[1, 1]": "seeds=[1, 1]: seeds: expected each seed once, got 1 again",
        "seed=1": "seed=1: expected 'seeds: [...]' at the top of the study, got 'seed'",
        "train.accumulate=5": "train.accumulate=5: expected a divisor of batch_size 32, got 5",
    }.items():
        assert mistake(path, sets=parse_assignments([item])).startswith(message)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (["train.steps"], "train.steps: expected key=value, such as train.steps=50"),
        (["=5"], "=5: expected key=value, such as train.steps=50"),
        (["train.steps="], "train.steps=: expected key=value, such as train.steps=50"),
        (["a=1", "a=2"], "a=2: expected each key once, got 'a' again"),
        (["variant={name: x"], "variant={name: x: not YAML: "),
    ],
)
def test_bad_assignments(items: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_assignments(items)
    assert str(caught.value).startswith(message)


def test_assignments_are_yaml() -> None:
    items = [
        "train.lr=1e-3",
        "variant={name: strided_sparse, stride: 16}",
        "model.tied=true",
        "a=no",
        "b=x=y",
    ]
    assert parse_assignments(items) == {
        "train.lr": 1e-3,
        "variant": {"name": "strided_sparse", "stride": 16},
        "model.tied": True,
        "a": "no",
        "b": "x=y",
    }


def test_a_dict_is_a_study_too() -> None:
    study = {"study": "d", "base": {"task": "pydocs", "variant": "dense", "train": {"steps": 5}}}
    cells, _ = expand(read_study(study))
    assert cells[0].name == "dense" and cells[0].axes == {"variant": "dense"}
    study["base"]["train"]["lr"] = "x"  # type: ignore[index]
    with pytest.raises(UserError, match=r"^base.train.lr: expected a number, got 'x'$"):
        read_study(study)


def run_config(**changes: Any) -> RunConfig:
    fields = {"task": "pydocs", "variant": {"name": "strided_sparse", "stride": 7}, "train": {"steps": 5}}
    return RunConfig.model_validate({**fields, **changes})


def test_a_run_survives_json_and_is_frozen() -> None:
    config = run_config(position="learned", train={"epochs": 2, "betas": [0.9, 0.95], "warmup": 0.1})
    again = RunConfig.from_json(config.to_json())
    assert again == config and again.fingerprint() == config.fingerprint()
    assert json.loads(config.to_json())["variant"] == {"name": "strided_sparse", "stride": 7}
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 3  # type: ignore[misc]


def test_the_fingerprint_covers_every_field_but_no_folder() -> None:
    config = run_config()
    changes: list[dict[str, Any]] = [
        {"seed": 1},
        {"variant": {"name": "strided_sparse", "stride": 8}},
        {"model.dim": 64},
        {"train.lr": 1e-2},
        {"evaluate.test_limit": 100},
        {"machine.threads": 1},
        {"data": "abc"},
        {"sources": {"a.py": "00"}},
        {"backend": "sdpa"},
        {"position": "none"},
    ]
    prints = {config.fingerprint(), *(config.with_(change).fingerprint() for change in changes)}
    assert len(prints) == len(changes) + 1 and all(len(p) == 16 for p in prints)
    here = run_config(variant="/a/lab/cosine.py:Cosine", sources={"/a/lab/cosine.py": "00"})
    there = run_config(variant="/b/lab/cosine.py:Cosine", sources={"/b/lab/cosine.py": "00"})
    edited = run_config(variant="/b/lab/cosine.py:Cosine", sources={"/b/lab/cosine.py": "11"})
    assert here.fingerprint() == there.fingerprint() != edited.fingerprint()


def test_with_says_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"train.lr: expected a number, got 'x'"):
        run_config().with_({"train.lr": "x"})

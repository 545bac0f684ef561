"""Tests of reading a study: every kind of mistake is one line with its place; valid files give the right cells."""

import json
from pathlib import Path
from typing import Any

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.config.run import RunConfig, parse_assignments
from attnlab.config.yaml import parse
from attnlab.errors import UserError
from attnlab.registry import VARIANTS, options_of
from tests.support.studies import GOOD, SEARCH, misread, write


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
    assert [(cell.name, cell.because) for cell in skipped] == [("strided_sparse stride=7 lr=0.0003", "seen before")]
    assert cells[4].config.variant.options == {"stride": 7}  # type: ignore[union-attr]
    assert cells[0].axes == {"variant": "dense", "train.lr": 1e-3}
    assert cells[0].config.task.options == {"length": 64}
    assert study.seeds == [0, 1] and study.baseline == {"variant": "dense"}
    assert study.where("grid", "variant", 1).endswith("s.yaml:10:20")
    assert cells[1].where("train", "lr").endswith("s.yaml:11:20")
    assert cells[1].where("model", "dim").endswith("s.yaml:5:16")


def test_yaml_traps_are_closed() -> None:
    value, _ = parse("[1e-3, 3e-4, 20_000, no, off, yes, on, 0x10, 1:30, '8', true, ~, 2001-01-01, -.5]", name="x")
    expected = [1e-3, 3e-4, 20000, "no", "off", "yes", "on", 16, "1:30", "8", True, None, "2001-01-01", -0.5]
    assert value == expected and [type(v) for v in value] == [type(v) for v in expected]


def test_an_axis_over_a_section_and_over_an_option(tmp_path: Path) -> None:
    text = GOOD.replace("  train.lr: [1e-3, 3e-4]", "  task.length: [32, 64]\n  model: [{dim: 16}, {dim: 64, heads: 4}]")
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
        "train.stepps=5": "train.stepps=5: 'train.stepps' is not a field of a run (did you mean",
        "train.lr=0.1": "train.lr=0.1: the axis 'train.lr' of the grid sets this field in each cell",
        "seeds=[1, 1]": "seeds=[1, 1]: seeds[1]: expected each seed once, got 1 again",
        "seed=1": "seed=1: expected 'seeds: [...]' at the top level, got 'seed'",
        "train.gradient_accumulation=5": "train.gradient_accumulation=5: expected a divisor of batch_size 32, got 5",
    }.items():
        assert misread(path, sets=parse_assignments([item])).startswith(message)


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


@pytest.mark.parametrize(
    ("text", "seeds"), [("0-4", [0, 1, 2, 3, 4]), ("7", [7]), ("3 - 5, 9", [3, 4, 5, 9]), ("[5, 3]", [5, 3])]
)
def test_seeds_may_be_ranges(text: str, seeds: list[int], tmp_path: Path) -> None:
    quoted = f"'{text}'" if text == "7" else text
    assert read_study(write(tmp_path, GOOD.replace("[0, 1]", quoted))).seeds == seeds
    confirmed = read_study(write(tmp_path, SEARCH.replace("[100, 101]", quoted).replace("trials: 8", "trials: 8\n  seed: 99")))
    assert confirmed.reported_seeds == seeds


def test_fresh_seeds_belong_to_the_name_of_a_study(tmp_path: Path) -> None:
    few, more, other = (
        read_study(write(tmp_path, GOOD.replace("[0, 1]", text)), sets={"study": name}).seeds
        for text, name in (("fresh 3", "a"), ("fresh 6", "a"), ("fresh 6", "b"))
    )
    assert few == more[:3] and len(set(more)) == 6 and not set(more) & set(other)


@pytest.mark.parametrize(
    "text",
    ["fresh", "fresh 0", "fresh 1-3", "4-0", "a-b", "0-", "-3", "0..4", "1e3-2e3", "0-99999999999", "''", "0-4-8", "1,,2"],
)
def test_a_range_that_is_none(text: str, tmp_path: Path) -> None:
    message = misread(write(tmp_path, GOOD.replace("[0, 1]", text if text != "-3" else "'-3'")))
    assert message.startswith("s.yaml:15:8: seeds: expected ")


def test_assignments_are_yaml() -> None:
    items = [
        "train.lr=1e-3",
        "variant={name: strided_sparse, stride: 16}",
        "model.tie_embeddings=true",
        "a=no",
        "b=x=y",
    ]
    assert parse_assignments(items) == {
        "train.lr": 1e-3,
        "variant": {"name": "strided_sparse", "stride": 16},
        "model.tie_embeddings": True,
        "a": "no",
        "b": "x=y",
    }


def test_a_dict_is_a_study_too() -> None:
    study = {"study": "d", "base": {"task": "pydocs", "variant": "dense", "train": {"steps": 5}}}
    cells, _ = expand(read_study(study))
    assert cells[0].name == "dense" and cells[0].axes == {"variant": "dense"}
    study["base"]["train"]["lr"] = "x"  # type: ignore[index]
    with pytest.raises(UserError, match=r"^base.train.lr: train.lr: expected a number, got 'x'$"):
        expand(read_study(study))


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
        {"model.norm_type": "rms"},
        {"model.initialization": "gpt2"},
        {"train.lr": 1e-2},
        {"evaluate.test_limit": 100},
        {"evaluate.lengths": [64]},
        {"machine.threads": 1},
        {"data": "abc"},
        {"sources": {"a.py": "00"}},
        {"backend": "sdpa"},
        {"position": "none"},
    ]
    prints = {config.fingerprint(), *(config.replace(change).fingerprint() for change in changes)}
    assert len(prints) == len(changes) + 1 and all(len(p) == 16 for p in prints)
    original = run_config(variant="/a/lab/cosine.py:Cosine", sources={"/a/lab/cosine.py": "00"})
    moved = run_config(variant="/b/lab/cosine.py:Cosine", sources={"/b/lab/cosine.py": "00"})
    edited = run_config(variant="/b/lab/cosine.py:Cosine", sources={"/b/lab/cosine.py": "11"})
    assert original.fingerprint() == moved.fingerprint() != edited.fingerprint()


def test_a_default_that_is_written_out_changes_no_fingerprint() -> None:
    config = run_config()
    defaults = {"train.patience": None, "evaluate.test": True, "evaluate.lengths": [], "machine.processes_per_run": 1}
    assert config.replace(defaults).fingerprint() == config.fingerprint()


def test_an_option_at_its_default_is_that_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    bare, stated = run_config(variant="delta"), run_config(variant={"name": "delta", "short_conv": 4})
    before = bare.fingerprint()
    assert before == stated.fingerprint() != run_config(variant={"name": "delta", "short_conv": 0}).fingerprint()
    constructor: Any = VARIANTS.get("delta").__init__
    monkeypatch.setattr(constructor, "__kwdefaults__", {**constructor.__kwdefaults__, "short_conv": 0})
    options_of.cache_clear()
    assert bare.fingerprint() != before == stated.fingerprint(), "a changed default trains again what does not state it"
    options_of.cache_clear()


def test_lengths_are_sorted_and_each_stands_once() -> None:
    lengths = run_config().replace({"evaluate.lengths": [512, 64, 256]}).evaluate.lengths
    assert lengths == (64, 256, 512)
    ascending, descending = (run_config().replace({"evaluate.lengths": order}) for order in ([64, 512], [512, 64]))
    assert ascending == descending and ascending.fingerprint() == descending.fingerprint()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lengths": [64, 64]}, "evaluate.lengths: expected each length once, got 64 again"),
        ({"lengths": [0]}, "evaluate.lengths.0: evaluate.lengths[0]: expected a number of at least 1, got 0"),
        ({"lengths": [64.5]}, "evaluate.lengths.0: evaluate.lengths[0]: expected a whole number, got 64.5"),
        ({"lengths": 64}, "evaluate.lengths: expected a list, got 64"),
        ({"lengths": [64], "test": False}, "evaluate.lengths: expected 'lengths' only with the test split, got 'test: false'"),
    ],
)
def test_lengths_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        run_config().replace({f"evaluate.{name}": value for name, value in fields.items()})
    assert str(caught.value) == message


def test_with_says_what_is_wrong() -> None:
    with pytest.raises(UserError, match=r"train.lr: expected a number, got 'x'"):
        run_config().replace({"train.lr": "x"})


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    text = str(UserError("got 'a\nb\x1b[2J\u2028'" + "x" * 10_000, "s.yaml:1:2"))
    assert text.startswith("s.yaml:1:2: got 'a\\nb\\x1b[2J\\u2028'x") and text.isprintable() and len(text) < 4_100


def test_the_variant_of_a_part_of_a_model_is_a_path(tmp_path: Path) -> None:
    sets = parse_assignments(["model.cross.variant=no_wo", "model.encoder.position=rotary", "model.encoder.position.base=500"])
    cells, _ = expand(read_study(write(tmp_path, GOOD), sets=sets))
    model = cells[0].config.model
    assert model.cross.variant is not None and model.cross.variant.name == "no_wo" and model.decoder.variant is None
    with pytest.raises(UserError, match="'model.cros.variant' is not a field of a run"):
        read_study(write(tmp_path, GOOD), sets=parse_assignments(["model.cros.variant=no_wo"]))

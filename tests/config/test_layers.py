"""Tests of `model.layers` in a study: its forms, its labels, and its relation to `variant`."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.config.run import RunConfig
from attnlab.config.schema import json_schema
from attnlab.config.types import recorded_position, recorded_variant
from attnlab.errors import UserError

HYBRID = ["gru", "gru", {"name": "dense", "position": "rotary"}]


def study(grid: dict[str, Any], **more: Any) -> dict[str, Any]:
    base = {"task": "pydocs", "model": {"depth": 6}, "train": {"steps": 3}, **more.pop("base", {})}
    return {"study": "s", "base": base, "grid": grid, **more}


def names(content: dict[str, Any], **options: Any) -> list[str]:
    return [cell.name for cell in expand(read_study(content, **options))[0]]


def mistake(content: Any, **options: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        expand(read_study(content, **options))
    return caught.value


def run_config(**model: Any) -> RunConfig:
    return RunConfig.model_validate({"task": "pydocs", "model": model, "train": {"steps": 3}})


def test_an_entry_is_written_like_a_variant() -> None:
    entries = ["gru", {"name": "strided_sparse", "stride": 7}, {"name": "dense", "position": "rotary", "with": ["qk_norm"]}]
    config = run_config(layers=entries)
    assert config.model.layers is not None and config.variant is None
    gru, sparse, dense = config.model.layers.pattern
    assert (gru.name, gru.position, sparse.options) == ("gru", None, {"stride": 7})
    assert dense.position is not None and dense.position.name == "rotary" and dense.components[0].name == "qk_norm"
    assert config.variant_label == "[gru, strided_sparse stride=7, dense with qk_norm]"
    assert [block.name for block in config.model.layers.blocks(4)] == ["gru", "strided_sparse", "dense", "gru"]


@pytest.mark.parametrize("layers", [HYBRID, {"pattern": HYBRID, "match": "params"}])
def test_a_configuration_is_the_same_after_json(layers: Any) -> None:
    config = run_config(layers=layers)
    assert RunConfig.from_json(config.to_json()) == config
    assert RunConfig.from_json(config.to_json()).fingerprint() == config.fingerprint()


def test_folders_of_an_entry_do_not_count_in_the_fingerprint() -> None:
    prints = {
        run_config(layers=["dense", {"name": f"{folder}/a.py:{name}", "position": f"{folder}/b.py:P"}]).fingerprint()
        for folder in ("/one", "/two")
        for name in ("Mine", "Other")
    }
    assert len(prints) == 2, "one for each class"


def test_labels_are_short() -> None:
    patterns = [
        HYBRID,
        ["dense"],
        ["gru", {"name": "dense", "with": ["qk_norm", "gate"]}],
        {"pattern": HYBRID, "match": "params"},
    ]
    assert names(study({"model.layers": patterns})) == [
        "[gru x2, dense position=rotary]",
        "[dense]",
        "[gru, (dense with qk_norm, gate)]",
        "[gru x2, dense position=rotary] match=params",
    ]
    fields = run_config(layers=HYBRID).model_dump()["model"]["layers"]
    assert (recorded_variant(fields), recorded_position(fields)) == ("[gru x2, dense]", "[none x2, rotary]")


def test_patterns_of_an_axis_can_be_named() -> None:
    content = study({"model.layers": {"hybrid": HYBRID, "plain": ["dense"]}, "train.lr": [1e-3, 3e-4]})
    assert names(content) == ["hybrid lr=0.001", "hybrid lr=0.0003", "plain lr=0.001", "plain lr=0.0003"]
    assert mistake(study({"model.layers": {"a b": HYBRID}})).where == "grid.model.layers.a b"
    assert "expected" in mistake(study({"model.layers": {"hybrid": [{"stride": 3}]}})).message


def test_a_pattern_replaces_the_variant_of_the_base_alone() -> None:
    base = {"variant": {"name": "dense", "position": "rotary"}}
    plain, hybrid = (cell.config for cell in expand(read_study(study({"model.layers": [None, ["gru"]]}, base=base)))[0])
    assert plain.variant is not None and plain.variant.name == "dense" and plain.model.layers is None
    assert hybrid.variant is None and hybrid.position is not None and hybrid.position.name == "rotary"
    factors = {"hybrid": {"model.layers": ["gru", "dense"]}, "swiglu": {"model.feed_forward": "swiglu"}}
    base = {"task": "pydocs", "train": {"steps": 3}, "variant": "dense"}
    assert names({"study": "s", "base": base, "factors": factors}) == ["all off", "swiglu", "hybrid", "all on"]
    sets = {"model.layers": ["gru", "dense"]}
    (cell, *_) = expand(read_study(study({"train.lr": [1e-3]}, base={"variant": "dense"}), sets=sets))[0]
    assert cell.config.variant_label == "[gru, dense]"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (study({"variant": ["dense", "gru"]}, base={"model": {"layers": HYBRID}}), "grid.variant[0]"),
        (study({"train.lr": [1e-3]}, base={"variant": "dense", "model": {"layers": HYBRID}}), "base.variant"),
        (study({"variant": ["dense"], "model.layers": [HYBRID]}), "grid.variant[0]"),
    ],
)
def test_a_variant_and_a_pattern_exclude_each_other(content: dict[str, Any], place: str) -> None:
    error = mistake(content)
    assert error.where == place and "'variant' and 'model.layers'" in error.message


def test_an_assigned_variant_is_not_dropped_for_a_pattern_of_the_grid() -> None:
    error = mistake(study({"model.layers": [HYBRID]}), sets={"variant": "dense"})
    assert "'variant' and 'model.layers'" in error.message and error.where == "variant=dense"


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([], "at least one value"),
        ("gru", "a list of variants"),
        ([3], "a name"),
        ([{"name": "gru", "match": "params"}], "no 'match' in an entry"),
        ({"pattern": ["gru"], "match": "size"}, "'params', 'flops'"),
        ({"patern": ["gru"]}, "unknown key 'patern'"),
    ],
)
def test_a_mistake_in_a_pattern_is_one_line(layers: Any, words: str, tmp_path: Path) -> None:
    error = mistake(study({"train.lr": [1e-3]}, base={"model": {"layers": layers}}))
    assert words in error.message and error.where.startswith("base.model.layers") and "\n" not in str(error)


def test_the_schema_knows_lists_and_named_patterns() -> None:
    schema = json_schema()
    entry, matched = schema["$defs"]["ModelConfig"]["properties"]["layers"]["anyOf"][:2]
    assert entry["type"] == "array" and set(matched["properties"]) == {"pattern", "match"}
    lists, named = schema["else"]["properties"]["grid"]["properties"]["model.layers"]["anyOf"]
    assert lists["type"] == "array" and named["additionalProperties"] == lists["items"]


def test_a_component_is_not_added_to_a_pattern() -> None:
    base = {"task": "pydocs", "train": {"steps": 3}, "variant": "dense"}
    factors = {"hybrid": {"model.layers": ["gru", "dense"]}, "gate": {"with": "gate"}}
    error = mistake({"study": "s", "base": base, "factors": factors})
    assert error.where == "factors.gate.with" and "entries" in error.message

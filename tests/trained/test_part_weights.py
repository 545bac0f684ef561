"""Tests of the attention weights of an encoder-decoder: by part, with the tokens of queries and keys, on the page."""

import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from attnlab.config.run import PARTS, RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.report.plots.maps import describe_maps, draw_maps
from attnlab.report.stored import _map_from_json, _map_to_json
from attnlab.report.write import write_report as report
from attnlab.study.run import run
from attnlab.tracking.artifacts import AttentionMap, load_attention_maps, log_attention_maps
from attnlab.tracking.runs import load_runs
from attnlab.trained.attention_maps import compute_maps
from attnlab.trained.model import TrainedModel, load_model
from attnlab.training import weights
from tests.study.test_study import QUIET, study
from tests.support.small_runs import tiny
from tests.support.small_translations import pairs, write

GOOD = "tests.support.study_fakes:good"
SENTENCE, TRANSLATION = "Ein Hund sieht ein Haus rot.", "A red dog sees a red house and a red ball."


@pytest.fixture
def task(tmp_path: Path, folders: Path) -> dict[str, Any]:
    rows = pairs(60)
    options = write(tmp_path, "train", rows[:40])
    for split, own in (("valid", rows[40:50]), ("test", rows[50:])):
        options |= write(tmp_path, split, own)
    return {"name": "translation", "vocabulary": 120, "length": 40, **options}


def saved(folder: Path, task: dict[str, Any], **changes: Any) -> TrainedModel:
    """Save an encoder-decoder with initial weights as a run leaves it, and load it."""
    sections = {f"model__{name}": {"variant": "dense", "position": "none"} for name in PARTS}
    config: RunConfig = tiny(task=task, **{"position": "none", **sections, **changes})
    made = TASKS.get("translation")(**config.task.options)
    made.prepare()
    config = config.model_copy(update={"data": made.identity()})
    folder.mkdir(exist_ok=True)
    weights.save(build(config, made), config, folder)
    return load_model(folder)


def test_the_weights_of_each_part_are_over_its_own_tokens(tmp_path: Path, task: dict[str, Any]) -> None:
    trained = saved(tmp_path / "run", task, backend="sdpa")
    source = trained.encode(SENTENCE)
    t, s = len(trained.encode(TRANSLATION)[0]), source.shape[1]
    assert t != s, "a transposed map would go unnoticed"
    maps = {part: trained.attention_weights(SENTENCE, target=TRANSLATION, part=part) for part in PARTS}
    assert {part: tuple(map_.shape) for part, map_ in maps.items()} == {
        "encoder": (2, 1, 3, s, s),
        "decoder": (2, 1, 3, t, t),
        "cross": (2, 1, 3, t, s),
    }
    for map_ in maps.values():
        torch.testing.assert_close(map_.sum(-1), torch.ones(map_.shape[:-1]))
    assert not maps["decoder"].triu(1).any() and maps["encoder"].triu(1).any()
    assert torch.equal(maps["cross"], trained.attention_weights(SENTENCE, target=TRANSLATION)), "the default"
    inputs = [1, *trained.encode(TRANSLATION)[0].tolist()[:-1]]
    assert torch.equal(maps["cross"], trained.attention_weights(source, target=inputs)), "begin token, no end token"


def test_the_logits_are_those_of_the_target(tmp_path: Path, task: dict[str, Any]) -> None:
    trained = saved(tmp_path / "run", task)
    t = len(trained.encode(TRANSLATION)[0])
    assert trained(SENTENCE, target=TRANSLATION).shape == (1, t, trained.task.vocabulary)
    with pytest.raises(UserError, match="expected a target"):
        trained(SENTENCE)


def test_a_part_without_softmax_weights_is_named(tmp_path: Path, task: dict[str, Any]) -> None:
    """A recurrent encoder has no maps, and the other parts have theirs."""
    saved(tmp_path / "run", task, model__encoder={"variant": "gru", "position": "none"})
    maps = {map_.part: map_ for map_ in compute_maps(tmp_path / "run", length=40)}
    assert "model.encoder: Gru" in maps["encoder"].reason and maps["encoder"].weights is None
    assert maps["cross"].weights.shape == (2, 3, len(maps["cross"].words), len(maps["cross"].keys))
    assert maps["decoder"].words == maps["cross"].words and maps["cross"].words[0] == "[begin]"
    assert maps["cross"].keys[-1] == "[end]"
    with pytest.raises(UserError, match="did you mean 'cross'"):
        load_model(tmp_path / "run").attention_weights(SENTENCE, target=TRANSLATION, part="crosses")


def example(part: str, words: tuple[str, ...], keys: tuple[str, ...]) -> AttentionMap:
    values = numpy.random.default_rng(0).random((2, 3, len(words), len(keys))).astype("float16")
    return AttentionMap(values, words, part=part, keys=keys, run="dense s0", cell="dense")


def test_a_map_of_cross_attention_has_the_tokens_on_both_axes() -> None:
    cross = example("cross", ("[1]", "A", "dog"), ("Ein", "Hund", "bellt", "laut"))
    ((_, title, drawn),) = draw_maps([cross])
    assert title == "attention, dense, cross-attention"
    for word in (*cross.words, *cross.keys):
        assert drawn.count(f">{word}</text>") == 2, "once for each layer"
    assert drawn.count("rotate(-90)") == 2 * len(cross.keys)
    (width, height), *_ = re.findall(r'<image x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="([\d.]+)"', drawn)
    assert float(width) / float(height) == pytest.approx(4 / 3, rel=0.01), "square pixels"
    (paragraph,), _ = describe_maps([cross])
    assert "cross-attention" in paragraph and "“[1] A dog”" in paragraph
    again = _map_from_json(_map_to_json(cross))
    assert (again.part, again.words, again.keys) == ("cross", cross.words, cross.keys)
    assert numpy.array_equal(again.weights, cross.weights)


def test_the_maps_of_all_parts_are_recorded_and_shown(root: Path, tmp_path: Path) -> None:
    assert run(study(), root=root, display=QUIET, train=GOOD).ok
    run_id = str(load_runs("small", root)["run_id"][0])
    log_attention_maps(run_id, [AttentionMap(reason="earlier")], root=root)
    source, target = ("Ein", "Hund"), ("[1]", "A", "dog")
    recorded = [AttentionMap(reason="no softmax", part="encoder"), example("cross", target, source)]
    log_attention_maps(run_id, [*recorded, example("decoder", target, target)], root=root)
    loaded = {map_.part: map_ for map_ in load_attention_maps("small", root)}
    assert set(loaded) == set(PARTS), "the maps of the parts are in place of the earlier reason"
    assert loaded["encoder"].reason == "no softmax" and loaded["cross"].keys == source
    page = (report("small", root, out=tmp_path / "page") / "index.html").read_text(encoding="utf-8")
    assert page.count("<image ") == 4 and "cross-attention" in page and "encoder: no maps: no softmax" in page

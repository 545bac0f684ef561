"""Tests of plans that fine-tune a classifier from a masked language model."""

from pathlib import Path

import pytest

import attnlab
from attnlab.planning.plan import Plan
from tests.support.paths import ROOT

STUDY = """
study: bert
stages:
  pretrain:
    task: {name: masked_text, corpus: imdb, length: 32, vocabulary: 90}
    train: {steps: 2, batch_size: 2}
base:
  init: {from: pretrain}
  variant: dense
  position: learned
  task: {name: imdb, tokens: wordpiece, corpus: imdb, length: 32, vocabulary: 90}
  model: {dim: 8, depth: 1, heads: 2, pool: first}
  train: {steps: 2, batch_size: 2}
grid: GRID
seeds: 0-1
"""


def plan_of(tmp_path: Path, grid: str) -> Plan:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.replace("GRID", grid))
    return attnlab.plan(study)


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("{task.vocabulary: [90, 91]}", "wordpiece 91"),
        ("{task.corpus: [imdb, enwik8]}", "enwik8"),
        ("{task.tokens: [wordpiece, words]}", "90 words"),
    ],
)
def test_other_tokens_than_those_of_the_pretraining_are_refused(grid: str, words: str, tmp_path: Path) -> None:
    agreeing, other = plan_of(tmp_path, grid).cells
    assert agreeing.refusal is None
    assert other.refusal is not None and words in other.refusal and "'pretrain'" in other.refusal


def test_all_but_the_output_layer_is_taken_over(tmp_path: Path) -> None:
    (cell,) = plan_of(tmp_path, "{variant: [dense]}").cells
    assert cell.refusal is None
    taken, fresh, unused = cell.taken.split("; ")
    assert taken == "takes 15 of 17 tensors" and "head.weight (2 x 8, not 90 x 8), head.bias" in fresh and "pooler" in unused


@pytest.mark.parametrize("name", ["bert-cpu", "bert", "bert-large"])
def test_the_pretrainings_of_the_studies_that_ship_cost_the_same(name: str) -> None:
    planned = attnlab.plan(ROOT / "ablations" / f"{name}.yaml")
    assert planned.refused == [] and not [note for note in planned.notes if "not compared" in note]
    flops = {cell.name: [stage.train_flops for stage in cell.stages] for cell in planned.cells}
    from_scratch = {name for name, stages in flops.items() if not stages}
    assert from_scratch == {"scratch", "scratch_causal"} & flops.keys() and len(flops) >= 4
    assert flops.get("frozen", flops["both"]) == flops["both"], "it shares a pre-training"
    both = flops["both"][0]
    assert both and [flops[other][0] for other in ("no_next_sentence", "causal")] == pytest.approx([both, both], rel=1e-3)

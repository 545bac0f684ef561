"""Tests of attention maps: recorded from trained weights, the reason if a variant has none, and the page's images."""

from pathlib import Path

import pytest
import torch

from attnlab.nn import attention
from attnlab.planning.plan import plan
from attnlab.report.write import write_report as report
from attnlab.study import run
from attnlab.tasks import Task
from attnlab.tasks.pydocs import PyDocs
from attnlab.trained.attention_maps import compute_maps, record_attention_maps
from attnlab.training.train import train
from tests.support.small_runs import tiny
from tests.support.studies import STUDY, write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runs folder of a trained study: dense, no_wo and sparse variants, one seed, one layer of two heads."""
    folder = tmp_path_factory.mktemp("maps")
    text = STUDY.replace("seeds: [3, 5]", "seeds: [3]").replace("stride: 7}]", "stride: 7}, {name: fixed_sparse, stride: 20}]")
    run.run(plan(write(folder, text)), root=folder / "runs")
    return folder / "runs"


def test_weights_are_recorded_inside_the_block_only_and_are_those_that_were_used() -> None:
    q, k, v = torch.randn(3, 1, 2, 5, 7).unbind(0)
    with attention.record_attention_weights() as seen:
        y = attention.attend(q, k, v, attention.AttentionMask(causal=True))
        attention.attend(q, k, v, backend="sdpa")
    attention.attend(q, k, v)
    assert len(seen) == 1 and seen[0].shape == (1, 2, 5, 5)
    assert torch.allclose(seen[0] @ v, y, atol=1e-6) and not seen[0].triu(1).any()


def test_the_maps_of_each_cell_stand_on_the_page_or_the_reason_why_there_are_none(root: Path, tmp_path: Path) -> None:
    descriptions = {recorded.cell: recorded.outcome for recorded in record_attention_maps("s", length=11, root=root)}
    assert descriptions["dense"] == descriptions["no_wo"] == "recorded: depth 1, heads 2"
    assert "passes no whole matrix of weights" in descriptions["strided_sparse stride=7"]
    assert "passes no whole matrix of weights" in descriptions["fixed_sparse stride=20"], "of half the heads one is"
    folder = report("s", root, tmp_path / "out")
    pages = (folder / "index.html").read_text(), (folder / "README.md").read_text()
    for page in pages:
        assert "strided_sparse stride=7: no maps: " in page and "Input: “" in page
    assert pages[0].count("<image ") == 2 and "attention-1.svg" in pages[1] and (folder / "attention-1.svg").is_file()


def test_a_class_token_stands_before_the_words(small_reviews: None, tmp_path: Path) -> None:
    imdb = {"name": "imdb", "length": 24}
    train(tiny(task=imdb, position="none", model__pool="class", train__steps=1, evaluate__test_limit=4), folder=tmp_path)
    (recorded,) = compute_maps(tmp_path, length=9)
    assert recorded.words[0] == "[class]" and {"good", "bad"} & set(recorded.words[1:])
    assert recorded.weights.shape == (2, 3, len(recorded.words), len(recorded.words))


class Silent(PyDocs):
    """A task without text, as a user's task may be."""

    decode = Task.decode

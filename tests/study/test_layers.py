"""Tests of a study of patterns of layers: records, columns, resumption, trained models and attention maps."""

from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.report.write import write_report as report
from attnlab.study import run
from attnlab.trained.attention_maps import record_attention_maps

HYBRID = ["gru", {"name": "dense", "position": "rotary", "with": ["qk_norm"]}]


def planned(**more: Any) -> Plan:
    base = {
        "task": {"name": "pydocs", "length": 16},
        "variant": "dense",
        "position": "none",
        "model": {"dim": 16, "depth": 3, "heads": 2},
        "train": {"steps": 2, "batch_size": 2},
        "evaluate": {"valid_limit": 64, "test_limit": 64},
        "machine": {"device": "cpu", "threads": 1},
    }
    grid = {"model.layers": {"plain": None, "hybrid": HYBRID, "recurrent": ["gru", "lstm"]}}
    study = {"study": "layers", "base": base, "grid": grid, "baseline": {"model.layers": "plain"}, "reference_scores": False}
    return plan({**study, **more})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layers")
    results = run.run(planned(), root=folder)
    assert [row.state for row in results.rows] == ["completed"] * 3
    return folder


def test_the_columns_name_the_pattern(root: Path) -> None:
    runs = attnlab.load_runs("layers", root).set_index("cell")
    assert list(runs["variant"]) == ["dense", "[gru, dense with qk_norm]", "[gru, lstm]"]
    assert list(runs["position"]) == ["none", "[none, rotary]", "none"]
    assert list(runs["model.layers"]) == ["plain", "hybrid", "recurrent"]


def test_finished_runs_are_not_repeated(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = set(attnlab.load_runs("layers", root)["run_id"])
    run.run(planned(), root=root)
    assert set(attnlab.load_runs("layers", root)["run_id"]) == before


def test_a_trained_pattern_is_loaded_and_has_the_weights_of_its_attention(root: Path) -> None:
    trained = attnlab.load_model("layers/hybrid/0", root=root)
    weights = trained.attention_weights("The attention")
    assert weights.shape == (3, 1, 2, 13, 13)
    assert weights[0].isnan().all() and weights[2].isnan().all()
    torch.testing.assert_close(weights[1].sum(-1), torch.ones(1, 2, 13))
    assert len(trained.generate("The", length=5)) >= 5
    with pytest.raises(UserError, match="Gru, Lstm"):
        attnlab.load_model("layers/recurrent/0", root=root).attention_weights("The")


def test_the_page_draws_the_blocks_that_have_weights(root: Path, tmp_path: Path) -> None:
    outcomes = {recorded.cell: recorded.outcome for recorded in record_attention_maps("layers", length=9, root=root)}
    assert outcomes["hybrid"] == "recorded: depth 3, heads 2" and "no whole matrix" in outcomes["recurrent"]
    page = (report("layers", root, tmp_path / "out") / "index.html").read_text()
    assert page.count("<image ") == 4, "three blocks of plain, one of hybrid"
    assert page.count("no softmax weights") == 2
    assert "[gru, dense with qk_norm]" in page

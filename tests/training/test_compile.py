"""Tests of `train.compile`: one graph of a step, equal numbers within rounding, reproducible bits, and refused backends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from attnlab.config.run import RunConfig
from attnlab.planning.plan import plan
from attnlab.testing.contract import check_variant as check
from attnlab.training.train import train
from attnlab.training.weights import load
from tests.support.small_runs import recorded, tiny
from tests.support.studies import STUDY


def test_compile_counts_in_the_fingerprint_only_if_it_is_set() -> None:
    assert tiny().fingerprint() == tiny(train__compile=False).fingerprint() != tiny(train__compile=True).fingerprint()


def planned(tmp_path: Path, **changes: Any) -> list[str | None]:
    path = tmp_path / "s.yaml"
    text = STUDY.replace("[dense, no_wo, {name: strided_sparse, stride: 7}]", "[dense, gru]")
    path.write_text(text.replace("position: learned", "position: none"))
    return [cell.refusal for cell in plan(path, sets={"train.compile": True, **changes}).cells]


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture graphs without generating kernels for them, which takes a minute each."""
    compiler = torch.compile

    def capture(function: Callable[..., Any], *, options: dict[str, Any]) -> Any:
        return compiler(function, backend="eager")

    monkeypatch.setattr(torch, "compile", capture)
    torch.compiler.reset()
    counters.clear()


REVIEWS = {"name": "tests.support.small_runs:Reviews"}
XL = {"variant": "transformer_xl", "position": "relative", "model__mem_len": 16}


@pytest.mark.parametrize(
    ("changes", "graphs"),
    [
        ({}, 1),
        ({"train__activation_checkpointing": True}, 1),
        ({"task": REVIEWS, "position": "learned"}, 1),
        (XL, 2),  # the first batch has no memory
        ({**XL, "train__gradient_accumulation": 2}, 2),
        ({"variant": "gated_delta", "position": "none"}, 1),
        ({"variant": "none", "position": "none"}, 1),
        ({"variant": {"name": "dense", "with": ["value_residual", "value_embedding"]}, "position": "alibi"}, 1),
    ],
    ids=["causal", "recomputed", "not causal", "memory", "micro-batches", "recurrence", "control", "components"],
)
def test_a_step_is_one_graph(changes: dict[str, Any], graphs: int, captured: None) -> None:
    eager, config = tiny(**changes), tiny(**changes, train__compile=True)
    result, points = recorded(config)
    assert (result.summary["graph_breaks"], result.summary["compiled_graphs"]) == (0, graphs)
    assert [m["train/loss"] for _, m in points if "train/loss" in m] == pytest.approx(losses(eager), rel=1e-6)
    assert "compiled_graphs" not in recorded(eager)[0].summary


def test_a_variant_that_breaks_the_graph_is_trained_and_says_so(captured: None, caplog: pytest.LogCaptureFixture) -> None:
    changes: dict[str, Any] = {"variant": "gru", "position": "none"}
    result, _ = recorded(tiny(**changes, train__compile=True))
    assert result.state == "completed" and result.summary["graph_breaks"] > 0 and "broke the graph" in caplog.text
    assert result.summary["bits_per_byte"] == pytest.approx(train(tiny(**changes)).summary["bits_per_byte"], rel=1e-5)


def test_blocks_are_not_compiled(tmp_path: Path) -> None:
    """Each length would need a new compilation, and from the ninth on, torch silently compiles nothing: ``auto`` avoids it."""
    path = tmp_path / "s.yaml"
    path.write_text(STUDY.replace("  position: learned\n", "").replace("seeds:", "  position: [learned, alibi]\nseeds:"))
    ways = {True: {"learned": "sdpa", "alibi": "reference"}, False: {"learned": "blocked", "alibi": "blocked"}}
    for compiled, backends in ways.items():
        cells = plan(path, sets={"train.compile": compiled}).cells
        assert all(cell.refusal is None for cell in cells)
        assert {cell.config.position.name: cell.config.backend for cell in cells if cell.config.position} == backends


def test_the_contract_compiles_the_module_that_a_compiled_run_uses() -> None:
    backends = (None, "sdpa", "blocked")
    results_by_backend = {backend: check("dense", backend=backend, position="rotary", only=["compile"]) for backend in backends}
    statuses = {backend: results[-1].status for backend, results in results_by_backend.items()}
    assert statuses == {None: "passed", "sdpa": "passed", "blocked": "not declared"}
    assert results_by_backend[None][-1].detail.startswith("reference, sdpa: one graph")
    assert results_by_backend["sdpa"][-1].detail.startswith("sdpa: one graph")


def test_a_machine_without_a_compiler_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    reason = str(planned(tmp_path)[0])
    assert all(words in reason for words in ("train.compile", "C++ compiler", "no-such-compiler", "CXX"))


def losses(config: RunConfig, folder: Path | None = None, **kwargs: Any) -> list[float]:
    return [metrics["train/loss"] for _, metrics in recorded(config, folder, **kwargs)[1] if "train/loss" in metrics]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train__activation_checkpointing": True, "model__dropout": 0.0},
        {**XL, "train__precision": "bf16"},
        {"variant": "gated_delta", "position": "none"},
        {"task": REVIEWS, "position": "learned"},
    ],
    ids=["plain", "recomputed", "memory bf16", "recurrence", "not causal"],
)
def test_a_compiled_run_is_the_run(changes: dict[str, Any], tmp_path: Path) -> None:
    """Losses and scores equal those of the uncompiled run, also for other batch shapes; weights keep their names."""
    ordinary, config = tiny(**changes), tiny(**changes, train__compile=True)
    results = [train(run_config, folder=tmp_path / str(i)) for i, run_config in enumerate((ordinary, config))]
    near = 0.03 if "train__precision" in changes else 1e-4
    score = "accuracy" if "task" in changes else "bits_per_byte"
    assert results[1].summary[score] == pytest.approx(results[0].summary[score], rel=near)
    names = [load(tmp_path / str(i))[1].keys() for i in range(2)]
    assert names[0] == names[1]
    assert losses(config) == pytest.approx(losses(ordinary), rel=near)
    assert losses(config) == losses(config), "once more: the same bits"

"""Tests of the figures of ``benchmarks.speed``, its committed page, and a tiny case of each section in this process."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from attnlab.registry import TASKS
from attnlab.training import costs
from benchmarks.speed import (
    attnlab_step,
    comparisons,
    floor,
    imdb,
    page,
    ratios,
    results,
    sparse,
    step,
    xl,
)
from benchmarks.speed import environment as places
from benchmarks.speed.case import EQUAL, OURS, SHIPPED, Case, Size, own_settings

TINY = Size(dim=12, depth=2, heads=3, length=11, memory=7, batch=32, lr=3e-2, warm=1, steps=7)
ENCODER = "torch.nn.TransformerEncoder"


@pytest.fixture(autouse=True)
def usual_precision() -> Iterator[None]:
    """Restore the process settings that cases change."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.mha.set_fastpath_enabled(True)


def lines(section: str, values: Mapping[tuple[str, str, str, str], Sequence[float]], *, quantity: str = "ms") -> pd.DataFrame:
    """Return the rows of a section's CSV file from (name, part, precision, settings) -> one value per round."""
    rows = [
        {**asdict(Case(section, name, part, precision, settings)), "round": i, "quantity": quantity, "item": "", "value": value}
        for (name, part, precision, settings), of in values.items()
        for i, value in enumerate(of)
    ]
    return pd.DataFrame(rows).assign(load=0.5).drop(columns="section")


STEPS = lines(
    "step",
    {
        (OURS, "quick", "fp32", SHIPPED): [100, 200, 100],
        ("quick", "quick", "fp32", SHIPPED): [150, 400, 170],
        (OURS, "slow", "fp32", SHIPPED): [90, 90, 90],
        ("slow", "slow", "fp32", SHIPPED): [300, 600, 290],
        (OURS, "attnlab, no settings", "fp32", SHIPPED): [100, 100, 100],
        ("attnlab, no settings", "attnlab, no settings", "fp32", SHIPPED): [110, 210, 120],
    },
)


def test_ratios_are_taken_within_a_pair_of_the_medians_of_its_steps() -> None:
    again = STEPS.assign(value=STEPS["value"] + 1_000_000).query("name == 'quick' and round == 1")  # one slow step
    frame = pd.concat([STEPS, again, STEPS])
    ratio = ratios.on(ratios.against(frame), name="quick")["ratio"].tolist()
    assert ratio == [1.5, 2.0, 1.7]
    assert ratios.spread(ratio) == "1.70 (1.50 to 2.00)" and ratios.spread([3.14, 3.141]) == "3.14" and ratios.spread([]) == ""


def test_the_fastest_peer_decides_and_is_never_one_of_our_own_cases() -> None:
    assert results.fastest_peer(STEPS, "fp32", SHIPPED, "cpu") == ([1.5, 2.0, 1.7], "quick")
    assert results.fastest_ms(STEPS, "fp32", SHIPPED, "cpu") == ("quick", [150, 400, 170])


@pytest.mark.parametrize(
    ("bound", "most", "verdict"), [(1.7, False, "met"), (1.8, False, "missed"), (1.7, True, "met"), (1.6, True, "missed")]
)
def test_a_target_is_met_by_the_median(bound: float, most: bool, verdict: str) -> None:
    figures = comparisons.Figures([1.5, 2.0, 1.7], "quick")
    target = comparisons.Comparison("step", "it", "times", lambda frame, device: figures, bound, most)
    assert target.wanted() == f"at {'most' if most else 'least'} {bound} times"
    assert target.verdict(figures) == f"1.70 (1.50 to 2.00) against quick: **{verdict}**"
    assert target.verdict(comparisons.Figures([])) == "not measured"


def reviews(name: str, part: str, settings: str, *, seconds: float, tokens: float = 100.0) -> pd.DataFrame:
    """Return one round of a case whose steps and evaluation read 1/40 and 1/10 of the tokens in the given seconds."""
    of = {"step_seconds": seconds, "step_tokens": tokens, "epoch_tokens": 40 * tokens}
    of |= {"evaluation_seconds": seconds, "evaluation_tokens": tokens, "test_tokens": 10 * tokens}
    case = (name, part, "bf16", settings)
    return pd.concat([lines("imdb", {case: [value]}, quantity=quantity) for quantity, value in of.items()])


@pytest.mark.parametrize(("name", "part"), [(OURS, ""), (OURS, ENCODER), (ENCODER, ENCODER)])
@pytest.mark.parametrize("settings", [SHIPPED, EQUAL])
def test_reviews_are_timed(name: str, part: str, settings: str, small_reviews: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # The loss of six steps on five reviews each is too noisy to check.
    monkeypatch.setattr(imdb, "check_falling", lambda losses, case: losses)
    size = replace(TINY, batch=5)
    rows = imdb.measure(Case("imdb", name, part, "bf16", settings), size, steps=6)
    figures = {quantity: [row.value for row in rows if row.quantity == quantity] for quantity in {row.quantity for row in rows}}
    assert len(figures["step_seconds"]) == 6 and len(figures["evaluation_seconds"]) == (6 if part else 1)
    assert min(min(of) for name, of in figures.items() if name.endswith("_seconds")) > 0
    task = imdb.Imdb(length=TINY.length)
    padded = sum(figures["test_tokens"]) / np.minimum(task.split("test").lengths, TINY.length).sum()
    assert (padded > 1.05) == (name == ENCODER and settings == SHIPPED)


def test_the_committed_page_is_that_of_the_committed_results(tmp_path: Path) -> None:
    committed, copy = places.ROOT / "reports" / "benchmarks", tmp_path / "benchmarks"
    for name in ("benchmarks", "gpu"):
        shutil.copytree(committed.parent / name, tmp_path / name)
    page.write(copy)
    for path in committed.iterdir():
        assert path.is_dir() or (copy / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize("name", [OURS, ENCODER])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_step_is_timed(name: str, precision: str) -> None:
    rows = step.measure(Case("step", name, "", precision), TINY)
    assert [row.item for row in rows if row.quantity == "ms"] == [str(i) for i in range(TINY.steps)]
    assert next(row.value for row in rows if row.quantity == "parameters") > 0


def test_the_products_of_the_floor_are_all_that_a_forward_pass_multiplies() -> None:
    config = attnlab_step.config(Case("floor", OURS), TINY)
    figures = costs.plan_figures(config, TASKS.get("pydocs")(**config.task.options))
    forward = 1e-9 * figures["flops_per_token"] * TINY.batch * TINY.length
    assert sum(p.count * p.gflop for p in floor.products(TINY)) == pytest.approx(forward)


def test_the_floor_is_the_time_of_the_products() -> None:
    rows = [("gflop", "a", 2.0), ("count", "a", 3.0), *(("ms", f"a: {item}", 4.0) for item in ("forward", "left", "right"))]
    frame = pd.concat(
        [lines("floor", {("products", "medium", "fp32", "medium"): [v]}, quantity=q).assign(item=i) for q, i, v in rows]
        + [lines("floor", {(OURS, "medium", "fp32", "medium"): [v]}, quantity=q) for q, v in (("ms", 72), ("forward_gflop", 6))]
    )
    row = results.floors(frame, "cpu", "fp32").iloc[0]
    assert (row["step"], row["own"], row["best"]) == (72, 36, 36)
    assert results.rates(frame, "cpu")["rate"].tolist() == [500]


@pytest.mark.parametrize("part", [xl.ATTENTION, xl.LAYER])
def test_a_layer_of_transformer_xl_is_timed(part: str) -> None:
    rows = xl.measure(Case("xl", OURS, part), TINY)
    assert sum(row.quantity == "ms" for row in rows) == TINY.steps


def test_both_ways_to_evaluate_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xl, "WINDOWS", {67: 5})
    rows = {name: xl.measure(Case("xl", name, "context 67"), TINY) for name in (xl.MEMORY, xl.SLIDING)}
    counted = {name: next(row.value for row in of if row.quantity == "bytes") for name, of in rows.items()}
    task = TASKS.get("pydocs")()
    assert counted == {xl.MEMORY: len(task.split("valid")) - 1, xl.SLIDING: 5}


@pytest.mark.parametrize("name", [sparse.DENSE, *sparse.SPARSE])
def test_sparse_attention_is_timed_and_its_saved_bytes_are_counted(name: str) -> None:
    saved = {}
    for length in (64, 256):
        rows = sparse.measure(Case("sparse", name, str(length)), TINY)
        assert len([row for row in rows if row.quantity == "ms" and row.value > 0]) == TINY.steps
        (saved[length],) = (row.value for row in rows if row.quantity == "saved_mib")
    assert saved[256] < 8 * saved[64]  # no t x t matrix, which would take 16 times as much


@pytest.mark.parametrize(
    ("device", "settings", "precision"),
    [("cpu", SHIPPED, "medium"), ("cpu", EQUAL, "medium"), ("cuda", SHIPPED, "highest"), ("cuda", EQUAL, "medium")],
)
def test_on_cuda_attnlab_has_tf32_only_where_its_peers_have_it(device: str, settings: str, precision: str) -> None:
    assert own_settings(Case("step", OURS, settings=settings, device=device))["matmul_precision"] == precision

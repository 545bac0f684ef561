"""``attnlab bench``: counts are exact, and unsupported cases are rows with a reason. No test judges speed."""

import csv
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attnlab.cli import main
from attnlab.config.run import MachineConfig
from attnlab.extras.bench.layer import BenchCase, Decoding, ForwardBackward
from attnlab.extras.bench.suite import (
    BenchConfig,
    BenchResult,
    bench,
    failed_variants,
    fastest_dense,
    fit_cost_exponent,
    speedups,
)
from attnlab.nn.attention import BACKENDS
from attnlab.training.costs import saved_bytes

B, DIM, HEADS = 2, 12, 3
OWN = """\
import os
import time
import torch
from attnlab.variants.dense import Dense

class Broken(Dense):
    def forward(self, x, *, context=None, mask=None):
        return x if x.shape[1] < 20 else x.reshape(7)

class Greedy(Dense):
    def forward(self, x, *, context=None, mask=None):
        return x + torch.empty(2**50)

class Waiting(Dense):
    def forward(self, x, *, context=None, mask=None):
        time.sleep(0.1)
        return super().forward(x, context=context, mask=mask)

class Gone(Dense):
    def forward(self, x, *, context=None, mask=None):
        os._exit(3)
"""
Out = pytest.CaptureFixture[str]


def layer(variant: str = "dense", *, backend: str = "reference", length: int = 16) -> BenchCase:
    shape: dict[str, Any] = {"batch": B, "dim": DIM, "heads": HEADS}
    return BenchCase(variant=variant, backend=backend, length=length, role="causal", label=variant, **shape)


def measured(label: str, *seconds: float, backend: str = "sdpa") -> BenchResult:
    return BenchResult(layer(label, backend=backend), [*seconds])


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_is_fitted(power: float) -> None:
    assert fit_cost_exponent({n: 3 * n**power for n in (512, 1024, 4096)}) == pytest.approx(power)


def test_one_length_has_no_exponent() -> None:
    assert math.isnan(fit_cost_exponent({512: 1.0}))


def test_speedups_are_relative_to_the_fastest_dense_round_by_round() -> None:
    slow, fast, own = measured("dense", 9.0, 9.0), measured("dense", 2.0, 6.0, backend="reference"), measured("no_wo", 1.0, 2.0)
    assert fastest_dense([slow, fast, own], 16) is fast
    assert speedups(own, fast) == [2.0, 3.0]


def test_saved_bytes_are_counted_by_hand() -> None:
    module, x = nn.Linear(5, 7), torch.randn(3, 5, requires_grad=True)
    y, saved = saved_bytes(lambda: module(x).relu(), module)
    assert y.shape == (3, 7)
    assert saved == 4 * (3 * 5 + 3 * 7)  # the input and the output of relu; the weight is a parameter


def test_a_pass_saves_what_autograd_keeps_of_dense() -> None:
    """At least x, q, k, v, the attention weights and the input of the last projection; at most logits and copies, too."""
    t = 16
    saved = ForwardBackward(layer(length=t), torch.device("cpu")).figures()["saved_bytes"]
    assert 4 * B * (5 * t * DIM + HEADS * t * t) <= saved <= 4 * B * (8 * t * DIM + 2 * HEADS * t * t)


@pytest.mark.parametrize("measured_class", [ForwardBackward, Decoding])
def test_passes_are_timed_by_the_clock(measured_class: type[ForwardBackward] | type[Decoding]) -> None:
    ticks = itertools.count()
    assert next(measured_class(layer(length=8), torch.device("cpu")).times(lambda: 3.0 * next(ticks))) == 3.0


def test_cpu_time_leaves_out_what_the_process_waits_for(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    machine = MachineConfig(threads=1, device="cpu")
    arguments: dict[str, Any] = {"lengths": [16], "backends": ["auto"], "batch": 1, "dim": DIM, "heads": HEADS, "rounds": 1}
    results = bench(BenchConfig([f"{tmp_path}/own.py:Waiting"], machine=machine, cpu_time=True, **arguments))
    assert {result.case.machine.threads for result in results} == {1}
    waiting = [result for result in results if result.case.label == "Waiting"]
    assert [result.case.backend for result in waiting] == ["blocked"]  # that of a study
    assert waiting[0].time < 0.1


def test_every_case_has_its_rounds_or_its_reason(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    own = [f"{tmp_path}/own.py:{name}" for name in ("Broken", "Greedy", "Gone")]
    config = BenchConfig(
        ["strided_sparse", *own], lengths=(16, 25), backends=["reference"], batch=B, dim=DIM, heads=HEADS, rounds=2
    )
    results = {(r.case.label, r.case.backend, r.case.length): r for r in bench(config)}
    assert len(results) == 2 * (len(BACKENDS) + 4)  # dense with all of its backends
    for n in (16, 25):
        for label, backend in (("dense", "reference"), ("dense", "sdpa"), ("strided_sparse", "reference")):
            result = results[label, backend, n]
            assert len(result.seconds) == 2 and result.saved_bytes > 4 * B * n * DIM and not result.reason
        assert "out of memory" in results["Greedy", "reference", n].reason
        assert "exit code 3" in results["Gone", "reference", n].reason
        assert results["dense", "xformers", n].seconds == []
    assert results["Broken", "reference", 16].seconds and "(own.py:8)" in results["Broken", "reference", 25].reason
    assert {label for (label, *_), result in results.items() if result.failed} == {"Broken", "Gone"}
    assert failed_variants(list(results.values())) == ["Gone"]  # Broken was measured at 16; Greedy ran out of memory


def test_a_variant_that_always_fails_gives_exit_code_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")
    words = ["--lengths", "25", "--dim", "12", "--heads", "3", "--rounds", "1", "--backend", "sdpa", "--device", "cpu"]
    assert main.main(["bench", "own.py:Broken", *words]) == 1
    assert "not measured: Broken sdpa at 25 (RuntimeError: " in capsys.readouterr().out


def test_the_command_writes_the_page_every_round_and_two_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["bench", "fixed_sparse", "--lengths", "16,25", "--dim", "12", "--heads", "3", "--rounds", "2"]
    assert main.main([*words, "--backend", "sdpa", "--device", "cpu", "--out", "here/sparse"]) == 0
    out = capsys.readouterr().out
    assert "time exponent" in out and "not measured: dense xformers at 16; 25 (" in out
    with (tmp_path / "here" / "sparse.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["variant"] for row in rows} == {"dense", "fixed_sparse"}
    rounds = [row["round"] for row in rows if (row["variant"], row["length"]) == ("fixed_sparse", "16")]
    assert rounds == ["1", "2"]
    assert all(float(row["seconds"]) > 0 and int(row["saved_bytes"]) > 0 for row in rows if not row["reason"])
    page = (tmp_path / "here" / "sparse.md").read_text()
    assert "attnlab bench fixed_sparse --lengths 16,25" in page and "| fixed_sparse | sdpa | 16 |" in page
    for plot in ("time", "saved"):
        assert f"<sparse-{plot}.svg>" in page
        assert "fixed_sparse sdpa" in (tmp_path / "here" / f"sparse-{plot}.svg").read_text()


def test_forward_and_backward_passes_come_with_the_bytes_that_decoding_keeps(tmp_path: Path, capsys: Out) -> None:
    words = ["--lengths", "16,24", "--dim", "12", "--heads", "3", "--rounds", "1", "--backend", "reference", "--device", "cpu"]
    assert main.main(["bench", "delta", "strided_sparse", *words, "--out", str(tmp_path / "kept")]) == 0
    assert "cache KiB  state KiB" in capsys.readouterr().out
    with (tmp_path / "kept.csv").open() as file:
        rows = {(row["variant"], row["length"]): row for row in csv.DictReader(file) if row["backend"] == "reference"}
    kept = {case: (row["cached"], row["cache_bytes"], row["state_bytes"]) for case, row in rows.items()}
    state = (HEADS * (DIM // HEADS) ** 2 + 3 * 3 * DIM) * 4  # and the inputs of three convolutions
    for length in (16, 24):
        assert kept["dense", str(length)] == ("True", str(2 * length * DIM * 4), "0"), "of one sequence"
        assert kept["delta", str(length)] == ("True", "0", str(state))
        assert kept["strided_sparse", str(length)] == ("False", "0", "0")


def test_a_layer_that_is_not_causal_keeps_nothing(tmp_path: Path, capsys: Out) -> None:
    (tmp_path / "own.py").write_text(
        "from attnlab.variants.dense import Dense\nclass Sees(Dense):\n    roles = {'bidirectional'}\n"
    )
    words = ["--lengths", "16", "--dim", "12", "--heads", "3", "--rounds", "1", "--backend", "reference", "--device", "cpu"]
    assert main.main(["bench", f"{tmp_path / 'own.py'}:Sees", *words, "--out", str(tmp_path / "both")]) == 0
    assert "cache KiB" not in capsys.readouterr().out


def test_layers_are_measured_in_the_role_that_is_asked_for(tmp_path: Path, capsys: Out) -> None:
    words = ["--lengths", "16", "--dim", "12", "--heads", "3", "--rounds", "1", "--backend", "reference", "--device", "cpu"]
    assert main.main(["bench", "no_wo", "delta", "--role", "cross", *words, "--out", str(tmp_path / "cross")]) == 0
    assert "role cross" in (tmp_path / "cross.md").read_text()
    with (tmp_path / "cross.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file) if row["backend"] == "reference"}
    assert float(rows["no_wo"]["seconds"]) > 0
    assert "cross" in rows["delta"]["reason"], "a layer without the role is listed with the reason"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--role", "casual"], "unknown role 'casual' (did you mean 'causal'?)"),
        (["--role", "cross", "--decode"], "decoding is measured in the role causal, got cross"),
    ],
)
def test_a_role_that_cannot_be_measured_is_one_line(words: list[str], expected: str, capsys: Out) -> None:
    assert main.main(["bench", "no_wo", *words, "--lengths", "16", "--device", "cpu"]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(("variant", "cached"), [("dense", True), ("strided_sparse", False)])
def test_decoding_reads_one_position_a_call_over_a_cache_and_else_the_whole_sequence(variant: str, cached: bool) -> None:
    decoding = Decoding(replace(layer(variant, length=40), decode=True), torch.device("cpu"))
    calls: list[tuple[int, ...]] = []
    decoding.attention.register_forward_pre_hook(lambda module, inputs: calls.append(tuple(inputs[0].shape)))
    assert next(decoding.times(map(float, itertools.count()).__next__)) > 0
    first, token, whole = (B, 35, DIM), (B, 1, DIM), (B, 40, DIM)  # the last eighth of 40 positions is decoded
    assert calls == ([first, *[token] * 5] if cached else [whole])
    assert decoding.attention.cache is None
    expected = {"cached": True, "cache_bytes": 2 * 40 * DIM * 4, "state_bytes": 0} if cached else {"cached": False}
    assert decoding.figures() == expected, "of one sequence of the batch"


def test_the_page_of_decoding_marks_variants_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["bench", "strided_sparse", "convolution", "--decode", "--lengths", "16,24", "--dim", "12", "--heads", "3"]
    assert main.main([*words, "--rounds", "2", "--backend", "reference", "--device", "cpu"]) == 0
    assert "ms/token" in capsys.readouterr().out
    folder = tmp_path / "reports" / "bench"
    with (folder / "strided_sparse-convolution-decode.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not row["reason"]]
    assert {(row["variant"], row["length"], row["cached"], row["cache_bytes"]) for row in rows} >= {
        ("dense", "16", "True", str(2 * 16 * DIM * 4)),
        ("dense", "24", "True", str(2 * 24 * DIM * 4)),
        ("strided_sparse", "24", "False", "0"),
    }
    assert all(float(row["seconds"]) > 0 for row in rows)
    page = (folder / "strided_sparse-convolution-decode.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| strided_sparse | reference | 16 |"))
    assert line.endswith("| no |  |"), line
    assert any(line.startswith("| dense | reference |") and line.endswith("| 1.00 |") for line in page.splitlines()), (
        "keys and values grow with the length"
    )
    assert "strided_sparse reference (no cache)" in (folder / "strided_sparse-convolution-decode-time.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such"], "unknown variant 'no_such'"),
        (["dense", "--backend", "spda"], "unknown backend 'spda' (did you mean 'sdpa'?)"),
        (["dense", "--position", "rotery"], "unknown position scheme 'rotery'"),
        (["strided_sparse", "--options", "strid=4"], "no option 'strid'"),
        (["strided_sparse", "--options", "stride=0"], "stride of at least 1, got 0"),
        (["strided_sparse", "--options", "stride=four"], "stride: expected a whole number, got 'four'"),
        (["dense", "--lengths", "512,x"], "at least 1, got 'x'"),
        (["dense", "--device", "gpu"], "unknown device 'gpu'"),
        (["dense", "--threads", "0"], "at least 1, got '0'"),
    ],
)
def test_mistakes_are_reported_in_one_line(arguments: list[str], message: str, capsys: Out) -> None:
    assert main.main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_components_are_measured_next_to_dense_without_them() -> None:
    components = ["gate", {"name": "window", "size": 5}]
    config = BenchConfig(["dense"], lengths=[16], backends=["reference"], dim=8, heads=2, rounds=1, components=components)
    results = {result.case.label: result for result in bench(config) if result.case.backend == "reference"}
    assert list(results) == ["dense", "dense with gate, window size=5"]
    assert all(result.seconds for result in results.values())
    saved = [result.saved_bytes for result in results.values()]
    assert saved[1] > saved[0], "the gate saves its input and output"


@pytest.mark.parametrize(
    ("component", "words"),
    [
        ("gaet", ["unknown component", "did you mean 'gate'"]),
        ("{name: gate, pr: head}", ["no option 'pr'"]),
        ("3", ["expected"]),
    ],
)
def test_mistakes_in_components_are_reported_in_one_line(component: str, words: list[str], capsys: Out) -> None:
    assert main.main(["bench", "dense", "--with", component, "--lengths", "16"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and all(word in error for word in words)

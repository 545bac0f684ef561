"""Tests of the figures and the page of ``benchmarks.speed``, its storage, and a tiny case of each section in this process."""

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from attnlab.registry import TASKS
from attnlab.report.plots import svg
from attnlab.training import costs
from benchmarks import processor
from benchmarks.speed import __main__ as speed
from benchmarks.speed import (
    attnlab_step,
    comparisons,
    floor,
    imdb,
    page,
    profile,
    ratio_plot,
    ratios,
    results,
    sparse,
    step,
    storage,
    xl,
)
from benchmarks.speed import environment as places
from benchmarks.speed.case import EQUAL, OURS, SHIPPED, Case, Size, check_falling, own_settings
from tests.support.drawings import parse

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
COUNTS = lines("step", {(str(name), "", "fp32", SHIPPED): [1234] for name in set(STEPS["name"])}, quantity="parameters")


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


def test_the_bounds_of_reviews_grow_with_the_work() -> None:
    positions_alone, pairs_alone = (10, 0), (0, 100)
    rows = imdb.bounds(TINY, torch.device("cpu"), epoch=positions_alone, evaluation=pairs_alone)
    assert {(row.quantity, row.item) for row in rows if row.value > 0} == {
        ("epoch_bound_seconds", imdb.LINEAR),
        ("evaluation_bound_seconds", imdb.PRODUCTS),
        ("evaluation_bound_seconds", imdb.SOFTMAX),
    }
    assert len(rows) == 6


def test_the_page_is_made_of_the_csv_files_and_a_section_measured_again_replaces_its_own(tmp_path: Path) -> None:
    layers = {(name, "attention", "fp32", of): [ms] for of in (SHIPPED, EQUAL) for name, ms in ((OURS, 10), ("original", 62))}
    evaluation = {(xl.MEMORY, "context 64", "fp32", EQUAL): [9000], (xl.SLIDING, "context 64", "fp32", EQUAL): [30]}
    difference = lines("xl", {("original", "attention", "fp32", SHIPPED): [2e-6]}, quantity="difference")
    first = pd.concat([STEPS.assign(value=1.0), COUNTS])
    sections = [
        ("step", first),
        ("xl", pd.concat([lines("xl", layers), difference, lines("xl", evaluation, quantity="bytes_per_s")])),
        ("step", pd.concat([STEPS, COUNTS])),
    ]
    for number, (section, frame) in enumerate(sections):
        add_results(tmp_path / "machine", section, frame, processor="Zen 9", command=f"COMMAND {number}", torch="2.99")
        page.write(tmp_path)
    page_text = (tmp_path / "README.md").read_text()
    assert "| quick | 1,234 | 170 (150 to 400) | 1.70 (1.50 to 2.00) |" in page_text
    assert "at least 1.8 times as fast | 1.70 (1.50 to 2.00) against quick: **missed** |" in page_text
    assert "| attention, fp32, Zen 9 | 10.0 | 62 | 6.20 | 10.0 | 62 | 6.20 |" in page_text
    assert "differ by at most 2.0e-06" in page_text and "| 64, Zen 9 | 30.0 | 9,000 | 300 |" in page_text
    assert "| epoch of IMDb, bf16 | at most 4.3 minutes | not measured |" in page_text
    assert "`COMMAND 2`: Zen 9, torch 2.99; load average 0.5 to 0.5" in page_text and "COMMAND 0" not in page_text
    assert "![step-fp32](step-fp32.svg)" in page_text and (tmp_path / "xl.svg").read_text().startswith("<svg")


def add_results(folder: Path, section: str, frame: pd.DataFrame, **notes: str) -> None:
    """Store a section of a machine's results."""
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / f"{section}.csv", index=False)
    storage.SectionStore(folder, section, [], {}).note("cpu", notes)


def test_processors_stand_side_by_side_with_slower_cases_marked_and_targets_last(tmp_path: Path) -> None:
    peer_takes_less = STEPS.assign(value=STEPS["value"].where(STEPS["name"] != "quick", STEPS["value"] / 2))
    for name, frame in (("Zen 8", STEPS), ("Zen 9", peer_takes_less)):
        machine = {"processor": name, "instruction sets": "AVX9"}
        add_results(tmp_path / name, "step", pd.concat([frame, COUNTS]), **machine, command="COMMAND")
    page.write(tmp_path)
    text = (tmp_path / "README.md").read_text()
    opening, measured, final = text.partition("\n## ")[0], text.index("## A training step"), text.index("## Targets")
    assert "- **Zen 8** (AVX9): faster in 1 of 1 comparisons with peers, 1.70 times as fast. Slower in none." in opening
    assert (
        "- **Zen 9** (AVX9): faster in 0 of 1 comparisons with peers. **Slower**: training step, fp32, peers as shipped (0.85"
        in opening
    )
    assert (
        "|  | Zen 8 | Zen 9 |" in opening
        and "| 1.70 (1.50 to 2.00), quick | 0.85 (0.75 to 1.00), **slower**, quick |" in opening
    )
    assert opening.index("overview.svg") < measured < final == text.rindex("\n## ") + 1
    assert "1.70 (1.50 to 2.00) against quick: **missed** | 0.85 (0.75 to 1.00) against quick: **missed** |" in text
    assert "0.85 slower" in (tmp_path / "overview.svg").read_text()


def test_the_committed_page_is_that_of_the_committed_results(tmp_path: Path) -> None:
    committed, copy = places.ROOT / "reports" / "benchmarks", tmp_path / "benchmarks"
    for name in ("benchmarks", "gpu"):
        shutil.copytree(committed.parent / name, tmp_path / name)
    page.write(copy)
    for path in committed.iterdir():
        assert path.is_dir() or (copy / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_plot_of_ratios_has_a_line_at_parity() -> None:
    drawn = ratio_plot.ratio_plot({"step": {"Zen 8": [2.0, 2.5], "Zen 9": [1.5]}}, title="speed")
    shapes = parse(drawn)
    (parity,) = {line.get("x1", "") for line in shapes if (line.get("stroke"), line.get("stroke-width")) == (svg.INK, "1.6")}
    dots = [float(dot.attrib["cx"]) for dot in shapes if dot.get("r") == "3.2"]
    assert len(dots) == 3 and float(parity) < min(dots), "slower and faster cases are on the same side of the line"
    assert f'x="{parity}"' in drawn and ">1</text>" in drawn and "slower" not in drawn


@pytest.fixture
def fake_cases(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Make every quantity of every case 2; return the cases in the order in which they are measured."""
    seen: list[Case] = []

    def fake(case: Case, python: Path) -> dict:
        seen.append(case)
        assert python == Path(sys.executable)
        rows = [{"quantity": name, "item": "0", "value": 2.0} for name in ("ms", "parameters", "bytes_per_s")]
        return {"rows": rows, "about": {"machine": f"MACHINE with {case.device}"}}

    monkeypatch.setattr(speed, "in_fresh_process", fake)
    return seen


def test_an_interrupted_benchmark_continues_with_the_comparison_that_it_was_in(
    tmp_path: Path, fake_cases: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["sparse", "--here", "--device", "cpu", "--rounds", "2", "--out", str(tmp_path)]
    measure_case, cases = speed.in_fresh_process, list(sparse.cases("cpu"))
    comparison = len([case for case in cases if (case.part, case.settings) == (cases[0].part, cases[0].settings)])

    def interrupt(case: Case, python: Path) -> dict:
        if len([seen for seen in fake_cases if seen.section == "sparse"]) == comparison + 1:
            raise KeyboardInterrupt
        return measure_case(case, python)

    monkeypatch.setattr(speed, "in_fresh_process", interrupt)
    with pytest.raises(KeyboardInterrupt):
        speed.main(arguments)
    measured = storage.read(processor.folder(tmp_path) / "sparse.csv")
    assert len(measured) == 3 * (comparison + 1), "what was measured is not on disk"

    monkeypatch.setattr(speed, "in_fresh_process", measure_case)
    fake_cases.clear()
    speed.main(arguments)
    assert fake_cases[0] == cases[comparison] and len(fake_cases) == 2 * len(cases) - comparison
    frame = storage.read(processor.folder(tmp_path) / "sparse.csv")
    keys = ["round", "name", "part", "settings", "quantity"]
    assert len(frame) == 3 * 2 * len(cases) and not frame.duplicated(keys).any()

    fake_cases.clear()
    speed.main(arguments)
    assert fake_cases == []
    speed.main([*arguments, "--fresh"])
    assert len(fake_cases) == 2 * len(cases)
    fake_cases.clear()
    monkeypatch.setattr(processor, "instruction_sets", lambda: "others")
    speed.main(arguments)
    assert len(fake_cases) == 2 * len(cases), "timings of another machine were taken for those of this one"


def test_peers_that_are_not_here_are_left_out_and_named(
    tmp_path: Path, fake_cases: list[Case], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "NEEDS", {name: "no_such_package" for name in places.NEEDS})
    for section in ("step", "xl"):
        speed.main([section, "--here", "--device", "cpu", "--rounds", "1", "--out", str(tmp_path)])
    assert {case.name for case in fake_cases} == {OURS, step.PLAIN, ENCODER, xl.MEMORY, xl.SLIDING}
    assert re.search("step: transformers GPT-2 .*'no_such_package'", capsys.readouterr().out)
    assert ": MACHINE with cpu, left out original; load" in (tmp_path / "README.md").read_text()


def test_the_requirements_of_every_peer_but_torch_are_named() -> None:
    assert set(places.NEEDS) == {*step.PEERS, *imdb.READERS, xl.ORIGINAL} - {ENCODER}


@pytest.mark.parametrize("losses", [[3.0, 2.0, 3.1, 3.2], [3.0, float("nan"), 2.0, 1.0]])
def test_a_case_that_does_not_learn_is_no_timing(losses: list[float]) -> None:
    with pytest.raises(SystemExit, match="step: quick, .*losses that fall"):
        check_falling(losses, Case("step", "quick"))


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


def test_the_groups_of_a_profile_add_up_to_the_step() -> None:
    rows = profile.measure(Case("profile", OURS), TINY)
    groups = {row.item: row.value for row in rows if row.quantity == "group_ms"}
    assert set(groups) == set(profile.GROUPS) and all(ms > 0 for ms in groups.values())
    detail = {row.item: row.value for row in rows if row.quantity == "operation_ms"}
    assert sum(groups.values()) == pytest.approx(sum(detail.values()), rel=1e-3)
    at = {name.partition(": ")[2]: name.partition(": ")[0] for name in detail}
    assert at["aten::mm"] == profile.PRODUCTS and at["aten::native_layer_norm_backward"] == profile.NORM
    assert at["aten::_softmax_backward_data"] == profile.ATTENTION and at["aten::_fused_adamw_"] == profile.OPTIMISER
    assert at["aten::gelu_backward"] == profile.REST


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

"""Tests of runs that start from other runs: their order, failures, resumption, and what the study reports of them."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attnlab._util.run_state import RunState
from attnlab.cli._results import print_results
from attnlab.cli.plan import print_plan
from attnlab.planning.plan import plan
from attnlab.report.write import write_report as report
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.execution.scheduler import Scheduler
from attnlab.study.plan import finished_records
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.study.trials.store import Store
from attnlab.study.withdrawal import withdraw
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tracker import Tracker
from attnlab.training.result import Result
from attnlab.training.weights import recorded_digest
from tests.study.test_study import every_record
from tests.support.compared import recorded
from tests.support.postgres import Server

QUIET = ProgressDisplay(quiet=True)
BASE: dict[str, Any] = {
    "task": {"name": "pydocs", "length": 16},
    "init": "pretrain",
    "position": "rotary",
    "model": {"dim": 8, "depth": 1, "heads": 2},
    "train": {"steps": 4, "batch_size": 2},
    "evaluate": {"valid_limit": 100, "test_limit": 100},
    "machine": {"device": "cpu", "threads": 1},
}


def chain(**changes: Any) -> dict[str, Any]:
    """Return a study of two variants that start from a stage each."""
    stages = {"pretrain": {"train": {"steps": 2}}}
    grid = {"variant": ["dense", "no_wo"]}
    return {"study": "chain", "base": BASE, "stages": stages, "grid": grid, "seeds": [0, 1], **changes}


def go(root: Path, fate: str = "good", **changes: Any) -> StudyResult:
    options = {key: changes.pop(key) for key in ("workers", "only", "sets", "retry", "display") if key in changes}
    return run(
        chain(**changes),
        root=root,
        reference_scores=False,
        train=f"tests.support.study_fakes:{fate}",
        **{"display": QUIET, **options},
    )


Finished = tuple[Path, StudyResult]


@pytest.fixture(scope="module")
def finished(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return the folder and the result of the chains of two seeds. Tests that add runs use a copy of the folder."""
    root = Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("finished") / "runs"))
    return root, go(root)


@pytest.fixture(scope="module")
def finished_seed(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return the folder and the result of the chains of one seed, as ``finished``."""
    root = Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("finished") / "runs"))
    return root, go(root, seeds=[0])


def trained(root: Path) -> list[str]:
    """Return the keys of the runs that were trained, in order."""
    return (root / "work" / "trained.txt").read_text().split()


def states(result: StudyResult) -> dict[str, str]:
    return {row.name: str(row.state) for row in result.rows}


def test_the_plan_makes_the_runs_of_the_stages_and_shares_them() -> None:
    planned = plan(chain(grid={"variant": ["dense", "no_wo"], "train.lr": [1e-3, 1e-2]}))
    assert [stage.name for stage in planned.stages] == ["pretrain: dense", "pretrain: no_wo"]
    assert [run.name for run in planned.stage_runs] == [f"pretrain: {v} s{seed}" for v in ("dense", "no_wo") for seed in (0, 1)]
    assert (planned.total, len(planned.runs)) == (12, 8)
    keys = {run.key: run for run in planned.stage_runs}
    assert all(
        (keys[run.starts_from].seed, keys[run.starts_from].config.variant) == (run.seed, run.config.variant)
        for run in planned.runs
    )
    assert planned.train_flops == sum(run.cell.train_flops or 0 for run in (*planned.stage_runs, *planned.runs))
    stage, cell = planned.stages[0], planned.cells[0]
    assert cell.chain_flops == (cell.train_flops or 0) + (stage.train_flops or 0)


def test_a_change_of_a_stage_changes_what_starts_from_it() -> None:
    before, after = (plan(chain(), sets={"stages.pretrain.train.lr": lr}) for lr in (1e-3, 1e-2))
    assert {run.key for run in before.runs}.isdisjoint(run.key for run in after.runs)
    cells = plan(chain(grid={"variant": ["dense"], "stages.pretrain.train.lr": [1e-3, 1e-2]}))
    assert len({run.key for run in cells.runs}) == 4 and not cells.doubles, "two pre-trainings, two cells"
    scratch = plan(chain(base={**BASE, "init": None}, grid={"variant": ["dense"], "stages.pretrain.train.lr": [1e-3, 1e-2]}))
    assert len(scratch.doubles) == 1 and not scratch.stages
    assert any("'pretrain'" in note and "no cell" in note for note in scratch.notes)


def test_the_notes_of_a_plan_name_the_tensors_that_are_taken_over() -> None:
    learned = plan(
        chain(base={**BASE, "position": "learned"}, stages={"pretrain": {"task": {"length": 32}, "train": {"steps": 2}}})
    )
    (note,) = [note for note in learned.notes if "takes" in note and "dense" in note]
    assert "position" in note and "16 x 8, not 32 x 8" in note


def test_a_cell_is_refused_with_its_stage() -> None:
    planned = plan(chain(stages={"pretrain": {"variant": "lstm", "train": {"steps": 2}}}))
    refusals = [str(cell.refusal) for cell in planned.cells]
    assert all("its stage 'pretrain" in refusal for refusal in refusals) and not planned.stages
    alien = plan(chain(stages={"pretrain": {"model": {"dim": 12}, "train": {"steps": 2}}}))
    assert all("no matrix" in str(cell.refusal) for cell in alien.cells) and alien.total == 0


def test_stages_are_trained_first_seed_by_seed(finished: Finished) -> None:
    root, result = finished
    assert result.ok and set(states(result).values()) == {"completed"}
    planned = plan(chain())
    names = {run.key: run.name for run in (*planned.stage_runs, *planned.runs)}
    assert [names[key] for key in trained(root)] == [
        *("pretrain: dense s0", "pretrain: no_wo s0", "dense s0", "no_wo s0"),
        *("pretrain: dense s1", "pretrain: no_wo s1", "dense s1", "no_wo s1"),
    ]
    assert [row.phase for row in result.rows] == ["stage"] * 4 + ["grid"] * 4
    again = go(root)
    assert all(row.reused for row in again.rows) and len(trained(root)) == 8
    assert len(finished_records(planned, root)) == 8


def test_a_run_waits_until_the_run_that_it_starts_from_has_completed(root: Path) -> None:
    planned = plan(chain(grid={"variant": ["dense"]}, seeds=[0]))
    with Tracker(planned, root) as tracker, closing(Store(root)) as store:
        scheduler = Scheduler(planned, tracker, store, retry=())
        scheduler.open()
        first = scheduler.claim()
        assert first is not None and first.run.phase == "stage"
        assert scheduler.claim() is None and scheduler.remaining
        scheduler.record_end(first, Result(RunState.COMPLETED, {"bits_per_byte": 1.0}))
        second = scheduler.claim()
        assert second is not None and second.run.name == "dense s0" and not second.problem
        assert second.run.starts_from == first.run.key


def test_a_failed_stage_fails_its_dependants_with_the_reason_and_no_other_run(root: Path) -> None:
    base = {key: value for key, value in BASE.items() if key != "init"}
    grid = {"variant": ["dense", "wide"], "init": [None, "pretrain"]}
    result = go(root, "stages_by_variant", base=base, grid=grid, seeds=[0], retries=0)
    failing = {name for name, state in states(result).items() if state == "failed"}
    # In this fake, runs without a start of "wide" fail: its stage, and the cell that is trained from scratch.
    assert failing == {"pretrain: wide s0", "wide init=null s0", "wide init=pretrain s0"}
    (row,) = [row for row in result.rows if row.name == "wide init=pretrain s0"]
    assert "'pretrain: wide s0'" in row.reason and "IndexError" in row.reason and row.run_id
    assert states(result)["dense init=pretrain s0"] == "completed"
    frame = load_runs("chain", root).set_index("name")
    assert frame.loc["wide init=pretrain s0", "reason"] == row.reason
    assert len(trained(root)) == 3


@pytest.mark.parametrize("state", ["diverged", "out_of_memory"])
def test_a_stage_with_a_result_but_without_weights_fails_its_dependants(root: Path, state: str) -> None:
    variant = {"diverged": "narrow", "out_of_memory": "basic"}[state]
    result = go(root, "stages_by_variant", grid={"variant": [variant]}, seeds=[0])
    assert states(result) == {f"pretrain: {variant} s0": state, f"{variant} s0": "failed"}
    assert state in result.rows[1].reason
    again = go(root, "stages_by_variant", grid={"variant": [variant]}, seeds=[0])
    assert states(again) == states(result), "the stage has a result, and its dependant fails again"
    assert again.rows[0].reused and again.rows[1].run_id == result.rows[1].run_id, "it is recorded once"


def test_a_dependant_is_trained_when_its_stage_is_repaired(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never failed itself: with no retries left, it is still trained."""
    options: dict[str, Any] = {"grid": {"variant": ["wide"]}, "seeds": [0], "retries": 0}
    for _ in range(3):
        assert states(go(root, "stages_by_variant", **options))["wide s0"] == "failed"
    monkeypatch.setenv("ATTNLAB_FAKE", "1")
    assert set(states(go(root, "stages_by_variant", retry=["failed"], **options)).values()) == {"completed"}


def test_a_chain_of_three_fails_as_a_whole_and_completes_as_a_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = {"pretrain": {"train": {"steps": 2}}, "adapt": {"init": "pretrain", "train": {"steps": 3}}}
    options: dict[str, Any] = {"stages": stages, "base": {**BASE, "init": "adapt"}, "grid": {"variant": ["wide"]}, "seeds": [0]}
    result = go(root, "stages_by_variant", **options)
    assert states(result) == {"pretrain: wide s0": "failed", "adapt: wide s0": "failed", "wide s0": "failed"}
    assert "'adapt: wide s0'" in result.rows[2].reason and "'pretrain: wide s0'" in result.rows[2].reason
    monkeypatch.setenv("ATTNLAB_FAKE", "1")
    assert set(states(go(root, "stages_by_variant", **options)).values()) == {"completed"}
    assert len(trained(root)) == 3


def test_only_trains_the_stages_of_the_selected_cells_and_keeps_the_records_of_others(
    finished: Finished, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(finished[0], tmp_path / "runs"))
    result = go(root, only={"variant": "dense"})
    assert set(states(result)) == {f"{name} s{seed}" for name in ("pretrain: dense", "dense") for seed in (0, 1)}
    assert len(load_runs("chain", root)) == 8 and len(trained(root)) == 8


def test_runs_of_a_stage_that_the_plan_no_longer_has_are_not_current(finished_seed: Finished, tmp_path: Path) -> None:
    root = Path(shutil.copytree(finished_seed[0], tmp_path / "runs"))
    go(root, seeds=[0], sets={"stages.pretrain.train.lr": 0.5})
    assert sorted(load_runs("chain", root)["name"]) == ["dense s0", "no_wo s0", "pretrain: dense s0", "pretrain: no_wo s0"]
    assert len(load_runs("chain", root, every=True)) == 8


@pytest.mark.parametrize("way", ["redo", "delete", "mlflow"])
def test_runs_that_started_from_a_withdrawn_run_are_trained_again(finished_seed: Finished, tmp_path: Path, way: str) -> None:
    root = Path(shutil.copytree(finished_seed[0], tmp_path / "runs"))
    if way == "mlflow":
        from mlflow import MlflowClient

        MlflowClient(f"sqlite:///{root / 'mlflow.db'}").delete_run(finished_seed[1].rows[0].run_id)
    else:
        with withdraw("chain", ["pretrain: dense s0"], root=root) as withdrawal:
            assert [run.name for run in withdrawal.runs] == ["pretrain: dense s0", "dense s0"]
            withdrawal.redo() if way == "redo" else withdrawal.delete()
        assert set(load_runs("chain", root)["name"]) == {"pretrain: no_wo s0", "no_wo s0"}
    second = go(root, seeds=[0])
    assert [row.name for row in second.rows if not row.reused] == ["pretrain: dense s0", "dense s0"]
    assert trained(root)[4:] == [trained(root)[0], trained(root)[2]]
    assert all(row.reused for row in go(root, seeds=[0]).rows)


def test_a_search_waits_for_its_stage_and_confirms_with_the_stages_of_its_seeds(root: Path) -> None:
    fields = chain(grid={"variant": ["dense"]})
    fields |= {"search": {"trials": 2, "space": {"train.lr": {"low": 1e-3, "high": 1e-2}}}, "confirm": {"seeds": [100]}}
    del fields["seeds"]
    result = run(fields, root=root, display=QUIET, reference_scores=False, train="tests.support.study_fakes:swept", workers=2)
    assert set(states(result).values()) == {"completed"}
    planned = plan(fields)
    assert [run.name for run in planned.stage_runs] == ["pretrain: dense s0", "pretrain: dense s100"]
    assert planned.total == len(result.rows) == 5
    records = {record.info.run_name: json.loads(record.data.tags["attnlab.config"]) for record in every_record(root, "chain")}
    keys = [run.key for run in planned.stage_runs]
    assert [records[name]["init"]["fingerprint"] for name in ("dense t00", "dense t01", "dense s100")] == [
        keys[0],
        keys[0],
        keys[1],
    ]


@pytest.fixture(scope="module")
def compared(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Return the folder and the result of a study that compares runs from scratch with pre-trained ones."""
    root = Path(shutil.copytree(empty_store, tmp_path_factory.mktemp("compared") / "runs"))
    base = {key: value for key, value in BASE.items() if key != "init"}
    grid = {"variant": ["dense", "no_wo"], "init": [None, "pretrain"]}
    return root, go(root, "with_costs", base=base, grid=grid, seeds=[0, 1, 2], baseline={"init": None})


def test_stages_are_in_no_cell_and_the_costs_of_chains_are_whole(compared: Finished) -> None:
    cells = {cell.name: cell for cell in recorded("chain", compared[0])[1].cells}
    assert list(cells) == [f"{variant} init={init}" for variant in ("dense", "no_wo") for init in ("null", "pretrain")]
    assert [cells[name].costs["chain_seconds"].mean for name in cells] == [4.0, 14.0, 4.0, 14.0]
    assert [cells[name].costs["chain_flops"].mean for name in cells] == [3e9, 12e9, 3e9, 12e9]
    assert cells["dense init=pretrain"].baseline == "dense init=null"
    difference = cells["dense init=pretrain"].difference
    assert difference is not None and difference.interval.n == 3 and difference.interval.mean == pytest.approx(-0.5, abs=0.02)


def test_the_terminal_and_the_page_show_stages_and_whole_chains(
    compared: Finished, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, _ = compared
    print_results(*recorded("chain", root))
    printed = capsys.readouterr().out
    assert "chain s" in printed and "pretrain: dense" not in printed
    folder = report("chain", root, tmp_path / "report")
    page = (folder / "index.html").read_text()
    assert "pretrain: no_wo" in page and "takes 15 of 16 tensors" in page and "chain PFLOP" in page
    markdown = (folder / "README.md").read_text()
    assert (
        "`init=pretrain` **is better** than `init=null`" in markdown
        and "| 1.2e-05" in markdown
        and "minutes of stages" in markdown
    )


def test_the_plan_counts_and_names_the_runs_of_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(plan(chain()), tflops=1.0)
    printed = capsys.readouterr().out
    assert "8 runs (2 seeds per cell, 4 of stages)" in printed
    assert "pretrain: dense" in printed and "takes" in printed


def go_shared(root: Path, addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> StudyResult:
    """Run the study with the real trainer as one of several parents."""
    storage, tracking = addresses
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking)
    return run(chain(seeds=[0], **changes), root=root, storage=storage, display=QUIET, reference_scores=False)


def test_a_parent_on_another_machine_fetches_the_weights_of_a_stage(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses, options = (postgres.database(), postgres.store()), {"grid": {"variant": ["dense"], "train.lr": [1e-3]}}
    first = go_shared(tmp_path / "one", addresses, monkeypatch, **options)
    assert first.ok, [row.reason for row in first.rows]
    options = {"grid": {"variant": ["dense"], "train.lr": [1e-3, 1e-2]}}
    second = go_shared(tmp_path / "two", addresses, monkeypatch, **options)
    assert second.ok, [row.reason for row in second.rows]
    assert [row.name for row in second.rows if not row.reused] == ["dense lr=0.01 s0"]
    (stage,) = plan(chain(seeds=[0], **options)).stage_runs
    digests = {recorded_digest(tmp_path / name / "work" / stage.key) for name in ("one", "two")}
    assert len(digests) == 1 and "" not in digests


def test_without_the_weights_of_another_machine_a_run_fails_with_the_reason(
    tmp_path: Path, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = postgres.database(), postgres.store()
    monkeypatch.setattr(Tracker, "log_weights", lambda *_: None)
    assert go_shared(tmp_path / "one", addresses, monkeypatch, grid={"variant": ["dense"]}).ok
    result = go_shared(tmp_path / "two", addresses, monkeypatch, grid={"variant": ["dense"], "train.lr": [1e-2]})
    (row,) = result.failed
    assert row.name == "dense lr=0.01 s0" and "pretrain: dense s0" in row.reason and "cannot be fetched" in row.reason

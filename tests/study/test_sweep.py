"""Tests of a sweep: every cell at every value with every seed, its extensions, and the same grid after an interruption."""

import math
import random
from pathlib import Path
from typing import Any

import pytest

from attnlab.planning.plan import Plan, Run, plan
from attnlab.study.comparison import load_info
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.result import StudyResult
from attnlab.study.run import run
from attnlab.study.sweep import extend_sweep, with_recorded_extensions
from attnlab.tracking.artifacts import AttentionMap
from attnlab.tracking.record import RunRecord
from attnlab.tracking.runs import load_runs
from attnlab.trained import attention_maps
from attnlab.training.result import Result
from tests.study.test_study import QUIET, study, trained

LOWEST, LOW, MIDDLE, HIGH = 3e-4, 1e-3, 3e-3, 1e-2
Grid = dict[str, set[tuple[float, int]]]  # cell -> (learning rate, seed) of its runs


def swept(*rates: float, **changes: Any) -> dict[str, Any]:
    """Return a study that sweeps ``rates``, by default with one seed and without reference scores."""
    extensions = {"extensions": changes.pop("extensions")} if "extensions" in changes else {}
    defaults = {"seeds": [0], "baseline": {"variant": "dense"}, "reference_scores": False}
    return study(sweep={"train.lr": list(rates), **extensions}, **{**defaults, **changes})


def go(root: Path, *rates: float, fate: str = "swept", display: ProgressDisplay = QUIET, **changes: Any) -> StudyResult:
    options = {key: changes.pop(key) for key in ("workers", "only", "retry", "storage") if key in changes}
    train = f"tests.support.study_fakes:{fate}"
    return run(swept(*rates, **changes), root=root, display=display, train=train, **options)


def recorded(root: Path) -> Grid:
    """Return the runs of the study's latest plan, as `load_runs` returns them."""
    grid: Grid = {}
    for row in load_runs("small", root).to_dict("records"):
        assert row["phase"] == "sweep" and row["params"] == {"train.lr": row["train.lr"]}
        grid.setdefault(row["cell"], set()).add((row["train.lr"], row["seed"]))
    return grid


def crossed(*rates: float, seeds: tuple[int, ...] = (0,), cells: tuple[str, ...] = ("dense", "no_wo")) -> Grid:
    return {f"{cell} learned": {(rate, seed) for rate in rates for seed in seeds} for cell in cells}


# ---------------------------------------------------------------- the extensions that results require

SCORES = {"dense": 1e-2, "wide": 1e-4, "no_wo": 3e-3}  # variant -> its best learning rate


def record_of(run: Run, *, state: str = "", score: float | None = None) -> Any:
    """Return a record of a finished run: diverged above a learning rate of 0.2, else with a parabola of its logarithm."""
    rate, variant = run.params["train.lr"], run.config.variant.name  # type: ignore[union-attr]
    state = state or ("diverged" if rate > 0.2 else "completed")
    value = score if score is not None else 2 + run.seed / 100 + math.log10(rate / SCORES[variant]) ** 2
    metrics = {"valid_bits_per_byte": value} if state == "completed" else {}
    status = "FAILED" if state == "failed" else "FINISHED"
    return RunRecord.model_construct(key=run.key, state=state, status=status, metrics=metrics)


def extended(planned: Plan, records: list[Any]) -> Plan:
    return extend_sweep(planned, lambda: records)


def finished(planned: Plan, records: list[Any], **fields: Any) -> tuple[Plan, list[Any]]:
    """Return a study's plan and records when it is finished: it trains what is left, and extends its sweep."""
    records, planned = list(records), extended(planned, records)
    while True:
        known = {record.key for record in records}
        records += [record_of(run, **fields) for run in planned.runs if run.key not in known]
        longer = extended(planned, records)
        if longer is planned:
            return planned, records
        planned = longer


def planned(*rates: float, only: dict[str, Any] | None = None, variants: str = "dense no_wo", **changes: Any) -> Plan:
    grid = {"variant": variants.split(), "position": ["learned"]}
    return plan(swept(*rates, grid=grid, **changes), only=only)


@pytest.mark.parametrize(
    ("variants", "rates", "extensions"),
    [
        ("dense no_wo", (LOW, MIDDLE, 0.1), (0, 0)),
        ("dense no_wo", (LOW, MIDDLE, 0.02, 0.1), (0, 0)),
        ("dense", (MIDDLE, 0.02, 1), (0, 0)),  # runs at 1 diverge, and are worse
        ("dense no_wo", (LOW, MIDDLE, HIGH), (0, 1)),
        ("dense wide", (LOW, MIDDLE, HIGH), (3, 1)),  # wide is best below the smallest value
        ("dense", (1e-5, 1e-4, LOW), (0, 2)),
        ("dense", (1e-9, 1e-8, 1e-7), (0, 4)),  # the limit
        ("dense no_wo", (0.05, 0.1, 1), (3, 0)),  # runs at 1 diverge
        ("dense", (1, 2, 4), (4, 0)),  # all runs diverge
    ],
)
def test_a_sweep_is_extended_until_every_best_value_lies_inside(
    variants: str, rates: tuple[float, ...], extensions: tuple[int, int]
) -> None:
    complete, records = finished(planned(*rates, variants=variants, seeds=[0, 1]), [])
    assert complete.sweep_extensions == extensions
    assert len(records) == len(complete.runs) == 2 * len(variants.split()) * (len(rates) + sum(extensions)) == complete.total


def test_an_interrupted_sweep_resumes_to_the_same_grid() -> None:
    """The study may end after any run, and runs of one grid may end in any order."""
    start = planned(LOW, MIDDLE, HIGH, variants="dense wide")
    complete, records = finished(start, [])
    shuffle = random.Random(0)
    for count in range(len(records)):
        resumed, again = finished(start, records[:count])
        assert resumed.sweep_extensions == complete.sweep_extensions and len(again) == len(records)
        mixed = [*records[:6], *shuffle.sample(records[6:10], 2)]  # of the first extension, which adds a value on each side
        assert finished(start, mixed)[0].sweep_extensions == complete.sweep_extensions


def test_a_sweep_is_not_extended_while_a_run_has_no_result() -> None:
    start = planned(LOW, MIDDLE, HIGH)
    records = [record_of(run) for run in start.runs]
    assert extended(start, records).sweep_extensions == (0, 1)
    assert extended(start, records[:-1]) is start
    failed = record_of(start.runs[-1], state="failed")
    assert extended(start, [*records[:-1], failed]) is start, "the next call trains it again"
    failed = failed.model_copy(update={"failures": 2})
    assert extended(start, [*records[:-1], failed]).sweep_extensions == (0, 1), "it has failed more than `retries` times"


def test_further_seeds_keep_the_extensions() -> None:
    """With seed 1, the mean of dense lies inside the first grid, but no run of seed 0 is left out."""
    before, records = finished(planned(LOWEST, LOW, MIDDLE, HIGH), [])
    assert before.sweep_extensions == (0, 1)
    more = planned(LOWEST, LOW, MIDDLE, HIGH, seeds=[0, 1])
    inside = [record_of(run, score=0.0 if run.params["train.lr"] == MIDDLE else 9.0) for run in more.runs if run.seed == 1]
    assert extended(more, inside + records[:8]).sweep_extensions == (0, 0)
    after, everything = finished(more, records + inside)
    assert after.sweep_extensions == (0, 1) and len(everything) == len(after.runs) == 20
    other = planned(LOWEST, LOW, MIDDLE, HIGH, seeds=[7])
    assert extended(other, records) is other, "no run of these seeds is recorded"


def test_a_part_of_a_study_has_the_grid_of_the_whole() -> None:
    alone, records = finished(planned(LOWEST, LOW, MIDDLE, HIGH, only={"variant": "no_wo"}), [])
    assert alone.sweep_extensions == (0, 0)
    dense, records = finished(planned(LOWEST, LOW, MIDDLE, HIGH, only={"variant": "dense"}), records)
    assert dense.sweep_extensions == (0, 1) and len(records) == 9
    again, records = finished(planned(LOWEST, LOW, MIDDLE, HIGH, only={"variant": "no_wo"}), records)
    assert again.sweep_extensions == (0, 1) and len(records) == 10
    whole, again = finished(planned(LOWEST, LOW, MIDDLE, HIGH), records)
    assert whole.sweep_extensions == (0, 1) and len(again) == 10


# ---------------------------------------------------------------- runs


def test_a_study_trains_its_sweep_with_its_extension_once(root: Path) -> None:
    result = go(root, LOW, MIDDLE, HIGH)
    assert result.plan.sweep_values == (LOW, MIDDLE, HIGH, 0.0316) and load_info("small", root)[0].spec.sweep == "train.lr"
    assert recorded(root) == crossed(LOW, MIDDLE, HIGH, 0.0316)
    row = next(row for row in result.rows if row.cell == "no_wo learned" and row.params == {"train.lr": MIDDLE})
    assert (row.name, row.phase, row.trial) == ("no_wo learned lr=0.003 s0", "sweep", None)
    assert len({row.name for row in result.rows}) == len(result.rows) == len(trained(root)) == len(set(trained(root))) == 8
    start = plan(swept(LOW, MIDDLE, HIGH))
    assert with_recorded_extensions(start, root).sweep_values == result.plan.sweep_values
    longer = plan(swept(LOW, MIDDLE, HIGH), sets={"train.steps": 30})
    assert with_recorded_extensions(longer, root) is longer, "the recorded runs are of another configuration"
    again = go(root, LOW, MIDDLE, HIGH)
    assert again.plan.sweep_values == result.plan.sweep_values and all(row.reused for row in again.rows)
    assert len(trained(root)) == 8


def test_attention_maps_are_those_of_the_best_value(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = go(root, LOW, MIDDLE, HIGH, 0.1)
    folders: list[str] = []

    def compute_maps(folder: Path, **options: Any) -> list[AttentionMap]:
        folders.append(folder.name)
        return [AttentionMap(reason="not computed in this test")]

    monkeypatch.setattr(attention_maps, "compute_maps", compute_maps)
    attention_maps.record_attention_maps("small", root=root)
    runs = {run.key: run for run in result.plan.runs}
    chosen = {runs[key].cell.name: runs[key].params["train.lr"] for key in folders}
    assert chosen == {"dense learned": HIGH, "no_wo learned": MIDDLE} and len(folders) == 2


class _Interrupting(ProgressDisplay):
    """A display that interrupts the study when the run of this number ends."""

    def __init__(self, number: int) -> None:
        super().__init__(quiet=True)
        self.left = number

    def end_run(self, name: str, ending: Result, *, again: bool = False) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_an_interrupted_study_trains_the_rest_of_its_extension(root: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        go(root, LOW, MIDDLE, HIGH, display=_Interrupting(7))  # the first run of the extension
    result = go(root, LOW, MIDDLE, HIGH)
    assert recorded(root) == crossed(LOW, MIDDLE, HIGH, 0.0316)
    assert len(result.rows) == 8 and {row.state for row in result.rows} == {"completed"}


def test_a_failed_run_is_trained_again_before_the_sweep_is_extended(root: Path) -> None:
    failed = go(root, LOW, MIDDLE, HIGH, fate="swept_with_a_failure")
    assert [row.state for row in failed.failed] == ["failed"] and failed.plan.sweep_extensions == (0, 0)
    result = go(root, LOW, MIDDLE, HIGH, fate="swept_with_a_failure", retry=["failed"])
    assert result.ok and result.plan.sweep_extensions == (0, 1)


def test_the_records_of_a_part_of_a_study_keep_the_other_cells(root: Path) -> None:
    go(root, LOWEST, LOW, MIDDLE, HIGH, only={"variant": "no_wo"})
    dense = go(root, LOWEST, LOW, MIDDLE, HIGH, only={"variant": "dense"})
    assert len(dense.rows) == 5
    assert recorded(root) == {
        **crossed(LOWEST, LOW, MIDDLE, HIGH, 0.0322, cells=("dense",)),
        **crossed(LOWEST, LOW, MIDDLE, HIGH, cells=("no_wo",)),
    }

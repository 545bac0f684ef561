"""Tests of the expected time to the verdicts of a study."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main
from attnlab.planning.plan import Plan, plan
from attnlab.report.wording import describe_verdict
from attnlab.stats.cells import comparisons
from attnlab.stats.predict import POWER, Spread, TableDesign, seeds_for_verdict, verdict_probability
from attnlab.stats.sequential import Looks
from attnlab.study.adaptive import table
from attnlab.study.execution import concurrency, measurements
from attnlab.study.execution.concurrency import VARIABLE
from attnlab.study.looks import look_history, record_look
from attnlab.study.run import run
from attnlab.study.verdict_time import Pace, known_pace, verdict_time
from attnlab.tracking.tags import to_yaml
from tests.study.test_study import QUIET, study

PACE = Pace(1e-9, 2, "made up")
VARIANTS = {"variant": ["dense", "no_wo", "narrow", "wide"]}


def compared(**changes: Any) -> dict[str, Any]:
    return study(**{"grid": VARIANTS, "baseline": {"variant": "dense"}, "margin": 0.1, **changes})


def judged(root: Path, **changes: Any) -> Plan:
    """Train a study with stand-ins for training, and judge it once."""
    result = run(
        compared(moderate=False, **changes), root=root, display=QUIET, train="tests.support.study_fakes:settling", workers=1
    )
    record_look(result.comparison(), table(result), root)
    return result.plan


def test_the_time_of_runs_is_at_least_that_of_the_longest() -> None:
    pace = Pace(2.0, 4, "")
    assert pace.seconds([2e12] * 8) == 2.0
    assert pace.seconds([8e12, 2e12]) == 4.0
    assert pace.seconds([]) == 0.0


def test_without_results_only_the_spread_that_the_seeds_can_bear_is_known(root: Path) -> None:
    time = verdict_time(plan(compared()), PACE, root=root)
    assert (time.comparisons, time.judged, time.needed, list(time.open)) == (3, 0, None, [])
    (group,) = time.groups
    design = TableDesign(0.1, 3, 3)
    assert group.spread is None and group.design == design
    examples = dict(time.examples(group))
    assert list(examples) == [2, 5, 10] and sorted(examples.values()) == list(examples.values())
    assert all(seeds_for_verdict(design, Spread(0.999 * sd)) == seeds for seeds, sd in examples.items())
    assert len(time.runs(5)) == 4 * 5


def test_a_study_whose_seeds_are_added_counts_the_looks_up_to_its_last_one(root: Path) -> None:
    time = verdict_time(plan(compared(seeds="auto", max_seeds=8)), PACE, root=root)
    (group,) = time.groups
    assert group.design is not None and group.design.looks == Looks(3, 8) and time.numbers == [3, 5, 8]
    (once,) = verdict_time(plan(compared(seeds="0-2")), PACE, root=root).groups
    assert dict(time.examples(group))[5] < dict(time.examples(once))[5], "repeated looks cost power"


def test_the_plan_states_which_differences_its_seeds_settle(root: Path) -> None:
    time = verdict_time(judged(root, seeds=[0, 1, 2, 3]), PACE, root=root)
    (group,) = time.groups
    settled = dict(time.settled(group))
    assert group.design is not None and group.spread is not None and list(settled) == [4, 5, 10]
    for seeds, difference in settled.items():
        design = TableDesign(difference, group.design.comparisons, group.design.sharing, group.design.most, group.design.looks)
        assert verdict_probability(design, seeds, group.spread) == pytest.approx(POWER, abs=0.01)


@pytest.mark.parametrize("changes", [{"margin": None}, {"margin": "50 % of steps"}])
def test_without_a_margin_in_the_unit_of_the_metric_nothing_is_known(changes: dict[str, Any], root: Path) -> None:
    base = study()["base"] | {"train": {"steps": 40, "batch_size": 2, "eval_every": 5}}
    time = verdict_time(plan(compared(base=base, **changes)), PACE, root=root)
    assert [list(time.examples(group)) for group in time.groups] == [[]] and time.needed is None


def test_results_show_which_comparisons_are_open_and_how_many_seeds_they_take(root: Path) -> None:
    planned = judged(root, seeds=[0, 1, 2, 3])
    time = verdict_time(planned, PACE, root=root)
    assert (time.comparisons, time.judged) == (3, 3)
    (wide,) = time.open
    assert wide.name == "wide" and wide.is_predicted and wide.seeds == time.needed
    assert time.needed is not None and time.needed > 4
    assert sum(time.finished.values()) == 16 and time.runs(4) == []
    assert len(time.runs(time.needed)) == 4 * (time.needed - 4)


def test_seeds_beyond_the_plan_are_results_too(root: Path) -> None:
    judged(root, seeds=[0, 1, 2, 3])
    time = verdict_time(plan(compared(seeds=[0, 1], moderate=False)), PACE, root=root)
    assert sum(time.finished.values()) == 16 and [comparison.name for comparison in time.open] == ["wide"]
    assert verdict_time(plan(compared(), sets={"train.lr": 0.01}), PACE, root=root).judged == 0, "other trainings"


def test_few_pairs_count_with_the_spread_of_the_table(root: Path) -> None:
    planned = judged(root, seeds=[0, 1, 2])
    time = verdict_time(planned, PACE, root=root)
    (group,) = time.groups
    assert group.spread is not None and group.design is not None and group.design.looks == Looks(3, 3)
    assert not any(comparison.is_predicted for comparison in time.open)
    assert {comparison.seeds for comparison in time.open} == {group.seeds}
    assert group.seeds is not None and group.probability(group.seeds) == pytest.approx(POWER, abs=0.03)
    first = TableDesign(0.1, 3)
    assert group.probability(3) == verdict_probability(first, 3, group.spread), "the first look has the full level"


def test_levels_have_spreads_of_their_own(root: Path) -> None:
    time = verdict_time(judged(root, over={"train.steps": [10, 20]}, seeds=[0, 1, 2]), PACE, root=root)
    assert [group.label for group in time.groups] == ["10", "20"] and time.comparisons == 6
    assert all(group.design and group.design.comparisons == 6 and group.design.most == 2 for group in time.groups)


def test_conclusive_studies_take_no_more_time(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    grid = {"variant": ["dense", "no_wo", "narrow"]}
    time = verdict_time(judged(root, grid=grid, seeds=[0, 1, 2, 3]), PACE, root=root)
    assert time.is_conclusive and time.needed is None


def test_the_pace_is_that_of_steps_that_were_measured(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(concurrency, "processors", lambda: 2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    made = plan(compared(seeds=[0, 1, 2]))
    assert known_pace(made, root=root) is None
    seconds = {1: 0.010, 2: 0.012}
    monkeypatch.setattr(measurements, "measure", lambda configs, **_: [(seconds[len(configs)], 1, None)] * len(configs))
    concurrency.choose(made, "auto", root=root)
    pace = known_pace(made, root=root)
    smallest = min(made.cells, key=lambda cell: cell.train_flops or 0)
    assert pace is not None and smallest.train_flops is not None and pace.workers == 2 and smallest.name in pace.source
    assert pace.seconds([smallest.train_flops]) == pytest.approx(20 * 0.012), "one run of 20 steps uses one worker"
    assert pace.seconds([smallest.train_flops] * 6) == pytest.approx(3 * 20 * 0.012)
    monkeypatch.setenv(VARIABLE, "1")
    alone = known_pace(made, root=root)
    assert alone is not None and alone.seconds([smallest.train_flops] * 6) == pytest.approx(6 * 20 * 0.010)
    monkeypatch.setattr("attnlab.study.verdict_time.recorded_threads", lambda *_: 1)
    crowded = known_pace(made, root=root)
    assert crowded is not None and crowded.seconds([smallest.train_flops] * 6) == pytest.approx(6 * 20 * 0.012), "1 thread"
    monkeypatch.setattr("attnlab.study.verdict_time.recorded_threads", lambda *_: None)
    monkeypatch.setattr(measurements, "measure", lambda *_, **__: pytest.fail("a plan measures no steps"))
    assert known_pace(plan(compared(), sets={"train.batch_size": 3}), root=root) is None


def test_the_plan_states_the_time_to_a_verdict(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(root, seeds=[0, 1, 2, 3])
    planned = compared(seeds=[0, 1, 2, 3], moderate=False)
    (tmp_path / "small.yaml").write_text(to_yaml(planned))
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main.main(["plan", str(tmp_path / "small.yaml"), "--tflops", "1e-6"]) == 0
    lines = capsys.readouterr().out.splitlines()
    time = verdict_time(plan(planned), PACE, root=root)
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 80
    assert f"more runs with {time.needed} seeds per cell" in text
    assert all(f"{seeds} {len(time.runs(seeds))}" in text for seeds in time.numbers), "the table of differences"
    assert f"Verdicts so far: 2 of 3. Inconclusive: wide ({time.needed} seeds)." in text
    assert "seeds find a difference" not in text, "no second number for the same comparisons"
    finished = run(planned, root=root, display=QUIET, train="tests.support.study_fakes:settling", workers=1)
    (wide,) = [row for row in comparisons(table(finished, look_history(planned["study"], root))) if row.is_inconclusive]
    assert f"with {time.needed} seeds 80 % conclusive" in describe_verdict(wide.verdict), "that of the page"

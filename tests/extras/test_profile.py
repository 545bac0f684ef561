"""Tests of the training of a profile: levels until a variant fails, each run once, and refusals."""

from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.extras.profile import run as profile_run
from attnlab.extras.profile.results import AbilityResult, best_rate
from attnlab.extras.profile.run import ABILITIES, Ability, entry_labels, profile_all, select_abilities, variant_entry
from attnlab.planning.plan import Plan
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.study.run import run
from attnlab.tracking.runs import load_runs
from tests.support.profiles import level_result

FAKE = "tests.support.profiles:known_scores"
PARITY = Ability("parity", ({"length": 8}, {"length": 16}, {"length": 32}), steps=4)
MINE = "tests.support.profiles"


@pytest.fixture(autouse=True)
def no_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_run, "BASELINES", ())


def go(tmp_path: Path, *variants: str, ability: Ability = PARITY, **options: Any) -> AbilityResult:
    options = {"train": FAKE, "display": ProgressDisplay(quiet=True), "workers": 2, "root": tmp_path / "runs", **options}
    return profile_all(
        [variant_entry(variant) for variant in variants], [ability], folder=tmp_path / "out", **options
    ).abilities[0]


def trained(tmp_path: Path) -> Counter[str]:
    lines = (tmp_path / "runs" / "work" / "trained.txt").read_text().splitlines()
    assert len(set(lines)) == len(lines), "a run was trained twice"
    return Counter(line.rpartition(" ")[0] for line in lines)


def test_difficulty_increases_until_a_variant_does_not_solve_the_level(tmp_path: Path) -> None:
    result = go(tmp_path, "dense", "linear", "gru")
    outcomes = {name: [level.solved for level in levels] for name, levels in result.results.items()}
    assert outcomes == {"dense": [3, 3, 3], "linear": [0], "gru": [3, 3, 1]}
    seeds = {f"{name} {8 * 2**i}": 3 for name, of in outcomes.items() for i in range(len(of))}
    screened = {"linear 8 at 0.00075": 1, "linear 8 at 0.012": 1, "gru 32 at 0.00075": 1, "gru 32 at 0.012": 1}
    assert trained(tmp_path) == Counter(seeds | screened)
    linear, gru = result.results["linear"][0], result.results["gru"][2]
    assert linear.solved == 0 and linear.seeds == linear.judged == 3 and linear.states["diverged"] == 1
    assert gru.scores == {0: 1.0, 1: 0.5, 2: 0.5} and not gru.earns_next
    assert gru.interval() == pytest.approx((0.0028, 0.9463), abs=1e-4) and gru.is_open
    assert [level.chance for level in result.levels] == [0.5] * 3 and result.threshold == 0.9
    runs = load_runs("profile-parity", tmp_path / "runs")
    assert len(runs) == sum(trained(tmp_path).values()) and set(runs["machine.threads"]) == {1}
    assert set(runs["train.stop_at"]) == {0.995}, "a run ends when it has solved its level"


def test_a_level_that_seeds_do_not_solve_is_tried_at_other_learning_rates(tmp_path: Path) -> None:
    """``delta`` solves one level more at four times the rate; of ``lstm`` only the first seed, which the others correct."""
    result = go(tmp_path, "delta", "lstm")
    shown = {
        name: [(level.lr, level.solved, [(other.lr, other.solved, other.seeds) for other in level.others]) for level in levels]
        for name, levels in result.results.items()
    }
    failed = [(0.00075, 0, 1), (0.012, 0, 1)]
    assert shown["delta"] == [(0.003, 3, []), (0.012, 3, [(0.00075, 0, 1), (0.003, 0, 3)]), (0.003, 0, failed)]
    assert shown["lstm"] == [(0.003, 3, []), (0.003, 3, []), (0.012, 1, [(0.00075, 0, 1), (0.003, 0, 3)])]
    assert trained(tmp_path)["delta 16 at 0.012"] == 3 and trained(tmp_path)["delta 16 at 0.00075"] == 1
    assert not any(other.costs for levels in result.results.values() for level in levels for other in level.others)


def test_the_interval_of_the_best_of_three_rates_keeps_its_promise() -> None:
    """Of three rates with any solve rates, the reported interval misses its own with a probability of at most 5 %."""
    missed = Counter[tuple[float, ...]]()
    for outcome in product((0.0, 1.0), repeat=9):  # whether each seed solves the level at each learning rate
        solves = np.reshape(outcome, (3, 3))
        seeds = [level_result(*solves[i, : 3 if i == 0 or solves[i, 0] else 1], lr=float(i)) for i in range(3)]
        best = best_rate(seeds if seeds[0].solved < 3 else seeds[:1])
        low, high = best.interval()
        for rates in ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2), (0.1, 0.3, 0.3), (0.8, 0.8, 0.8)):
            of_seed = np.array(rates)[:, None]
            probability = np.where(solves, of_seed, 1 - of_seed).prod()
            missed[rates] += probability * (not low <= rates[int(best.lr)] <= high)
    assert len(missed) == 4 and max(missed.values()) <= 0.05, missed


def test_a_further_variant_costs_only_its_own_runs(tmp_path: Path) -> None:
    ability = Ability("parity", PARITY.levels[1:], steps=4)
    first = go(tmp_path, "dense", "lstm", ability=ability)
    before = trained(tmp_path)
    second = go(tmp_path, "gru", "dense", "lstm", ability=ability)
    screened = {"gru 32 at 0.00075": 1, "gru 32 at 0.012": 1}
    assert trained(tmp_path) - before == Counter({"gru 16": 3, "gru 32": 3} | screened)
    assert {name: second.results[name] for name in first.results} == dict(first.results)
    runs = load_runs("profile-parity", tmp_path / "runs")
    assert len(runs) == sum(trained(tmp_path).values())  # of both profiles


def test_an_interrupted_profile_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(*arguments, **options)

    monkeypatch.setattr(profile_run, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, "dense", "lstm")
    assert trained(tmp_path) == Counter({"dense 8": 3, "lstm 8": 3})
    result = go(tmp_path, "dense", "lstm")
    assert trained(tmp_path)["dense 32"] == trained(tmp_path)["lstm 32"] == 3
    assert [level.solved for level in result.results["dense"]] == [3, 3, 3]


def test_all_variants_have_rows_with_and_without_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    entries: list[str] = []
    monkeypatch.setattr(profile_run, "profile_all", lambda given, *_, **__: entries.extend(entry_labels(given)))
    profile_run.profile(None)
    for name in ("dense with short_conv", "dense with token_shift", "delta short_conv=0"):
        assert entries.index(name) > entries.index(name.split()[0])
    assert len(entries) == len(profile_run.built_in_names()) + 3


def test_positions_are_rotary_in_place_of_learned_ones(tmp_path: Path) -> None:
    positions = {name: variant_entry(name)["position"] for name in ("dense", "lstm", "delta", "linear", "transformer_xl")}
    assert positions == {
        "dense": "rotary",
        "lstm": "none",
        "delta": "none",
        "linear": "learned",
        "transformer_xl": "relative",
    }
    assert variant_entry("dense", position="alibi")["position"] == "alibi"
    entries = [variant_entry("dense"), variant_entry("dense", position="alibi"), variant_entry("lstm")]
    assert entry_labels(entries) == ["dense position=rotary", "dense position=alibi", "lstm"]


@pytest.mark.parametrize(
    ("variant", "words"),
    [(f"{MINE}:Bidirectional", "does not support the role causal"), (f"{MINE}:Leak", "fails the check 'causality by value'")],
)
def test_a_variant_that_cannot_be_profiled_is_refused_before_training(tmp_path: Path, variant: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        go(tmp_path, variant, "dense")
    assert refused.value.where and not (tmp_path / "runs" / "work").exists()


def test_a_variant_is_checked_at_the_longest_rows_of_all_diagnostics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Plan] = []

    def stop(plan: Plan) -> None:
        checked.append(plan)
        raise KeyboardInterrupt

    monkeypatch.setattr(profile_run, "check_own_variants", stop)
    with pytest.raises(KeyboardInterrupt):
        profile_all([variant_entry("dense")], ABILITIES, folder=tmp_path / "out", root=tmp_path / "runs")
    assert [plan.study.study for plan in checked] == ["profile-sparse_flip_flop"]


def test_mistakes_are_refused() -> None:
    with pytest.raises(UserError, match="unknown task 'mqarr'.*mqar"):
        select_abilities(["mqarr"])
    with pytest.raises(UserError, match="expected diagnostics.*got 'pydocs'") as refused:
        select_abilities(["pydocs"])
    assert refused.value.where == "tasks"
    with pytest.raises(UserError, match="at least 3 seeds, got 2") as refused:
        profile_all([variant_entry("dense")], [PARITY], folder=Path("nowhere"), seeds=2)
    assert refused.value.where == "seeds" and not Path("nowhere").exists()


def test_every_level_of_the_profile_can_be_built() -> None:
    abilities = select_abilities()
    for ability in abilities:
        assert len(ability.levels) >= 2 and len(set(map(ability.level_name, range(len(ability.levels))))) == len(ability.levels)
        tasks = [ability.cls(**options) for options in ability.levels]
        assert all(0 < task.chance() < ability.threshold for task in tasks)

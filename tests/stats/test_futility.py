"""Tests of futility: which comparisons further seeds cannot settle, and where their verdicts say so."""

import numpy
import pytest

from attnlab.report.wording import describe_verdict
from attnlab.stats import paired
from attnlab.stats.compare import summarize_cells
from attnlab.stats.exact import p_above
from attnlab.stats.exact_estimators import SolveRate
from attnlab.stats.look_history import LookHistory
from attnlab.stats.predict import Futility, find_futility, predict
from attnlab.stats.sequential import Looks, levels_at
from benchmarks.futility import added_seeds
from benchmarks.simulation import Share
from tests.support.specs import changed, comparison_spec

EQUAL = [0.4, -0.5, 0.1, 0.45, -0.4]  # a mean of zero
LOOKS = Looks(3, 12)
SPEC = comparison_spec("s", ("variant",), "loss", "min", {"variant": "dense"}, looks=LOOKS)
NAME = "a against dense"


def difference(values: list[float], *, margin: float | None = None) -> paired.Difference:
    zero = dict.fromkeys(range(len(values)), 0.0)
    (corrected,) = paired.correct([paired.difference(dict(enumerate(values)), zero, margin=margin, looks=LOOKS)])
    assert corrected is not None
    return corrected


def test_a_comparison_is_futile_if_a_verdict_at_the_last_look_is_improbable() -> None:
    futility = find_futility(difference(EQUAL), 12)
    assert futility is not None and futility.probability < 0.1
    assert futility == Futility(5, 12, predict(difference(EQUAL), 12).conclusive)
    assert find_futility(difference(EQUAL), 12, below=futility.probability) is None
    assert find_futility(difference(EQUAL), 12, below=0) is None
    assert find_futility(difference([value + 0.4 for value in EQUAL]), 12) is None, "it may well differ"


def test_a_margin_that_can_be_reached_makes_seeds_worth_their_cost() -> None:
    assert find_futility(difference(EQUAL, margin=0.1), 12) is not None
    assert find_futility(difference(EQUAL, margin=0.6), 12) is None


@pytest.mark.parametrize(
    ("values", "seeds"),
    [
        (EQUAL[:4], 12),  # too few pairs
        (EQUAL, 5),  # the last look
        (EQUAL[:2], 12),  # fewer pairs than the first look has: no test
        ([0.1] * 6, 12),  # no spread
        ([0.0] * 6, 12),
    ],
)
def test_a_comparison_is_not_futile_without_a_prediction(values: list[float], seeds: int) -> None:
    assert find_futility(difference(values), seeds) is None
    assert find_futility(None, seeds) is None


def solve_rates(cell: int, baseline: int, n: int, **options: float) -> paired.Difference:
    first, second = ({i: float(i < count) for i in range(n)} for count in (cell, baseline))
    found = SolveRate("accuracy", "max", 0.9).compare(first, second, looks=LOOKS, **options)
    assert found is not None
    return found


def test_cells_that_solve_a_task_with_no_seed_receive_no_more_seeds() -> None:
    futility = find_futility(solve_rates(0, 0, 5), 12)
    assert futility is not None and futility.probability < 0.02
    for further in (solve_rates(5, 5, 5), solve_rates(0, 0, 5, margin=0.1)):
        assert find_futility(further, 12) == Futility(5, 12, pytest.approx(futility.probability))  # type: ignore[arg-type]
    assert find_futility(solve_rates(2, 0, 5), 12) is None, "they may well differ"
    assert find_futility(solve_rates(0, 0, 5, margin=0.5), 12) is None, "they may be equivalent"


def test_verdicts_on_solve_rates_come_about_as_often_as_predicted() -> None:
    """Averaged over solve rates from the prior, whose mean the prediction of each start must have."""
    generator = numpy.random.default_rng(0)
    n, last, trials = 5, 12, 1_500
    rates = generator.beta(0.5, 0.5, size=(trials, 2))
    starts = generator.binomial(n, rates)
    ends = starts + generator.binomial(last - n, rates)
    expected = numpy.array([solve_rates(a, b, n).verdict_probability(last) for a, b in starts.tolist()], dtype=float)
    level, _ = levels_at((paired.LEVEL, paired.LEVEL), LOOKS, last)
    seen = numpy.array([2 * p_above(max(a, b), min(a, b), last) <= level for a, b in ends.tolist()])
    assert 0.15 < expected.mean() < 0.6 and abs(seen.mean() - expected.mean()) < 0.03
    likely = expected > 0.5
    assert abs(seen[likely].mean() - expected[likely].mean()) < 0.05


def test_the_verdict_states_the_futility_until_seeds_are_added() -> None:
    history = LookHistory().announce(3, 12, time=1).stop({NAME: Futility(5, 12, 0.04)}, time=3)
    spec = history.apply(SPEC)
    runs = [
        {"variant": name, "seed": i, "state": "completed", "loss": 2 + i + gap * (name == "a")}
        for i, gap in enumerate([*EQUAL, 0.2])
        for name in ("dense", "a")
    ]
    stopped, longer = (summarize_cells(runs[: 2 * n], spec)[1].verdict for n in (5, 6))
    assert stopped is not None and stopped.kind == "inconclusive" and stopped.futility == Futility(5, 12, 0.04)
    assert describe_verdict(stopped) == "inconclusive: stopped for futility: 12 seeds would decide (4 %)"
    assert longer is not None and longer.futility is None and "futility" not in describe_verdict(longer)
    worse = summarize_cells([{**run, "loss": run["loss"] + 9 * (run["variant"] == "a")} for run in runs[:10]], spec)[1].verdict
    assert worse is not None and worse.kind == "worse" and worse.futility is None


def test_futility_is_kept_with_further_looks_and_forgotten_with_the_runs_that_it_is_of() -> None:
    history = LookHistory().announce(3, 12, time=1).stop({NAME: Futility(5, 12, 0.04)}, time=3)
    assert history.stop({NAME: Futility(5, 12, 0.04)}, time=9) is history
    assert history.stop({NAME: Futility(7, 12, 0.02)}, time=9).apply(SPEC).futile == {NAME: Futility(7, 12, 0.02)}
    runs = [{"variant": v, "seed": i, "state": "completed", "loss": i * (v == "a")} for v in ("dense", "a") for i in range(15)]
    judged = history.add(summarize_cells(runs, changed(SPEC, looks=None)), time=4)
    assert judged.study and judged.futile == history.futile
    assert history.since(2).futile and not history.since(3).futile


@pytest.mark.parametrize(("margin", "fewer"), [(None, 5), (2.0, 0)])
def test_futility_saves_seeds_where_nothing_can_be_shown_and_adds_no_false_verdicts(margin: float | None, fewer: float) -> None:
    every, stopped = (added_seeds(0.0, margin, below, 150, 1) for below in (0.0, 0.1))
    false = [share.happened for share in (every["false"], stopped["false"]) if isinstance(share, Share)]
    seeds = [number for number in (every["seeds"], stopped["seeds"]) if not isinstance(number, Share)]
    assert false[1] <= false[0] <= 150 * 0.1 and seeds[0] - seeds[1] >= fewer
    assert not numpy.isnan(seeds).any()

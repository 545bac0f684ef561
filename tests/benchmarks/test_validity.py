"""Tests of the error rates of verdicts in a few thousand simulated studies (``benchmarks.validity`` simulates more)."""

import csv
from functools import partial
from pathlib import Path

import pytest

from attnlab.stats.sequential import Looks
from benchmarks import simulate, validity
from benchmarks.predictions import DECILES
from tests.support.paths import ROOT

STUDIES = 2_000
MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5  # 5 % plus three standard errors in this many studies


@pytest.mark.parametrize("noise", ["normal", "t3", "contaminated", "skewed"])
@pytest.mark.parametrize("n", [3, 12])
def test_at_most_one_table_in_twenty_has_a_false_verdict(noise: str, n: int) -> None:
    wrong, covered = simulate.false_verdicts(noise, n, studies=STUDIES, seed=1)
    assert wrong.value <= MOST and covered.value >= 1 - MOST
    assert simulate.false_equivalence(noise, n, margin=2.0, studies=STUDIES, seed=2).value <= MOST


@pytest.mark.parametrize(("shift", "margin"), [(0.0, None), (2.0, 2.0)])
def test_the_looks_together_err_once_in_twenty_and_uncorrected_ones_do_not(shift: float, margin: float | None) -> None:
    options = {"first": 3, "last": 12, "shift": shift, "margin": margin, "studies": 1_000, "seed": 3}
    most = 0.05 + 3 * (0.05 * 0.95 / 1_000) ** 0.5
    correct, careless = (simulate.until_conclusive("normal", corrected=corrected, **options) for corrected in (True, False))
    false, mistake = (outcome.equal if margin else outcome.differ for outcome in (correct, careless))
    assert false.value <= most < mistake.value, "the bound is one that looking again and again breaks"
    assert correct.covered.value >= 1 - most > careless.covered.value


@pytest.mark.parametrize(("shift", "margin"), [(0.0, None), (2.0, 2.0)])
def test_seeds_added_by_hand_err_in_at_most_five_and_a_half_of_a_hundred_tables(shift: float, margin: float | None) -> None:
    options = {"first": 5, "last": 12, "shift": shift, "margin": margin, "studies": 1_000, "seed": 3}
    correct, careless = (simulate.added_by_hand("normal", corrected=corrected, **options) for corrected in (True, False))
    false, mistake = (outcome.equal if margin else outcome.differ for outcome in (correct, careless))
    most = 0.055 + 3 * (0.055 * 0.945 / 1_000) ** 0.5
    assert false.value <= most < mistake.value
    assert correct.covered.value >= 1 - most > careless.covered.value


def test_one_table_without_holm_would_break_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate.paired, "holm", list)
    wrong, _ = simulate.false_verdicts("normal", 5, studies=STUDIES, seed=1)
    near = simulate.false_equivalence("normal", 5, margin=2.0, studies=STUDIES, seed=2)
    assert wrong.value > MOST and near.value > MOST


@pytest.mark.parametrize(("mean", "margin"), [(1.0, None), (0.0, 1.0), (0.3, 1.0)])
def test_the_number_of_seeds_named_settles_four_studies_in_five(mean: float, margin: float | None) -> None:
    n, kept = simulate.kept_promise(mean, margin=margin, level=0.05, studies=STUDIES, seed=4)
    assert 0.8 - 3 * kept.error <= kept.value < 0.9, f"{n} seeds are too few, or more than it takes"


@pytest.mark.parametrize(("first", "last"), [(2, 5), (3, 12), (5, 20)])
def test_the_level_of_a_look_is_that_of_all_turned_round(first: int, last: int) -> None:
    looks = Looks(first, last)
    for level in (0.05, 0.025, 0.004):
        nominal = looks.nominal_level(level)
        assert level / looks.count < nominal < level
        assert looks.adjust(nominal) == pytest.approx(level, rel=0.01)
    assert looks.adjust(1e-9) == pytest.approx(looks.count * 1e-9), "far out it is Bonferroni's"
    assert Looks(4, 4).adjust(0.03) == 0.03 and Looks(4, 4).nominal_level(0.05) == 0.05, "one look needs no correction"


def test_many_observations_give_pocock_s_own_constant() -> None:
    """Five looks at equal steps, known variance: a two-sided level of 0.0158 each (Pocock 1977, table 1)."""
    from numpy.random import RandomState
    from scipy.special import ndtr

    sums = RandomState(0).standard_normal((200_000, 5)).cumsum(1) / [1, 2**0.5, 3**0.5, 2, 5**0.5]
    assert (2 * ndtr(-abs(sums)).min(1) < 0.0158).mean() == pytest.approx(0.05, abs=0.002)


def test_the_page_hides_no_setting_that_breaks_and_no_prediction_that_fails() -> None:
    folder = ROOT / "reports/validity"
    with (folder / "validity.csv").open() as file:
        lines = [validity.read_line(row) for row in csv.DictReader(file)]
    command = "python -m benchmarks.validity --studies 3000 --seed 0"
    text = validity.report(lines, command)
    assert text == (folder / "README.md").read_text()
    head = text.partition("Distributions of the seeds")[0]
    holds, breaks = head.split("**What breaks:**")
    for noise in ("mild_gap", "skewed_gap"):
        broken = [line for line in lines if line.noise == noise and "NOT" not in line.case]
        for part, quantity in (("fixed", "false"), ("looks", "false"), ("fixed", "false equivalence")):
            worst = max(line.value for line in broken if (line.part, line.quantity) == (part, quantity))
            assert f"{worst:.1%}" in breaks and f"{worst:.1%}" not in holds
    usual = [line.value for line in lines if (line.part, line.noise, line.quantity) == ("prediction", "all sizes", DECILES[7])]
    assert min(usual) > 0.6 and max(usual) < 0.9 and all(f"{end(usual):.1%}" in holds for end in (min, max))
    least = min(line.value for line in lines if (line.part, line.quantity) == ("simultaneous", "simultaneous"))
    assert least < 0.95 and f"{least:.1%}" in text


@pytest.mark.slow
def test_the_report_of_a_small_simulation(tmp_path: Path) -> None:
    validity.main(["--out", str(tmp_path), "--studies", "3000", "--seed", "11"])
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("# ") and "nan" not in text
    head = text.partition("Distributions of the seeds")[0]
    assert "no setting breaks it" in head, head


def test_an_interrupted_simulation_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run simulates only what the first did not, and gives the same results as an uninterrupted one."""
    calls: list[str] = []
    interrupt_at = 3

    def fake(number: int) -> list[validity.Line]:
        calls.append(str(number))
        if len(calls) == interrupt_at:
            raise KeyboardInterrupt
        return [validity.Line("part", "noise", str(number), quantity, number / 7, None, 5) for quantity in ("a", "b")]

    fakes = [validity.Simulation(2, partial(fake, number)) for number in range(4)]
    monkeypatch.setattr(validity, "simulations", lambda studies, seed: iter(fakes))
    monkeypatch.setattr(validity, "page", lambda lines, **_: "\n".join(map(str, lines)))
    arguments = ["--out", str(tmp_path), "--studies", "5"]
    with pytest.raises(KeyboardInterrupt):
        validity.main(arguments)
    with (tmp_path / "validity.csv").open("a") as file:
        file.write("part,noise,2,a,0.5,,5\n")  # half of a simulation
    validity.main(arguments)
    assert calls == ["0", "1", "2", "2", "3"]
    resumed = (tmp_path / "README.md").read_text()

    validity.main([*arguments, "--fresh"])
    assert calls[5:] == ["0", "1", "2", "3"] and (tmp_path / "README.md").read_text() == resumed
    validity.main([*arguments, "--seed", "1"])
    assert len(calls) == 13, "results of another seed were taken for those of this one"

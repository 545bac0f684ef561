"""Tests of the program that simulates and draws ``reports/validity``, and of the committed page."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from benchmarks import validity
from benchmarks.simulation import FALSE, MAX_ERRORS, Kind, Quantity, Result, Setting, Share, Simulation
from benchmarks.validity_page import Outcome, render_page
from tests.support.paths import ROOT

COMMITTED = ROOT / "reports/validity"


def test_the_committed_page_is_that_of_the_committed_results() -> None:
    files = render_page(validity.read_results(COMMITTED / "validity.csv"), validity.SIMULATIONS)
    assert {path.name for path in COMMITTED.iterdir()} == {*files, "validity.csv", "validity.json"}
    for name, content in files.items():
        assert (COMMITTED / name).read_text(encoding="utf-8") == content, f"{name}: run python -m benchmarks.validity"


@pytest.mark.parametrize("simulation", validity.SIMULATIONS, ids=lambda simulation: simulation.name)
def test_no_committed_result_exceeds_what_is_promised(simulation: Simulation) -> None:
    outcome = Outcome(simulation, validity.read_results(COMMITTED / "validity.csv"))
    assert outcome.settings == list(simulation.settings), "run python -m benchmarks.validity"
    for quantity in simulation.quantities:
        if quantity.limit is not None:
            for setting in simulation.settings:
                result = outcome.of(setting, quantity)
                excess = quantity.excess(result.value)
                assert setting.not_promised or excess <= MAX_ERRORS * (result.error or 0), f"{quantity.text}, {setting}"


def test_false_verdicts_are_promised_to_be_at_most_six_in_a_hundred() -> None:
    for simulation in validity.SIMULATIONS:
        for quantity in simulation.quantities:
            if quantity.kind is Kind.FALSE and quantity.limit is not None:
                assert quantity.limit <= 0.06, f"{simulation.name}, {quantity.name}"


class Fakes:
    """Simulations that record which settings they ran, and are interrupted once."""

    def __init__(self, interrupt_at: int = 0) -> None:
        self.calls: list[str] = []
        self.interrupt_at = interrupt_at
        extra = Quantity("found", "differences found", Kind.POWER)
        self.simulations = tuple(
            Simulation(name, name.title(), "Text.", self._settings(name), (FALSE, extra), studies=50) for name in ("one", "two")
        )

    def _settings(self, name: str) -> list[Setting]:
        return [Setting("group", f"{i} seeds", partial(self._run, f"{name} {i}")) for i in (3, 5)]

    def _run(self, name: str, studies: int, seed: int) -> Mapping[str, Share]:
        self.calls.append(name)
        if len(self.calls) == self.interrupt_at:
            raise KeyboardInterrupt
        return {"false": Share(seed % studies, studies), "found": Share(len(name), studies)}


def _main(fakes: Fakes, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(validity, "SIMULATIONS", fakes.simulations)
    validity.main(["--out", str(folder), *arguments])
    return (folder / "validity.csv").read_text()


def test_only_what_is_missing_or_asked_for_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _main(fakes := Fakes(), tmp_path, monkeypatch, "--only", "two")
    assert fakes.calls == ["two 3", "two 5"] and "One" not in (tmp_path / "README.md").read_text()
    results = _main(fakes, tmp_path, monkeypatch)
    assert fakes.calls[2:] == ["one 3", "one 5"] and results.index("one,") < results.index("two,")
    assert _main(fakes := Fakes(), tmp_path, monkeypatch) == results and fakes.calls == []
    assert _main(fakes, tmp_path, monkeypatch, "--only", "one", "--fresh") == results and fakes.calls == ["one 3", "one 5"]
    _main(fakes := Fakes(), tmp_path, monkeypatch, "--only", "one", "--studies", "70")
    assert fakes.calls == ["one 3", "one 5"]
    assert {r.studies for r in validity.read_results(tmp_path / "validity.csv")} == {50, 70}
    _main(fakes := Fakes(), tmp_path, monkeypatch, "--seed", "1")
    assert len(fakes.calls) == 4, "results of another seed were taken for those of this one"


def test_a_setting_returns_each_quantity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes()
    fakes.simulations = (replace(fakes.simulations[0], quantities=(FALSE,)),)
    with pytest.raises(ValueError, match="found"):
        _main(fakes, tmp_path, monkeypatch)


def _page(*, promised: float, other: float = 0.2, hard: Mapping[str, tuple[str, ...]] | None = None) -> dict[str, str]:
    settings = [
        Setting("normal", "5 seeds", lambda studies, seed: {}),
        Setting("skewed", "5 seeds", lambda studies, seed: {}, "skewed differences"),
    ]
    simulation = Simulation("made-up", "A made-up simulation", "Text.", settings, hard=hard or {})
    results = [
        Result("made-up", setting.group, setting.name, "false", value, 0.002, 10_000, 10_000)
        for setting, value in zip(settings, (promised, other), strict=True)
    ]
    return render_page(results, (simulation,))


def test_the_page_names_what_exceeds_its_limit_and_what_is_not_promised() -> None:
    page = _page(promised=0.062)["README.md"]
    assert "Exceeded" not in page and "None is exceeded" in page, "0.2 points are within the error of the simulation"
    files = _page(promised=0.081)
    head, section = files["README.md"].split("## A made-up simulation")
    assert "**Exceeded:**" in head and "8.1 % ± 0.2 % (normal, 5 seeds)" in head
    assert "**Exceeded:**" in section and "**Not promised:** skewed differences (false verdicts 20.0 %)" in section
    assert "(made-up-false.svg)" in section and "exceeded" in files["made-up-false.svg"]
    assert "exceeded" not in _page(promised=0.05)["made-up-false.svg"]


def test_the_committed_page_is_short() -> None:
    assert len((COMMITTED / "README.md").read_text(encoding="utf-8").split()) < 9_000


def test_settings_that_are_not_promised_are_drawn_otherwise() -> None:
    plot = _page(promised=0.05)["made-up-false.svg"]
    assert plot.count('fill="none" stroke=') == 1, "a ring for the setting that is not promised"
    assert "rings: not promised" in plot and "5 seeds" in plot and "skewed" in plot


@pytest.mark.exhaustive
def test_every_simulation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first setting of each, with few studies: every quantity is a number, and nothing exceeds its limit."""
    simulations = tuple(replace(simulation, settings=simulation.settings[:1]) for simulation in validity.SIMULATIONS)
    monkeypatch.setattr(validity, "SIMULATIONS", simulations)
    validity.main(["--out", str(tmp_path), "--studies", "300", "--seed", "11"])
    page = (tmp_path / "README.md").read_text()
    assert "None is exceeded" in page and "nan" not in page
    assert all(f"## {simulation.title}" in page for simulation in simulations)

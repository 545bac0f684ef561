"""Tests of the page about a study's overhead, and of resuming the benchmark."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import overhead
from benchmarks.overhead import page


def test_the_page_states_ratios_pair_by_pair_and_the_starts_of_processes() -> None:
    seconds = {
        ("study", 80): [206, 220, 204],
        ("bare", 80): [200, 200, 200],
        ("study", 1): [30, 28, 29],
        ("bare", 1): [10, 8, 9],
    }
    timings = pd.DataFrame(
        {"pair": pair, "arm": arm, "runs": 40, "steps": steps, "seconds": float(value), "load": 0.0}
        for (arm, steps), values in seconds.items()
        for pair, value in enumerate(values)
    )
    starts = pd.DataFrame({"start": [4.0, 0.02, 0.04], "step": [5.0, 0.3, 0.5], "again": [["torch"], [], ["torch.x"]]})
    text = page(timings, starts, command="COMMAND", machine="MACHINE")
    assert (
        "| 40 | 80 steps, 5.00 s | 200.0 (200.0 to 200.0) | 206.0 (204.0 to 220.0) | 1.030 (1.020 to 1.100) | 0.150 (" in text
    )
    assert "| 40 | 1 step (empty) | 9.0 (8.0 to 10.0) | 29.0 (28.0 to 30.0) |" in text and "| 0.500 (0.500 to 0.500) |" in text
    assert "+3.0%" in text and "within" in text and "5%" in text
    assert "| the first | 4.000 | 5.000 |\n| the 2 later ones | 0.030 (0.020 to 0.040) | 0.400 (0.300 to 0.500) |" in text
    assert ": torch.x." in text


def test_an_interrupted_benchmark_keeps_its_pairs_and_measures_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    interrupt_at = 4  # the bare loop of the second pair

    def fake_time(self: overhead.Bench, *command: object) -> float:
        commands.append(str(command[0]))
        if len(commands) == interrupt_at:
            raise KeyboardInterrupt
        return 2.0 + len(commands)

    def fake_marks(self: overhead.Bench, arm: str, study: Path) -> pd.DataFrame:
        if arm == "bare":
            return pd.DataFrame({"seconds": [1.0, 1.0]})
        again = [["torch"], []]
        return pd.DataFrame({"key": ["a", "b"], "asked": [0.0, 1.0], "born": [1.0, 1.5], "steps": [2, 3], "torch_again": again})

    monkeypatch.setattr(overhead.Bench, "time", fake_time)
    monkeypatch.setattr(overhead.Bench, "marks", fake_marks)
    arguments = ["--runs", "2", "--pairs", "2", "--out", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        overhead.main(arguments)
    before = (tmp_path / "timings.csv").read_text()
    assert len(before.splitlines()) == 1 + 2
    overhead.main(arguments)
    assert len(commands) == 4 + 6, "the interrupted pair and the others"
    assert (tmp_path / "timings.csv").read_text().startswith(before)
    page_text = (tmp_path / "README.md").read_text()
    overhead.main(arguments)
    assert len(commands) == 10 and (tmp_path / "README.md").read_text() == page_text
    overhead.main([*arguments, "--fresh"])
    assert len(commands) == 10 + 8

"""Tests of the page about a study's overhead, and of resuming the benchmark."""

import pandas as pd

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

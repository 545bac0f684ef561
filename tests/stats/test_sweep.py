"""Tests of the best value of a sweep in each cell."""

from typing import Any

import pytest

from attnlab.stats.sweep import BestValue, best_values

INF = float("inf")


def rows(cell: str, scores: dict[float, list[Any]]) -> list[dict[str, Any]]:
    """Return a row for each score; a text instead of a score is the state of a run without one."""
    return [
        {"cell": cell, "phase": "sweep", "seed": seed, "params": {"train.lr": value}, "state": score}
        if isinstance(score, str)
        else {
            "cell": cell,
            "phase": "sweep",
            "seed": seed,
            "params": {"train.lr": value},
            "state": "completed",
            "valid_m": score,
        }
        for value, of_value in scores.items()
        for seed, score in enumerate(of_value)
    ]


def best(scores: dict[float, list[Any]], direction: str = "min") -> BestValue:
    [value] = best_values(rows("a", scores), path="train.lr", metric="m", direction=direction)
    return value


@pytest.mark.parametrize(
    ("scores", "direction", "value", "edge"),
    [
        ({1: [3, 3.2], 2: [2, 2], 4: [3, 3]}, "min", 2, ""),
        ({1: [3, 3.2], 2: [2, 2], 4: [3, 3]}, "max", 1, "smallest"),
        ({4: [1, 1.1], 1: [3, 3], 2: [2, 2]}, "min", 4, "largest"),
        ({1: [3, 3], 2: [1, 9], 4: [2, 2]}, "min", 4, "largest"),  # by the mean, not by the best seed
        ({1: [3, 3], 2: [2, 2], 4: [1, "diverged"]}, "min", 2, ""),  # one divergence is worse than any score
        ({1: [1, 1], 2: [2, 2], 4: [3, "diverged"]}, "max", 2, ""),
        ({1: [3, 3], 2: [2, 2], 4: [1, INF]}, "min", 2, ""),  # completed with an infinite score
        ({1: ["diverged"], 2: ["diverged"], 4: ["diverged"]}, "min", 1, "smallest"),
        ({1: [1.0], 2: [1.0], 4: [1.0]}, "max", 2, ""),  # saturated
        ({1: [3], 2: [2], 4: ["failed"]}, "min", 2, "largest"),  # 4 was not tried
        ({1: [3], 2: [2], 4: ["out_of_memory"]}, "min", 2, "largest"),
        ({1: [3, 3], 2: [2, "failed"], 4: [3, 3]}, "min", 2, ""),
    ],
)
def test_the_best_value_of_a_cell(scores: dict[float, list[Any]], direction: str, value: float, edge: str) -> None:
    chosen = best(scores, direction)
    assert (chosen.value, chosen.edge) == (value, edge)


def test_cells_keep_their_order_and_runs_outside_the_sweep_do_not_count() -> None:
    other = [{"cell": "c", "phase": "grid", "params": {}, "state": "completed", "valid_m": 0.0}]
    other += [{"cell": "d", "phase": "sweep", "params": {}, "state": "refused"}]
    runs = rows("b", {1: [2], 2: [1], 4: [2]}) + other + rows("a", {1: [2], 2: [1.5], 4: [2]})
    values = best_values(runs, path="train.lr", metric="m", direction="min")
    assert [(cell.cell, cell.score) for cell in values] == [("b", 1.0), ("a", 1.5)]

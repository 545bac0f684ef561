"""Tests of the program that measures whether averages of weights reduce the variance of a paired difference."""

import pandas
import pytest

import attnlab
from benchmarks.averaging import SHARES, TASKS, study, table, train


def test_each_share_averages_the_weights_of_its_last_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "depth": 1, "heads": 2}}
    small |= {"train": {"steps": 20, "batch_size": 2, "lr": 0.05}, "evaluate": {"valid_limit": 200, "test_limit": 500}}
    monkeypatch.setitem(TASKS, "bytes", small | {"position": "none"})
    scores = train(attnlab.plan(study("bytes", 1)).runs[0].config)
    assert [*scores] == [0.0, *SHARES]
    assert scores[0.05] == pytest.approx(scores[0.0], abs=1e-9), "of 20 steps, the last one"
    assert len({scores[share] for share in SHARES}) == len(SHARES)


def test_the_table_has_the_variance_of_differences_paired_by_seed() -> None:
    rows = [
        {"cell": cell, "seed": seed, "share": share, "score": base + gap * (cell == "no_wo") * (1 if share == 0.0 else 0.5)}
        for seed, (base, gap) in enumerate([(1.0, 0.1), (5.0, 0.3), (9.0, 0.2)])
        for cell in ("dense", "no_wo")
        for share in (0.0, *SHARES)
    ]
    found = table(pandas.DataFrame(rows), "dense")
    assert found["variance_without"].tolist() == pytest.approx([0.01] * 4)
    assert found["variance"].tolist() == pytest.approx([0.0025] * 4)
    assert found["change"].tolist() == pytest.approx([-0.1] * 4) and set(found["seeds"]) == {3}

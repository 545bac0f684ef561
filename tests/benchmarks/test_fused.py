"""Tests of the measurement of fused steps."""

import pytest

from benchmarks import fused


def test_steps_of_each_size_are_measured(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "BATCHES", ((2, 8), (3, 8)))
    fused.measure(device="cpu", precision="fp32", seeds=2, widths=[8], turns=1)
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines()[-2:]]
    assert [row[1].strip() for row in rows] == ["16", "24"] and all(float(row[2]) > 0 for row in rows)

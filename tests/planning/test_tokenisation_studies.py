"""Tests of the studies that compare bytes with subwords at equal FLOPs."""

import pytest

from attnlab.planning.plan import plan
from tests.support.paths import ROOT


@pytest.mark.parametrize("name", ["gpt2-cpu", "gpt2"])
def test_bytes_and_subwords_are_compared_at_equal_training_flops(name: str) -> None:
    planned = plan(ROOT / "ablations" / f"{name}.yaml")
    assert planned.refused == [] and not [note for note in planned.notes if "is not compared with" in note]
    flops = [cell.train_flops for cell in planned.cells if cell.train_flops]
    assert len(flops) == len(planned.cells) >= 4 and max(flops) < 1.005 * min(flops)
    assert all(cell.eval_flops and cell.eval_flops < 0.1 * flops[0] for cell in planned.cells)
    assert planned.cells[0].config.task.options["tokens"] == "bytes"
    assert len({cell.config.model.initialization for cell in planned.cells} & {"gpt2"}) == 1

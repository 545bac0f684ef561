"""Tests of plans whose seeds are to be trained as one model: refused cells, and the note where it is slow."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan

BASE: dict[str, Any] = {
    "task": {"name": "pydocs", "length": 16},
    "model": {"dim": 16, "depth": 2, "heads": 2},
    "train": {"steps": 2, "batch_size": 2},
    "machine": {"device": "cpu"},
}

CONTIGUOUS = {"name": "pydocs", "length": 16, "sampling": "contiguous"}


def planned(variants: list[Any], *, sets: dict[str, Any] | None = None, **more: Any) -> Plan:
    content = {"study": "s", "base": BASE, "grid": {"variant": variants}, "seeds": [0, 1], "run": {"fuse": "seeds"}}
    return plan({**content, **more}, sets=sets)


def test_fusing_changes_no_run() -> None:
    together, alone = planned(["dense", "no_wo"]), planned(["dense", "no_wo"], run={})
    assert [run.key for run in together.runs] == [run.key for run in alone.runs]
    assert all(cell.refusal is None for cell in together.cells)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ({"position": "rotary", "task": CONTIGUOUS, "model.mem_len": 8}, "model.mem_len 0"),
        ({"train.gradient_accumulation": 2}, "train.gradient_accumulation 1"),
        ({"train.activation_checkpointing": True}, "train.activation_checkpointing false"),
        ({"task": {"name": "imdb", "length": 16}}, "a language model"),
    ],
)
def test_what_cannot_be_fused_is_refused(sets: dict[str, Any], expected: str) -> None:
    (cell,) = planned(["dense"], sets=sets).cells
    assert str(cell.refusal).startswith(f"run.fuse: expected {expected}")
    (alone,) = planned(["dense"], sets=sets, run={}).cells
    assert alone.refusal is None


def test_runs_that_start_from_others_are_refused() -> None:
    base = BASE | {"init": {"from": "first"}}
    (cell,) = planned(["dense"], base=base, stages={"first": {"train": {"steps": 1}}}).cells
    assert cell.refusal == "run.fuse: expected training from scratch, got init"


def test_a_model_that_vmap_cannot_evaluate_is_refused_alone() -> None:
    gru, dense = planned(["gru", "dense"]).cells
    assert "vmap cannot evaluate" in str(gru.refusal) and "gru" in str(gru.refusal)
    assert dense.refusal is None


def test_dropout_is_that_of_a_run_alone() -> None:
    """Also of the output of a convolution, which is not contiguous."""
    (cell,) = planned(["convolution"], sets={"model.dropout": 0.2}).cells
    assert cell.refusal is None


OWN = '''
import torch
from attnlab.registry import register_variant
from attnlab.variants.dense import Dense

@register_variant("counting")
class Counting(Dense):
    def forward(self, x, **kwargs):
        y = super().forward(x, **kwargs)
        if y.mean() > 1e9:
            y = y * 2
        return y

@register_variant("noisy")
class Noisy(Dense):
    def forward(self, x, **kwargs):
        y = super().forward(x, **kwargs)
        return y + torch.{draw} if self.training else y

@register_variant("transposing")
class Transposing(Dense):
    """The mask of a tensor that is not contiguous follows its order in memory, which differs under vmap."""

    def forward(self, x, **kwargs):
        return torch.nn.functional.dropout(super().forward(x, **kwargs).mT, 0.2, self.training).mT

@register_variant("averaging")
class Averaging(Dense):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("average", torch.zeros(()))

    def forward(self, x, **kwargs):
        y = super().forward(x, **kwargs)
        if self.training:
            self.average = 0.9 * self.average + 0.1 * y.detach().mean()
            return y
        return y - self.average
'''


@pytest.mark.parametrize(
    ("variant", "draw", "refused"),
    [
        ("counting", "rand(())", "vmap cannot evaluate"),
        ("noisy", "rand(x.shape)", None),
        ("noisy", "randn_like(x)", "vmap cannot evaluate"),
        ("transposing", "rand(())", "run.fuse: expected a loss of"),
        ("averaging", "rand(())", "got changes of backbone.blocks.0"),
    ],
)
def test_variants_of_a_user(variant: str, draw: str, refused: str | None, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("{draw}", draw))
    (cell,) = planned([variant], imports=[str(tmp_path / "own.py")]).cells
    assert (cell.refusal is None) if refused is None else refused in str(cell.refusal)


def test_the_plan_advises_against_it_where_it_is_slow_on_a_cpu() -> None:
    def notes(**sets: Any) -> list[str]:
        return [note for note in planned(["dense", "no_wo", "gru"], sets=sets).notes if "run.fuse" in note]

    assert notes() == []
    (wide,) = notes(**{"model.dim": 128})
    assert "width 128 and 32 tokens" in wide and "'dense', 'no_wo'" in wide and "gru" not in wide
    assert "8,192 tokens" in notes(**{"train.batch_size": 512})[0]


def test_a_program_cannot_be_fused() -> None:
    command = {"command": "python train.py --lr {lr} --seed {seed}", "metric": {"name": "accuracy", "direction": "max"}}
    with pytest.raises(UserError, match="expected no 'fuse' in a study with 'command'"):
        plan({"study": "s", "grid": {"lr": [0.1]}, "seeds": [0, 1], "run": {"fuse": "seeds"}, **command})


def test_only_seeds_can_be_fused() -> None:
    with pytest.raises(UserError, match="run.fuse"):
        planned(["dense"], run={"fuse": "cells"})

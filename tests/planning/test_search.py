"""Tests of the plan of a searched study: its cost, its runs, and its warnings."""

from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from tests.support.studies import SEARCH, misplanned, write

BATCH = "train.batch_size: {low: 2, high: 6}"
LR = "train.lr: {low: 1e-4, high: 1e-2, log: true}"
PARAMS = {"train.lr": 2e-3, "train.batch_size": 6, "model.feed_forward": "relu"}

# From the design page.
DESIGNED = """\
study: enwik8-search
base:
  task: {name: enwik8, length: 256}
  model: {dim: 256, depth: 4, heads: 8}
  train: {steps: 20_000, batch_size: 32, eval_every: 500, precision: bf16}
grid:
  variant: [dense, no_wo, transformer_xl, {name: strided_sparse, stride: 16}]
  position: [learned, rotary, relative]
skip:
  - where: {variant: no_wo, position: rotary}
    because: covered by wo.yaml
search:
  trials: 24
  space:
    train.lr: {low: 1e-4, high: 1e-2, log: true}
  sampler: {name: TPESampler, n_startup_trials: 8}
  pruner: {name: HyperbandPruner, min_resource: 1_000, max_resource: 20_000}
confirm:
  seeds: [100, 101, 102, 103, 104]
metric: bits_per_byte
"""


def test_the_study_of_the_design_page_plans_without_a_note(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, DESIGNED))
    assert planned.searched and planned.runs == [] and planned.runs_per_cell == 29
    assert [note for note in planned.notes if not note.startswith("data: ")] == []
    assert planned.train_flops == 29 * sum(cell.train_flops or 0 for cell in planned.cells)
    assert planned.refused == []
    one_head = plan(write(tmp_path, DESIGNED), sets={"model.heads": 1})  # strided_sparse needs two
    assert {(cell.axes["variant"], run.phase, run.seed) for cell, run in one_head.refused} == {
        ("strided_sparse stride=16", "confirm", 100)
    }


def test_a_refused_cell_is_neither_searched_nor_counted(tmp_path: Path) -> None:
    text = SEARCH.replace("[dense, no_wo]", "[dense]\n  backend: [reference, xformers]")
    planned = plan(write(tmp_path, text))
    assert planned.total == planned.runs_per_cell == 10
    [(cell, run)] = planned.refused
    assert (cell.name, run.phase, run.seed, run.trial) == ("dense xformers", "confirm", 100, None)


def test_the_digest_of_a_search_is_of_what_decides_it(tmp_path: Path) -> None:
    path = write(tmp_path, SEARCH)
    first = plan(path)
    dense, no_wo = first.cells
    digests = {first.search_digest(dense), first.search_digest(no_wo)}
    for sets in ({"search.seed": 1}, {"search.sampler": "RandomSampler"}, {"search.pruner": "NopPruner"}, {"train.steps": 90}):
        planned = plan(path, sets=sets)
        digests.add(planned.search_digest(planned.cells[0]))
    assert len(digests) == 6
    more = plan(path, sets={"search.trials": 50, "search.parallel": 2, "confirm.seeds": [7]})
    assert more.search_digest(more.cells[0]) == first.search_digest(dense)
    keys = [first.search_run(dense, n, PARAMS).key for n in (7, 8)]
    assert keys == [f"{first.search_digest(dense)}.t07", f"{first.search_digest(dense)}.t08"]
    winner = first.confirm_run(dense, 100, PARAMS)
    assert winner.key == winner.fingerprint


def test_runs_of_both_phases(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, SEARCH))
    cell = planned.cells[0]
    trial, winner = planned.search_run(cell, 7, PARAMS), planned.confirm_run(cell, 101, PARAMS)
    assert (trial.name, trial.phase, trial.trial, trial.seed, trial.params) == ("dense t07", "search", 7, 0, PARAMS)
    assert (winner.name, winner.phase, winner.trial, winner.seed) == ("dense s101", "confirm", None, 101)
    for run, test in ((trial, False), (winner, True)):
        assert (run.config.train.lr, run.config.train.batch_size, run.config.model.feed_forward) == (2e-3, 6, "relu")
        assert run.config.seed == run.seed and run.config.evaluate.test is test
        back = {"train.lr": cell.config.train.lr, "train.batch_size": 4, "model.feed_forward": "gelu", "seed": 0}
        assert run.config.replace({**back, "evaluate.test": True}) == cell.config  # nothing else was changed
    assert trial.fingerprint != planned.search_run(planned.cells[1], 7, PARAMS).fingerprint
    assert trial.fingerprint == planned.search_run(cell, 8, PARAMS).fingerprint  # the same training


def test_a_combination_that_is_no_configuration_says_which(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, SEARCH.replace("batch_size: 4,", "batch_size: 4, gradient_accumulation: 2,")))
    with pytest.raises(UserError) as caught:
        planned.search_run(planned.cells[0], 0, {"train.batch_size": 5})
    assert str(caught.value).endswith(
        "s.yaml:13:5: the cell 'dense' with train.batch_size=5: "
        "train.gradient_accumulation: expected a divisor of batch_size 5, got 2"
    )
    with pytest.raises(UserError, match="the cell 'dense' with backend=\"?xformers\"?, .*CUDA"):
        planned.search_run(planned.cells[0], 0, {"backend": "xformers", "model.heads": 1})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "train.batch_size: {low: 2",
            "variant.stride: {low: 2",
            "s.yaml:14:27: the cell 'dense' with variant.stride=2: variant dense has no option 'stride'; it takes no options",
        ),
        (
            BATCH,
            "model.heads: {low: 2, high: 5}",
            "s.yaml:14:33: the cell 'dense' with model.heads=5: dense: model.dim 12 is not divisible by 5 heads",
        ),
    ],
)
def test_every_cell_must_take_every_end(old: str, new: str, expected: str, tmp_path: Path) -> None:
    assert misplanned(write(tmp_path, SEARCH.replace(old, new))).startswith(expected)


def test_an_option_that_every_cell_has_is_searched(tmp_path: Path) -> None:
    text = SEARCH.replace("train.batch_size: {low: 2", "variant.stride: {low: 2").replace("[dense, no_wo]", "[strided_sparse]")
    planned = plan(write(tmp_path, text.replace("baseline: {variant: dense}\n", "")))
    run = planned.search_run(planned.cells[0], 0, {"variant.stride": 5})
    assert run.config.variant.options == {"stride": 5} and run.cell.name == "strided_sparse"  # type: ignore[union-attr]
    message = misplanned(write(tmp_path, text.replace("baseline: {variant: dense}\n", "").replace("{low: 2,", "{low: 2.5,")))
    assert message.startswith(
        "s.yaml:14:27: the cell 'strided_sparse' with variant.stride=2.5: stride: expected a whole number"
    )


@pytest.mark.parametrize(
    ("space", "noted"), [("train.steps: {low: 50, high: 90}", True), (BATCH, True), ("model.dim: {choices: [12, 24]}", False)]
)
def test_budgets_that_a_search_makes_unequal_are_noted(space: str, noted: bool, tmp_path: Path) -> None:
    notes = plan(write(tmp_path, SEARCH.replace(BATCH, space))).notes
    assert [note.startswith("search.space: train.") for note in notes] == [True] * noted


def test_the_plan_prints_what_will_be_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, SEARCH)
    assert main.main(["plan", str(path), "--tflops", "0.5", "--set", "search.trials=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("10 runs (3 trials + 2 confirm seeds per cell): ") for line in lines)
    for line in (
        "space: train.lr: 0.0001 to 0.01, log",
        "space: train.batch_size: 2 to 6, whole",
        "space: model.feed_forward: one of relu, gelu",
        "sampler: TPESampler n_startup_trials=3",
        "pruner: MedianPruner n_startup_trials=2",
        "confirm: the best trial of each cell by valid_bits_per_byte, retrained with seed 100, 101, never pruned",
    ):
        assert line in lines

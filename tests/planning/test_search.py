"""Tests of the plan of a searched study: its cost, its runs, and its warnings."""

from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.planning.plan import plan
from tests.support.studies import SEARCH, misplanned, write

PRUNER = "{name: MedianPruner, n_startup_trials: 2}"
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


def test_the_study_of_the_design_page_plans_with_one_note(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, DESIGNED))
    assert planned.searched and planned.runs == [] and planned.runs_per_cell == 29
    [note] = [note for note in planned.notes if not note.startswith("data: ")]
    assert note.startswith("sampler: TPESampler") and "sweep: {train.lr: [...]}" in note
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


# Text of SEARCH to replace, its replacement, and words of the note, or "" if no note is expected.
TPE, MEDIAN = "{name: TPESampler, n_startup_trials: 3}", "{name: MedianPruner, n_startup_trials: 2, "
HALVING, PATIENT = "{name: SuccessiveHalvingPruner, ", "{name: PatientPruner, patience: "
NOTES = {
    "a good study": ("trials: 8", "trials: 8", ""),
    "no pruner, no notes on it": (PRUNER, "NopPruner", ""),
    "a sampler that only guesses": (
        "trials: 8",
        "trials: 3",
        "first 3 trials at random (n_startup_trials), and the search has only 3",
    ),
    "a population of guesses": (TPE, "NSGAIISampler", "first 50 trials at random (population_size)"),
    "choices at random": (TPE, "QMCSampler", "QMCSampler draws choices at random (model.feed_forward)"),
    "whole ends of a fraction": (
        BATCH,
        "train.weight_decay: {low: 0, high: 1}",
        "search.space.train.weight_decay: both ends are whole numbers, so only whole numbers are tried: write low: 0.0",
    ),
    "whole ends of whole numbers": (BATCH, "train.warmup: {low: 0, high: 60}", ""),
    "nothing to report": (", eval_every: 10", "", "only once, at the last step (100): set train.eval_every lower"),
    "evaluated at the end": ("eval_every: 10", "eval_every: 100", "valid is read only once, at the last step (100)"),
    "too few trials": ("n_startup_trials: 2", "n_startup_trials: 8", "waits for 8 trials (n_startup_trials), and"),
    "too few to compare with": ("n_startup_trials: 2", "n_min_trials: 9", "waits for 9 trials (n_min_trials)"),
    "a warm-up to the end": (PRUNER, f"{MEDIAN}n_warmup_steps: 95}}", "first acts at step 95 (n_warmup_steps)"),
    "a warm-up that ends in time": (PRUNER, f"{MEDIAN}n_warmup_steps: 90}}", ""),
    "looked at once": (PRUNER, f"{MEDIAN}interval_steps: 101}}", "acts once in each trial"),
    "all are kept": (PRUNER, "{name: PercentilePruner, percentile: 100.0}", "keeps the best 100 %"),
    "hyperband that fits": (PRUNER, "{name: HyperbandPruner, min_resource: 10, max_resource: 100}", ""),
    "hyperband of another length": (
        PRUNER,
        "{name: HyperbandPruner, min_resource: 10, max_resource: 300}",
        "runs of 300 steps (max_resource), but a run has 100: set max_resource: 100",
    ),
    "hyperband that begins too late": (PRUNER, "{name: HyperbandPruner, min_resource: 91}", "first acts at step 91 (min_res"),
    "halving that begins too late": (
        PRUNER,
        f"{HALVING}min_resource: 5, min_early_stopping_rate: 3}}",
        "step 320 (min_early_stopping_rate), but the last evaluation before the end is at step 90",
    ),
    "halving that stops all": (
        PRUNER,
        f"{HALVING}min_resource: 10, bootstrap_count: 8}}",
        "(bootstrap_count), and the search has 8, so none completes",
    ),
    "a rate beyond reason": (PRUNER, f"{HALVING}min_early_stopping_rate: {10**9}}}", "it stops no trial"),
    "patience to the end": (PRUNER, f"{PATIENT}8, wrapped_pruner: null}}", "more than 9 evaluations (patience)"),
    "patience that ends in time": (PRUNER, f"{PATIENT}7, wrapped_pruner: null}}", ""),
    "a pruner inside": (PRUNER, f"{PATIENT}1, wrapped_pruner: MedianPruner}}", ""),
    "a pruner inside that waits": (
        PRUNER,
        f"{PATIENT}1, wrapped_pruner: {{name: MedianPruner, n_startup_trials: 9}}}}",
        "MedianPruner waits for 9 trials",
    ),
    "a pruner over seeds": (PRUNER, "WilcoxonPruner", "a trial is one training with one seed"),
    "a threshold on the wrong side": (
        PRUNER,
        "{name: ThresholdPruner, lower: 2.0}",
        "stops the trials with the better bits_per_byte: set upper",
    ),
    "a threshold on the right side": (PRUNER, "{name: ThresholdPruner, upper: 7.0}", ""),
    "an unequal budget": (BATCH, "train.steps: {low: 50, high: 90}", "cells can be confirmed with unequal budgets"),
    "an unequal batch": (BATCH, BATCH, "search.space: train.batch_size decides how much data a run reads"),
    "a dimension that does nothing": (
        BATCH,
        "model.pool: {choices: [mean, max]}",
        "search.space: model.pool changes nothing: only a classifier pools",
    ),
    "a dimension that another one brings to life": (
        BATCH,
        "train.final_lr: {low: 0.0, high: 0.1}\n    train.schedule: {choices: [constant, cosine]}",
        "",
    ),
    "micro-batches": (
        BATCH,
        "train.gradient_accumulation: {choices: [1, 2]}",
        "train.gradient_accumulation changes the speed and memory of a run",
    ),
    "runs of many lengths": (BATCH, "train.steps: {low: 50, high: 90}", "evaluated at different steps (train.steps)"),
}


@pytest.mark.parametrize("kind", NOTES)
def test_settings_that_do_nothing_are_noted(kind: str, tmp_path: Path) -> None:
    old, new, expected = NOTES[kind]
    assert SEARCH.count(old) == 1, f"{old!r} must stand once in the good file"
    text = SEARCH.replace(old, new)
    notes = plan(write(tmp_path, text)).notes
    if BATCH in text and BATCH not in old:  # the note on the budget has cases of its own
        notes = [note for note in notes if "how much data" not in note]
    assert any(expected in note for note in notes) if expected else notes == [], notes


def test_epochs_that_a_batch_size_moves_are_noted(tmp_path: Path) -> None:
    text = SEARCH.replace("steps: 100, batch_size: 4, eval_every: 10", "epochs: 2, batch_size: 4")
    budget, pruner = plan(write(tmp_path, text)).notes
    assert "train.batch_size" in budget and "unequal numbers of steps" in budget
    assert "evaluated at different steps (train.batch_size)" in pruner
    fixed = plan(write(tmp_path, text.replace(BATCH, "model.dropout: {low: 0.0, high: 0.5}")))
    assert fixed.notes == []  # valid is read after the first of two epochs
    once = plan(write(tmp_path, text.replace(BATCH, "model.dropout: {low: 0.0, high: 0.5}").replace("epochs: 2", "epochs: 1")))
    assert "valid is read only once" in once.notes[0]


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
    assert sum(line.startswith("note: sampler: TPESampler draws its first") for line in lines) == 1


@pytest.mark.parametrize(
    ("space", "sampler", "words"),
    [
        ("{train.lr: {low: 1e-4, high: 1e-2, log: true}}", "TPESampler, n_startup_trials: 2", ["earlier", "sweep: {train.lr:"]),
        ("{train.lr: {low: 1e-4, high: 1e-2, log: true}}", "TPESampler, n_startup_trials: 4", []),  # all trials are random
        ("{train.lr: {low: 1e-4, high: 1e-2, log: true}}", "QMCSampler", []),
        ("{train.lr: {low: 1e-4, high: 1e-2, log: true}}", "RandomSampler", []),
        ("{model.dropout: {low: 0.0, high: 0.5}}", "TPESampler, n_startup_trials: 2", []),  # a sweep cannot replace it
    ],
)
def test_a_sampler_that_tries_cells_at_different_values_is_noted(
    space: str, sampler: str, words: list[str], tmp_path: Path
) -> None:
    text = (
        SEARCH[: SEARCH.index("search:")]
        + f"search: {{trials: 4, space: {space}, sampler: {{name: {sampler}}}}}\nconfirm: {{seeds: [9]}}\n"
    )
    notes = [note for note in plan(write(tmp_path, text)).notes if "different values" in note]
    assert len(notes) == bool(words) and all(word in note for note in notes for word in words)

"""Tests of the plan: cells with figures, runs with seeds, duplicates, baselines, and the shipped studies."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab.cli.plan import print_plan
from attnlab.config.run import RunConfig
from attnlab.config.schema import json_schema
from attnlab.nn import attention
from attnlab.planning.plan import plan
from attnlab.registry import TASKS
from attnlab.training import costs
from attnlab.training.optim import USES
from tests.support.paths import ROOT
from tests.support.studies import STUDY, misplanned, write

ABLATIONS = ROOT / "ablations"


def test_a_plan_has_a_run_for_each_cell_and_seed(tmp_path: Path) -> None:
    planned = plan(write(tmp_path, STUDY))
    names = ["dense", "no_wo", "strided_sparse stride=7"]
    assert [cell.name for cell in planned.cells] == names
    assert [run.name for run in planned.runs] == [f"{name} s{seed}" for name in names for seed in (3, 5)]
    assert [run.config.seed for run in planned.runs] == [3, 5] * 3
    assert len({run.fingerprint for run in planned.runs}) == 6
    assert planned.refused == [] and planned.notes == []
    assert (planned.metric, planned.direction) == ("bits_per_byte", "min")
    assert [planned.baseline_of(cell) for cell in planned.cells] == [planned.cells[0]] * 3
    assert planned.cells[2].place.endswith("s.yaml:9:27")


def test_the_configuration_is_resolved(tmp_path: Path) -> None:
    config = plan(write(tmp_path, STUDY.replace("  position: learned\n", ""))).cells[0].config
    assert config.position is not None and config.position.name == "learned"  # the variant's default
    assert config.backend == "blocked" and config.machine.device == "cpu"
    assert config.data.startswith("pydocs sha256:") and config.sources == {} and config.packages == {}


def test_the_figures_are_of_the_model(tmp_path: Path) -> None:
    dense, no_wo, _ = plan(write(tmp_path, STUDY)).cells
    assert dense.parameters is not None and no_wo.parameters is not None
    assert dense.parameters - no_wo.parameters == 12 * 12
    assert dense.attention_parameters == 4 * 12 * 12
    assert dense.flops_per_token is not None
    assert dense.train_flops == 3 * dense.flops_per_token * 5 * 3 * 24

    sets = {"train.eval_every": 2, "evaluate.valid_limit": 500, "evaluate.test_limit": 600}
    evaluated = plan(write(tmp_path, STUDY), sets=sets).cells[0]  # valid is read after steps 2, 4 and 5
    assert evaluated.eval_flops == dense.flops_per_token * (3 * 504 + 600)
    untested = plan(write(tmp_path, STUDY), sets={**sets, "evaluate.test": False}).cells[0]
    assert untested.eval_flops == dense.flops_per_token * 3 * 504


def test_a_row_longer_than_the_text_is_refused_before_its_cost_is_traced(tmp_path: Path) -> None:
    """Tracing dense attention over so many bytes would take hours."""
    cells = plan(write(tmp_path, STUDY), sets={"task.length": 100_000_000}).cells
    assert [cell.parameters for cell in cells] == [None] * 3
    assert all("a row needs 100,000,001" in str(cell.refusal) for cell in cells)


def test_what_runs_on_a_device_alone_is_planned_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """xformers' kernels accept neither meta tensors nor CPU tensors."""
    monkeypatch.setattr(attention, "unsupported", lambda *args, **config: None)
    fits = {"model.dim": 16, "model.heads": 2}
    xformers_cells, sdpa_cells = (
        plan(write(tmp_path, STUDY), sets={**fits, "backend": name}).cells for name in ("xformers", "sdpa")
    )
    assert {cell.config.backend for cell in xformers_cells} == {"xformers"} and xformers_cells[0].train_flops
    for xformers_cell, sdpa_cell in zip(xformers_cells, sdpa_cells, strict=True):
        assert xformers_cell.refusal is None
        assert (xformers_cell.parameters, xformers_cell.train_flops, xformers_cell.eval_flops) == (
            sdpa_cell.parameters,
            sdpa_cell.train_flops,
            sdpa_cell.eval_flops,
        )


def test_python_may_call_the_package(tmp_path: Path) -> None:
    assert attnlab.plan(write(tmp_path, STUDY)).cells[0].name == "dense"
    assert attnlab.plan(write(tmp_path, STUDY)).cells[0].name == "dense"  # a second call, after the import


def test_only_keeps_some_cells(tmp_path: Path) -> None:
    path = write(tmp_path, STUDY.replace("seeds:", "  train.lr: [1e-3, 2e-3]\nseeds:"))
    planned = plan(path, only={"variant": "no_wo, strided_sparse", "lr": 1e-3})
    assert [cell.name for cell in planned.cells] == ["no_wo lr=0.001", "strided_sparse stride=7 lr=0.001"]
    assert "'no_wo lr=0.001' has no baseline: its cell with variant dense is not among the cells chosen" in planned.notes
    assert [cell.name for cell in plan(path, only={"train.lr": "2e-3", "variant": ["dense"]}).cells] == ["dense lr=0.002"]
    assert misplanned(path, only={"variant": "no_w"}) == (
        "--only variant=no_w: variant: expected one of dense, no_wo, strided_sparse stride=7, got 'no_w' "
        "(did you mean 'no_wo'?)"
    )
    assert misplanned(path, only={"varant": "dense"}).startswith("--only varant=dense: 'varant' is not an axis of the grid")


def test_only_of_what_the_study_skips_is_a_mistake(tmp_path: Path) -> None:
    text = STUDY.replace("seeds:", "  train.lr: [1e-3, 2e-3]\nseeds:")
    skip = "skip:\n  - where: {variant: no_wo, train.lr: 2e-3}\n    because: seen before\n"
    message = misplanned(write(tmp_path, text + skip), only={"variant": "no_wo", "train.lr": 2e-3})
    assert (
        message == "--only variant=no_wo, train.lr=0.002: expected a cell of the grid, got none (skipped, or not in the grid)"
    )


def test_cells_that_are_the_same_are_run_once(tmp_path: Path) -> None:
    text = STUDY.replace("stride: 7}", "stride: 16}, strided_sparse, basic").replace(", heads: 2", "")
    planned = plan(write(tmp_path, text.replace("seeds:", "  model.heads: [2, 3]\nseeds:")))
    assert [cell.name for cell in planned.cells] == [
        *("dense heads=2", "dense heads=3", "no_wo heads=2", "no_wo heads=3"),
        *("strided_sparse stride=16 heads=2", "strided_sparse stride=16 heads=3", "basic heads=2"),
    ]
    assert planned.cells[-1].config.model.heads == 1
    assert "basic heads=3" in planned.doubles and planned.doubles["basic heads=3"] == "basic heads=2"
    assert len(planned.notes) == len(planned.doubles) == 3


HEADS = STUDY.replace("seeds:", "  model.heads: [2, 3]\nseeds:").replace(", heads: 2", "")


def test_a_double_that_is_a_baseline_keeps_its_comparisons(tmp_path: Path) -> None:
    """The number of heads changes nothing for gru, so the baseline of "dense heads=3" is run as "gru heads=2"."""
    text = HEADS.replace("[dense, no_wo, {name: strided_sparse, stride: 7}]", "[dense, gru]").replace("position: learned", "")
    planned = plan(write(tmp_path, text.replace("{variant: dense}", "{variant: gru}")))
    assert [cell.name for cell in planned.cells] == ["dense heads=2", "dense heads=3", "gru heads=2"]
    assert [planned.baseline_of(cell).name for cell in planned.cells] == ["gru heads=2"] * 3  # type: ignore[union-attr]
    assert planned.doubles == {"gru heads=3": "gru heads=2"}
    [note] = planned.notes
    assert note.startswith("'gru heads=3' is the same configuration as 'gru heads=2'")


def test_only_of_a_double_keeps_the_cell_that_is_run_as_it(tmp_path: Path) -> None:
    text = HEADS.replace("[dense, no_wo, {name: strided_sparse, stride: 7}]", "[dense, gru]").replace("position: learned", "")
    planned = plan(write(tmp_path, text), only={"variant": "gru", "heads": 3})
    assert [cell.name for cell in planned.cells] == ["gru heads=2"], "one configuration has one name in the record"
    assert planned.notes[0].startswith("'gru heads=3' is the same configuration as 'gru heads=2'")


def test_cells_are_matched_to_the_cell_that_is_run_for_a_double(tmp_path: Path) -> None:
    variants = "[dense, gru, {name: no_wo, match: params}]"
    text = HEADS.replace("[dense, no_wo, {name: strided_sparse, stride: 7}]", variants).replace("position: learned", "")
    planned = plan(write(tmp_path, text.replace("{variant: dense}", "{variant: gru}")))
    assert all(cell.matched.endswith("against 'gru heads=2'") for cell in planned.cells if cell.name.startswith("no_wo"))
    assert planned.cells[2].name == "gru heads=2"


# Axes that change nothing, the base that they need, and words of the reason.
DEAD_AXES = {
    "model.pool: [mean, max]": ("", "only a classifier pools"),
    "train.final_lr: [0.0, 0.1]": ("schedule: constant, ", "train.schedule is constant"),
    "evaluate.test_limit: [100, 200]": ("", "evaluate.test is false"),
    "train.checkpoint_selection: [last, best]": ("", "valid is read once"),
    "train.patience: [null, 1]": ("eval_every: 5, ", "valid is read once"),
    "train.stop_at: [null, 0.9]": ("eval_every: 5, ", "valid is read once"),
}


@pytest.mark.parametrize("axis", DEAD_AXES)
def test_an_axis_that_changes_nothing_is_named(axis: str, tmp_path: Path) -> None:
    train, reason = DEAD_AXES[axis]
    text = STUDY.replace("seeds:", f"  {axis}\nseeds:").replace("train: {", f"train: {{{train}")
    if axis.startswith("evaluate"):
        text = text.replace("grid:", "  evaluate: {test: false}\ngrid:")
    planned = plan(write(tmp_path, text))
    assert len(planned.cells) == 3, "each configuration is run once"
    [note] = planned.notes
    assert note.startswith(f"the axis {axis.partition(':')[0]!r} changes nothing") and reason in note


def test_an_axis_that_changes_some_cells_is_not_called_dead(tmp_path: Path) -> None:
    text = STUDY.replace("seeds:", "  train.final_lr: [0.0, 0.1]\n  train.schedule: [constant, cosine]\nseeds:")
    planned = plan(write(tmp_path, text))
    assert len(planned.cells) == 9 and not any("changes nothing" in note for note in planned.notes)
    assert sum("is the same configuration as" in note for note in planned.notes) == 3


def test_a_baseline_that_is_refused_or_missing_is_noted(tmp_path: Path) -> None:
    text = STUDY.replace("{variant: dense}", "{variant: strided_sparse}").replace("heads: 2", "heads: 1")
    assert plan(write(tmp_path, text)).notes == [
        "'dense' has no baseline: 'strided_sparse stride=7' is refused",
        "'no_wo' has no baseline: 'strided_sparse stride=7' is refused",
    ]


def test_values_of_another_axis_than_the_task_have_one_metric(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "from attnlab.registry import TASKS\n\n\nclass Two(TASKS.get('pydocs')):\n"
        "    def __init__(self, *, length: int = 24, metric: str = 'bits_per_byte') -> None:\n"
        "        super().__init__(length=length)\n        self.metric = metric\n"
    )
    text = STUDY.replace("name: pydocs", "name: t.py:Two").replace("seeds:", "  task.metric: [bits_per_byte, loss]\nseeds:")
    assert "task: expected tasks with one metric, got bits_per_byte and loss" in misplanned(write(tmp_path, text))


@pytest.mark.parametrize("name", ["quickstart", "imdb", "enwik8", "imdb-cpu", "enwik8-cpu"])
def test_the_studies_that_ship_plan_without_a_refusal(name: str) -> None:
    planned = plan(ABLATIONS / f"{name}.yaml")
    assert planned.study.study == name
    on_data = [note for note in planned.notes if note.startswith("data: ")]
    assert planned.refused == [] and planned.notes == on_data
    assert len(on_data) == name.startswith("enwik8")
    assert all(cell.parameters and cell.train_flops for cell in planned.cells)


@pytest.mark.slow
def test_models_of_published_sizes_have_as_many_parameters(tmp_path: Path) -> None:
    (xl, _), (large, *_) = (plan(ABLATIONS / f"{name}.yaml").cells for name in ("gpt2-xl", "bert-large"))
    assert xl.parameters == 1_557_611_200, "as `transformers` counts gpt2-xl"
    # The parameters of bert-large-uncased for pre-training, with 30,000 instead of 30,522 tokens.
    assert large.stages[0].parameters == 335_141_888 - 522 * 1024 + (1024 * 1024 + 3 * 1024) + 30_000 + 2 * 1024 + 2
    files = {}
    for split in ("", "valid_", "test_"):
        for side in ("source", "target"):
            files[f"task.{split}{side}"] = path = tmp_path / f"{split}{side}"
            path.write_text("".join(f"a sentence of {split} and number {i}\n" for i in range(99)))
    sets = {**{name: str(path) for name, path in files.items()}, "task.vocabulary": 90}
    base = plan(ABLATIONS / "wmt14.yaml", sets=sets).cells[0]
    assert base.parameters is not None
    blocks = 6 * (4 * 512**2 + 4 * 512) + 6 * (8 * 512**2 + 6 * 512) + 12 * (2 * 512 * 2048 + 2048 + 512)
    assert base.parameters - blocks + 37_000 * 513 == pytest.approx(90 * 513 + 37_000 * 513, rel=1e-3)
    assert blocks + 37_000 * 513 == pytest.approx(65e6, rel=0.05), "table 3"


@pytest.mark.parametrize("name", ["quickstart", "imdb", "enwik8", "enwik8-headline", "wo-enwik8"])
def test_evaluation_is_a_small_part_of_the_studies_that_ship(name: str) -> None:
    """The studies for two cores are excluded: they train for minutes, but still read the whole test split."""
    for cell in plan(ABLATIONS / f"{name}.yaml").cells:
        assert cell.eval_flops is not None and cell.train_flops is not None
        assert cell.eval_flops < 0.05 * cell.train_flops, cell.name


def test_the_plan_says_what_evaluation_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(plan(write(tmp_path, STUDY)), tflops=1.0)
    match = re.search(r"Evaluation adds (\S+) % to the FLOPs of training", capsys.readouterr().out)
    dense = plan(write(tmp_path, STUDY)).cells[0]
    assert dense.eval_flops and dense.train_flops
    assert match and "e" not in match[1]
    assert float(match[1].replace(",", "")) == float(f"{100 * dense.eval_flops / dense.train_flops:.2g}")


@pytest.mark.parametrize("field", ["patience", "stop_at"])
def test_the_plan_says_that_runs_may_end_early(field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, STUDY)
    for sets, stated in (({}, False), ({"train.eval_every": 2, f"train.{field}": 1}, True)):
        print_plan(plan(path, sets=sets), tflops=1.0)
        assert ("may end them earlier" in " ".join(capsys.readouterr().out.split())) == stated


def test_one_run_is_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(plan(write(tmp_path, STUDY), sets={"seeds": [1]}, only={"variant": "dense"}), tflops=1.0)
    assert "\n1 run (1 seed per cell): " in capsys.readouterr().out


def test_the_schema_that_ships_is_the_code_s(tmp_path: Path) -> None:
    written = json.loads((ABLATIONS / "study.schema.json").read_text())
    message = "python -m attnlab.config.schema > ablations/study.schema.json"
    assert written == json.loads(json.dumps(json_schema())), message
    assert written["else"]["properties"]["grid"]["properties"]["train.lr"]["items"]["exclusiveMinimum"] == 0
    assert set(written["else"]["properties"]["base"]["properties"]).isdisjoint({"seed", "sources", "packages", "data"})


def test_cells_with_one_shape_share_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[str] = []
    trace = costs.plan_figures
    monkeypatch.setattr(costs, "plan_figures", lambda config, task: traced.append(config.variant.label) or trace(config, task))
    grid = "grid:\n  train.lr: [1e-3, 3e-4, 1e-4]\n  train.steps: [5, 6]\n  model.dim: [12, 24]"
    cells = plan(write(tmp_path, STUDY.replace("grid:", grid))).cells
    shapes = {cell.config.model_dump_json(exclude={"train", "evaluate", "machine", "seed"}) for cell in cells}
    assert len(cells) == 6 * len(shapes) and len(traced) == len(shapes) and len(shapes) >= 4
    assert len({cell.train_flops for cell in cells}) > len({cell.parameters for cell in cells}), "the steps count"


def test_a_cell_keeps_the_figures_of_its_trace_that_a_run_records(tmp_path: Path) -> None:
    cells = plan(write(tmp_path, STUDY)).cells
    traced = [costs.plan_figures(cell.config, TASKS.get("pydocs")(**cell.config.task.options)) for cell in cells]
    recorded = [{name: f[name] for name in f if name.removesuffix("_parameters") not in USES} for f in traced]
    assert [cell.figures for cell in cells] == recorded and "cache_bytes" in recorded[0]
    assert replace(cells[0], flops_per_token=None).figures is None


def test_cells_of_two_precisions_have_caches_of_their_own(tmp_path: Path) -> None:
    grid = "grid:\n  train.precision: [fp32, bf16]"
    cells = plan(write(tmp_path, STUDY.replace("grid:", grid).replace(", no_wo, {name: strided_sparse, stride: 7}", ""))).cells
    single, half = (cell.cache_bytes for cell in cells)
    assert single == 2 * half > 0  # type: ignore[operator]


def test_a_model_that_cannot_be_built_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def broken(config: RunConfig, task: Any) -> dict[str, int]:
        built.append(config.variant.name)  # type: ignore[union-attr]
        raise ZeroDivisionError("by the test")

    monkeypatch.setattr(costs, "plan_figures", broken)
    cells = plan(write(tmp_path, STUDY.replace("grid:", "grid:\n  train.lr: [1e-3, 3e-4]"))).cells
    assert len(cells) == 2 * len(built) and all("by the test" in str(cell.refusal) for cell in cells)


def test_each_plan_traces_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's file may change between two plans of one process."""
    first = plan(write(tmp_path, STUDY)).cells[0]
    trace = costs.plan_figures
    monkeypatch.setattr(costs, "plan_figures", lambda config, task: trace(config, task) | {"parameters": 1})
    assert plan(write(tmp_path, STUDY)).cells[0].parameters == 1 != first.parameters

"""Tests of the estimand of a study: its own, that of its tasks, and the parts that it does not support."""

from pathlib import Path
from typing import Any

import pytest

from attnlab.config.question import EstimandConfig
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.planning.plan import Plan, plan
from attnlab.study.plan import count_comparisons, seed_notes

RECALL = Path(__file__).parents[2] / "examples" / "my_task" / "recall.py"
DECLARED = """
from attnlab import register_task
from recall import Recall

@register_task("bimodal-NAME")
class Bimodal(Recall):
    estimand, threshold = "solve_rate", 0.95
"""


@pytest.fixture
def bimodal(tmp_path: Path) -> str:
    """Return a task that declares a solve rate."""
    (tmp_path / "recall.py").write_text(RECALL.read_text().replace('@register_task("recall")\n', ""))
    (tmp_path / "bimodal.py").write_text(DECLARED.replace("NAME", tmp_path.name))
    return f"{tmp_path / 'bimodal.py'}:Bimodal"


def study(task: str = "pydocs", **fields: Any) -> dict[str, Any]:
    base = {"task": task, "position": "learned", "model": {"dim": 12, "depth": 1, "heads": 2}, "machine": {"device": "cpu"}}
    options = {"grid": {"variant": ["dense", "no_wo", "basic"]}, "seeds": [0, 1, 2], "baseline": {"variant": "dense"}}
    return {"study": "s", "base": {**base, "train": {"steps": 5, "batch_size": 3}}, **options, **fields}


def planned(task: str = "pydocs", **fields: Any) -> Plan:
    return plan(study(task, **fields))


def test_texts_are_summarized_by_the_mean() -> None:
    assert planned().estimand.name == "mean" and seed_notes(planned()) == []


def test_a_task_declares_its_estimand_and_a_study_overrides_it(bimodal: str) -> None:
    declared = planned(bimodal)
    assert declared.estimand == EstimandConfig(name="solve_rate", threshold=0.95)
    assert planned(bimodal, estimand="solve_rate").estimand.threshold == 0.95
    assert planned(bimodal, estimand={"name": "solve_rate", "threshold": 0.5}).estimand.threshold == 0.5
    assert planned(bimodal, estimand="mean").estimand.name == "mean"


@pytest.mark.parametrize(
    ("estimand", "words"),
    [
        ("modus", "mean"),
        ({"name": "mean", "threshold": 0.5}, "threshold only for solve_rate"),
        ("median", "removed in 0.9: use `mean` or `solve_rate`"),
        (3, "a name"),
        ("solve_rate", "expected a threshold"),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, estimand: object, words: str) -> None:
    from ruamel.yaml import YAML

    path = tmp_path / "s.yaml"
    with path.open("w") as stream:
        YAML().dump(study(estimand=estimand), stream)
    with pytest.raises(UserError) as caught:
        plan(path)
    assert words in caught.value.message and "s.yaml:" in caught.value.where


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"sweep": {"train.lr": [1e-3, 3e-3, 1e-2]}, "estimand": {"name": "solve_rate", "threshold": 0.9}}, "sweep"),
        ({"margin": 1.5, "estimand": {"name": "solve_rate", "threshold": 1.0}}, "margin"),
        ({"margin": "5 % of steps"}, "margin"),
    ],
)
def test_parts_without_a_meaning_for_the_estimand_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        planned(**fields)


def test_scores_that_end_runs_are_not_compared_as_means_or_below_a_threshold(bimodal: str) -> None:
    """The metric of text is bits per byte, of which smaller values are better; that of recall is the accuracy."""

    def notes(task: str, stop_at: float, **fields: Any) -> list[str]:
        content = study(task, **fields)
        content["base"]["train"] |= {"eval_every": 2, "stop_at": stop_at}
        return [note for note in plan(content).notes if "train.stop_at" in note]

    (means,) = notes("pydocs", 2.5)
    assert "bits_per_byte 2.5" in means and "estimand: solve_rate" in means
    assert notes("pydocs", 2.5, grid={"variant": ["dense"]}, baseline=None) == []
    assert notes(bimodal, 0.95) == notes(bimodal, 0.99) == []
    (early,) = notes(bimodal, 0.9)
    assert "before they reach the threshold" in early and "0.95" in early
    rate = {"name": "solve_rate", "threshold": 2.5}
    assert notes("pydocs", 2.4, estimand=rate) == [] and len(notes("pydocs", 2.6, estimand=rate)) == 1


def test_effects_of_factors_are_means() -> None:
    fields = study(
        estimand={"name": "solve_rate", "threshold": 0.9},
        factors={"no_wo": {"variant": "no_wo"}, "model.norm": ["pre", "post"]},
    )
    fields["base"]["variant"] = "dense"
    del fields["grid"], fields["baseline"]
    with pytest.raises(UserError, match="estimand: mean"):
        plan(fields)


def test_a_task_whose_options_choose_its_estimand_needs_one_in_the_study(bimodal: str, tmp_path: Path) -> None:
    options = "    def __init__(self, *, pairs: int = 8) -> None:\n        super().__init__(pairs=pairs)\n"
    chosen = "        self.estimand = 'mean' if pairs < 8 else 'solve_rate'; self.threshold = 0.9\n"
    (tmp_path / "graded.py").write_text(DECLARED.replace("NAME", f"{tmp_path.name}-graded") + options + chosen)
    fields = study(f"{tmp_path / 'graded.py'}:Bimodal", grid={"task.pairs": [4, 8]}, baseline=None)
    fields["base"]["variant"] = "dense"
    with pytest.raises(UserError, match="mean and solve_rate"):
        plan(fields)
    assert plan({**fields, "estimand": "mean"}).estimand.name == "mean"


def test_several_tasks_are_summarized_by_the_mean(bimodal: str) -> None:
    tasks = [bimodal, f"{bimodal.rpartition('/')[0]}/recall.py:Recall"]
    fields = study(grid={"task": tasks}, baseline=None)
    del fields["base"]["task"]
    fields["base"]["variant"] = "dense"
    with pytest.raises(UserError, match="expected the mean in a study of several tasks, got solve_rate at 0.95"):
        plan(fields)
    assert plan({**fields, "estimand": "mean"}).estimand.name == "mean"


def test_the_plan_names_the_smallest_number_of_seeds_that_can_decide() -> None:
    rate = {"name": "solve_rate", "threshold": 0.9}
    few = planned(estimand=rate)
    (note,) = seed_notes(few)
    assert count_comparisons(few) == 2 and "at least 4 seeds can" in note
    assert seed_notes(planned(estimand=rate, seeds=list(range(4)))) == []
    assert seed_notes(planned(estimand=rate, baseline=None)) == []


def test_the_plan_names_a_margin_that_the_seeds_cannot_show() -> None:
    rate = {"name": "solve_rate", "threshold": 0.9}
    enough = planned(estimand=rate, seeds=list(range(5)), margin=0.1)
    (note,) = seed_notes(enough)
    assert "equivalent within ±0.1" in note and "at least" in note
    assert seed_notes(planned(estimand=rate, seeds=list(range(5)), margin=0.8)) == []


def test_a_control_is_not_tested_for_equivalence() -> None:
    rate = {"name": "solve_rate", "threshold": 0.9}
    options = {"estimand": rate, "seeds": list(range(9)), "margin": 0.3}
    without = planned(**options)
    controlled = planned(**options, grid={"variant": ["dense", "no_wo", "none"]}, control={"variant": "none"})
    assert [count_comparisons(p, controls=False) for p in (without, controlled)] == [2, 1]
    assert seed_notes(without) and not seed_notes(controlled)


def test_levels_have_no_trend_of_another_estimand() -> None:
    over = {"over": {"train.steps": [3, 6]}, "grid": {"variant": ["dense", "no_wo"]}}
    base = study(**over)
    del base["base"]["train"]["steps"]
    assert any("trend" in note for note in plan({**base, "estimand": {"name": "solve_rate", "threshold": 0.9}}).notes)
    assert not any("trend" in note for note in plan(base).notes)


def test_plan_prints_the_estimand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from ruamel.yaml import YAML

    from attnlab.cli import main

    path = tmp_path / "s.yaml"
    with path.open("w") as stream:
        YAML().dump(study(estimand={"name": "solve_rate", "threshold": 0.9}), stream)
    assert read_study(path).estimand == EstimandConfig(name="solve_rate", threshold=0.9)
    assert main.main(["plan", str(path), "--tflops", "1"]) == 0
    out = capsys.readouterr().out
    assert "estimand: the solve rate" in out

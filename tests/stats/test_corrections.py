"""Tests of the verdicts without a choice of records, for each kind of verdict, and of their looks."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pandas
import pytest

from attnlab.report.answer import answer_of
from attnlab.report.training_share import share_table
from attnlab.report.trend import describe_kind
from attnlab.stats.cells import ComparisonSpec, Goal
from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import Effect, StudyTable, combine, pool
from attnlab.stats.corrections import (
    Choice,
    alternatives,
    correct_cells,
    correct_effects,
    correct_joint,
    correct_shares,
    correct_trends,
    with_all_looks,
)
from attnlab.stats.factorial import estimate_effects
from attnlab.stats.paired import LEVEL
from attnlab.stats.selection import Selection
from attnlab.stats.sequential import EXTRA, Looks
from attnlab.stats.training_share import summarize_shares
from attnlab.stats.trend import TrendKind, summarize_trends
from attnlab.stats.verdict import Verdict, VerdictKind
from benchmarks.table_tests import t_tests
from tests.config.test_design import two_level
from tests.stats.test_factorial import spec_of
from tests.support.levels import made_up_levels, swept
from tests.support.several import made_up_study
from tests.support.specs import changed, comparison_spec

Runs = list[dict[str, Any]]


def split(runs: Runs, seeds: range, **how: str) -> tuple[Runs, Selection]:
    """Return the runs with these seeds, and a selection that leaves out the others."""
    others = tuple({**run, "left_out": "seed", **how} for run in runs if run["seed"] not in seeds)
    return [run for run in runs if run["seed"] in seeds], Selection(others)


def losers(runs: Runs, *, of: str, against: float) -> Runs:
    """Return the runs with a variant's scores changed at seeds above 3, so that they contradict those below."""
    changed = [{**run} for run in runs]
    for run in changed:
        if run["variant"] == of and run["seed"] > 3:
            run["bits_per_byte"] += against * (run["seed"] - 3) * (run["train.steps"] == 500)
    return changed


def test_a_trend_has_the_outcome_with_the_runs_that_are_left_out() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01]}, seeds=7)
    shown, selection = split(losers(runs, of="no_wo", against=-0.06), range(4))
    others = alternatives(shown, spec, selection)
    (trend,) = correct_trends(summarize_trends(summarize_cells(shown, spec), spec), others, selection)
    assert trend.kind is TrendKind.SHRINKS
    assert [(c.choice, c.kind) for c in trend.corrections] == [(Choice.RUNS, TrendKind.INCONCLUSIVE)]
    assert "but inconclusive" in describe_kind(trend)
    whole, nothing = summarize_cells(runs, spec), Selection()
    assert [
        t.corrections for t in correct_trends(summarize_trends(whole, spec), alternatives(runs, spec, nothing), nothing)
    ] == [()]


def test_a_trend_that_was_first_asked_for_after_the_results_has_no_verdict_without_that() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01]})
    question = {"metric": "bits_per_byte", "direction": "min", "baseline": {"variant": "dense"}, "margin": None}
    selection = Selection(first_question=question)
    (trend,) = correct_trends(
        summarize_trends(summarize_cells(runs, spec), spec), alternatives(runs, spec, selection), selection
    )
    assert [(c.choice, c.kind) for c in trend.corrections] == [(Choice.QUESTION, None)]


def test_a_trend_counts_looks_at_its_comparisons_under_another_name() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01]}, seeds=6)
    own = {f"no_wo steps={level} against dense steps={level}": Looks(3, 3, (6,)) for level in (500, 1500, 4500)}
    (trend,) = summarize_trends(summarize_cells(runs, spec), changed(spec, own_looks=own))
    assert trend.slope is not None and trend.slope.looks == Looks(3, 3, (6,))


def test_shares_of_training_without_a_choice_are_in_the_table() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.05, -0.05, -0.05]}, seeds=7)
    shown, selection = split([run if run["seed"] < 4 else _worse(run) for run in runs], range(4))
    others, empty = (
        alternatives(shown, spec, selection),
        pandas.DataFrame(columns=["run_id", "name", "metric", "step", "value"]),
    )
    cells = summarize_cells(shown, spec)
    shares = summarize_shares(cells, shown, empty, spec=spec, trends=summarize_trends(cells, spec))
    corrected, tables = correct_shares(shares, others, empty)
    ((choice, other),) = corrected[0].others
    assert choice == Choice.RUNS and other is not None and other.log_ratio.n == 7 == tables[Choice.RUNS][0].share.log_ratio.n
    assert "left out" in share_table(corrected, colors={}).rows[0].cells[-1]
    assert share_table(shares, colors={}).columns[-1].heading != "corrected"


def _worse(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "bits_per_byte": run["bits_per_byte"] + 0.1 * (run["variant"] == "no_wo")}


def factorial_runs(scores: Callable[..., float], seeds: int) -> tuple[Runs, ComparisonSpec]:
    design = two_level(2)
    runs = []
    for point in design.points:
        axes = {factor.name: factor.levels[level] for factor, level in zip(design.factors, point, strict=True)}
        for seed in range(seeds):
            run = {**axes, "cell": str(point), "seed": seed, "state": "completed", "test": "", "score": scores(*point, seed)}
            runs.append(run)
    return runs, spec_of(design)


def test_effects_of_factors_have_the_verdict_with_the_runs_that_are_left_out() -> None:
    def score(a: int, b: int, seed: int) -> float:
        return 1 + 0.1 * seed + 0.01 * (seed * (1 + a + 2 * b) % 5) + a * (0.5 if seed < 4 else -0.9) + 0.3 * b

    runs, spec = factorial_runs(score, 7)
    shown, selection = split(runs, range(4))
    result = estimate_effects(summarize_cells(shown, spec), spec)
    corrected = correct_effects(result, alternatives(shown, spec, selection), selection)
    assert corrected is not None
    verdicts = {effect.name: effect.verdict for effect in corrected.effects}
    assert verdicts["A"].kind is VerdictKind.BETTER
    assert [(c.choice, c.kind) for c in verdicts["A"].corrections] == [(Choice.RUNS, VerdictKind.INCONCLUSIVE)]
    dropped = replace(selection, left_out=tuple({**run, "left_out": "cell"} for run in selection.left_out))
    unknown = correct_effects(result, alternatives(shown, spec, dropped), dropped)
    assert unknown is not None and [c.kind for c in unknown.effects[0].verdict.corrections] == [None]
    lost = correct_effects(result, [], Selection(lost=(("(0, 0)", (5,), "s"),)))
    assert lost is not None and all([c.choice for c in effect.verdict.corrections] == [Choice.LOST] for effect in lost.effects)


def test_a_changed_question_in_a_study_of_several_tasks_has_the_verdicts_of_the_first_one() -> None:
    runs = []
    for task, shift in (("recall", 0.0), ("copying", 0.02)):
        for variant in ("dense", "no_wo"):
            for seed in range(5):
                value = 2 + 0.1 * seed + 0.003 * (seed * (2 if variant == "dense" else 3) % 5) + shift * (variant == "no_wo")
                cell = f"{task} {variant}"
                runs.append({"task": task, "variant": variant, "cell": cell, "seed": seed, "state": "completed", "loss": value})
    now = {task: Goal("loss", "min", 0.5) for task in ("recall", "copying")}
    spec = comparison_spec("s", ("task", "variant"), "loss", "min", {"variant": "dense"}, task_axis="task", tasks=now)
    question = {"metric": "loss", "direction": "min", "baseline": {"variant": "dense"}, "task_axis": "task"}
    question |= {"tasks": {task: ["loss", "min"] for task in now}, "margin": dict.fromkeys(now, 0.001)}
    selection = Selection(first_question=question)
    others = alternatives(runs, spec, selection)
    verdicts = {cell.name: cell.verdict for cell in correct_cells(summarize_cells(runs, spec), others, selection)}
    assert verdict_of(verdicts["recall no_wo"]) == (VerdictKind.EQUIVALENT, [(Choice.QUESTION, VerdictKind.INCONCLUSIVE)])
    (recall, copying) = (others[0].for_task(spec.for_task(task)) for task in now)
    assert [cell.axes["task"] for cell in recall.cells] == ["recall"] * 2 and recall.spec is not None
    assert (recall.spec.margin, len(copying.records)) == (0.001, 10)
    alone = {**question, "tasks": {"recall": ["loss", "min"]}, "margin": {"recall": 0.5}}
    selection = Selection(first_question=alone)
    verdicts = {
        c.name: c.verdict for c in correct_cells(summarize_cells(runs, spec), alternatives(runs, spec, selection), selection)
    }
    assert verdict_of(verdicts["copying no_wo"])[1] == [(Choice.QUESTION, None)], "a task that was added after the results"


def verdict_of(verdict: Verdict | None) -> tuple[VerdictKind | None, list[tuple[str, Any]]]:
    return (verdict.kind, [(c.choice, c.kind) for c in verdict.corrections]) if verdict else (None, [])


def test_losers_left_out_and_a_margin_changed_are_corrected_together() -> None:
    """With the new margin all seeds are equivalent, by the first one the chosen seeds differ: neither holds for both."""
    runs, spec = made_up_levels({"no_wo": [0.002]}, levels=(500,), seeds=7, noise=0.0001)
    shown, selection = split(losers(runs, of="no_wo", against=-0.003), range(4))
    spec = changed(spec, over="", margin=0.1)
    question = {"metric": "bits_per_byte", "direction": "min", "baseline": {"variant": "dense"}, "margin": 0.0001}
    selection = replace(selection, first_question=question)
    (_, cell) = correct_cells(summarize_cells(shown, spec), alternatives(shown, spec, selection), selection)
    assert cell.verdict is not None
    assert (Choice.BOTH, VerdictKind.INCONCLUSIVE) in [(c.choice, c.kind) for c in cell.verdict.corrections]


def test_results_that_are_lost_mark_the_verdicts_of_their_cells() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01], "basic": [0.1, 0.1, 0.1]})
    selection = Selection(lost=(("no_wo steps=500", (7,), "levels"),))
    cells = {cell.name: cell for cell in correct_cells(summarize_cells(runs, spec), [], selection)}
    assert verdict_of(cells["no_wo steps=500"].verdict)[1] == [(Choice.LOST, None)]
    assert not any(verdict_of(cells[name].verdict)[1] for name in ("no_wo steps=1500", "basic steps=500"))


def test_the_mean_over_several_studies_has_the_verdict_with_the_runs_that_are_left_out() -> None:
    tables, others = [], []
    for name, gap in {"a": 0.02, "b": 0.021, "c": 0.0195}.items():
        runs = []
        for variant in ("dense", "no_wo"):
            for seed in range(7):
                shift = (gap if seed < 4 else -0.03) * (variant == "no_wo")
                value = 2 + shift + 0.0007 * (seed * (3 if variant == "dense" else 5) % 7)
                test = json.dumps({"data": name})
                runs.append({"variant": variant, "seed": seed, "state": "completed", "bits_per_byte": value, "test": test})
        spec = comparison_spec(name, ("variant",), "bits_per_byte", "min", {"variant": "dense"})
        shown, selection = split(runs, range(4))
        found = alternatives(shown, spec, selection)
        tables.append(StudyTable(name, spec, correct_cells(summarize_cells(shown, spec), found, selection)))
        others.append({other.choice: StudyTable(name, spec, other.cells) for other in found})
    without = {Choice.RUNS: combine([of_table[Choice.RUNS] for of_table in others])}
    result = correct_joint(combine(tables), without, tables)
    (contrast,) = result.contrasts
    assert contrast.pooled is not None and [c.choice for c in contrast.corrections] == [Choice.RUNS]
    assert contrast.corrections[0].kind is not VerdictKind.WORSE
    for study in contrast.studies:
        (cell,) = study.comparisons
        assert cell.verdict is not None and [c.kind for c in cell.verdict.corrections] == [VerdictKind.INCONCLUSIVE]
    answer = answer_of(tables, others)
    assert answer is not None and all("left out" in row.cells[-1] for row in answer.table.rows)
    plain = answer_of(tables, [{} for _ in tables])
    assert plain is not None and not any("left out" in row.cells[-1] for row in plain.table.rows)


def test_configurations_that_were_judged_before_cost_part_of_the_level() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01], "basic": [0.1, 0.1, 0.1]}, seeds=3)
    retried = tuple((f"no_wo steps={level}", f"dense steps={level}", 2) for level in (500, 1500, 4500))
    selection = Selection(retried=retried)
    (other,) = alternatives(runs, spec, selection)
    cells = summarize_cells(runs, spec)
    corrected = {cell.name: cell for cell in correct_cells(cells, [other], selection)}
    plain, after = ({cell.name: cell.difference for cell in of} for of in (cells, other.cells))
    one, two = plain["no_wo steps=500"], after["no_wo steps=500"]
    assert one is not None and two is not None and one.p is not None and two.p is not None
    assert two.p == pytest.approx(min(1, one.p * 2 * 3 / EXTRA)) and two.looks == Looks(3, 3, tries=2)
    assert [c.choice for c in corrected["no_wo steps=500"].verdict.corrections] == [Choice.TRIES]  # type: ignore[union-attr]
    (trend, _) = correct_trends(summarize_trends(cells, spec), [other], selection)
    assert [c.choice for c in trend.corrections] == [Choice.TRIES]
    both = replace(selection, left_out=({**runs[0], "seed": 9, "left_out": "seed"},))
    assert [other.choice for other in alternatives(runs, spec, both)] == [Choice.RUNS, Choice.ALL]


def test_a_mean_over_studies_counts_earlier_configurations() -> None:
    effects = [Effect(mean, mean - 1, mean + 1) for mean in (2.0, 2.1, 1.9)]
    plain, retried = pool(effects), pool(effects, tries=1)
    assert plain is not None and retried is not None and plain.mean.p is not None and retried.mean.p is not None
    assert retried.mean.p == pytest.approx(min(1, plain.mean.p * 2 / EXTRA))


def test_lost_results_of_one_study_mark_the_mean_over_several() -> None:
    gaps = {"a": 0.02, "b": 0.021, "c": 0.0195}
    tables = [made_up_study(name, {"no_wo": gap}) for name, gap in gaps.items()]
    lost = Selection(lost=(("no_wo", (7,), "a"),))
    tables[0] = replace(tables[0], cells=correct_cells(tables[0].cells, [], lost))
    (contrast,) = correct_joint(combine(tables), {}, tables).contrasts
    assert [c.choice for c in contrast.corrections] == [Choice.LOST]
    of_study = [verdict_of(study.comparisons[0].verdict)[1] for study in contrast.studies]
    assert of_study == [[(Choice.LOST, None)], [], []]


def test_a_sweep_counts_all_left_out_runs_at_their_rates() -> None:
    runs, spec = made_up_levels({"no_wo": [-0.02]}, levels=(500,), seeds=7)
    shown, selection = split(swept(losers(runs, of="no_wo", against=0.05)), range(4))
    spec = changed(spec, over="", sweep="train.lr")
    (_, cell) = correct_cells(summarize_cells(shown, spec), alternatives(shown, spec, selection), selection)
    assert verdict_of(cell.verdict) == (VerdictKind.BETTER, [(Choice.RUNS, VerdictKind.INCONCLUSIVE)])


@pytest.mark.parametrize("factorial", [False, True])
def test_results_that_were_exchanged_between_looks_count_as_looked_at(factorial: bool) -> None:
    """Each table had 3 seeds, so that it was no further look; together they have shown 3, 4 and 5."""
    known = [{name: seeds for name in ("dense", "no_wo")} for seeds in ((0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3, 4))]
    runs, spec = made_up_levels({"no_wo": [0.0]}, levels=(500,), seeds=6)
    runs = [{**run, "cell": run["variant"]} for run in runs]
    spec = changed(spec, over="", looks=Looks(3, 3), factorial=two_level(2) if factorial else None)
    looked = with_all_looks(spec, summarize_cells(runs, spec), known)
    assert looked.judged.own == {"no_wo against dense": Looks(3, 3, (4, 5))}
    assert looked.looks == (Looks(3, 3, (4, 5)) if factorial else Looks(3, 3))


def test_corrected_verdicts_keep_their_error_when_someone_looks_until_one_pleases() -> None:
    """Nothing differs. A seed is added at a time, and the three that look best are shown; or the configuration is changed."""
    studies, last, tries = 4_000, 10, 6
    random = numpy.random.RandomState(7)
    chosen, corrected, retried = (numpy.zeros(studies, dtype=bool) for _ in range(3))
    pairs = random.normal(size=(studies, 1, last))
    for n in range(3, last + 1):
        chosen |= t_tests(numpy.sort(pairs[..., :n])[..., :3], looks=Looks(3, 3)).differs[:, 0]
        corrected |= t_tests(pairs[..., :n], looks=Looks(3, 3, tuple(range(4, n + 1)))).differs[:, 0]
    for number in range(tries):
        pairs = random.normal(size=(studies, 1, 4))
        for n in (3, 4):
            looks = Looks(3, 3, tuple(range(4, n + 1)), number)
            retried |= t_tests(pairs[..., :n], looks=looks).differs[:, 0]
    error = 3 * (0.05 * 0.95 / studies) ** 0.5
    assert chosen.mean() > 0.4
    assert corrected.mean() < LEVEL * (1 + EXTRA) + error and retried.mean() < LEVEL * (1 + EXTRA) ** 2 + error

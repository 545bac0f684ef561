"""Tests of the contrasts of several studies, and of their common correction."""

from dataclasses import replace

import pytest

from attnlab.stats import paired
from attnlab.stats.cells import comparisons
from attnlab.stats.compare import summarize_cells
from attnlab.stats.contrasts import Contrast, StudyTable, combine
from attnlab.stats.trend import TrendKind, summarize_trends
from attnlab.stats.verdict import Sensitivity, VerdictKind
from tests.support.levels import made_up_levels
from tests.support.several import made_up_study


def contrasts_of(*tables: StudyTable) -> dict[str, Contrast]:
    return {contrast.label: contrast for contrast in combine(tables).contrasts}


def test_all_comparisons_of_the_page_and_the_means_are_one_family() -> None:
    tables = [made_up_study(name, {"no_wo": 0.002, "basic": 0.001}, noise=0.001) for name in "abc"]
    result = combine(tables)
    assert result.family == 3 * 2 + 2
    p_values = [c.difference.p for t in tables for c in comparisons(t.cells) if c.difference is not None]
    p_values += [c.pooled.mean.p for c in result.contrasts if c.pooled is not None]
    judged = [c.difference.p_holm for t in result.tables for c in comparisons(t.cells) if c.difference is not None]
    judged += [c.pooled.mean.p_holm for c in result.contrasts if c.pooled is not None]
    assert judged == paired.holm(p_values)
    by_itself = next(c for c in tables[0].cells if c.difference)
    on_page = next(c for c in result.tables[0].cells if c.difference)
    assert by_itself.difference and on_page.difference and on_page.difference.p_holm is not None
    assert by_itself.difference.p_holm is not None and on_page.difference.p_holm >= by_itself.difference.p_holm


def test_a_verdict_of_one_study_may_not_hold_on_the_page() -> None:
    alone = made_up_study("a", {"no_wo": 0.002}, noise=0.001)
    others = [made_up_study("many", {f"v{i}": 0.0 for i in range(300)})]
    (cell,) = [cell for cell in alone.cells if cell.difference]
    assert cell.verdict is not None and cell.verdict.kind is VerdictKind.WORSE
    first = contrasts_of(alone, *others)["no_wo against dense"].studies[0].comparisons[0]
    assert first.verdict is not None and first.verdict.kind is VerdictKind.INCONCLUSIVE


def test_cells_of_another_axis_enter_a_study_once() -> None:
    table = made_up_study("a", {"no_wo": 0.02}, heads=(4, 1))
    contrast = contrasts_of(table, made_up_study("b", {"no_wo": 0.02}), made_up_study("c", {"no_wo": 0.02}))
    (effect, *_) = contrast["no_wo against dense"].studies
    assert [one.mean for one in effect.effects if one] == pytest.approx([1.0, 2.0], abs=0.1)
    assert effect.effect is not None and effect.effect.mean == pytest.approx(1.5, abs=0.1)
    pooled = contrast["no_wo against dense"].pooled
    assert pooled is not None and pooled.mean.interval.n == 3


def test_studies_on_the_same_data_with_the_same_seeds_are_not_independent() -> None:
    tables = [made_up_study(name, {"no_wo": 0.02}, data=data) for name, data in (("a", "x"), ("b", "x"), ("c", "y"))]
    contrast = contrasts_of(*tables)["no_wo against dense"]
    assert contrast.groups == ((0, 1), (2,)) and contrast.pooled is None
    apart = [tables[0], made_up_study("b", {"no_wo": 0.02}, data="x", seeds=range(5, 10)), tables[2]]
    contrast = contrasts_of(*apart)["no_wo against dense"]
    assert contrast.groups == ((0,), (1,), (2,)) and contrast.pooled is not None


def test_a_metric_without_a_natural_zero_leaves_no_mean() -> None:
    tables = [made_up_study(name, {"no_wo": 0.02}) for name in "abc"]
    contrast = contrasts_of(*tables, made_up_study("d", {"no_wo": -0.02}, metric="score"))["no_wo against dense"]
    assert contrast.pooled is None and contrast.studies[3].effect is None
    assert contrast.studies[3].comparisons[0].verdict is not None
    assert contrast.studies[3].comparisons[0].verdict.kind is VerdictKind.WORSE


def test_contrasts_differ_by_baseline_and_the_control_is_none_of_them() -> None:
    first = made_up_study("a", {"no_wo": 0.02, "none": 0.5}, control={"variant": "none"})
    further = made_up_study("b", {"no_wo": 0.02, "basic": 0.1}, further_baselines=({"variant": "basic"},))
    labels = [contrast.label for contrast in combine([first, further]).contrasts]
    assert labels == ["no_wo against dense", "no_wo against basic", "basic against dense"]


def test_an_equivalence_needs_the_control_to_be_worse_on_the_page_too() -> None:
    table = made_up_study("a", {"no_wo": 0.0, "none": 0.0027}, control={"variant": "none"}, margin=0.002, noise=0.0005)
    verdicts = {c.name: c.verdict for c in table.cells}
    assert verdicts["no_wo"] and verdicts["no_wo"].sensitivity is Sensitivity.SHOWN
    (joint, _) = combine([table, made_up_study("many", {f"v{i}": 0.0 for i in range(300)})]).tables
    on_page = {c.name: c.verdict for c in joint.cells}
    control, equivalent = on_page["none"], on_page["no_wo"]
    assert control is not None and control.kind is VerdictKind.INCONCLUSIVE
    assert equivalent is not None and equivalent.kind is VerdictKind.EQUIVALENT
    assert equivalent.sensitivity is Sensitivity.NOT_SHOWN


def test_the_highest_level_counts_and_trends_are_corrected_together() -> None:
    runs, spec = made_up_levels({"no_wo": [0.05, 0.03, 0.01]})
    cells = summarize_cells(runs, spec)
    trends = summarize_trends(cells, spec)
    table = StudyTable("levels", spec, cells, trends)
    other = replace(table, name="again")
    contrast = contrasts_of(table, other)["no_wo against dense"]
    (first, _) = contrast.studies
    assert [c.axes["train.steps"] for c in first.comparisons] == ["4500"] and len(first.lower_levels) == 2
    (trend,) = first.trends
    assert trend.kind is TrendKind.SHRINKS and trend.slope is not None and trends[0].slope is not None
    assert trend.slope.p_holm == pytest.approx(2 * trends[0].slope.p)  # type: ignore[operator]
    assert trend.ends[1].difference is not None and first.comparisons[0] in trend.comparisons


def test_the_comparisons_of_a_page_borrow_less_than_those_of_a_single_study() -> None:
    def priors(table: StudyTable) -> set[int]:
        intervals = [c.difference.interval for c in comparisons(table.cells) if c.difference]
        assert all(i.degrees_of_freedom == i.n - 1 + i.prior.degrees_of_freedom for i in intervals if i.prior)
        return {i.prior.degrees_of_freedom if i.prior else 0 for i in intervals}

    many, few = made_up_study("many", {f"v{i}": 0.0 for i in range(5)}), made_up_study("few", {"no_wo": 0.0})
    assert priors(many) == priors(combine([many]).tables[0]) == {4}
    assert [priors(table) for table in combine([many, few]).tables] == [{2}, {0}]

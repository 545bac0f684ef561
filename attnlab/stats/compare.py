"""Cell summaries: the runs of a study grouped by cell, summarized over seeds and compared with the baseline.

The table that ends `attnlab run` and the report are both made from these summaries, so they cannot disagree.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from posixpath import splitext
from typing import Any

from attnlab._util import cost_metrics
from attnlab._util.run_state import RunState
from attnlab.config.axes import label_text
from attnlab.config.comparability import CODE, describe_changes, is_program_test
from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.joint import cap_priors, moderate
from attnlab.stats.question import has_wide_margin
from attnlab.stats.records import comparison_name, finite, is_infinite, is_present, state_of, with_chain_costs
from attnlab.stats.sequential import Looks
from attnlab.stats.sweep import depends_on_choice
from attnlab.stats.verdict import Reason, Sensitivity, Verdict, VerdictKind, judge, sensitivity

# Cells that lost different numbers of seeds have no verdict if these differ by more than one seed, or by more than this share
# of the seeds: what is missing may be the worst. One run in 20 that is the worst in every study makes 7 % of the verdicts on
# equal cells false, and 9 % if only one cell scatters (docs/concepts/verdicts.md).
MAX_LOST_SHARE = 0.05

# Columns that determine the batches of a seed: equal columns, equal batches in the same order.
BATCH_FIELDS = ("task", "data", "length", "train.batch_size", "train.steps", "train.epochs")


def summarize_cells(runs: Iterable[Mapping[str, Any]], spec: ComparisonSpec) -> list[CellSummary]:
    """Return the cells of the study's first question: the first of `summarize_questions`."""
    return summarize_questions(runs, spec)[0]


def summarize_questions(runs: Iterable[Mapping[str, Any]], spec: ComparisonSpec) -> list[list[CellSummary]]:
    """Group runs by cell, in the order in which cells first appear, and compare each cell with its baseline.

    Comparisons are corrected over the whole study, also if it has several tasks or questions.

    Args:
        runs: One mapping per run with `state`, `reason`, `seed`, the axes and the summary metrics.
        spec: The comparison that the study makes.

    Returns:
        The cells by the metric of each question.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for run in with_chain_costs([*runs]):
        groups.setdefault(cell_of(run, spec), []).append(run)
    parts = [(number, part) for number, question in enumerate(spec.questions) for part in question.parts]
    tables = [(part, _paired_cells(groups, part)) for _, part in parts]
    if spec.baselines:
        differences = cap_priors([_differences(cells, part) for part, cells in tables])
        corrected = iter(paired.correct([difference for table in differences for difference in table]))
        tables = [
            (part, judge_cells(cells, [next(corrected) for _ in table], part))
            for (part, cells), table in zip(tables, differences, strict=True)
        ]
    by_name: list[dict[str, CellSummary]] = [{} for _ in spec.questions]
    for (number, _), (_, cells) in zip(parts, tables, strict=True):
        by_name[number] |= {cell.name: cell for cell in cells}
    return [[of_question[name] for name in groups if name in of_question] for of_question in by_name]


def _paired_cells(groups: Mapping[str, Sequence[Mapping[str, Any]]], spec: ComparisonSpec) -> list[CellSummary]:
    """Return the cells of one task, each with its differences from the baselines, not yet corrected."""
    groups = {name: group for name, group in groups.items() if spec.includes(group[0])}
    cells = [_summarize_cell(name, group, spec) for name, group in groups.items()]
    cells = spec.estimator.evaluate(cells, groups, spec.looks)
    cells = [replace(cell, lost=_lost_seeds(groups[cell.name], spec) - cell.values.keys()) for cell in cells]
    return _compare(cells, spec) if spec.baselines else cells


def _differences(cells: Sequence[CellSummary], spec: ComparisonSpec) -> list[paired.Difference | None]:
    """Return the differences of a table, with moderated variances where the study asks for them."""
    compared = comparisons(cells)
    differences = [comparison.difference for comparison in compared]
    levels = [(comparison.axes.get(spec.over), comparison.test) for comparison in compared]
    return moderate(differences, groups=levels) if spec.moderate else differences


def cell_of(run: Mapping[str, Any], spec: ComparisonSpec) -> str:
    """Return the name of a run's cell: the recorded one, else one made from its axes."""
    return str(run.get("cell") or cell_name({axis: label_text(run.get(axis)) for axis in spec.axes}))


def runs_at_best(
    records: Sequence[Mapping[str, Any]], cells: Sequence[CellSummary], spec: ComparisonSpec
) -> list[Mapping[str, Any]]:
    """Return the runs at each cell's best value tried; in a study without a sweep, all runs."""
    best = {cell.name: cell.curve.best for cell in cells if cell.curve}
    params = [r["params"] if isinstance(r.get("params"), Mapping) else {} for r in records]
    return [r for r, chosen in zip(records, params, strict=True) if chosen.get(spec.sweep) == best.get(cell_of(r, spec))]


def _summarize_cell(name: str, runs: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> CellSummary:
    completed = [run for run in runs if run["state"] == RunState.COMPLETED and finite(run.get(spec.metric)) is not None]
    values = {int(run["seed"]): float(run[spec.metric]) for run in completed}
    costs, ranges = {}, {}
    for metric in cost_metrics.COST_METRICS:
        numbers = [number for run in completed if (number := finite(run.get(metric.name))) is not None]
        if numbers:
            costs[metric.name] = paired.interval(numbers)
        if metric.measured and len(numbers) > 1:
            ranges[metric.name] = (min(numbers), max(numbers))
    states = [state_of(run, spec.metric) for run in runs]
    reasons = dict.fromkeys(_reason(run, spec) for run, state in zip(runs, states, strict=True) if state != RunState.COMPLETED)
    return CellSummary(
        name=name,
        axes={axis: label_text(runs[0].get(axis)) for axis in spec.axes},
        values=values,
        value=None,
        costs=costs,
        states=Counter(states),
        reasons=tuple(reason for reason in reasons if reason),
        test=next((str(run["test"]) for run in runs if run.get("test")), ""),
        batches=_batch_fields(runs[0]),
        ranges=ranges,
    )


def _lost_seeds(runs: Iterable[Mapping[str, Any]], spec: ComparisonSpec) -> frozenset[int]:
    """Return the seeds of runs that ended without a score, also if they completed without a number for the metric."""
    lost = spec.estimator.lost_states
    states = [(run, state_of(run, spec.metric)) for run in runs]
    missing = [r for r, s in states if s in lost or (s == RunState.COMPLETED and finite(r.get(spec.metric)) is None)]
    return frozenset(int(run["seed"]) for run in missing)


def lose_alike(lost: tuple[int, int], runs: tuple[int, int]) -> bool:
    """Return True when two groups of runs lost about the same share of them (`MAX_LOST_SHARE`).

    Args:
        lost: Number of runs without a score in each group.
        runs: Number of runs in each group.
    """
    excess = abs(lost[0] / runs[0] - lost[1] / runs[1]) if all(runs) else 0.0
    return excess * min(runs) <= 1 + 1e-9 and excess <= MAX_LOST_SHARE + 1e-9


def lose_seeds_alike(cells: Sequence[CellSummary], baselines: Sequence[CellSummary]) -> bool:
    """Return True when cells and their baselines lost about as many of the seeds that all of them were trained with."""
    common = set.intersection(*({*cell.values, *cell.scores, *cell.lost} for cell in (*cells, *baselines)))
    lost = [len(common & {seed for cell in group for seed in cell.lost}) for group in (cells, baselines)]
    return lose_alike((lost[0], lost[1]), (len(common), len(common)))


def compare_pair(
    cell: CellSummary, baseline: CellSummary, spec: ComparisonSpec, *, margin: float | None = None, looks: Looks | None = None
) -> paired.Difference | None:
    """Return a cell minus its baseline, not yet corrected; without a test for a reason in `paired.NoTest`.

    Args:
        cell, baseline: Two cells of one task.
        spec: The comparison that the study makes.
        margin: Largest difference that counts as equivalent, in the metric's unit.
        looks: Looks at which the two are judged.
    """
    scores = [summary.scores or summary.values for summary in (cell, baseline)]
    difference = spec.estimator.compare(*scores, margin=margin, looks=looks)
    if difference is not None and is_program_test(cell.test) and difference.may_be_repeated:
        difference = paired.withhold(difference, paired.NoTest.CONSTANT)  # attnlab's own runs use their seed
    if difference is not None and cell.curve and baseline.curve and depends_on_choice(difference, cell.curve, baseline.curve):
        return paired.withhold(difference, paired.NoTest.CHOICE)
    if difference is None or difference.interval.n < 2 or lose_seeds_alike([cell], [baseline]):
        return difference
    return paired.withhold(difference, paired.NoTest.LOSSES)


def _batch_fields(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that the batches of a run depend on; the option ``role`` of a task changes the model alone."""
    if is_program_test(run.get("test")):  # its axes may have the same names
        return _program_fields(run)
    fields = {name: label_text(run[name]) for name in BATCH_FIELDS if is_present(run.get(name))}
    if "task" in fields:
        fields["task"] = " ".join(part for part in fields["task"].split(" ") if not part.startswith("role="))
    return fields


def _program_fields(run: Mapping[str, Any]) -> dict[str, str]:
    """Return the program of a run: its code, and the texts among its values, which may name its data; numbers do not."""
    if not is_present(run.get("command")):
        return {}
    code = {str(v) for k, v in run.items() if k.startswith("files.") and is_present(v) and splitext(k)[1] in CODE}
    texts = {k: v for k, v in run.items() if k.startswith("values.") and isinstance(v, str)}
    return {"program": json.dumps([sorted(code) or str(run["command"]).split(" ")[0], texts], sort_keys=True)}


def _reason(run: Mapping[str, Any], spec: ComparisonSpec) -> str:
    value = run.get(spec.metric)
    return f"{spec.metric} is {value:g}" if is_infinite(value) else str(run.get("reason") or "")


def _compare(cells: list[CellSummary], spec: ComparisonSpec) -> list[CellSummary]:
    """Fill in baselines and differences, not yet corrected.

    Two cells are compared once: of two baselines, the later one with the earlier one.
    """
    baseline_of = _cell_finder(cells, spec)
    compared = [[_pair(cell, baseline_of(cell, spec.baseline), spec)] for cell in cells]
    pairs = {frozenset((group[0].name, group[0].baseline)) for group in compared}
    for further in spec.baselines[1:]:
        for cell, group in zip(cells, compared, strict=True):
            baseline = baseline_of(cell, further)
            pair = frozenset((cell.name, baseline.name if baseline else ""))
            if cell.has_result and baseline is not cell and pair not in pairs:
                group.append(_pair(cell, baseline, spec))
                pairs.add(pair)
    return [replace(group[0], further=tuple(group[1:])) for group in compared]


def judge_cells(
    cells: Sequence[CellSummary], differences: Iterable[paired.Difference | None], spec: ComparisonSpec
) -> list[CellSummary]:
    """Return compared cells with other differences, and with the verdicts that follow from these.

    Args:
        cells: Each with its baselines.
        differences: One for each of `comparisons(cells)`, corrected over a table by `attnlab.stats.paired.correct`.
        spec: The comparison that the study makes.
    """
    by_name, corrected = {cell.name: cell for cell in cells}, iter(differences)
    judged = [[_judged(comparison, next(corrected), by_name, spec) for comparison in comparisons([cell])] for cell in cells]
    if spec.control:
        judged = _with_sensitivity(judged, spec, _cell_finder(cells, spec))
    if has_wide_margin(cells, spec):
        judged = [[_with_wide_margin(cell) for cell in group] for group in judged]
    return [replace(group[0], further=tuple(group[1:])) for group in judged]


def _cell_finder(
    cells: Sequence[CellSummary], spec: ComparisonSpec
) -> Callable[[CellSummary, Mapping[str, Any]], CellSummary | None]:
    """Return a function that finds the cell with the axes of another, some of them replaced."""
    by_axes = {tuple(cell.axes.values()): cell for cell in cells}
    by_name = {cell.name: cell for cell in cells}

    def cell_with(cell: CellSummary, replaced: Mapping[str, Any]) -> CellSummary | None:
        axes = {axis: label_text(replaced.get(axis, cell.axes[axis])) for axis in spec.axes}
        return by_axes.get(tuple(axes.values())) or by_name.get(spec.doubles.get(cell_name(axes), ""))

    return cell_with


def _with_sensitivity(
    groups: Sequence[Sequence[CellSummary]],
    spec: ComparisonSpec,
    cell_with: Callable[[CellSummary, Mapping[str, Any]], CellSummary | None],
) -> list[list[CellSummary]]:
    """Record with each outcome of equivalent or identical what the cell's control shows against the same baseline.

    Args:
        groups: Each cell's comparisons.
        spec: With a control.
        cell_with: Returns the cell with the axes of another, some of them replaced.
    """
    by_name = {group[0].name: group for group in groups}

    def control_of(cell: CellSummary) -> CellSummary | None:
        control = cell_with(cell, spec.control or {})
        if control is None:
            return None
        for baseline in spec.baselines:
            if (own := cell_with(cell, baseline)) is not None and own.name == cell.baseline:
                paired_with = cell_with(control, baseline)
                name = paired_with.name if paired_with is not None else ""
                return next((comparison for comparison in by_name[control.name] if comparison.baseline == name), None)
        return None

    def recorded(cell: CellSummary) -> CellSummary:
        if cell.verdict is None or cell.verdict.kind not in (VerdictKind.EQUIVALENT, VerdictKind.IDENTICAL):
            return cell
        control = control_of(cell)
        shown = sensitivity(control and control.verdict, control and control.difference, margin=spec.margin)
        return replace(cell, verdict=replace(cell.verdict, sensitivity=shown))

    return [[recorded(cell) for cell in group] for group in groups]


def _with_wide_margin(cell: CellSummary) -> CellSummary:
    """Record with an outcome of equivalent that the margin is too wide, unless a control shows that it is not."""
    verdict = cell.verdict
    if verdict is None or verdict.kind is not VerdictKind.EQUIVALENT or verdict.sensitivity is not None:
        return cell
    return replace(cell, verdict=replace(verdict, sensitivity=Sensitivity.WIDE_MARGIN))


def _pair(cell: CellSummary, baseline: CellSummary | None, spec: ComparisonSpec) -> CellSummary:
    """Return the cell with its difference from a baseline, or with the reason why there is none."""
    if baseline is cell:
        return replace(cell, verdict=Verdict(VerdictKind.BASELINE))
    if baseline is None:
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.BASELINE_MISSING))
    if problem := spec.estimator.problem(cell):
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.NO_BEST, detail=problem))
    if not cell.has_result:
        return cell
    if cell.test != baseline.test:
        detail = describe_changes(_fields_of_test(cell), _fields_of_test(baseline))
        return replace(cell, verdict=Verdict(VerdictKind.NO_COMPARISON, Reason.OTHER_TEST, detail=detail))
    margin = None if spec.is_control(cell.axes) else spec.margin
    looks = spec.looks_of(comparison_name(cell.name, baseline.name))
    difference = compare_pair(cell, baseline, spec, margin=margin, looks=looks)
    return replace(cell, baseline=baseline.name, difference=difference)


def _judged(
    cell: CellSummary, difference: paired.Difference | None, by_name: Mapping[str, CellSummary], spec: ComparisonSpec
) -> CellSummary:
    """Return a comparison with its corrected difference and verdict."""
    if not cell.baseline:
        return cell
    return replace(cell, difference=difference, verdict=_verdict(cell, difference, by_name[cell.baseline], spec))


def _fields_of_test(cell: CellSummary) -> dict[str, Any]:
    return json.loads(cell.test) if cell.test else {}


def _verdict(cell: CellSummary, difference: paired.Difference | None, baseline: CellSummary, spec: ComparisonSpec) -> Verdict:
    """Judge the pairs, and record the runs without a score with the verdict: they may have been the worst."""
    if not baseline.has_result:
        problem = spec.estimator.problem(baseline)
        detail = f"{spec.estimator.words.missing}: {problem}" if problem else f"no {spec.metric} ({baseline.outcome})"
        return Verdict(VerdictKind.NO_COMPARISON, Reason.BASELINE_WITHOUT_VALUE, detail=detail)
    states = spec.estimator.lost_states
    lost = tuple((count, state) for state, count in cell.states.items() if state in states)
    baseline_lost = tuple((count, state) for state, count in baseline.states.items() if state in states)
    verdict = judge(difference, direction=spec.direction)
    futility = spec.futile.get(comparison_name(cell.name, baseline.name))
    if futility and verdict.kind is VerdictKind.INCONCLUSIVE and futility.pairs == verdict.pairs:
        verdict = replace(verdict, futility=futility)
    return replace(verdict, seeds=cell.seeds, lost=lost, baseline_lost=baseline_lost)

"""The report's section on scores at lengths that models were not trained on.

The scores are the summary metrics ``bits_per_byte_at/512`` of the runs; the reasons for missing scores are the columns
``length.512`` of ``attnlab.load_runs``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab._util.metrics import at_length, base_metric, length_of
from attnlab._util.run_state import RunState
from attnlab.config.grid import cell_name
from attnlab.report.analysis import Analysis, Results
from attnlab.report.plots import svg
from attnlab.report.plots.lines import DASHES, LengthCurve, length_plot
from attnlab.report.section import Column, Figure, PageSection, Table, TableRow
from attnlab.report.wording import better, format_interval
from attnlab.stats import paired
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, runs_at_best, summarize_cells
from attnlab.stats.records import finite, is_present
from attnlab.stats.search import RunRow

TITLE = "Other lengths"
REASON_PREFIX = "length."  # of the columns with the reason for a missing score
MAX_CELLS = 9  # cells in one plot; with more, one plot for each value of the axes other than the variant


class LengthsAnalysis(Analysis[list[LengthCurve]]):
    """The scores at `evaluate.lengths`."""

    def estimate(self, results: Results) -> list[LengthCurve] | None:
        """Return the curve of each cell with a completed run; None when no run was evaluated at another length."""
        groups: dict[str, list[RunRow]] = {cell.name: [] for cell in results.cells}
        for record in runs_at_best(results.records, results.cells, results.spec):
            if record["state"] == RunState.COMPLETED:
                groups[cell_of(record, results.spec)].append(record)
        # Cells of one variant have one color: dashes distinguish the values of the other axes.
        panels, colors = _panels(results.cells), results.colors
        same_colors = len(set(colors.values())) < len(results.cells)
        dashes = {p: DASHES[i % len(DASHES)] for i, p in enumerate(dict.fromkeys(panels.values()))} if same_colors else {}
        curves = [
            _length_curve(name, runs, results.spec, color=colors[name], dash=dashes.get(panels[name], ""))
            for name, runs in groups.items()
            if runs
        ]
        return curves if any(curve.values.keys() - {curve.trained} or curve.reasons for curve in curves) else None

    def section(self, estimate: list[LengthCurve], results: Results) -> PageSection:
        """Return the section with the curves, and a row for each cell."""
        panels = _panels(results.cells)
        order = list(dict.fromkeys(panels.values()))
        drawn = [curve for curve in estimate if curve.values]
        if len(drawn) > MAX_CELLS and 1 < len(order) < len(results.cells):
            by_panel = {panel: [curve for curve in drawn if panels[curve.name] == panel] for panel in order}
        else:
            by_panel = {"": drawn}
        notes = list(_notes(estimate, results.spec))
        lengths = sorted({length for curve in estimate for length in (*curve.values, *curve.reasons)})
        trained = {curve.trained for curve in estimate}
        differences = {n: _differences(results, n, is_trained=trained == {n}) for n in lengths}
        if any(differences.values()):
            notes.append("The differences are not corrected for the number of cells and lengths, and give no verdict.")
        table = _table(estimate, results.spec, differences)
        return PageSection(TITLE, plots=_plots(by_panel, results.spec), table=table, notes=notes)


def _panels(cells: Sequence[CellSummary]) -> dict[str, str]:
    """Return cell -> its values on all axes but the variant."""
    return {cell.name: cell_name({axis: v for axis, v in cell.axes.items() if axis != "variant"}) for cell in cells}


def _length_curve(name: str, runs: Sequence[Mapping[str, Any]], spec: ComparisonSpec, *, color: str, dash: str) -> LengthCurve:
    """Collect a cell's scores by length from its completed runs."""
    values: dict[int, list[float]] = {}
    reasons: dict[int, str] = {}
    metric = base_metric(spec.metric)
    trained = next((int(length) for run in runs if (length := finite(run.get("length"))) is not None), None)
    for run in runs:
        fields = {key: value for key, value in run.items() if is_present(value)}
        scores = {n: v for key, v in fields.items() if (n := length_of(key)) and key == at_length(metric, n)}
        if trained is not None and metric in fields:
            scores[trained] = fields[metric]
        for length, score in scores.items():
            if not math.isfinite(score):
                reasons[length] = f"{metric} is {score:g}"
                continue
            values.setdefault(length, []).append(float(score))
        for key, value in fields.items():
            if key.startswith(REASON_PREFIX):
                reasons[int(key.removeprefix(REASON_PREFIX))] = str(value)
    return LengthCurve(name, color, dash, trained, dict(sorted(values.items())), dict(sorted(reasons.items())), len(runs))


def _plots(panels: Mapping[str, Sequence[LengthCurve]], spec: ComparisonSpec) -> list[Figure]:
    """Draw a plot for each panel that has cells, all with the same vertical axis."""
    scores = [score for curves in panels.values() for c in curves for seeds in c.values.values() for score in seeds]
    note = f"test split; {better(spec.direction)}; ringed: trained; band: all seeds"
    plots = []
    for i, (panel, curves) in enumerate(panels.items()):
        if curves:
            title = f"{base_metric(spec.metric)} by length{f', {panel}' if panel else ''}"
            file = f"lengths{f'-{i}' if len(panels) > 1 else ''}.svg"
            drawing = length_plot(curves, title=title, note=note, limits=svg.padded_limits(scores))
            plots.append(Figure(file, title, drawing))
    return plots


def _differences(results: Results, length: int, *, is_trained: bool) -> dict[str, str]:
    """Return cell -> its difference from the baseline at a length, as text; without the cells that have none.

    Args:
        results: of the study.
        length: the length of the test.
        is_trained: all cells were trained at this length.
    """
    metric = base_metric(results.spec.metric)
    spec = replace(results.spec, metric=metric if is_trained else at_length(metric, length))
    cells = summarize_cells(results.records, spec) if spec.baselines else []
    return {cell.name: format_interval(cell.difference.interval, sign=True) for cell in cells if cell.difference}


def _table(curves: Sequence[LengthCurve], spec: ComparisonSpec, differences: Mapping[int, Mapping[str, str]]) -> Table:
    """Return a table with one row per cell: mean and interval at each length, "not evaluated" where no seed has a score."""
    columns = [Column("cell", is_text=True), Column("trained at")]
    for n, known in differences.items():
        columns += [Column(f"at {n}"), *([Column(f"difference at {n}")] if known else [])]
    rows = []
    for curve in curves:
        texts = [curve.name, str(curve.trained or "")]
        for n, known in differences.items():
            texts.append(_score(curve, n, spec) or ("not evaluated" if n in curve.reasons else ""))
            texts += [known.get(curve.name, "")] if known else []
        rows.append(TableRow(texts, curve.color))
    return Table(columns, rows)


def _score(curve: LengthCurve, length: int, spec: ComparisonSpec) -> str:
    """Return a score as in "2.5000 ± 0.0100", with " (1 of 4)" if only some seeds have one, or "" if none has."""
    if length not in curve.values:
        return ""
    share = curve.share(length)
    score = format_interval(paired.interval(list(curve.values[length]), looks=spec.looks))
    return f"{score} ({share})" if share else score


def _notes(curves: Sequence[LengthCurve], spec: ComparisonSpec) -> Iterable[str]:
    metric = base_metric(spec.metric)
    corrected = " Intervals are corrected for the looks." if spec.looks and spec.looks.count > 1 else ""
    yield f"{metric} on the test split, without further training.{corrected}"
    # Cells with the same reason at the same lengths share one note.
    cells: dict[tuple[str, str, str], list[str]] = {}
    for curve in curves:
        by_reason: dict[tuple[str, str], list[int]] = {}
        for length, reason in curve.reasons.items():
            by_reason.setdefault((curve.share(length), reason), []).append(length)
        for (share, reason), lengths in by_reason.items():
            cells.setdefault((", ".join(map(str, lengths)), share, reason), []).append(curve.name)
    for (lengths, share, reason), names in cells.items():
        text = f"Only {share} seeds evaluated at" if share else "Not evaluated at"
        yield f"{text} {lengths}: {', '.join(names)} ({reason})."

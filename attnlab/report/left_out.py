"""A warning about finished runs that a study leaves out: a choice of seeds or cells changes its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.report.wording import count, format_p_value
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons, summarize_cells
from attnlab.stats.records import comparison_name

RunRecord = Mapping[str, Any]


def describe_left_out(
    left_out: Sequence[RunRecord], records: Sequence[RunRecord], cells: Sequence[CellSummary], spec: ComparisonSpec
) -> str:
    """Name the finished seeds and cells that a study leaves out, and what the verdicts would be with them; "" if none.

    Args:
        left_out: As `attnlab.tracking.runs.load_left_out` returns them.
        records: The compared runs.
        cells: Their summaries.
        spec: The comparison that the study makes.
    """
    shown = {cell.name for cell in cells}
    left_out = [run for run in left_out if run["left_out"] == "cell" or cell_of(run, spec) in shown]
    if not left_out:
        return ""
    text = f"{count(len(left_out), 'finished run')} left out of this study:"
    groups = []
    for kind, label in (("seed", ""), ("cell", "the cell ")):
        seeds: dict[str, list[int]] = {}
        for run in left_out:
            if run["left_out"] == kind:
                seeds.setdefault(cell_of(run, spec), []).append(int(run["seed"]))
        groups += [
            f"{label}{cell} (seed{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))})"
            for cell, numbers in seeds.items()
        ]
    text += f" {'; '.join(groups)}."
    if not spec.baseline:
        return text
    effects = _effects(cells, summarize_cells([*records, *left_out], spec))
    text += f" With them: {'; '.join(effects)}." if effects else " They change no verdict."
    return f"{text} If runs are left out after their results are known, p-values are too small."


def _effects(cells: Sequence[CellSummary], with_left_out: Sequence[CellSummary]) -> list[str]:
    """Return the changes of the verdicts, as in "no_wo inconclusive, p 0.039 (instead of better, p 0.022)"."""
    after = {(cell.name, cell.baseline): _verdict(cell) for cell in comparisons(with_left_out)}
    texts, several = [], any(cell.further for cell in cells)
    known = {cell.name for cell in with_left_out}
    for cell in comparisons([cell for cell in cells if cell.name in known]):  # without cells that are not confirmed yet
        before, name = _verdict(cell), comparison_name(cell.name, cell.baseline) if several else cell.name
        now = after.get((cell.name, cell.baseline), "without a verdict")
        if before != now:
            texts.append(f"{name} {now} (instead of {before})")
    return texts


def _verdict(cell: CellSummary) -> str:
    if cell.verdict is None:
        return "without a verdict"
    p = format_p_value(cell.difference.p_holm if cell.difference else None)
    return f"{cell.verdict.kind.value}{f', p {p}' if p else ''}"

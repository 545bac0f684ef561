"""A report's tables for other programs: CSV, and Parquet with its types."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.cost_metrics import shown_in
from attnlab.stats.compare import Question, Row

if TYPE_CHECKING:
    import pandas

PRIVATE = ("folder", "sources")  # where things lie on one machine


def export(folder: Path, *, table: Sequence[Row], runs: pandas.DataFrame, question: Question) -> None:
    """Write `cells` (one row a cell) and `runs` (one row a run, searched ones included), each as .csv and .parquet."""
    for name, frame in (("cells", cells_frame(table, question)), ("runs", _plain(runs))):
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.to_parquet(folder / f"{name}.parquet", index=False)


def cells_frame(table: Sequence[Row], question: Question) -> pandas.DataFrame:
    """The verdict table in full precision."""
    import pandas

    return pandas.DataFrame([_cell(row, question) for row in table])


def _cell(row: Row, question: Question) -> dict[str, Any]:
    v, d = row.value, row.difference
    gap = d.interval if d else None
    return {
        "cell": row.name,
        **{axis: row.axes[axis] for axis in question.axes},
        "n": v.n if v else 0,
        question.metric: v.mean if v else None,
        "sd": v.sd if v else None,
        "low": v.low if v else None,
        "high": v.high if v else None,
        "baseline": row.baseline,
        "n_paired": gap.n if gap else 0,
        "difference": gap.mean if gap else None,
        "difference_low": gap.low if gap else None,
        "difference_high": gap.high if gap else None,
        "p": d.p if d else None,
        "p_holm": d.p_holm if d else None,
        "p_equivalent_holm": d.p_equivalent_holm if d else None,
        "effect_size": d.effect if d else None,
        "verdict": row.verdict,
        **{m.name: row.costs[m.name].mean if m.name in row.costs else None for m in shown_in("cost table")},
        "outcome": row.outcome,
        "reasons": "; ".join(row.reasons),
    }


def _plain(runs: pandas.DataFrame) -> pandas.DataFrame:
    """Columns of one type each: what mixes types, or holds a list, becomes text."""
    found = runs.drop(columns=[name for name in PRIVATE if name in runs])
    for name in found.columns:
        kinds = {type(value) for value in found[name] if value is not None and value == value}
        if kinds & {list, dict, tuple} or (len(kinds) > 1 and not kinds <= {int, float}):
            found[name] = [_text(value) for value in found[name]]
    return found


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return None if value != value else json.dumps(value, default=str)

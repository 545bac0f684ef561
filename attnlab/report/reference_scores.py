"""The lines of the trivial baselines, below those of the cells: shown, and compared with nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab._util.cost_metrics import significant
from attnlab.report.table import Line, Table
from attnlab.stats.compare import fixed
from attnlab.tracking.artifacts import ReferenceScore

KIND = "trivial"  # of such a line


def with_reference_scores(table: Table, scores: Sequence[ReferenceScore]) -> Table:
    """The table with a line for each score below: its name, its value under the metric, and no seeds or interval."""
    lines = []
    for score, label in zip(scores, labels(scores), strict=True):
        cells = {"cell": label, score.metric: fixed(score.value), "verdict": "not compared", "state": "no network"}
        lines.append(Line([cells.get(column.heading, "") for column in table.columns], kind=KIND))
    return Table(table.columns, [*table.lines, *lines])


def reference_notes(scores: Sequence[ReferenceScore]) -> list[str]:
    """What the lines are, in one note; none where there are no lines."""
    if not scores:
        return []
    several = labels(scores)
    said = [
        f"{label.removeprefix('baseline: ')} is {score.about} ({significant(score.seconds)} s)"
        for score, label in zip(scores, several, strict=True)
    ]
    text = "Trivial baselines, without a neural network, read the same test bytes or texts, and are compared with nothing: "
    return [text + "; ".join(said) + "."]


def beside(scores: Sequence[ReferenceScore], runs: Iterable[Mapping[str, Any]], *, metric: str) -> list[ReferenceScore]:
    """Those that were measured as these runs were: on the same data, with the same limit, in the same metric."""
    tests = {(run.get("data"), _limit(run.get("evaluate.test_limit"))) for run in runs}
    return [score for score in scores if score.metric == metric and (score.data, score.limit) in tests]


def labels(scores: Sequence[ReferenceScore]) -> list[str]:
    """ "baseline: gzip", with the task or the limit where that alone would name two of them."""
    found = [f"baseline: {score.name}" for score in scores]
    for more in ([score.task for score in scores], [f"first {score.limit:,}" if score.limit else "" for score in scores]):
        count = Counter(found)
        found = [f"{name} {word}".rstrip() if count[name] > 1 else name for name, word in zip(found, more, strict=True)]
    return found


def _limit(value: Any) -> int | None:
    """A table of runs pads with NaN."""
    return None if value is None or value != value else int(value)

"""The part of a page on stages: the runs that others start from, and what these take over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from attnlab._util.cost_metrics import significant
from attnlab.planning.stages import stage_notes
from attnlab.report.analysis import Analysis, Results
from attnlab.report.section import Column, PageSection, Table, TableRow
from attnlab.report.wording import format_metric
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.compare import cell_of
from attnlab.stats.records import finite, is_present
from attnlab.stats.search import RunRow

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

NOT_SCORES = ("loss", "seconds")  # ends of the names of columns valid_... that are no score, or a second one


class StagesAnalysis(Analysis[dict[str, list[RunRow]]]):
    """The runs that others start from, and what these take over."""

    def notes(self, plan: Plan) -> Iterable[str]:
        """Return notes on stages that some cells have and others do not."""
        return stage_notes(plan.study, [*plan.cells, *plan.unselected])

    def estimate(self, results: Results) -> dict[str, list[RunRow]]:
        """Return stage -> its runs."""
        groups: dict[str, list[RunRow]] = {}
        for run in results.stages:
            groups.setdefault(cell_of(run, results.spec), []).append(run)
        return groups

    def section(self, estimate: dict[str, list[RunRow]], results: Results) -> PageSection:
        """Return the section with a row for each stage."""
        columns = [Column(heading, is_text=True) for heading in ("stage", "task", "state")]
        columns += [Column("score on valid", is_text=True), Column("train s")]
        table = Table(columns, [TableRow([name, *_describe(group)]) for name, group in estimate.items()])
        paragraph = "Runs of the cells start from the weights of these runs, which have the same seed, variant and model."
        notes = _transfers([*results.stages, *results.records], results.spec)
        return PageSection("Stages", [paragraph], table=table, notes=notes)


def _describe(runs: Sequence[RunRow]) -> list[str]:
    """Return the task, the states, the mean score and the mean training time of the runs of one stage."""
    states = Counter(str(run["state"]) for run in runs)
    reasons = dict.fromkeys(str(run["reason"]) for run in runs if run.get("reason"))
    state = "; ".join([", ".join(f"{n} {state}" for state, n in states.items()), *reasons])
    names = [name for name in runs[0] if str(name).startswith("valid_") and not str(name).endswith((*NOT_SCORES, "_slope"))]
    means = {name.removeprefix("valid_"): mean for name in names if (mean := _mean(runs, name)) is not None}
    scores = [f"{name} {format_metric(mean)}" for name, mean in means.items()]
    seconds = _mean(runs, "train_seconds")
    return [str(runs[0].get("task")), state, ", ".join(scores), "" if seconds is None else significant(seconds)]


def _mean(runs: Sequence[RunRow], name: str) -> float | None:
    values = [value for run in runs if (value := finite(run.get(name))) is not None]
    return sum(values) / len(values) if values else None


def _transfers(runs: Sequence[RunRow], spec: ComparisonSpec) -> list[str]:
    """Return a note on each distinct set of tensors that cells, or later stages, took over."""
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for run in runs:
        if is_present(taken := run.get("init.taken")):
            cells.setdefault((str(run.get("init")), str(taken)), {})[cell_of(run, spec)] = None
    return [f"{', '.join(names)} from {stage}: {taken}." for (stage, taken), names in cells.items()]

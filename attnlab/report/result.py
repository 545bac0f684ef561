"""The verdicts of a study in Python: of the result of a run, and of records."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, cast

from attnlab._util.run_state import RunState
from attnlab._util.text import format_table, html_table
from attnlab.report.conclusion import conclusions, describe_choice, publish, verdicts_frame
from attnlab.report.wording import format_metric
from attnlab.stats.compared import Compared
from attnlab.study import run as running
from attnlab.study.comparison import compare_info, load_judged
from attnlab.tracking.client import runs_folder
from attnlab.tracking.runs import NoRunsError, study_name

if TYPE_CHECKING:
    import pandas

P = ParamSpec("P")
WIDTH = 80  # of the text of a result
SHOWN = (
    "task",
    "cell",
    "baseline",
    "value",
    "difference",
    "low",
    "high",
    "p",
    "seeds",
    "verdict",
    "note",
)  # columns that are shown


@dataclass(frozen=True, repr=False)
class Result(running.StudyResult):
    """The result of a study.

    Attributes:
        rows: the record of each run, stages first, and of each refused cell, in the plan's order.
        reference_scores: scores of trivial methods on the test split, when the study requests them.
        root: the folder of runs.
    """

    root: str | Path | None = None

    @cached_property
    def compared(self) -> Compared:
        """The compared cells, read back from the record. The first use counts as a look, and writes the answer to MLflow."""
        compared = load_compared(self.plan.study.study, self.root)
        publish(self.plan.study.study, compared, conclusions(compared), self.root)
        return compared

    @property
    def verdicts(self) -> pandas.DataFrame:
        """The verdicts, as from ``attnlab.verdicts``. The first use counts as a look at the study, which is recorded."""
        return verdicts_frame(self.compared)

    def __repr__(self) -> str:
        """Return the conclusion, the verdicts and the runs without a result, as text."""
        texts = [textwrap.fill(text, WIDTH) for text in self._texts]
        headings, rows = _format(self.verdicts.drop(columns="p"))  # which leaves the others room in 80 columns
        table = format_table(headings, rows, width=WIDTH, wrap=("cell", "note")) if rows else ""
        lines = [f"{name}: {text}" for name, text in self._further]
        return "\n".join([self._heading, *texts, *([table] if table else []), *lines])

    def _repr_html_(self) -> str:
        """Return the same for display in a notebook."""
        texts = "".join(f"<p>{escape(text)}</p>" for text in self._texts)
        table = html_table(*_format(self.verdicts), caption=self._heading)
        return f"{table}{texts}{html_table(['', ''], self._further) if self._further else ''}"

    @property
    def _texts(self) -> list[str]:
        """The conclusion, and a line on each choice of the records."""
        return [*conclusions(self.compared), *describe_choice(self.compared)]

    @property
    def _heading(self) -> str:
        states = Counter(row.state for row in self.rows)
        return f"{self.plan.study.study}: {', '.join(f'{n} {state}' for state, n in states.items())}"

    @property
    def _further(self) -> list[list[str]]:
        """The runs that did not complete, and the reference scores, each with a text."""
        rows = [[row.name, f"{row.state}: {row.reason}"] for row in self.rows if row.state != RunState.COMPLETED]
        scores = [(score, f"{score.metric} {format_metric(score.value)}") for score in self.reference_scores]
        return [*rows, *([f"reference: {score.name} of {score.task}", text] for score, text in scores)]


def _format(frame: pandas.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of a frame of verdicts as text, without the name of the only baseline."""
    one_baseline = len(set(frame["baseline"]) - {""}) == 1
    names = [name for name in SHOWN if name in frame and (name != "baseline" or not one_baseline)]
    values = frame[names].to_numpy().tolist()
    rows = [["" if v != v else format_metric(v) if isinstance(v, float) else str(v) for v in row] for row in values]
    return names, rows


def load_compared(study: str | Path, root: str | Path | None = None) -> Compared:
    """Return the compared cells of a study as it is recorded. This is a look at the study, which is recorded.

    Raises:
        UserError: as ``verdicts``.
        NoRunsError: the study has no runs.
    """
    return compare_info(*load_judged(study_name(study), root))


def verdicts(study: str | Path, root: str | Path | None = None) -> pandas.DataFrame:
    """Return the verdicts of a study from its records, one row for each cell and each baseline that it is compared with.

    They are the same as in the table of ``attnlab run`` and in the report, in full precision. Calling this function counts as
    a look at the study. The look is recorded, and later verdicts are corrected for it. Missing numbers are NaN. Columns:

    ============================  ===================================================================================
    ``task``                      in a study of several tasks: the task
    ``cell``, ``baseline``        the names of the cell and of its baseline, "" for a cell that is not compared
    ``value``                     of the cell, over its seeds: the mean or solve rate of the metric; in a study with
                                  a sweep, at the best value tried
    ``difference``                from the baseline, over shared seeds, in the metric's unit (exact tests: in the unit of
                                  their estimate)
    ``low``, ``high``             the 95 % interval of the difference
    ``simultaneous_low``,         the interval that holds together with all other comparisons
    ``simultaneous_high``
    ``new_items_low``,            the 95 % interval of the difference for other test items like these, where the items are a
    ``new_items_high``            notable part of the uncertainty
    ``p``                         the p-value that the verdict rests on, after Holm's correction: of the test for a
                                  difference, or for equivalent cells of the equivalence test
    ``verdict``                   ``better``, ``worse``, ``equivalent`` or ``inconclusive``; "" for a cell that is not compared
    ``fragile``                   whether tests corrected for skewness do not share the verdict
    ``items``                     whether the verdict holds for other test items like these, too; None where items are no
                                  notable part of the uncertainty
    ``corrected``                 the number of looks that the verdict is corrected for
    ``note``                      the conditions and reasons of the verdict as in the report; ``baseline``, or the state of a
                                  cell without a result
    ``seeds``                     number of seeds of the difference; for a cell that is not compared, of the cell
    ============================  ===================================================================================

    Args:
        study: the study's name, or its YAML file.
        root: the runs folder; default ``ATTNLAB_RUNS``, else ``./runs``.

    Returns:
        The verdicts; a frame with these columns and no rows if the study has no finished run.

    Raises:
        UserError: the study does not exist, or the runs folder has no runs.
    """
    try:
        return verdicts_frame(load_compared(study, root))
    except NoRunsError:
        return verdicts_frame(None)


def _with_verdicts(train: Callable[P, running.StudyResult]) -> Callable[P, Result]:
    @wraps(train)
    def run(*args: P.args, **kwargs: P.kwargs) -> Result:
        root = runs_folder(cast(str | Path | None, kwargs.get("root")))
        return Result(**vars(train(*args, **kwargs)), root=root)

    return run


run = _with_verdicts(running.run)

"""Analyses: results of a study in addition to its table of verdicts.

Each analysis is a class with one method for each place where its results are shown. The page, the terminal, the exported
tables and the plan loop over the analyses of a study and know none of them. `built_in` says which of attnlab's own a study
has. The key `analyses` of a study adds others: by `attnlab.register_analysis`, by a path, for example
`ranks.py:RankCorrelation`, or by an entry point of the group `attnlab.analyses`. A study without an analysis imports none of
its modules.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attnlab.errors import UserError, one_line
from attnlab.registry import ANALYSES
from attnlab.report.section import PageSection, Table
from attnlab.report.summary import Summary
from attnlab.stats.cells import CellSummary, ComparisonSpec
from attnlab.stats.compared import Compared
from attnlab.stats.search import RunRow

if TYPE_CHECKING:
    import pandas

    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)
Estimate = TypeVar("Estimate")
TABLES = ("cells", "runs")  # that every report has


@dataclass(frozen=True)
class Results:
    """What an analysis reads: the results of a study, or of one of its tasks.

    Attributes:
        compared: The compared cells, with the trends and the alternatives that verdicts are corrected by.
        stages: The runs that others start from.
        curves: As `attnlab.load_curves` returns them; None at the terminal, which reads no curves.
        colors: Cell -> color of its plots; empty at the terminal.
        estimates: Name of an earlier analysis -> its estimate.
    """

    compared: Compared
    stages: Sequence[RunRow] = ()
    curves: pandas.DataFrame | None = None
    colors: Mapping[str, str] = field(default_factory=dict)
    estimates: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> ComparisonSpec:
        """The comparison of the study, or of the task."""
        return self.compared.spec

    @property
    def cells(self) -> Sequence[CellSummary]:
        """The cells, compared with their baselines, in the order of the grid."""
        return self.compared.cells

    @cached_property
    def records(self) -> Sequence[RunRow]:
        """The compared runs, as `attnlab.load_runs` returns them; trials of a search are left out."""
        return self.compared.compared_records


class Analysis(Generic[Estimate]):
    """Base class of analyses. Only `estimate` is required; the other methods return nothing by default."""

    def notes(self, plan: Plan) -> Iterable[str]:
        """Return sentences for the plan of a study that has this analysis.

        Raises:
            UserError: The study cannot be analyzed in this way.
        """
        return ()

    def estimate(self, results: Results) -> Estimate | None:
        """Compute the analysis. Return None or an empty list when there is nothing to show."""
        raise NotImplementedError

    def lines(self, estimate: Estimate, results: Results) -> Iterable[str | Table]:
        """Return paragraphs and tables for the terminal."""
        return ()

    def section(self, estimate: Estimate, results: Results) -> PageSection | None:
        """Return the section of the page."""
        return None

    def summarize(self, summary: Summary, estimate: Estimate, results: Results) -> Summary:
        """Return the paragraph at the top of the page, given the paragraph of the verdicts and earlier analyses."""
        return summary

    def frames(self, estimate: Estimate, results: Results) -> Mapping[str, pandas.DataFrame]:
        """Return tables in full precision: name of a file without its ending -> data frame."""
        return {}


def built_in(results: Results) -> list[str]:
    """Return the names of attnlab's analyses that a study has, in the order of the page; later ones may read earlier ones."""
    spec = results.spec
    parts = {"questions": spec.further, "trend": spec.over, "factorial": spec.factorial, "sweep": spec.sweep}
    parts |= {"lengths": results.curves is not None and has_other_lengths(results.records), "stages": results.stages}
    return [name for name, part in parts.items() if part]


def has_other_lengths(records: Sequence[RunRow]) -> bool:
    """Return True when runs have columns for scores at lengths other than in training, or for their absence."""
    return any("_at/" in name or name.startswith("length.") for record in records[:1] for name in record)


@dataclass(frozen=True)
class Analyzed:
    """The analyses of a study with what they found, ready to be shown.

    An analysis of the user that raises an exception, or returns something unexpected, is left out of that place with a warning:
    the rest is shown.

    Attributes:
        results: What the analyses read.
        found: The name of each analysis, the analysis, and its estimate.
    """

    results: Results
    found: Sequence[tuple[str, Analysis[Any], Any]]

    def lines(self) -> Iterator[str | Table]:
        """Yield the paragraphs and tables for the terminal."""
        for name, analysis, estimate in self.found:
            lines: list[str | Table] = []
            with _left_out(name):
                lines = [_checked(line, str | Table) for line in analysis.lines(estimate, self.results)]
            yield from lines

    def sections(self) -> list[PageSection]:
        """Return the sections of the page."""
        sections: list[PageSection] = []
        for name, analysis, estimate in self.found:
            with _left_out(name):
                if (section := analysis.section(estimate, self.results)) is not None:
                    sections.append(_checked(section, PageSection))
        return sections

    def summarize(self, summary: Summary) -> Summary:
        """Return the paragraph at the top of the page."""
        for name, analysis, estimate in self.found:
            with _left_out(name):
                summary = _checked(analysis.summarize(summary, estimate, self.results), Summary)
        return summary

    def frames(self) -> dict[str, pandas.DataFrame]:
        """Return the tables in full precision, by the names of their files."""
        import pandas

        frames: dict[str, pandas.DataFrame] = {}
        for name, analysis, estimate in self.found:
            with _left_out(name):
                for file, frame in analysis.frames(estimate, self.results).items():
                    if not re.fullmatch(r"[A-Za-z0-9_-]+", file) or file in {*TABLES, *frames}:
                        raise UserError(f"expected the name of a further table, letters, digits, _ and -, got {file!r}")
                    frames[file] = _checked(frame, pandas.DataFrame)
        return frames


def analyze(results: Results) -> Analyzed:
    """Compute the built-in analyses of a study, and the analyses that it names.

    When an analysis is not imported here, it is left out with a warning: a record alone never decides which code runs.
    """
    found: list[tuple[str, Analysis[Any], Any]] = []
    for name in (*built_in(results), *results.spec.analyses):
        if (cls := ANALYSES.imported(name)) is None:
            logger.warning("the analysis %s is left out: no imported file has it (attnlab report --imports FILE)", name)
            continue
        with _left_out(name):
            analysis: Analysis[Any] = cls()
            estimate = analysis.estimate(results)
            if estimate is not None and not (isinstance(estimate, list | tuple) and not estimate):
                found.append((name, analysis, estimate))
                results = replace(results, estimates={**results.estimates, name: estimate})
    return Analyzed(results, found)


def analyze_tasks(compared: Compared) -> list[Analyzed]:
    """Return the analyses of each task of a study, for the terminal and Python, which read no curves."""
    return [analyze(Results(compared.for_task(part))) for part in compared.spec.parts]


@contextmanager
def _left_out(name: str) -> Iterator[None]:
    """Turn an exception of an analysis of the user into a warning."""
    try:
        yield
    except Exception as error:
        if ANALYSES.is_builtin(name):
            raise
        logger.warning("the analysis %s is left out: %s: %s", name, type(error).__name__, one_line(str(error)))


def _checked(value: Any, expected: Any) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"expected {getattr(expected, '__name__', expected)}, got {type(value).__name__}")
    return value

"""The page of one study: its sections in reading order, rendered as HTML and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab._version import __version__
from attnlab.report.analysis import Analyzed, Results, analyze
from attnlab.report.conclusion import conclude, describe_choice
from attnlab.report.figures import cell_colors, draw_differences, draw_tradeoffs
from attnlab.report.methods import Reproduction, describe_methods, introduction, reproduction
from attnlab.report.notes import split_notes
from attnlab.report.plots.learning import CurvePanel, learning_curves, learning_panels
from attnlab.report.plots.maps import describe_maps, draw_maps
from attnlab.report.reference_scores import matching_scores, score_warnings, with_reference_scores
from attnlab.report.render import render
from attnlab.report.search import search_section
from attnlab.report.section import Column, Figure, PageSection, Table, TableRow, two_columns
from attnlab.report.stored import export
from attnlab.report.summary import Summary
from attnlab.report.verdicts import HOW_TO_READ, cost_table, notes, run_table, verdict_table
from attnlab.report.wording import better, count, describe_baselines, describe_test
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons, runs_at_best
from attnlab.stats.contrasts import StudyTable
from attnlab.stats.search import NOT_CONFIRMED, RunRow
from attnlab.study.comparison import StudyInfo, compare_info

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap

FILES = ("cells.csv", "runs.csv", "report.json")
RENDERED = ("index.html", "runs.csv")  # what `report.json` holds in other words: a repository need not keep them


@dataclass(frozen=True)
class Page:
    """The contents of a study's page, which is also a part of the page on several studies. `records` are the compared runs."""

    info: StudyInfo
    introduction: Sequence[str]
    summary: Summary
    warnings: Sequence[str]
    overview: str
    table: Table
    notes: Sequence[str]
    sections: Sequence[PageSection]
    differences: Sequence[Figure]
    reproduction: Reproduction
    methods: Sequence[tuple[str, str]]
    search: PageSection | None
    runs: Table
    results: StudyTable = field(repr=False)
    analyzed: Analyzed = field(repr=False)
    records: Sequence[RunRow] = field(repr=False)

    @property
    def study(self) -> str:
        """The study's name."""
        return self.info.spec.study

    @property
    def name(self) -> str:
        """The name of the study, or of the task that the page is about."""
        return self.info.task or self.study

    @property
    def folder(self) -> str:
        """The name of the page's folder: the name of the study or the task."""
        return task_folder(self.info.task) if self.info.task else self.study

    @property
    def earlier_versions(self) -> list[str]:
        """The versions of attnlab that trained the runs, other than this one."""
        found = {match[1] for run in self.records if (match := re.match(r"attnlab ([^,]+)", str(run.get("versions", ""))))}
        return sorted(found - {__version__})

    @property
    def cells(self) -> Sequence[CellSummary]:
        """The compared cells."""
        return self.results.cells

    @property
    def cells_title(self) -> str:
        """The title of the section with the table of the cells."""
        return "Cells" if any(section.leads for section in self.sections) else "Verdicts"

    @property
    def figures(self) -> list[Figure]:
        """All plots, in reading order."""
        return [*self.differences, *(plot for section in self.sections for plot in section.plots)]


def task_folder(task: str) -> str:
    """Return the name of the folder of a task's page: the task, with - for characters that need escapes."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task)


def make_page(info: StudyInfo, *, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap] = ()) -> Page:
    """Compute the contents of a study's page.

    Args:
        info: The comparison of the study, and the way it was run.
        runs: As `attnlab.load_runs` returns them, trials of a search included.
        curves: As `attnlab.load_curves` returns them.
        maps: As `attnlab.tracking.artifacts.load_attention_maps` returns them.
    """
    spec = info.spec.for_task(info.task) if info.task else info.spec
    compared = compare_info(info, runs).for_task(spec)  # corrected over the whole study
    cells, searches, info = list(compared.cells), compared.searches.get(info.task, ()), replace(info, spec=spec)
    trials = [run for run in compared.records if spec.includes(run) and run.get("phase") == "search"]
    stages: list[RunRow] = [run for run in runs.to_dict("records") if run.get("phase") == "stage"]
    records, colors = compared.compared_records, cell_colors(cells)
    analyzed = analyze(Results(compared, stages, curves, colors))
    results = StudyTable(info.task or spec.study, spec, cells)
    scores = matching_scores(info.reference_scores, records, metric=spec.metric)
    methods = describe_methods(records, axes=spec.axes, trials=trials, stages=stages)
    search, alike = search_section(searches, spec, spec.search), runs_at_best(records, cells, spec)
    sections = [
        *analyzed.sections(),
        search,
        _learning_section(learning_panels(cells, alike, curves, spec=spec, colors=colors), spec),
        _cost_section(cells, records, spec, colors),
        _maps_section(sorted(maps, key=lambda map_: spec.position(map_.cell))),
        _incomplete_runs(cells, info),
        PageSection("Methods", table=two_columns(methods)),
    ]
    return Page(
        info=info,
        introduction=[*([spec.question] if spec.question else []), *introduction(info.yaml)],
        summary=conclude(analyzed),
        warnings=[*describe_choice(compared), *_data_notes(records), *score_warnings(cells, scores, metric=spec.metric)],
        overview=overview(cells, spec),
        table=with_reference_scores(verdict_table(cells, spec, colors=colors), scores, heading=spec.estimator.words.heading),
        notes=[
            *split_notes(records),
            *notes(cells, spec),
            *_matched_cells(records, spec),
        ],
        sections=[section for section in sections if section is not None],
        differences=draw_differences(cells, spec, colors),
        reproduction=reproduction(info, records),
        methods=methods,
        search=search,
        runs=run_table(records, spec),
        results=results,
        analyzed=analyzed,
        records=records,
    )


def _matched_cells(records: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> list[str]:
    """Return a note for each cell that was matched to the cost of its baseline."""
    matched = {cell_of(record, spec): record["matched"] for record in records if record.get("matched")}
    return [f"{cell} is matched: {method}." for cell, method in matched.items()]


def _data_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notes of the tasks on their data; a run that was recorded without them has NaN."""
    known = [record["data_notes"] for record in records if isinstance(record.get("data_notes"), list)]
    return [f"Data: {note}." for note in dict.fromkeys(note for notes in known for note in notes)]


def _learning_section(panels: Sequence[CurvePanel], spec: ComparisonSpec) -> PageSection | None:
    about = spec.estimator.words.runs
    return PageSection("Learning curves", [about] if about else [], plots=learning_curves(panels)) if panels else None


def _cost_section(
    cells: Sequence[CellSummary], records: Sequence[RunRow], spec: ComparisonSpec, colors: Mapping[str, str]
) -> PageSection | None:
    table = cost_table(cells, colors=colors)
    plots = draw_tradeoffs(cells, spec, colors)
    return PageSection("Costs", plots=plots, table=table, notes=[HOW_TO_READ]) if table else None


def _maps_section(maps: Sequence[AttentionMap]) -> PageSection | None:
    if not maps:
        return None
    paragraphs, about_missing = describe_maps(maps)
    plots = [Figure(f"{file}.svg", title, svg) for file, title, svg in draw_maps(maps)]
    return PageSection("Attention maps", paragraphs, plots=plots, notes=about_missing)


def _incomplete_runs(cells: Sequence[CellSummary], info: StudyInfo) -> PageSection | None:
    """Return the section on refused, failed and diverged runs, and on cells that the study leaves out, with reasons."""
    rows = [[cell.name, cell.outcome, "; ".join(cell.reasons)] for cell in cells if set(cell.states) != {RunState.COMPLETED}]
    rows += [[name, "left out by the study", reason] for name, reason in info.spec.skipped]
    if not rows:
        return None
    columns = [Column("cell", is_text=True), Column("state", is_text=True), Column("reason", is_text=True)]
    return PageSection("Incomplete runs", table=Table(columns, [TableRow(row) for row in rows]))


def overview(cells: Sequence[CellSummary], spec: ComparisonSpec) -> str:
    """Return the paragraph above the verdicts: number of cells and runs, the metric, and the baseline."""
    runs = sum(n for cell in cells for state, n in cell.states.items() if state not in (RunState.REFUSED, NOT_CONFIRMED))
    text = f"{count(len(cells), 'cell')}, {count(runs, 'run')}. "
    text += f"The metric is {spec.metric} {describe_test(cells)}: {better(spec.direction)}."
    text += f" Cells are compared by {by}." if (by := spec.estimator.words.compared_by) else ""
    baselines = dict.fromkeys(cell.baseline for cell in comparisons(cells) if cell.difference)
    if len(baselines) == 1:
        text += f" Cells are compared with {next(iter(baselines))}."
    elif baselines:
        text += f" Cells are compared with {describe_baselines(spec)}."
    return text


def runs_of(spec: ComparisonSpec, runs: pandas.DataFrame) -> pandas.DataFrame:
    """Return the runs of the task that a specification is about, if it is about one only."""
    return runs.loc[[spec.includes(run) for run in runs.to_dict("records")]] if spec.task else runs


def write_page(folder: Path, page: Page, *, runs: pandas.DataFrame) -> None:
    """Write `index.html`, `README.md`, the plots and the tables into `folder`; `README.md` needs no file of `RENDERED`."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    for figure in page.figures:
        (folder / figure.file).write_text(figure.svg, encoding="utf-8", errors="surrogateescape")
    spec = page.results.spec
    frames = page.analyzed.frames()
    export(folder, cells=page.cells, runs=runs_of(spec, runs), spec=spec, further=frames)
    files = [*FILES, *(f"{name}.csv" for name in frames)]
    fields = {"page": page, "files": files, "rendered": RENDERED}
    for template, name in (("report.html.j2", "index.html"), ("report.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8", errors="surrogateescape")

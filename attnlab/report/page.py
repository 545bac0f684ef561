"""The page of one study: its sections in reading order, rendered as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.run_state import RunState
from attnlab.report.export import export
from attnlab.report.factorial import effect_plots, effects_section, summarize_effects
from attnlab.report.figures import Figure, cell_colors, draw_figures
from attnlab.report.items import item_notes
from attnlab.report.left_out import describe_left_out
from attnlab.report.lengths import LengthsSection, lengths_section
from attnlab.report.methods import StudyInfo, describe_methods, introduction
from attnlab.report.plots.attention_maps import describe_maps, draw_maps
from attnlab.report.reference_scores import matching_scores, reference_notes, with_reference_scores
from attnlab.report.render import render
from attnlab.report.reproduction import SCRIPT, Reproduction, reproduction
from attnlab.report.search import search_method, search_table
from attnlab.report.summary import Summary, summarize
from attnlab.report.sweep import SweepSection, runs_at_best, sweep_section
from attnlab.report.table import Column, Table, TableRow
from attnlab.report.training_share import TITLE, share_notes, share_paragraphs, share_table
from attnlab.report.trend import (
    TREND_FILES,
    describe_method,
    draw_trends,
    export_trends,
    noun,
    trend_notes,
    trend_table,
    with_trends,
)
from attnlab.report.verdicts import COST_NOTE, cost_table, notes, run_table, verdict_table
from attnlab.report.wording import better, count
from attnlab.stats.compare import CellSummary, ComparisonSpec, cell_of, comparisons, summarize_cells
from attnlab.stats.factorial import FactorialResult, estimate_effects
from attnlab.stats.search import (
    NOT_CONFIRMED,
    RunRecord,
    SearchSummary,
    different_values,
    exclude_trials,
    summarize_searches,
    unconfirmed_cells,
)
from attnlab.stats.share_summary import CellShare, summarize_shares
from attnlab.stats.trend import Trend, summarize_trends

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap

FILES = ("cells.csv", "cells.parquet", "runs.csv", "runs.parquet", "report.json")
EFFECT_FILES = ("effects.csv", "effects.parquet")


@dataclass(frozen=True)
class PageSection:
    """A section of the page; empty parts are left out."""

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """The contents of a study's page, which is also a part of the page on several studies."""

    info: StudyInfo
    introduction: Sequence[str]
    summary: Summary
    warnings: Sequence[str]
    overview: str
    table: Table
    notes: Sequence[str]
    sections: Sequence[PageSection]
    figures: Sequence[Figure]
    reproduction: Reproduction
    methods: Sequence[tuple[str, str]]
    search: PageSection | None
    runs: Table
    cells: Sequence[CellSummary] = field(repr=False)

    @property
    def study(self) -> str:
        """The study's name."""
        return self.info.spec.study


def make_page(info: StudyInfo, *, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap] = ()) -> Page:
    """Compute the contents of a study's page.

    Args:
        info: What the study compares, and how it was run.
        runs: As `attnlab.load_runs` returns them, trials of a search included.
        curves: As `attnlab.load_curves` returns them.
        maps: As `attnlab.tracking.artifacts.load_attention_maps` returns them.
    """
    spec = info.spec
    searches, trials, records, cells = _summarize(info, runs)
    # Plots. Curves over steps and lengths are those of one configuration per cell.
    colors, alike = cell_colors(cells), runs_at_best(records, cells, spec)
    figures, effects = draw_figures(cells, alike, curves, spec=spec), estimate_effects(cells, spec)
    if effects is not None:
        figures += [Figure(file, title, svg, "effects") for file, title, svg in effect_plots(effects, spec)]
    maps = sorted(maps, key=lambda map_: info.position(map_.cell))
    figures += [Figure(f"{file}.svg", title, svg, "maps") for file, title, svg in draw_maps(maps)]
    sweep = sweep_section(cells, spec, colors)
    figures += [Figure(file, title, svg, "sweep") for file, title, svg in (sweep.plots if sweep else ())]
    lengths = lengths_section(cells, alike, spec=spec, colors=colors)
    figures += [Figure(file, title, svg, "lengths") for file, title, svg in (lengths.plots if lengths else ())]
    trends = summarize_trends(cells, spec)
    figures += draw_trends(trends, spec, colors=colors)
    shares = summarize_shares(cells, records, curves, spec=spec, trends=trends)
    # Text and tables.
    scores = matching_scores(info.reference_scores, records, metric=spec.metric)
    search, methods = _search_section(searches, info), describe_methods(records, axes=spec.axes, trials=trials)
    return Page(
        info=info,
        introduction=introduction(info.yaml),
        summary=with_trends(summarize(cells, spec), trends, spec) if effects is None else summarize_effects(effects, spec),
        warnings=[
            text
            for text in (describe_left_out(info.left_out, records, cells, spec), *_changes(info), *_data_notes(records))
            if text
        ],
        overview=overview(cells, spec),
        table=with_reference_scores(verdict_table(cells, spec, colors=colors), scores),
        notes=[*notes(cells, spec), *item_notes(info.uncertainty), *_matched_cells(records, spec), *reference_notes(scores)],
        sections=_trend_sections(trends, shares, spec, figures, colors)
        + _sections(
            cells,
            figures,
            colors,
            effects=_effects_section(effects, figures, spec),
            search=search,
            info=info,
            methods=methods,
            maps=maps,
            lengths=lengths,
            sweep=sweep,
        ),
        figures=figures,
        reproduction=reproduction(info, records),
        methods=methods,
        search=search,
        runs=run_table(records, spec),
        cells=cells,
    )


def _summarize(
    info: StudyInfo, runs: pandas.DataFrame
) -> tuple[list[SearchSummary], list[RunRecord], list[RunRecord], list[CellSummary]]:
    """Return the summaries of searches, the trials, the other runs, which alone are compared, and the cells, in order."""
    spec = info.spec
    everything: list[RunRecord] = [{str(k): v for k, v in record.items()} for record in runs.to_dict("records")]
    everything.sort(key=lambda record: (info.position(cell_of(record, spec)), record["seed"]))
    searches = summarize_searches(everything, spec, info.search) if info.search else []
    trials, records = [r for r in everything if r.get("phase") == "search"], exclude_trials(everything)
    cells = summarize_cells([*records, *unconfirmed_cells(everything, spec, searches)], spec)
    cells.sort(key=lambda cell: info.position(cell.name))
    return searches, trials, records, cells


def _changes(info: StudyInfo) -> list[str]:
    """Return a note for each change of the comparison after first results: the runs were not made for the present one."""
    return [f"The comparison was changed after the study had results. Before: {change}." for change in info.changes]


def _matched_cells(records: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> list[str]:
    """Return a note for each cell whose cost was matched to that of its baseline."""
    matched = {cell_of(record, spec): record["matched"] for record in records if record.get("matched")}
    return [f"{cell} is matched: {method}." for cell, method in matched.items()]


def _data_notes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the tasks say about their data."""
    return [f"Data: {note}." for note in dict.fromkeys(note for record in records for note in record.get("data_notes") or ())]


def _sections(
    cells: Sequence[CellSummary],
    figures: Sequence[Figure],
    colors: Mapping[str, str],
    *,
    effects: PageSection | None,
    search: PageSection | None,
    info: StudyInfo,
    methods: Sequence[tuple[str, str]],
    maps: Sequence[AttentionMap],
    lengths: LengthsSection | None,
    sweep: SweepSection | None,
) -> list[PageSection]:
    """Return the sections after the verdicts, in reading order."""
    plots = {
        name: [f for f in figures if f.section == name] for name in ("learning", "lengths", "cost", "grid", "maps", "sweep")
    }
    costs = cost_table(cells, colors=colors)
    map_paragraphs, map_notes = describe_maps(maps)
    sections = [
        effects,
        PageSection("Two axes at a time", plots=plots["grid"]) if plots["grid"] else None,
        search,
        _sweep_part(sweep, plots["sweep"]),
        PageSection("Learning curves", _at_best(sweep), plots=plots["learning"]) if plots["learning"] else None,
        PageSection(lengths.title, plots=plots["lengths"], table=lengths.table, notes=lengths.notes) if lengths else None,
        PageSection("Costs", plots=plots["cost"], table=costs, notes=[COST_NOTE]) if costs else None,
        PageSection("Attention maps", map_paragraphs, plots=plots["maps"], notes=map_notes) if maps else None,
        _incomplete_runs(cells, info),
        PageSection("Methods", table=two_columns(methods)),
    ]
    return [section for section in sections if section is not None]


def _effects_section(result: FactorialResult | None, figures: Sequence[Figure], spec: ComparisonSpec) -> PageSection | None:
    """Return the section on the effects of a factorial study."""
    if result is None:
        return None
    return PageSection(**effects_section(result, spec, [figure for figure in figures if figure.section == "effects"]))


def _trend_sections(
    trends: Sequence[Trend],
    shares: Sequence[CellShare],
    spec: ComparisonSpec,
    figures: Sequence[Figure],
    colors: Mapping[str, str],
) -> list[PageSection]:
    """Return the sections on the differences over the levels of `over` and on shares of training, as far as there are any."""
    sections = []
    if trends:
        plots = [figure for figure in figures if figure.section == "trend"]
        table, about = trend_table(trends, spec, colors=colors), [describe_method(trends, spec)]
        sections.append(
            PageSection(f"Trend over {noun(spec)}", about, plots=plots, table=table, notes=trend_notes(trends, spec))
        )
    if shares:
        table, about = share_table(shares, colors=colors), share_paragraphs(shares, spec)
        sections.append(PageSection(TITLE, about, table=table, notes=share_notes(shares)))
    return sections


def _sweep_part(sweep: SweepSection | None, plots: Sequence[Figure]) -> PageSection | None:
    if sweep is None:
        return None
    return PageSection(sweep.title, sweep.paragraphs, sweep.warnings, plots, sweep.table, sweep.notes)


def _at_best(sweep: SweepSection | None) -> list[str]:
    """Return the paragraph that names the runs of the learning curves in a study with a sweep."""
    return [f"Runs at each cell's best {sweep.title.lower()} tried."] if sweep else []


def _incomplete_runs(cells: Sequence[CellSummary], info: StudyInfo) -> PageSection | None:
    """Return the section on refused, failed and diverged runs, and on cells that the study leaves out, with reasons."""
    rows = [[cell.name, cell.outcome, "; ".join(cell.reasons)] for cell in cells if set(cell.states) != {RunState.COMPLETED}]
    rows += [[name, "left out by the study", reason] for name, reason in info.skipped]
    if not rows:
        return None
    columns = [Column("cell", is_text=True), Column("state", is_text=True), Column("reason", is_text=True)]
    return PageSection("Incomplete runs", table=Table(columns, [TableRow(row) for row in rows]))


def two_columns(pairs: Sequence[tuple[str, str]]) -> Table:
    """Return a table of names and values without headings."""
    return Table([Column("", is_text=True), Column("", is_text=True)], [TableRow(list(pair)) for pair in pairs])


def _search_section(summaries: Sequence[SearchSummary], info: StudyInfo) -> PageSection | None:
    if info.search is None or not summaries:
        return None
    warnings = [f"{summary.cell}: {warning}." for summary in summaries for warning in summary.warnings]
    warnings += [f"{warning[:1].upper()}{warning[1:]}." for warning in different_values(summaries, info.search)]
    table = search_table(summaries, info.spec, info.search)
    return PageSection("Search", paragraphs=[search_method(info.search, info.spec)], warnings=warnings, table=table)


def overview(cells: Sequence[CellSummary], spec: ComparisonSpec) -> str:
    """Return the paragraph above the verdicts: number of cells and runs, the metric, and the baseline."""
    runs = sum(n for cell in cells for state, n in cell.states.items() if state not in (RunState.REFUSED, NOT_CONFIRMED))
    text = f"{count(len(cells), 'cell')}, {count(runs, 'run')}. "
    text += f"The metric is {spec.metric} on the test split: {better(spec.direction)}."
    baselines = dict.fromkeys(cell.baseline for cell in comparisons(cells) if cell.difference)
    if len(baselines) == 1:
        text += f" The other cells are compared with {next(iter(baselines))}."
    elif baselines:
        wheres = [", ".join(f"{axis} {value}" for axis, value in baseline.items()) for baseline in spec.baselines]
        which = "the cell that has" if len(wheres) == 1 else "each of the cells that have"
        text += f" Each cell is compared with {which} {' or '.join(wheres)} and {'is' if len(wheres) == 1 else 'are'} otherwise"
        text += " the same."
    return text


def write_page(folder: Path, page: Page, *, runs: pandas.DataFrame) -> None:
    """Write `index.html`, `README.md`, the plots and the tables into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    for figure in page.figures:
        (folder / figure.file).write_text(figure.svg, encoding="utf-8", errors="surrogateescape")
    (folder / SCRIPT).write_text(page.reproduction.script, encoding="utf-8", errors="surrogateescape")
    export(folder, cells=page.cells, runs=runs, spec=page.info.spec)
    if trends := summarize_trends(page.cells, page.info.spec):
        export_trends(folder, trends)
    differences = [figure for figure in page.figures if figure.section == "differences"]
    files = (*FILES, *(EFFECT_FILES if page.info.spec.factorial else ()), *(TREND_FILES if trends else ()))
    fields = {"page": page, "files": files, "differences": differences, "script": SCRIPT}
    for template, name in (("report.html.j2", "index.html"), ("report.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8", errors="surrogateescape")

"""The page of one study: its sections in the order in which they are read, and the same as HTML and Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.report.export import export
from attnlab.report.figures import Figure, better, cell_colors, draw
from attnlab.report.lengths import Lengths, lengths_section
from attnlab.report.methods import Source, commands, lead, protocol
from attnlab.report.plots.attention_maps import drawn, told
from attnlab.report.reference_scores import beside, reference_notes, with_reference_scores
from attnlab.report.render import render
from attnlab.report.search import method, search_table
from attnlab.report.summary import Answer, answer
from attnlab.report.table import Column, Line, Table
from attnlab.report.verdicts import COST_NOTE, cost_table, notes, run_table, verdict_table
from attnlab.stats.compare import Question, Row, cell_of, rows
from attnlab.stats.search import NOT_CONFIRMED, Searched, reported, searched, unconfirmed

if TYPE_CHECKING:
    import pandas

    from attnlab.tracking.artifacts import AttentionMap

FILES = ("cells.csv", "cells.parquet", "runs.csv", "runs.parquet")


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out."""

    title: str
    paragraphs: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plots: Sequence[Figure] = ()
    table: Table | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Page:
    """A study, ready to be printed: by itself, or as a part of a page of several."""

    source: Source
    lead: Sequence[str]
    answer: Answer
    opening: str
    table: Table
    notes: Sequence[str]
    sections: Sequence[Section]
    figures: Sequence[Figure]
    commands: Sequence[str]
    protocol: Sequence[tuple[str, str]]
    search: Section | None
    runs: Table
    rows: Sequence[Row] = field(repr=False)

    @property
    def study(self) -> str:
        return self.source.question.study


def make(source: Source, *, runs: pandas.DataFrame, curves: pandas.DataFrame, maps: Sequence[AttentionMap] = ()) -> Page:
    """Work out everything that the page of a study says.

    Args:
        source: what the study asks and where its runs come from.
        runs: as `load_runs` returns them, those of a search included.
        curves: as `load_curves` returns them.
        maps: as `load_attention_maps` returns them.
    """
    question = source.question
    records = [{str(k): v for k, v in record.items()} for record in runs.to_dict("records")]
    records.sort(key=lambda record: (source.place(cell_of(record, question)), record["seed"]))
    trials = searched(records, question, source.search) if source.search else []
    table = rows([*reported(records), *unconfirmed(records, question, trials)], question)
    table.sort(key=lambda row: source.place(row.name))
    tried, records = [record for record in records if record.get("phase") == "search"], reported(records)
    colors, figures = cell_colors(table), draw(table, records, curves, question=question)
    trivial = beside(source.reference_scores, records, metric=question.metric)
    maps = sorted(maps, key=lambda each: source.place(each.cell))
    figures += [Figure(f"{file}.svg", title, svg, "maps") for file, title, svg in drawn(maps)]
    lengths = lengths_section(table, records, question=question, colors=colors)
    figures += [Figure(file, title, svg, "lengths") for file, title, svg in (lengths.plots if lengths else ())]
    search, how = _search(trials, source), protocol(records, axes=question.axes, trials=tried)
    return Page(
        source=source,
        lead=lead(source.yaml),
        answer=answer(table, question),
        opening=_opening(table, question),
        table=with_reference_scores(verdict_table(table, question, colors=colors), trivial),
        notes=[*_earlier(source), *notes(table, question), *_matched(records, question), *reference_notes(trivial)],
        sections=_sections(table, figures, colors, search=search, source=source, how=how, maps=maps, lengths=lengths),
        figures=figures,
        commands=commands(source, records),
        protocol=how,
        search=search,
        runs=run_table(records, question),
        rows=table,
    )


def _earlier(source: Source) -> list[str]:
    """A question that was changed when there were results to look at is not the one that they were made for."""
    return [f"The question was changed after there were results. Before: {each}." for each in source.earlier]


def _matched(records: Sequence[Mapping[str, Any]], question: Question) -> list[str]:
    """How cells were made to cost as much as their baseline."""
    said = {cell_of(record, question): record["matched"] for record in records if record.get("matched")}
    return [f"{cell} is matched: {how}." for cell, how in said.items()]


def _sections(
    table: Sequence[Row],
    figures: Sequence[Figure],
    colors: Mapping[str, str],
    *,
    search: Section | None,
    source: Source,
    how: Sequence[tuple[str, str]],
    maps: Sequence[AttentionMap],
    lengths: Lengths | None,
) -> list[Section]:
    plots = {name: [f for f in figures if f.section == name] for name in ("learning", "lengths", "cost", "grid", "maps")}
    costs = cost_table(table, colors=colors)
    said, without = told(maps)
    found = [
        Section("Two axes at a time", plots=plots["grid"]) if plots["grid"] else None,
        search,
        Section("Learning curves", plots=plots["learning"]) if plots["learning"] else None,
        Section(lengths.title, plots=plots["lengths"], table=lengths.table, notes=lengths.notes) if lengths else None,
        Section("What it costs", plots=plots["cost"], table=costs, notes=[COST_NOTE]) if costs else None,
        Section("Attention maps", said, plots=plots["maps"], notes=without) if maps else None,
        _troubles(table, source),
        Section("How it was measured", table=words_table(how)),
    ]
    return [section for section in found if section is not None]


def _troubles(table: Sequence[Row], source: Source) -> Section | None:
    """Refusals, failures and divergences with their reasons, and what the study left out."""
    bad = [[row.name, row.outcome, "; ".join(row.reasons)] for row in table if set(row.states) != {"completed"}]
    bad += [[name, "left out by the study", because] for name, because in source.skipped]
    if not bad:
        return None
    columns = [Column("cell", words=True), Column("state", words=True), Column("reason", words=True)]
    return Section("What did not complete", table=Table(columns, [Line(each) for each in bad]))


def words_table(pairs: Sequence[tuple[str, str]]) -> Table:
    """Names and what they are."""
    return Table([Column("", words=True), Column("", words=True)], [Line(list(pair)) for pair in pairs])


def _search(found: Sequence[Searched], source: Source) -> Section | None:
    if source.search is None or not found:
        return None
    warnings = [f"{each.cell}: {edge}." for each in found for edge in each.edges]
    table = search_table(found, source.question, source.search)
    return Section("Search", paragraphs=[method(source.search, source.question)], warnings=warnings, table=table)


def _opening(table: Sequence[Row], question: Question) -> str:
    counted = sum(count for row in table for state, count in row.states.items() if state not in ("refused", NOT_CONFIRMED))
    text = f"{_count(len(table), 'cell')}, {_count(counted, 'run')}. "
    text += f"The metric is {question.metric} on the test split: {better(question)}."
    names = dict.fromkeys(row.baseline for row in table if row.difference)
    if len(names) == 1:
        text += f" The others are compared with {next(iter(names))}."
    elif names:
        where = ", ".join(f"{axis} {value}" for axis, value in question.baseline.items())
        text += f" Each cell is compared with the one that has {where} and is otherwise the same."
    return text


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def write_page(folder: Path, page: Page, *, runs: pandas.DataFrame) -> None:
    """Write `index.html`, `README.md`, the plots and the tables into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    for figure in page.figures:
        (folder / figure.file).write_text(figure.svg, encoding="utf-8")
    export(folder, table=page.rows, runs=runs, question=page.source.question)
    fields = {name: getattr(page, name) for name in page.__dataclass_fields__}
    fields |= {"page": page, "study": page.study, "files": FILES}
    fields["effects"] = [figure for figure in page.figures if figure.section == "effects"]
    fields |= {"yaml": page.source.yaml.strip(), "yaml_name": f"{page.study}.yaml"}
    for template, name in (("report.html.j2", "index.html"), ("report.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8")

"""Writes the paper of a report: its tables, figures, methods, appendix and bibliography, and a document that shows them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.report.factorial import effect_rows
from attnlab.report.figures import cell_colors, difference_rows, differences_title
from attnlab.report.index import load_index
from attnlab.report.page import Page, make_page
from attnlab.report.paper import figures, prose
from attnlab.report.paper.appendix import appendix_sections
from attnlab.report.paper.references import Citation, bibliography, citations
from attnlab.report.paper.tables import effect_columns, trend_columns, verdict_columns
from attnlab.report.paper.tabular import tabular
from attnlab.report.paper.text import escape, label
from attnlab.report.plots.learning import learning_panels
from attnlab.report.reference_scores import labels, matching_scores
from attnlab.report.render import render
from attnlab.report.stored import FILE, load
from attnlab.report.trend import trend_lines
from attnlab.report.wording import count, level_noun
from attnlab.stats.compare import runs_at_best
from attnlab.stats.factorial import FactorialResult

if TYPE_CHECKING:
    import pandas

FOLDER, DOCUMENT = "paper", "paper.tex"
FIGURES = ("forest", "main-effects", "interactions", "trend", "curves")
MAX_NAMED = 6  # plots and classes named in a printed line


@dataclass(frozen=True)
class Float:
    """A table or a figure: its label, its caption and its LaTeX; `wide` ones span two columns."""

    label: str
    caption: str
    body: str
    wide: bool = True


@dataclass(frozen=True)
class Paper:
    """The document of a written paper, and lines on what it leaves out."""

    document: Path
    notes: Sequence[str]


def write_papers(folder: Path) -> list[Paper]:
    """Write a paper for each study of a report, from what the report stores; nothing is trained, and no run is read.

    Args:
        folder: Of the report. The files are in its subfolder `paper`, or those of its studies.

    Raises:
        UserError: The folder has no report, or one of a version whose stored results cannot be read.
    """
    if index := load_index(folder):
        return [paper for name in index[0] for paper in write_papers(folder / name)]
    if not (folder / FILE).is_file():
        raise UserError(f"expected a report with {FILE}, got none", str(folder))
    stored = load(folder)
    page = make_page(stored["info"], runs=stored["runs"], curves=stored["curves"])
    return [write_paper(folder / FOLDER, page, curves=stored["curves"])]


def write_paper(folder: Path, page: Page, *, curves: pandas.DataFrame) -> Paper:
    """Write the paper of one study.

    Args:
        folder: Created if missing; figures of an earlier paper are removed.
        page: The study's page.
        curves: As `attnlab.load_curves` returns them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in FIGURES:
        (folder / f"{stale}.pdf").unlink(missing_ok=True)
    cited = citations(page.records)
    effects: FactorialResult | None = page.analyzed.results.estimates.get("factorial")
    result = None if effects is None or effects.problem else effects
    tables = _tables(page, result)
    drawn, notes = _figures(folder, page, result, curves)
    paragraphs, keys = prose.methods_paragraphs(page, cited, result)
    references = bibliography(cited, keys)
    fields = {
        "study": escape(page.name),
        "tables": tables,
        "figures": drawn,
        "paragraphs": paragraphs,
        "has_references": "@" in references,
        "sections": appendix_sections(page, result),
    }
    for name in ("table", "figures", "methods", "appendix", "paper"):
        _write(folder / f"{name}.tex", render(f"paper-{name}.tex.j2", fields))
    _write(folder / "refs.bib", references)
    return Paper(folder / DOCUMENT, [*notes, *_uncited(cited)])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def _tables(page: Page, result: FactorialResult | None) -> list[Float]:
    spec, cells, trends = page.results.spec, page.cells, page.results.trends
    tables = []
    if result is not None:
        columns, gaps = effect_columns(result)
        caption = prose.effects_caption(result, cells, spec)
        tables.append(Float(label("tab", page.name, "effects"), caption, tabular(columns, gaps=gaps)))
    else:
        scores = matching_scores(page.info.reference_scores, page.records, metric=spec.metric)
        columns, gaps = verdict_columns(cells, spec, dict(zip(labels(scores), scores, strict=True)))
        has_bold = any(r"\bfseries" in text for column in columns for text in column.cells)
        caption = prose.verdict_caption(cells, spec, has_bold=has_bold, has_scores=bool(scores))
        tables.append(Float(label("tab", page.name), caption, tabular(columns, gaps=gaps)))
    if trends:
        caption = prose.trends_caption(trends, spec)
        tables.append(Float(label("tab", page.name, "trends"), caption, tabular(trend_columns(trends))))
    return tables


def _figures(
    folder: Path, page: Page, result: FactorialResult | None, curves: pandas.DataFrame
) -> tuple[list[Float], list[str]]:
    """Draw the figures; return them, and lines on the plots of the page that are left out."""
    spec, cells = page.results.spec, page.cells
    colors = cell_colors(cells)
    drawn: list[Float] = []
    notes, covered = [], ["forest", "main-effects", "interactions", "trend"]
    direction = spec.estimator.difference_direction
    rows = difference_rows(cells, spec, colors)
    title = differences_title(cells, spec).replace(spec.metric, prose.metric_name(spec)) if rows else ""
    forests = {"forest": (title, rows, prose.differences_of(cells))}
    if result is not None:
        groups = {"main effects": result.main, "interactions": result.interactions}
        forests = {
            name.replace(" ", "-"): (
                f"{name} on {prose.metric_name(spec)}, on minus off",
                rows,
                [effect.difference for effect in groups[name]],
            )
            for name, rows in effect_rows(result).items()
        }
    for name, (title, rows, differences) in forests.items():
        if rows and not figures.fits_forest(rows):
            notes.append(f"{name}.pdf is left out: {count(len(rows), 'row')} do not fit on a page")
        elif rows:
            figures.forest(folder / f"{name}.pdf", rows, label=title, direction=direction, margin=spec.margin)
            caption = prose.forest_caption(differences, cells, spec, of=escape(f"{title[:1].upper()}{title[1:]}"))
            drawn.append(_figure(page, name, caption, wide=False))
    if lines := trend_lines(page.results.trends, colors):
        names = (level_noun(spec), f"difference in {prose.metric_name(spec)}")
        figures.trends(folder / "trend.pdf", lines, labels=names, margin=spec.margin)
        drawn.append(_figure(page, "trend", prose.trend_figure_caption(page.results.trends, spec), wide=False))
    alike = runs_at_best(page.records, cells, spec)
    panels = figures.paper_panels(learning_panels(cells, alike, curves, spec=spec, colors=colors))
    most = max((len({curve.label for curve in panel.curves}) for panel in panels), default=0)
    if most > figures.MAX_CURVES:
        notes.append(
            f"curves.pdf is left out: {most} curves in one panel, of which at most {figures.MAX_CURVES} can be told apart"
        )
    elif panels:
        figures.curves(folder / "curves.pdf", panels)
        drawn.append(_figure(page, "curves", prose.curves_caption(panels, spec), wide=len(panels) > 1))
        covered += [panel.metric.replace("/", "-") for panel in panels]
    left = list(dict.fromkeys(figure.title for figure in page.figures if not figure.file.startswith(tuple(covered))))
    return drawn, [*notes, *_left_out("plots of the page that are not in the paper", left)]


def _figure(page: Page, name: str, caption: str, *, wide: bool) -> Float:
    return Float(label("fig", page.name, name), caption, rf"\includegraphics{{{name}.pdf}}", wide)


def _uncited(cited: Sequence[Citation]) -> list[str]:
    """Return a line on classes whose papers are unknown because their files are not imported."""
    names = [f"{citation.kind} {citation.name}" for citation in cited if not citation.known]
    return _left_out("not in refs.bib, because no paper is known for classes of your own", names)


def _left_out(what: str, names: Sequence[str]) -> list[str]:
    more = f", and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"{what}: {'; '.join(names[:MAX_NAMED])}{more}"] if names else []

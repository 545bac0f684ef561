"""Writes the paper of a report: its tables, figures, methods, appendix and bibliography, and a document that shows them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnlab.errors import UserError
from attnlab.extras.paper import prose
from attnlab.extras.paper.figures import pages_of, write_pdf
from attnlab.extras.paper.prose import Citation, bibliography, citations
from attnlab.extras.paper.tables import appendix_sections, verdict_columns
from attnlab.extras.paper.tabular import escape, label, page_columns, tabular, typeset
from attnlab.report.page import Page, make_page
from attnlab.report.reference_scores import labels, matching_scores
from attnlab.report.render import render
from attnlab.report.section import Figure, PageSection
from attnlab.report.stored import FILE, load
from attnlab.report.wording import differences_of
from attnlab.report.write import load_index

FOLDER, DOCUMENT = "paper", "paper.tex"
CREATOR = b"/Creator (attnlab)"
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
        folder: Of the report. The files are in its subfolder `paper`, or in the subfolders of its studies.

    Raises:
        UserError: The folder has no report, or one of a version that stored its results in another form.
    """
    if index := load_index(folder):
        return [paper for name in index[0] for paper in write_papers(folder / name)]
    if not (folder / FILE).is_file():
        raise UserError(f"expected a report with {FILE}, got none", str(folder))
    stored = load(folder)
    page = make_page(stored["info"], runs=stored["runs"], curves=stored["curves"])
    return [write_paper(folder / FOLDER, page)]


def write_paper(folder: Path, page: Page) -> Paper:
    """Write the paper of one study.

    Args:
        folder: Created if missing; figures of an earlier paper are removed.
        page: The study's page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in folder.glob("*.pdf"):
        if CREATOR in earlier.read_bytes():
            earlier.unlink()
    cited = citations(page.records)
    captioned = [section for section in page.sections if section.caption]
    with_cells = bool(differences_of(page.cells)) or not captioned
    tables = _tables(page, captioned, with_cells=with_cells)
    drawn, notes = _figures(folder, page)
    paragraphs, keys = prose.methods_paragraphs(page, cited)
    references = bibliography(cited, keys)
    fields = {
        "study": escape(page.name),
        "tables": tables,
        "figures": drawn,
        "paragraphs": paragraphs,
        "has_references": "@" in references,
        "sections": appendix_sections(page, with_cells=not with_cells),
    }
    for name in ("table", "figures", "methods", "appendix", "paper"):
        _write(folder / f"{name}.tex", render(f"paper-{name}.tex.j2", fields))
    _write(folder / "refs.bib", references)
    return Paper(folder / DOCUMENT, [*notes, *_uncited(cited)])


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")


def _tables(page: Page, captioned: Sequence[PageSection], *, with_cells: bool) -> list[Float]:
    spec, cells, tables = page.results.spec, page.cells, []
    if with_cells:
        scores = matching_scores(page.info.reference_scores, page.records, metric=spec.metric)
        columns, gaps = verdict_columns(cells, spec, dict(zip(labels(scores), scores, strict=True)))
        has_bold = any(r"\bfseries" in text for column in columns for text in column.cells)
        caption = prose.verdict_caption(cells, spec, has_bold=has_bold, has_scores=bool(scores))
        tables.append(Float(label("tab", page.name), caption, tabular(columns, gaps=gaps)))
    for section in captioned:
        if section.table is not None:
            name = label("tab", page.name, section.title.lower())
            tables.append(Float(name, typeset(section.caption), tabular(page_columns(section.table))))
    return tables


def _figures(folder: Path, page: Page) -> tuple[list[Float], list[str]]:
    """Write the plots that have a caption; return them, and lines on the plots of the page that are left out."""
    figures: dict[tuple[str, str], list[Figure]] = {}
    for title, plots in (("differences", page.differences), *((section.title, section.plots) for section in page.sections)):
        for plot in plots:
            figures.setdefault((title, plot.caption), []).append(plot)
    drawn, notes = [], []
    for (title, caption), plots in ((key, plots) for key, plots in figures.items() if key[1]):
        name = label(title.lower()) if len(plots) > 1 else plots[0].file.removesuffix(".svg")
        for i, part in enumerate(pages_of([plot.svg for plot in plots])):
            file = f"{name}-{i}" if i else name
            if not part:
                notes.append(f"{name}.pdf is left out: it does not fit on a page")
                continue
            write_pdf(folder / f"{file}.pdf", part)
            graphics = rf"\includegraphics{{{file}.pdf}}"
            drawn.append(Float(label("fig", page.name, file), typeset(caption), graphics, wide=len(part) > 1))
    left = list(dict.fromkeys(plot.title for plot in page.figures if not plot.caption))
    return drawn, [*notes, *_left_out("plots of the page that are not in the paper", left)]


def _uncited(cited: Sequence[Citation]) -> list[str]:
    """Return a line on classes of unknown papers: their files are not imported."""
    names = [f"{citation.kind} {citation.name}" for citation in cited if not citation.known]
    return _left_out("not in refs.bib, because no paper is known for classes of your own", names)


def _left_out(what: str, names: Sequence[str]) -> list[str]:
    more = f", and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return [f"{what}: {'; '.join(names[:MAX_NAMED])}{more}"] if names else []

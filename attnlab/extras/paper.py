r"""Tables and figures of a report for papers and slides, from what the report stores: ``attnlab report STUDY --paper``.

The tables are those of the page, as LaTeX with booktabs rules; the figures are the drawings of the page as PDF and PNG. Both
are captioned by their titles; a table also by the paragraphs and notes of its section.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attnlab._util.text import escape_controls
from attnlab.errors import UserError
from attnlab.report.page import Page, make_page
from attnlab.report.section import Table
from attnlab.report.stored import FILE, load
from attnlab.report.write import load_index, without_costs

FOLDER = "paper"
WIDTH = 3.25  # inches: a column of a paper
PIXELS = 600  # of a PNG for each inch
LATEX = str.maketrans(
    {
        **{character: rf"\{character}" for character in "{}$&#%_"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "…": r"\ldots{}"},
        **{"†": r"\dag{}", "‡": r"\ddag{}", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "²": "$^2$", "≤": r"$\leq$"},
        **{"≥": r"$\geq$", "≈": r"$\approx$", "→": r"$\rightarrow$", "←": r"$\leftarrow$", "“": "``", "”": "''"},
    }
)
FIGURE = r"""\begin{{figure}}
\centering
\includegraphics{{{name}.pdf}}
\caption{{{title}}}
\label{{fig:{name}}}
\end{{figure}}
"""


def write_paper(folder: Path, labels: Mapping[str, str] | None = None) -> list[Path]:
    """Write the tables and figures of a report, or of each of its studies, into the subfolder `paper`; return the folders.

    Args:
        folder: Of the report.
        labels: Cell -> another name.

    Raises:
        UserError: The folder has no report, or one of a version that stored its results in another form.
    """
    if index := load_index(folder):
        return [written for name in index[0] for written in write_paper(folder / name, labels)]
    if not (folder / FILE).is_file():
        raise UserError(f"expected a report with {FILE}, got none", str(folder))
    stored = load(folder)
    runs = stored["runs"].assign(cell=stored["runs"]["cell"].replace(dict(labels or {})))
    page = make_page(stored["info"], runs=runs, curves=stored["curves"], maps=stored["maps"])
    (folder / FOLDER).mkdir(exist_ok=True)
    (folder / FOLDER / "tables.tex").write_text("\n".join(_tables(page)), encoding="utf-8", errors="backslashreplace")
    _write_figures(folder / FOLDER, page)
    return [folder / FOLDER]


def _tables(page: Page) -> list[str]:
    """Return the table of the cells and those of the sections as LaTeX."""
    tables = [(page.cells_title, [page.overview, *page.notes], without_costs(page.table))]
    tables += [(part.title, [*part.paragraphs, *part.notes], part.table) for part in page.sections if part.table]
    return [
        latex_table(table, caption=" ".join([f"{title}.", *without_links(texts)]), label=f"tab:{title.lower()}")
        for title, texts, table in tables
    ]


def without_links(texts: Sequence[str]) -> list[str]:
    """Return the notes of a page without what points to attnlab's documentation."""
    return [re.sub(r": docs/\S+$", ".", text) for text in texts if not re.match(r"(Columns|Curves), ", text)]


def latex_table(table: Table, *, caption: str, label: str) -> str:
    """Return a table of the page as LaTeX that needs the packages booktabs and adjustbox."""
    import pandas

    rows = [[escape(cell) for cell in row.cells] for row in table.rows]
    style: Any = pandas.DataFrame(rows, columns=range(len(table.columns))).style.hide(axis="index")
    style = style.relabel_index([escape(column.heading) for column in table.columns], axis="columns")
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    options: Any = {"column_format": columns, "position_float": "centering", "hrules": True}
    text = style.to_latex(caption=escape(caption), label=label.replace(" ", "-"), **options)
    text = text.replace(r"\begin{tabular}", "\\begin{adjustbox}{max width=\\linewidth}\n\\begin{tabular}")
    return text.replace(r"\end{tabular}", "\\end{tabular}\n\\end{adjustbox}")


def escape(text: str) -> str:
    r"""Return text as LaTeX.

    Examples:
        >>> escape("no_wo & 5 % of $x$")
        'no\\_wo \\& 5 \\% of \\$x\\$'
    """
    return escape_controls(text).translate(LATEX)


def _write_figures(folder: Path, page: Page) -> None:
    """Write each plot as PDF and PNG, and figures.tex, which includes them with their titles."""
    figures = []
    for plot in page.figures:
        name = plot.file.removesuffix(".svg")
        for suffix, drawing in convert(plot.svg).items():
            (folder / f"{name}.{suffix}").write_bytes(drawing)
        figures.append(FIGURE.format(name=name, title=escape(plot.title)))
    (folder / "figures.tex").write_text("\n".join(figures), encoding="utf-8", errors="backslashreplace")


def convert(svg: str, formats: Sequence[Literal["pdf", "png"]] = ("pdf", "png")) -> dict[str, bytes]:
    """Return a drawing in other formats, one column wide, with the fonts of matplotlib.

    The files have no dates, so that the same study gives the same bytes.
    """
    import matplotlib
    import typst

    width = f"{WIDTH}in"
    source = (
        f'#set page(width: {width}, height: auto, margin: 0pt)\n#image(bytes(sys.inputs.svg), format: "svg", width: {width})'
    )
    fonts, inputs = [f"{matplotlib.get_data_path()}/fonts/ttf"], {"svg": svg.encode(errors="replace").decode()}
    options: Any = {"font_paths": fonts, "sys_inputs": inputs, "ppi": PIXELS, "timestamp": 0}
    return {name: typst.compile(source.encode(), format=name, **options) for name in formats}

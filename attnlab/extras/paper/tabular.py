"""Text and tables as LaTeX, for pdfLaTeX with the encoding T1.

Tables have booktabs rules, numbers in S columns of siunitx, and text that wraps where it is long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from attnlab._util.text import escape_controls
from attnlab.report.table import Table

CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "²": r"$^2$",
    "³": r"$^3$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "\u00a0": "~",
}
LIGATURES = re.compile(r"--|''|\?`|!`")  # hyphens and quotes that LaTeX would join
LAST_IN_T1 = "\u017f"  # letters up to here exist in the encoding T1
MISSING = "{--}"
MAX_DECIMALS = 9
RAGGED = r">{\raggedright\arraybackslash}"
WIDTH = 0.28  # of a column of long names, as a share of the line
WRAPPED = 30  # characters of a text, above which its column wraps
LINE = 125  # characters of a line of the appendix
NUMBER = re.compile(
    r"(?:\\bfseries )?(?P<comparator><)?\s*(?P<sign>[+-])?(?P<whole>\d+)(?:\.(?P<part>\d+))?(?:\((?P<error>\d+)\))?"
)


def escape(text: str) -> str:
    r"""Return text as LaTeX. A character that pdfLaTeX cannot print stands as its code point.

    Example:
        >>> escape("no_wo & 5 % of $x$")
        'no\\_wo \\& 5 \\% of \\$x\\$'
        >>> escape("a\u4e2d")
        'aU+4E2D'
    """
    separated = LIGATURES.sub(lambda match: "\0".join(match[0]), escape_controls(text, keep="\n\t").replace("\0", ""))
    return "".join(map(_character, separated)).replace("\0", "{}")


def _character(character: str) -> str:
    if character in CHARACTERS:
        return CHARACTERS[character]
    return character if character <= LAST_IN_T1 else f"U+{ord(character):04X}"


def breakable(text: str) -> str:
    """Return text as LaTeX that may also be broken after the punctuation inside of names."""
    return re.sub(r"(\\_|[.=/:,+])(?=[A-Za-z])", r"\1\\allowbreak{}", escape(text))


def typeset(text: str) -> str:
    """Return text about statistics as LaTeX: a t in italics, and a thin space before the sign of per cent."""
    return re.sub(r"(\d) \\%", r"\1\\,\\%", re.sub(r"\bt-(?=test|interval)", "$t$-", re.sub(r"\bp:", "$p$:", breakable(text))))


def sentences(*texts: str) -> str:
    """Join sentences that are LaTeX already, without the empty ones."""
    return " ".join(text for text in texts if text)


def label(*parts: str) -> str:
    """Return a label for ``\\ref`` from names of any characters.

    Example:
        >>> label("tab", "my study_1")
        'tab:my-study-1'
    """
    return ":".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts)


@dataclass(frozen=True)
class PaperColumn:
    """A column: its heading and unit as text, and its cells as LaTeX, of numbers or of text."""

    heading: str
    cells: Sequence[str]
    unit: str = ""
    is_number: bool = True
    spec: str = "l"  # of a column of text


def decimals(half_widths: Sequence[float | None], *, least: int = 4) -> int:
    """Return the decimals of a column with which the smallest half width is not rounded to zero."""
    widths = [width for width in half_widths if width and math.isfinite(width)]
    needed = (d for d in range(least, MAX_DECIMALS) if all(round(width, d) > 0 for width in widths))
    return next(needed, MAX_DECIMALS)


def number(value: float, digits: int, *, half_width: float | None = None, sign: bool = False) -> str:
    """Return a number for an S column, with its half width in units of the last digit: ``3.1817(900)``; infinity as text."""
    if not math.isfinite(value):
        return "{--}" if math.isnan(value) else r"{$\infty$}" if value > 0 else r"{$-\infty$}"
    text = f"{value:{'+' if sign and round(value, digits) else ''}.{digits}f}"
    return text if half_width is None else f"{text}({round(half_width * 10**digits)})"


def bold(cell: str) -> str:
    """Return a number in bold."""
    return rf"\bfseries {cell}"


def page_columns(table: Table) -> list[PaperColumn]:
    """Return the columns of a table of the page; numbers are aligned to the right."""
    return [
        PaperColumn(
            column.heading, [breakable(row.cells[i]) for row in table.rows], is_number=False, spec="lr"[not column.is_text]
        )
        for i, column in enumerate(table.columns)
    ]


def tabular(columns: Sequence[PaperColumn], *, gaps: Sequence[int] = ()) -> str:
    """Return a table, shrunk to the width of the line where it is wider. Long texts wrap, except for names in the first column.

    Args:
        columns: With the same number of cells.
        gaps: Numbers of the rows that a thin rule precedes.
    """
    (first, *others), heads, rows = _parts(columns)
    specs = "".join([first, *(_wrapped(spec, column) for spec, column in zip(others, columns[1:], strict=True))])
    lines = [line for i, row in enumerate(rows) for line in ([r"\midrule"] if i in gaps else []) + [rf"{row} \\"]]
    body = [r"\toprule", *(rf"{head} \\" for head in heads), r"\midrule", *lines, r"\bottomrule"]
    table = [rf"\begin{{tabular}}{{@{{}}{specs}@{{}}}}", *body, r"\end{tabular}"]
    return "\n".join([r"\begin{adjustbox}{max width=\linewidth}", *table, r"\end{adjustbox}"])


def _parts(columns: Sequence[PaperColumn]) -> tuple[list[str], list[str], list[str]]:
    """Return the formats of the columns, the lines of the heading (names, and units if there are any), and the rows."""
    lines = [[column.heading for column in columns], [column.unit for column in columns]]
    heads = [
        " & ".join(
            f"{{{escape(text)}}}" if column.is_number else escape(text) for text, column in zip(line, columns, strict=True)
        )
        for line in lines
        if any(line)
    ]
    rows = [" & ".join(cells) for cells in zip(*(column.cells for column in columns), strict=True)]
    return [_column_format(column) for column in columns], heads, rows


def _wrapped(spec: str, column: PaperColumn) -> str:
    """Return the format of a column, of fixed width if it has a long text."""
    longest = max(map(len, column.cells), default=0)
    return rf"{RAGGED}p{{{WIDTH}\linewidth}}" if spec == "l" and longest > WRAPPED else spec


def _column_format(column: PaperColumn) -> str:
    """Return the format of a column: wide enough for the signs, digits and uncertainties of all its numbers."""
    matches = [match for cell in column.cells if (match := NUMBER.fullmatch(cell))]
    if not column.is_number or not matches:
        return "c" if column.is_number else column.spec
    comparator = "<" if any(match["comparator"] for match in matches) else ""
    sign = "+" if any(match["sign"] for match in matches) else ""
    whole = max(len(match["whole"]) for match in matches)
    part = max(len(match["part"] or "") for match in matches)
    error = max(len(match["error"] or "") for match in matches)
    form = f"{comparator}{sign}{whole}.{part}" + (f"({error})" if error else "")
    return f"S[table-format={form}]"


def long_table(columns: Sequence[PaperColumn]) -> str:
    """Return a table of numbers that may be longer than a page, for a document of one column."""
    specs, heads, rows = _parts(columns)
    return _long("".join(_wrapped(spec, column) for spec, column in zip(specs, columns, strict=True)), heads, rows)


def text_table(table: Table) -> str:
    """Return a table of the page, which may be longer than a page, for a document of one column. Long texts wrap."""
    longest = [max([len(c.heading), *(len(row.cells[i]) for row in table.rows)]) for i, c in enumerate(table.columns)]
    kept = [0 if column.is_text and length > WRAPPED else length for column, length in zip(table.columns, longest, strict=True)]
    free = max(0.2, 0.96 - sum(length + 2 for length in kept if length) / LINE)
    wrapped = sum(length**0.5 for length, keep in zip(longest, kept, strict=True) if not keep)
    specs = ""
    for column, length, keep in zip(table.columns, longest, kept, strict=True):
        width = f"{free * length**0.5 / wrapped:.3f}" if not keep else ""
        specs += rf"{RAGGED}p{{{width}\linewidth}}" if width else "l" if column.is_text else "r"
    heads = [" & ".join(escape(column.heading) for column in table.columns)] if table.has_headings else []
    return _long(specs, heads, [" & ".join(map(breakable, row.cells)) for row in table.rows])


def _long(specs: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    top = [r"\toprule", *(rf"{head} \\" for head in heads), *([r"\midrule"] if heads else []), r"\endhead"]
    body = [*top, r"\bottomrule", r"\endfoot", *(rf"{row} \\" for row in rows)]
    return "\n".join([rf"\begin{{longtable}}{{@{{}}{specs}@{{}}}}", *body, r"\end{longtable}"])

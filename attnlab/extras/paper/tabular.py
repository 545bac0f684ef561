"""Text and tables as LaTeX, for pdfLaTeX with the encoding T1.

Tables have booktabs rules, numbers in S columns of siunitx, and text that wraps where it is long.

Marks of verdicts in the tables of a paper, their legend, and the cells in bold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from attnlab._util.text import escape_controls
from attnlab.report.section import Table
from attnlab.report.wording import SENSITIVITY
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.verdict import Verdict, VerdictKind

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

MARKS = {
    VerdictKind.BETTER: r"$\blacktriangle$",
    VerdictKind.WORSE: r"$\blacktriangledown$",
    VerdictKind.EQUIVALENT: r"$\approx$",
    VerdictKind.IDENTICAL: "$=$",
    VerdictKind.INCONCLUSIVE: r"$\circ$",
    VerdictKind.BASELINE: "",
    VerdictKind.NO_COMPARISON: "--",
}
MEANINGS = {
    VerdictKind.BETTER: "better",
    VerdictKind.WORSE: "worse",
    VerdictKind.EQUIVALENT: "equivalent within the margin",
    VerdictKind.IDENTICAL: "identical in every seed",
    VerdictKind.INCONCLUSIVE: "inconclusive (not a finding of no difference)",
    VerdictKind.NO_COMPARISON: "not compared",
}
FRAGILE, SMALL, LOST, UNSUPPORTED = "f", "m", "l", "c"
CONDITIONS = {
    FRAGILE: "fragile (a t-test corrected for skewness disagrees)",
    SMALL: "by less than the margin",
    LOST: "on the completed pairs alone (runs were lost)",
}


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


def mark(verdict: Verdict | None) -> str:
    """Return the mark of a verdict with its conditions as superscripts; "" for a baseline, and without a comparison."""
    if verdict is None:
        return ""
    letters = ",".join(_conditions(verdict))
    return MARKS[verdict.kind] + (rf"\textsuperscript{{{letters}}}" if letters else "")


def _conditions(verdict: Verdict) -> list[str]:
    if verdict.kind is VerdictKind.NO_COMPARISON:
        return []
    lost = verdict.lost or verdict.baseline_lost
    present = {FRAGILE: verdict.fragile, SMALL: verdict.within_margin, LOST: lost, UNSUPPORTED: verdict.is_unsupported}
    return [letter for letter, holds in present.items() if holds]


def legend(verdicts: Iterable[Verdict | None]) -> str:
    """Return a sentence that explains the marks of these verdicts; "" without marks."""
    known = [verdict for verdict in verdicts if verdict is not None]
    kinds = {verdict.kind for verdict in known}
    texts = [f"{MARKS[kind]}~{meaning}" for kind, meaning in MEANINGS.items() if kind in kinds]
    letters = {letter for verdict in known for letter in _conditions(verdict)}
    texts += [rf"\textsuperscript{{{letter}}}~{meaning}" for letter, meaning in CONDITIONS.items() if letter in letters]
    reasons = dict.fromkeys(SENSITIVITY[v.sensitivity] for v in known if v.sensitivity and v.is_unsupported)
    texts += [rf"\textsuperscript{{{UNSUPPORTED}}}~{escape(' or '.join(reasons))}"] if reasons else []
    return f"{'; '.join(texts)}." if texts else ""


def best_cells(cells: Sequence[CellSummary], *, direction: str) -> set[str]:
    """Return the names of the cells in bold: the best of a baseline and the cells compared with it, where verdicts support it.

    A cell must be better than its baselines, and a baseline better than all other cells. Fragile verdicts and those after
    lost runs do not count.

    Args:
        cells: In the report's order.
        direction: "min" if smaller values are better, else "max".
    """
    groups: dict[str, list[CellSummary]] = {}
    for cell in cells:
        value = cell.estimate or cell.value
        if value is not None and (cell.is_baseline or cell.difference is not None):
            groups.setdefault(cell.name if cell.is_baseline else cell.baseline, []).append(cell)
    names = set()
    for group in groups.values():
        sign = 1 if direction == "min" else -1
        least = min(sign * _value(cell) for cell in group)
        best = [cell for cell in group if sign * _value(cell) == least]  # cells that tie are all in bold
        others = [cell for cell in group if not cell.is_baseline]
        for cell in best:
            against = others if cell.is_baseline else comparisons([cell])
            kind = VerdictKind.WORSE if cell.is_baseline else VerdictKind.BETTER
            names |= {cell.name} if against and all(_is(comparison.verdict, kind) for comparison in against) else set()
    return names


def _value(cell: CellSummary) -> float:
    value = cell.estimate or cell.value
    assert value is not None
    return value.mean


def _is(verdict: Verdict | None, kind: VerdictKind) -> bool:
    return verdict is not None and verdict.kind is kind and not {FRAGILE, LOST} & {*_conditions(verdict)}

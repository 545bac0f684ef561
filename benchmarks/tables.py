"""Markdown tables of simulated lines."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.simulate import Line


def table_of_cases(lines: Sequence[Line], quantity: str, *, over: str = "noise") -> str:
    """Return a Markdown table with a row for each noise (or rule) and a column for each case."""
    chosen = [line for line in lines if line.quantity == quantity]
    cases = list(dict.fromkeys(line.case for line in chosen))
    texts = {(line.noise, line.case): format_value(line) for line in chosen}
    rows = [[name, *(texts.get((name, case), "") for case in cases)] for name in dict.fromkeys(line.noise for line in chosen)]
    return markdown([over, *cases], rows)


def table_of_quantities(lines: Sequence[Line], quantities: Sequence[str], *, heads: Sequence[str]) -> str:
    """Return a Markdown table with a row for each noise and case and a column for each quantity."""
    texts = {(line.noise, line.case, line.quantity): format_value(line) for line in lines}
    rows = dict.fromkeys((line.noise, line.case) for line in lines)
    return markdown(heads, [[*row, *(texts.get((*row, name), "") for name in quantities)] for row in rows])


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_value(line: Line) -> str:
    return f"{line.value:.2f}" if line.error is None else f"{line.value:.1%}"

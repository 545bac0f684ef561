"""Marks of verdicts in the tables of a paper, their legend, and the cells in bold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attnlab.extras.paper.tabular import breakable, escape
from attnlab.report.wording import SENSITIVITY
from attnlab.stats.cells import CellSummary, comparisons
from attnlab.stats.verdict import Correction, Verdict, VerdictKind

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
FRAGILE, SMALL, LOST, UNSUPPORTED, CHOSEN = "f", "m", "l", "c", "s"
CONDITIONS = {
    FRAGILE: "fragile (a t-test corrected for skewness disagrees)",
    SMALL: "by less than the margin",
    LOST: "on the completed pairs alone (runs were lost)",
}


def mark(verdict: Verdict | None) -> str:
    """Return the mark of a verdict with its conditions as superscripts; "" for a baseline, and without a comparison.

    The marks of verdicts without a choice of the records follow in parentheses.
    """
    if verdict is None:
        return ""
    letters = ",".join(_conditions(verdict))
    others = "".join(f" ({_mark_of(correction)})" for correction in verdict.corrections)
    return MARKS[verdict.kind] + (rf"\textsuperscript{{{letters}}}" if letters else "") + others


def _mark_of(correction: Correction) -> str:
    """Return the mark of a verdict without a choice of the records, with the baseline if it is another one."""
    kind = VerdictKind(correction.kind) if correction.kind else VerdictKind.NO_COMPARISON
    return f"{MARKS[kind]}{f' {breakable(correction.baseline)}' if correction.baseline else ''}"


def _conditions(verdict: Verdict) -> list[str]:
    if verdict.kind is VerdictKind.NO_COMPARISON:
        return []
    lost = verdict.lost or verdict.baseline_lost
    present = {FRAGILE: verdict.fragile, SMALL: verdict.within_margin, LOST: lost, UNSUPPORTED: verdict.is_unsupported}
    present[CHOSEN] = bool(verdict.corrections)
    return [letter for letter, holds in present.items() if holds]


def legend(verdicts: Iterable[Verdict | None]) -> str:
    """Return a sentence that explains the marks of these verdicts; "" without marks."""
    known = [verdict for verdict in verdicts if verdict is not None]
    kinds = {kind for verdict in known for kind in (verdict.kind, *(other.kind for other in verdict.corrections))}
    texts = [f"{MARKS[kind]}~{meaning}" for kind, meaning in MEANINGS.items() if kind in kinds]
    letters = {letter for verdict in known for letter in _conditions(verdict)}
    texts += [rf"\textsuperscript{{{letter}}}~{meaning}" for letter, meaning in CONDITIONS.items() if letter in letters]
    reasons = dict.fromkeys(SENSITIVITY[v.sensitivity] for v in known if v.sensitivity and v.is_unsupported)
    texts += [rf"\textsuperscript{{{UNSUPPORTED}}}~{escape(' or '.join(reasons))}"] if reasons else []
    choices = dict.fromkeys(correction.choice for verdict in known for correction in verdict.corrections)
    texts += (
        [rf"\textsuperscript{{{CHOSEN}}}~records were chosen; in parentheses: {escape(' and '.join(choices))}"]
        if choices
        else []
    )
    return f"{'; '.join(texts)}." if texts else ""


def best_cells(cells: Sequence[CellSummary], *, direction: str) -> set[str]:
    """Return the names of the cells in bold: the best of a baseline and the cells compared with it, where verdicts support it.

    A cell must be better than its baselines, and a baseline better than all other cells. Fragile verdicts, those after lost
    runs, and those on chosen records do not count.

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
    return verdict is not None and verdict.kind is kind and not {FRAGILE, LOST, CHOSEN} & {*_conditions(verdict)}

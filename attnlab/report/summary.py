"""The answer of a study in two sentences, made from the same rows as its table.

The first says what these runs settle, the second what they leave open and what would settle it. "Not settled" never
becomes "no difference".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnlab.stats.compare import BASELINE, Question, Row, fixed, p_value, plus_minus

OPEN = "not settled"
KINDS = ("better", "worse", "equivalent", "the same value", OPEN)  # how the verdict of a compared cell begins
MOST = 3  # cells named of a group; the table has them all


@dataclass(frozen=True)
class Answer:
    """A sentence on what these runs settle, and one on what they leave open."""

    settled: str
    open: str

    @property
    def text(self) -> str:
        return f"{self.settled} {self.open}"


def answer(table: Sequence[Row], question: Question) -> Answer:
    """Say what the rows of a table come to."""
    compared = [row for row in table if row.difference is not None]
    groups = {kind: [row for row in compared if row.verdict.startswith(kind)] for kind in KINDS}
    rest = [row for row in table if row.difference is None and row.verdict != BASELINE]
    about = f"In {question.metric.replace('_', ' ')} ({'lower' if question.direction == 'min' else 'higher'} is better)"
    if not compared:
        return Answer(*_nothing(table, question, about))
    if len(compared) == 1:
        return Answer(f"{about}, {_single(compared[0], question)}.", _left(groups[OPEN], rest, named=True))
    names = {row.baseline for row in compared}
    whom, comma = (names.pop(), "") if len(names) == 1 else (f"{_values(question)}, all else being the same", ",")
    if len(groups[OPEN]) == len(compared):
        many = f"{len(compared)} cells compared with {whom}{comma}"
        settled = f"{about}, none of {many} is shown to be better, worse or equivalent"
    else:
        settled = f"{about}, of {len(compared)} cells compared with {whom}, {_groups(groups, question)}"
    return Answer(f"{settled}.", _left(groups[OPEN], rest))


def _groups(groups: dict[str, list[Row]], question: Question) -> str:
    words = [
        (_some("better", groups["better"]) or "none is shown to be better"),
        _some("worse", groups["worse"]),
        _some(f"equivalent within ±{question.margin or 0:g}", groups["equivalent"]),
        _some("the same to the last digit in each seed", groups["the same value"]),
    ]
    found = [each for each in words if each]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def _some(what: str, rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    return f"{len(rows)} {'is' if len(rows) == 1 else 'are'} {what} ({_listed(rows, [_by(row) for row in rows])})"


def _listed(rows: Sequence[Row], words: Sequence[str]) -> str:
    """The cells that differ most, in the words given, and how many more there are."""
    size = [abs(row.difference.interval.mean) if row.difference else 0.0 for row in rows]
    order = sorted(range(len(rows)), key=lambda i: -size[i])
    more = len(rows) - MOST
    return "; ".join(words[i] for i in order[:MOST]) + (f"; and {more} more" if more > 0 else "")


def _by(row: Row) -> str:
    """ "no_wo by 0.0120 ± 0.0030, p = 0.004"."""
    assert row.difference is not None
    seen = row.difference.interval
    word, more = _word(row)
    if word in ("better", "worse"):
        return f"{row.name} by {_size(row)}, p {p_value(row.difference.p_holm, equals=True)}{more}"
    return f"{row.name if seen.mean == 0 else f'{row.name}, {plus_minus(seen, sign=True)}'}{more}"


def _word(row: Row) -> tuple[str, str]:
    """A settled verdict, and what the table adds to it: ", by less than the margin", ", where both completed (...)"."""
    word = next((kind for kind in ("better", "worse", "equivalent within the margin") if row.verdict.startswith(kind)), "")
    more = row.verdict.removeprefix(word).strip(", ") if word else ""
    return word.partition(" ")[0], f", {more}" if more else ""


def _size(row: Row) -> str:
    assert row.difference is not None
    seen = row.difference.interval
    return fixed(abs(seen.mean)) + ("" if seen.half is None else f" ± {fixed(seen.half)}")


def _single(row: Row, question: Question) -> str:
    assert row.difference is not None
    seen, base = row.difference.interval, row.baseline
    seeds = f"{seen.n} seed{'' if seen.n == 1 else 's'}"
    word, more = _word(row)
    if word in ("better", "worse"):
        p = p_value(row.difference.p_holm, equals=True)
        return f"{row.name} is {word} than {base} by {_size(row)} (p {p}, {seeds}){more}"
    difference = f"({plus_minus(seen, sign=True)}, {seeds})"
    if word == "equivalent":
        return f"{row.name} is equivalent to {base} within ±{question.margin:g} {difference}{more}"
    if row.verdict.startswith("the same value"):
        return f"{row.name} and {base} give {row.verdict}"
    return f"it is not settled how {row.name} compares with {base} {difference}"


def _left(still: Sequence[Row], rest: Sequence[Row], *, named: bool = False) -> str:
    """The second sentence: what is open, by what would settle it, and what could not be compared.

    Args:
        named: the first sentence has named the one cell that is open.
    """
    by_need: dict[str, list[Row]] = {}
    for row in still:
        by_need.setdefault(row.verdict.removeprefix(f"{OPEN}: "), []).append(row)
    parts = [
        f"{_listed(rows, [f'{row.name} ({_difference(row)})' for row in rows])}: {need}"
        for need, rows in sorted(by_need.items(), key=lambda each: -len(each[1]))
    ]
    found = [*by_need] if named else [f"not settled: {'; '.join(parts)}"] if parts else []
    if rest:
        names = [f"{row.name} ({row.verdict or row.outcome})" for row in rest]
        found.append(f"not compared: {_listed(rest, names)}")
    text = "; ".join(found) or "each of these comparisons is settled at the 5 % level"
    return f"{text[0].upper()}{text[1:]}."


def _difference(row: Row) -> str:
    return plus_minus(row.difference.interval, sign=True) if row.difference else ""


def _nothing(table: Sequence[Row], question: Question, about: str) -> tuple[str, str]:
    """The two sentences of a study in which nothing is compared."""
    done = [row for row in table if row.value is not None]
    rest = [row for row in table if row.verdict != BASELINE]
    states = "; ".join(f"{row.name}: {row.outcome}" for row in table[:MOST])
    if not done:
        what = f"has {question.metric}" if any("completed" in row.states for row in table) else "has completed"
        return f"No run {what}, so there is no answer yet.", f"{states}{'; ...' if len(table) > MOST else ''}."
    if question.baseline:
        if len(rest) == len(table):
            why = "none of these cells is the baseline"
        else:
            why = "no cell shares a seed with its baseline" if rest else "no cell stands beside the baseline"
        left = _left([], rest) if 0 < len(rest) < len(table) else f"The baseline has {_where(question)}."
        return f"{about}, nothing can be compared: {why}.", left
    sign = 1 if question.direction == "min" else -1
    best = min(done, key=lambda row: sign * row.value.mean if row.value else 0.0)
    seeds = f"{len(best.values)} seed{'' if len(best.values) == 1 else 's'}"
    first = f"{about}, the best mean is that of {best.name}: {plus_minus(best.value)} ({seeds})."
    return first, "The study names no baseline, so nothing is compared: whether that is more than chance is not known."


def _values(question: Question) -> str:
    return " ".join(str(value) for value in question.baseline.values())


def _where(question: Question) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in question.baseline.items())

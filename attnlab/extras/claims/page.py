"""The page of the court: one line for each claim, a picture, and what the claims say of each other."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from attnlab._util.metrics import settled
from attnlab.config.question import OF_DIFFERENCES, OF_SOLVE_RATES
from attnlab.extras.claims.court import MAX_SEEDS, Case
from attnlab.extras.claims.ruling import Evidence, RulingKind
from attnlab.report.plots.rows import ForestRow, forest_plot
from attnlab.report.reference_scores import matching_scores
from attnlab.report.render import render
from attnlab.report.section import Column, Table, TableRow
from attnlab.report.wording import count, format_metric, metric_name

COLORS = {
    RulingKind.UPHELD: "#117733",
    RulingKind.REFUTED: "#AA4499",
    RulingKind.DEPENDS: "#332288",
    RulingKind.NOT_SETTLED: "#777777",
}
FAR = 12  # times the median difference: a row that would leave no room for the others
FEW = 3  # fewer rows are no picture
BUDGET = 20  # minutes of a claim
RIVALS = {"xz": "xz", "n-gram": "an n-gram model"}  # reference scores in bits per byte -> words
HEADINGS = ("claim", "verdict", "measured", "published", "baseline", "scale", "source")
NOTES = (
    "Upheld: every comparison that the claim is about has the claimed direction, corrected over its study and for every look. "
    "Refuted: one of them has the other direction, or is smaller than the published size, by its interval or an equivalence. "
    "Verdicts hold at the stated scale; they say nothing of larger models.",
    "Each claim is judged by itself: of claims that do not hold, at most 5 % may be upheld by chance.",
    "Measured: the estimate with the 95 % interval that holds together with all others of its study; of several comparisons, "
    "the range of the estimates. A solve rate is a share of the seeds; its interval holds by itself.",
    "Baseline: its bits per byte; of an effect, the best cell's. xz compresses the same test text and learns nothing from the "
    "training data. A model that it beats has learned little more than which bytes follow each other: whatever helps with "
    "neighboring bytes wins there, even a window of 8 bytes (recipe-cpu). An n-gram model learns from the training data, and "
    "sees 8 bytes.",
    "Out of reach: with so many seeds as a study may have, the published size would be found in less than half of all tries.",
)
OTHERS = (
    "Narang et al. 2021 (arXiv:2102.11972) tried over 40 changes of a T5 with 223 million parameters: most do not help. They "
    "repeat the baseline's early loss, not the changes.",
    "Zhao et al. 2026 (arXiv:2605.20798) tried 20 changes at 1.2 and 3 billion parameters: by their abstract, two of 20 pass "
    "Bonferroni's correction at 1.2 billion. They repeat the baseline only.",
    "Wen et al. 2025 (arXiv:2509.02046) compared optimizers at 0.1 to 1.2 billion parameters: tuned, none is more than 1.4 "
    "times as fast as AdamW.",
    "Public ledgers, for example of modded-nanogpt and nanochat, list what was tried in one model, mostly from single runs.",
)


def write_page(folder: Path, cases: Sequence[Case]) -> None:
    """Write `index.html` and `README.md` on claims into a folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    order = [*RulingKind, None]
    cases = sorted(
        cases, key=lambda case: (not case.claim.config.known, order.index(case.ruling and case.ruling.kind), case.claim.id)
    )
    fields = {
        "summary": summarize(cases),
        "parts": _parts([case for case in cases if not case.claim.config.not_judged]),
        "links": [(case.claim.id, _link(case, folder)) for case in cases if case.folder],
        "remarks": _remarks(cases),
        "lists": _lists(cases),
        "others": OTHERS,
        "notes": NOTES,
    }
    for template, name in (("claims.html.j2", "index.html"), ("claims.md.j2", "README.md")):
        (folder / name).write_text(render(template, fields), encoding="utf-8")


def summarize(cases: Iterable[Case]) -> str:
    """Return the number of claims with each verdict, controls apart, in a sentence."""
    cases = [case for case in cases if not case.claim.config.not_judged]
    known = [case for case in cases if case.claim.config.known]
    claims = [case for case in cases if not case.claim.config.known]
    weak = [case for case in claims if any(bits >= rivals["xz"] for bits, rivals in baselines(case))]
    parts = [f"{_counts(claims)}."]
    if weak:
        parts.append(f"{len(weak)} of them compare models that xz beats.")
    if late := [case for case in claims if case.remarks]:
        parts.append(f"{len(late)} of them were stated after the first run of their study, or changed since.")
    if known:
        parts.append(f"Controls, which are known to hold: {_counts(known)}.")
    return " ".join(parts)


def _counts(cases: Sequence[Case]) -> str:
    kinds = [case.verdict.partition(",")[0] for case in cases]
    names = [*(kind.value for kind in RulingKind), "out of reach", "not tried"]
    return f"{count(len(cases), 'claim')}: " + ", ".join(f"{kinds.count(name)} {name}" for name in names if name in kinds)


def _lists(cases: Sequence[Case]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return what claims cite, in lists of (ID, text) with their titles."""
    titles = {"published": "Published figures", "disputed": "What contradicts the claims"}
    lists = [
        (title, [(case.claim.id, text) for case in cases if (text := getattr(case.claim.config, field))])
        for field, title in titles.items()
    ]
    beside = [(case.claim.id, "; ".join(map(_ability, case.abilities))) for case in cases if case.abilities]
    lists.append(("The same changes and abilities: differences from the baseline", beside))
    costly = [(case.claim.id, f"{_seeds(case)} took {_minutes(case)}") for case in cases if _is_costly(case)]
    lists.append((f"Not settled: {MAX_SEEDS} seeds would take longer than the {BUDGET} minutes of a claim", costly))
    others = [(case.claim.id, _not_judged(case)) for case in cases if case.claim.config.not_judged]
    return [(title, texts) for title, texts in [("Not judged here", others), *lists] if texts]


def _not_judged(case: Case) -> str:
    sentence, reason = case.claim.config.sentence, case.claim.config.not_judged
    sizes = f", {measured(case.ruling.evidence)} {_unit(case)}" if case.ruling else ""
    return f"{sentence} ({case.verdict}{sizes}) {reason}"


def _ability(one: Evidence) -> str:
    differs = one.outcome == "equivalent" and one.low is not None and one.high is not None and one.low * one.high > 0
    return f"{one.name}: {measured([one])}, {'different by less than the margin' if differs else one.outcome}"


def _remarks(cases: Iterable[Case]) -> list[str]:
    """Return each remark once, after the claims that it is about."""
    ids: dict[str, list[str]] = {}
    for case in cases:
        for remark in (*case.remarks, *([case.claim.config.history.removesuffix(".")] if case.claim.config.history else [])):
            ids.setdefault(remark, []).append(case.claim.id)
    return [f"{', '.join(names)}: {remark}." for remark, names in ids.items()]


def _parts(cases: Sequence[Case]) -> list[tuple[str, list[str], Table]]:
    """Return the title, the plots and the table of each kind of claim, the claims that readers know first."""
    claims = [case for case in cases if not case.claim.config.known]
    asked = [[case for case in claims if case.claim.config.textbook is textbook] for textbook in (True, False)]
    known = [case for case in cases if case.claim.config.known]
    parts = [("Questions of textbooks", [], asked[0]), ("Claims", _plots(claims), asked[1]), ("Known answers", [], known)]
    return [(title, plots, _table(part)) for title, plots, part in parts if part]


def _table(cases: Sequence[Case]) -> Table:
    rows = [_cells(case) for case in cases]
    kept = [i for i in range(len(HEADINGS)) if any(row[i] for row in rows)]
    return Table([Column(HEADINGS[i], is_text=True) for i in kept], [TableRow([row[i] for i in kept]) for row in rows])


def _cells(case: Case) -> list[str]:
    config, ruling = case.claim.config, case.ruling
    told = ruling is not None and ruling.kind is not RulingKind.UPHELD and ruling.reasons != ["inconclusive"]
    limits = [*(ruling.reasons if told else []), *(ruling.conditions if case.is_settled else [])] if ruling else []
    reasons = f" ({'; '.join(limits)})" if limits else ""
    return [
        f"{case.claim.id}. {config.sentence}",
        case.verdict.replace(" at this scale", "") + reasons,
        f"{sizes} {_unit(case)}" if ruling and (sizes := measured(ruling.evidence)) else "",
        "" if config.size is None else f"{config.size:g}",
        _baselines(case),
        ", ".join(text for text in (_seeds(case), describe_scale(case), _minutes(case)) if text),
        config.source,
    ]


def _baselines(case: Case) -> str:
    texts = []
    for bits, rivals in baselines(case):
        ranks = (f"{'worse' if bits >= score else 'better'} than {name} ({score:.2f})" for name, score in rivals.items())
        texts.append(f"{bits:.2f}, {', '.join(ranks)}")
    return "; ".join(texts)


def baselines(case: Case) -> list[tuple[float, dict[str, float]]]:
    """Return the bits of the baseline of each compared cell, or of the best cell of an effect, and those of xz and n-grams."""
    found = []
    for page in case.pages:
        named = {name for one in case.ruling.evidence for name in one.cells} if case.ruling else set()
        values = {cell.name: cell.value.mean for cell in page.cells if cell.value}
        bases = {cell.name for cell in page.cells if cell.is_baseline} & named
        scores = matching_scores(page.info.reference_scores, page.records, metric=page.info.spec.metric)
        chosen = [values[name] for name in values if name in bases] or ([] if named else [min(values.values())])
        known = {one.name: one.value for one in scores}
        rivals = {words: known[name] for name, words in RIVALS.items() if name in known}
        found += [(bits, rivals) for bits in chosen if rivals]
    return found


def measured(evidence: Sequence[Evidence]) -> str:
    """Return the measured size: an estimate with its interval, or of several comparisons the range of the estimates."""
    known = [one for one in evidence if one.mean is not None]
    if not known:
        return ""
    if len(known) > 1:
        means = [one.mean for one in known if one.mean is not None]
        return f"{_number(min(means))} to {_number(max(means))} ({len(known)} comparisons)"
    (one,) = known
    interval = "" if one.low is None or one.high is None else f" ({_number(one.low)} to {_number(one.high)})"
    return f"{_number(one.mean)}{interval}"


def _unit(case: Case) -> str:
    """Return the unit of the measured sizes."""
    if case.claim.config.direction in OF_SOLVE_RATES:
        return "of the seeds"
    return metric_name(case.pages[0].info.spec)


def _number(value: float | None) -> str:
    return "" if value is None else format_metric(round(settled(value), 4) + 0.0)  # a zero without a sign


def _seeds(case: Case) -> str:
    numbers = sorted({one.seeds for one in case.ruling.evidence if one.seeds}) if case.ruling else []
    return f"{'–'.join(dict.fromkeys(str(n) for n in numbers[:1] + numbers[-1:]))} seeds" if numbers else ""


def describe_scale(case: Case) -> str:
    """Return the parameters and the steps of the compared runs."""
    parts = []
    for name, noun in (("parameters", "parameters"), ("steps", "steps")):
        values = [float(record[name]) for record in case.records if _is_number(record.get(name))]
        if values:
            ends = dict.fromkeys(_short(value) for value in (min(values), max(values)))
            parts.append(f"{' to '.join(ends)} {noun}")
    return ", ".join(parts)


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:g}"


def _minutes(case: Case) -> str:
    seconds = _seconds(case)
    return f"{max(1, round(seconds / 60))} min" if seconds else ""


def _is_costly(case: Case) -> bool:
    """Return True for a claim that is not settled because `MAX_SEEDS` seeds would take longer than `BUDGET`."""
    if case.ruling is None or case.ruling.kind is not RulingKind.NOT_SETTLED:
        return False
    seeds = min((one.seeds for one in case.ruling.evidence if one.seeds), default=MAX_SEEDS)
    return seeds < MAX_SEEDS and _seconds(case) * MAX_SEEDS / seeds > 60 * BUDGET


def _seconds(case: Case) -> float:
    return sum(float(record["seconds"]) for record in case.records if _is_number(record.get("seconds")))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _link(case: Case, folder: Path) -> str:
    assert case.folder is not None
    return os.path.relpath(case.folder, folder).replace(os.sep, "/")


def _plots(cases: Sequence[Case]) -> list[str]:
    """Draw the measured difference of each claim about one, from the lowest to the highest, a plot for each metric."""
    groups: dict[str, list[ForestRow]] = {}
    directions: dict[str, str] = {}
    for case in cases:
        (one, *others) = case.ruling.evidence if case.ruling and case.ruling.evidence else (None,)
        about = case.claim.config.direction in OF_DIFFERENCES
        if one is None or others or not about or one.mean is None or one.low is None or one.high is None:
            continue
        assert case.ruling is not None
        kind, size = case.ruling.kind, case.claim.config.size
        published = () if size is None else (-size if _is_negative(case) else size,)
        text = f"{format_metric(one.mean)}, {kind.value.removesuffix(' at this scale')}"
        label = f"{case.claim.id} {one.cells[0] if one.cells else one.name}"
        row = ForestRow(label, COLORS[kind], published, one.mean, one.low, one.high, text, decided=case.is_settled)
        groups.setdefault(_unit(case), []).append(row)
        directions[_unit(case)] = case.pages[0].info.spec.direction
    plots = []
    for unit, rows in sorted(groups.items(), key=lambda group: -len(group[1])):
        drawn = sorted((row for row in rows if abs(row.mean) <= FAR * median(abs(other.mean) for other in rows)), key=_mean)
        far = ", ".join(row.label.partition(" ")[0] for row in rows if row not in drawn)
        note = f"95 % intervals; ring: published{f'; too far: {far}' if far else ''}"
        if len(drawn) >= FEW:
            plots.append(forest_plot(drawn, title=f"difference in {unit}", note=note, direction=directions[unit]))
    return plots


def _mean(row: ForestRow) -> float:
    return row.mean


def _is_negative(case: Case) -> bool:
    """Return True when the claimed difference is negative in the metric's unit."""
    lower_is_better = bool(case.pages) and case.pages[0].info.spec.direction == "min"
    return (case.claim.config.direction == "better") == lower_is_better and case.claim.config.direction in ("better", "worse")

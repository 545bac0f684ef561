"""Captions and the paragraph on methods: which test, how many seeds, which correction, and what the intervals are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.config.command import CURVE
from attnlab.planning.factorial import describe_design
from attnlab.report.control import control_notes
from attnlab.report.factorial import describe_omissions, error_notes
from attnlab.report.margin import margin_notes
from attnlab.report.methods import values_text
from attnlab.report.page import Page
from attnlab.report.paper.marks import legend
from attnlab.report.paper.references import Citation
from attnlab.report.paper.text import breakable, escape, sentences
from attnlab.report.plots.learning import OTHER_NATS, CurvePanel
from attnlab.report.verdicts import note_on_batches
from attnlab.report.wording import better, count, describe_baselines, describe_test, describe_verdict, level_noun
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.factorial import FactorialResult
from attnlab.stats.paired import Difference, Interval
from attnlab.stats.simultaneous import hides_correction
from attnlab.stats.trend import Trend
from attnlab.stats.verdict import VerdictKind

MODEL = {"model.depth": "depth", "model.dim": "width", "model.heads": "heads"}
TRAINING = {
    "train.steps": "steps",
    "train.epochs": "epochs",
    "train.batch_size": "batch size",
    "train.lr": "learning rate",
    "train.optimizer": "optimizer",
    "train.schedule": "schedule",
    "train.precision": "precision",
}


def metric_name(spec: ComparisonSpec) -> str:
    """Return the metric's name as words."""
    return spec.metric.replace("_", " ")


def differences_of(cells: Sequence[CellSummary]) -> list[Difference]:
    """Return the differences of a table."""
    return [cell.difference for cell in comparisons(cells) if cell.difference is not None]


def describe_seeds(numbers: Sequence[int]) -> str:
    """Return numbers of seeds as in "3 seeds" or "2 to 5 seeds"."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    return count(low, "seed") if low == high else f"{low} to {high} seeds"


def _interval_clause(spec: ComparisonSpec, intervals: Iterable[Interval | None], *, whose: str = "its") -> str:
    """Return what stands after a value: the interval of that kind, or that there is none."""
    if all(interval is None or interval.low is None for interval in intervals):
        return "(no interval)"
    if spec.estimator.is_exact:
        return f"with {whose} exact 95\\,\\% interval over seeds in brackets"
    return f"$\\pm$ half the width of {whose} 95\\,\\% $t$-interval over seeds"


def _interval_of(differences: Iterable[Difference], spec: ComparisonSpec) -> str:
    return _interval_clause(spec, [difference.interval for difference in differences], whose="the")


def _looks_clause(spec: ComparisonSpec) -> str:
    return f" and for {spec.looks.count} looks at the data" if spec.looks and spec.looks.count > 1 else ""


def _test_clause(differences: Sequence[Difference], spec: ComparisonSpec, *, of: str) -> str:
    """Return the test, the equivalence test if there is one, and the correction."""
    if all(difference.p is None for difference in differences):
        return "no test, for want of seeds"
    moderated = any(difference.interval.prior for difference in differences)
    test = spec.estimator.words.test or f"two-sided {'moderated ' if moderated else ''}paired $t$-test"
    equivalence = spec.margin is not None and spec.estimator.has_equivalence
    margin = f" (rows marked $\\approx$: two one-sided tests against the margin $\\pm{spec.margin:g}$)" if equivalence else ""
    number = max((difference.comparisons for difference in differences), default=0)
    return f"{test} over seeds{margin}, corrected by Holm's method over {count(number, of)}{_looks_clause(spec)}"


def _simultaneous_clause(differences: Sequence[Difference]) -> str:
    if not any(map(hides_correction, differences)):
        return ""
    return (
        "\\ddag: simultaneous (Bonferroni) interval, shown where the 95\\,\\% interval alone excludes zero without a verdict."
    )


def verdict_caption(cells: Sequence[CellSummary], spec: ComparisonSpec, *, has_bold: bool, has_scores: bool) -> str:
    """Return the caption of the main table."""
    differences = differences_of(cells)
    seeds = describe_seeds([cell.seeds for cell in cells if cell.seeds])
    where = f" at the optimum of a curve fitted over {spec.sweep}" if spec.sweep else ""
    opening = f"{_tested(cells, spec)}{where} ({better(spec.direction)}): {spec.estimator.words.summary.format(seeds=seeds)}"
    texts = [f"{escape(opening)} {_interval_clause(spec, [cell.estimate or cell.value for cell in cells])}."]
    if differences:
        texts.append(f"Difference: {spec.estimator.words.difference}, paired by seed, {_interval_of(differences, spec)}.")
        texts.append(f"$p$: {_test_clause(differences, spec, of='comparison')}.")
        texts.append(_simultaneous_clause(differences))
        texts.append(f"Verdicts at the 5\\,\\% level: {legend(cell.verdict for cell in comparisons(cells))}")
        texts.append(_not_compared(cells))
    if has_bold:
        texts.append(
            "Bold: the best value among a baseline and the cells compared with it, only if the verdicts show that the cell is "
            "better than the baseline, or all of these cells are worse than it; the cells are not tested against each other."
        )
    if has_scores:
        texts.append("Below the rule: reference scores without a neural network, not compared.")
    return sentences(*texts)


def _not_compared(cells: Sequence[CellSummary]) -> str:
    """Return the reasons for which cells with a result are not compared."""
    reasons: dict[str, list[str]] = {}
    for cell in comparisons(cells):
        if cell.verdict and cell.verdict.kind is VerdictKind.NO_COMPARISON:
            reasons.setdefault(describe_verdict(cell.verdict), []).append(cell.name)
    texts = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return breakable(f"Not compared: {'; '.join(texts)}.") if texts else ""


def _tested(cells: Sequence[CellSummary], spec: ComparisonSpec) -> str:
    """Return the metric and its data, as in "Bits per byte on the test split"."""
    name = metric_name(spec)
    return f"{name[:1].upper()}{name[1:]} {describe_test(cells)}"


def effects_caption(result: FactorialResult, cells: Sequence[CellSummary], spec: ComparisonSpec) -> str:
    """Return the caption of the table of effects."""
    differences = [effect.difference for effect in result.effects]
    seeds = describe_seeds([len(effect.values) for effect in result.effects])
    main = _test_clause([effect.difference for effect in result.main], spec, of="main effect")
    texts = [
        f"Effects of {count(len(result.design.factors), 'factor')} on {escape(metric_name(spec))} "
        f"{describe_test(cells)} ({better(spec.direction)}), on minus off: least-squares estimates over {seeds} "
        f"{_interval_of(differences, spec)}.",
        f"$p$: {main.replace('moderated paired ', '').replace('paired ', '')}; interactions are corrected separately.",
        _simultaneous_clause(differences),
        f"Verdicts at the 5\\,\\% level, on a factor that is on: {legend(effect.verdict for effect in result.effects)}",
        "Effects in parentheses are aliased: estimate and verdict belong to the sum."
        if any(e.aliases for e in result.effects)
        else "",
    ]
    return sentences(*texts)


def trends_caption(trends: Sequence[Trend], spec: ComparisonSpec) -> str:
    """Return the caption of the table of trends."""
    slopes = [trend.slope for trend in trends if trend.slope]
    seeds = describe_seeds([slope.interval.n for slope in slopes])
    levels, where = escape(level_noun(spec)), describe_test([cell for trend in trends for cell in trend.comparisons])
    return sentences(
        f"Difference in {escape(metric_name(spec))} {where} from the baseline by {levels}, and its change per doubling of "
        f"{levels}: the mean over {seeds} of the slopes of lines over the logarithm of {levels}, "
        f"{_interval_of(slopes, spec)}.",
        f"$p$: {_test_clause(slopes, spec, of='trend')}.".replace("(rows marked $\\approx$:", "(steady:"),
        _simultaneous_clause(slopes),
        "Inconclusive does not mean that the difference stays the same, and nothing is claimed beyond these levels.",
    )


def forest_caption(differences: Sequence[Difference], cells: Sequence[CellSummary], spec: ComparisonSpec, *, of: str) -> str:
    """Return the caption of a plot of differences or effects; `of` describes them."""
    seeds = describe_seeds([difference.interval.n for difference in differences])
    number = max((difference.comparisons for difference in differences), default=1)
    kind = "exact intervals" if spec.estimator.is_exact else "$t$-intervals"
    lines = f", thick lines 95\\,\\% {kind} over seeds" if any(d.interval.low is not None for d in differences) else ""
    lines += f", thin lines simultaneous intervals (Bonferroni over {number})" if lines and number > 1 else ""
    rings = "; rings are single seeds" if spec.estimator.in_unit else ""
    margin = f"; the band is the margin of equivalence, $\\pm{spec.margin:g}$" if spec.margin else ""
    return (
        f"{of} {describe_test(cells)}, over {seeds}. Squares are estimates{lines}{rings}{margin}. "
        "Arrows point to what lies beyond the axis."
    )


def trend_figure_caption(trends: Sequence[Trend], spec: ComparisonSpec) -> str:
    """Return the caption of the plot of differences over levels."""
    seeds = describe_seeds([c.difference.interval.n for trend in trends for c in trend.comparisons if c.difference])
    where = describe_test([cell for trend in trends for cell in trend.comparisons])
    margin = f"; the band is the margin of equivalence, $\\pm{spec.margin:g}$" if spec.margin else ""
    of, levels = escape(metric_name(spec)), escape(level_noun(spec))
    return f"Difference in {of} {where} from the baseline by {levels}: means over {seeds}, with 95\\,\\% $t$-intervals{margin}."


def curves_caption(panels: Sequence[CurvePanel], spec: ComparisonSpec) -> str:
    """Return the caption of the learning curves of some panels."""
    named = {f"valid/{spec.metric}": f"{metric_name(spec)} on the validation split", "train/loss": "training loss"}
    shown = " and ".join(dict.fromkeys(named.get(p.metric, f"{p.metric.removeprefix(CURVE)}, {p.unit}") for p in panels))
    other = " Losses are per token, of different tokens, and not comparable." if OTHER_NATS in {p.unit for p in panels} else ""
    where = f" Runs at each cell's best {spec.sweep} tried." if spec.sweep else ""
    return escape(
        f"Learning curves: {shown}. Lines are means over seeds, bands the range of the seeds, and thin lines incomplete runs."
        f" The axis leaves out early values.{where}{other}"
    )


def methods_paragraphs(page: Page, cited: Sequence[Citation], result: FactorialResult | None) -> tuple[list[str], list[str]]:
    """Return the paragraphs on methods as LaTeX, and the keys of the cited tests."""
    spec, cells, records = page.results.spec, page.cells, page.records
    differences = [effect.difference for effect in result.effects] if result else differences_of(cells)
    statistics, keys = _statistics(differences, spec, result)
    notes = [*(describe_omissions(result) if result else []), *margin_notes(cells, spec), *control_notes(cells, spec)]
    return [
        sentences(_design(page, result), _classes(cited), _training(records, spec), escape(_seeds(records)), _pairs(cells)),
        sentences(*statistics, *map(breakable, notes)),
        sentences(*map(breakable, (*page.summary.records, *page.warnings)), _compute(page)),
    ], keys


def _design(page: Page, result: FactorialResult | None) -> str:
    spec, cells = page.results.spec, page.cells
    if result is not None:
        design = result.design
        return breakable(f"The study crosses {count(len(design.factors), 'factor')}: {describe_design(design)}.")
    baselines = list(dict.fromkeys(cell.baseline for cell in comparisons(cells) if cell.difference))
    text = f"We compare {count(len(cells), 'cell')}"
    text += f" over {' and '.join(spec.axes)}" if spec.axes else ""
    if len(baselines) == 1:
        text += f", each with the baseline {baselines[0]}"
    elif baselines:
        text += f", each with {describe_baselines(spec)}"
    described = replace(spec.estimator, metric=metric_name(spec)).words.description
    return breakable(f"{text}. The measure is {described}, {describe_test(cells)} ({better(spec.direction)}).")


def _classes(cited: Sequence[Citation]) -> str:
    """Return the classes of the study with their citations."""
    groups: dict[str, list[str]] = {}
    for citation in cited:
        cite = f"~\\cite{{{','.join(citation.entries)}}}" if citation.entries else ""
        groups.setdefault(citation.kind, []).append(f"{breakable(citation.name)}{cite}")
    texts = [f"{kind if len(names) == 1 else f'{kind}s'} {', '.join(names)}" for kind, names in groups.items()]
    return f"{'; '.join(texts)[:1].upper()}{'; '.join(texts)[1:]}." if texts else ""


def _training(records: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> str:
    """Return the task and the most important settings of models and training; the appendix has all."""
    groups = {"Models": MODEL, "Training": TRAINING}
    texts = [f"Task: {tasks}."] if (tasks := values_text(records, "task")) and spec.task_axis == "" else []
    for title, fields in groups.items():
        values = [f"{name} {text}" for field, name in fields.items() if (text := values_text(records, field))]
        texts += [f"{title}: {', '.join(values)}."] if values else []
    return breakable(" ".join(texts))


def _seeds(records: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({int(record["seed"]) for record in records})
    return f"Cells are trained with {count(len(seeds), 'seed')} ({', '.join(map(str, seeds))})."


def _pairs(cells: Sequence[CellSummary]) -> str:
    return breakable(note_on_batches(cells)) if differences_of(cells) else ""


def _statistics(
    differences: Sequence[Difference], spec: ComparisonSpec, result: FactorialResult | None
) -> tuple[list[str], list[str]]:
    """Return sentences on the tests, and the keys that they cite."""
    if all(difference.p is None for difference in differences):
        return ["No cells are compared by a test."], []
    priors = [difference.interval.prior for difference in differences if difference.interval.prior]
    family = "main effects, and separately over all interactions," if result else "comparisons"
    level = "5\\,\\%" if spec.margin is None else "5\\,\\% each for a difference and for equivalence"
    if not spec.estimator.is_exact:
        what = (
            "Effects are least-squares estimates with seeds as blocks, tested over seeds"
            if result
            else "Differences are paired by seed and tested"
        )
        texts, keys = [f"{what} by two-sided $t$-tests, with 95\\,\\% $t$-intervals."], []
        if any(difference.p is not None and difference.interval.sd == 0 for difference in differences):
            texts.append("A difference that is the same in all seeds is tested by its sign.")
    else:
        texts, keys = [f"The test is {escape(spec.estimator.words.test_note)}."], [*spec.estimator.references]
        if keys:
            texts[0] = f"{texts[0][:-1]}~\\cite{{{','.join(keys)}}}."
    if result and result.errors:
        texts.append(escape(" ".join(error_notes(result))))
    elif priors:
        degrees = count(priors[0].degrees_of_freedom, "degree")
        texts.append(
            "In the test of the table, variances are moderated~\\cite{smyth2004}: each is averaged with the mean of all, which "
            f"has the weight of {degrees} of freedom. A verdict also needs the $t$-test of the comparison alone below "
            "5\\,\\%; $p$ is the larger of the two $p$-values."
        )
        keys.append("smyth2004")
    texts.append(f"$p$-values are corrected by Holm's method~\\cite{{holm1979}} over all {family} at a level of {level}.")
    keys.append("holm1979")
    if spec.margin is not None and spec.estimator.has_equivalence:
        texts.append(f"Equivalence within $\\pm{spec.margin:g}$ is shown by two one-sided tests~\\cite{{schuirmann1987}}.")
        keys.append("schuirmann1987")
    if spec.looks is not None and spec.looks.count > 1:
        numbers = [*range(spec.looks.first, spec.looks.last + 1), *spec.looks.further]
        texts.append(
            f"The study was judged at {', '.join(map(str, numbers))} seeds; intervals and $p$-values are corrected for these "
            "looks~\\cite{pocock1977,jennison1991}."
        )
        keys += ["pocock1977", "jennison1991"]
    if spec.sweep is not None:
        texts.append(
            f"Cells are trained at each {breakable(spec.sweep)} with every seed, and compared at the optima of curves fitted "
            "over its logarithm~\\cite{wortsman2023}; tests and intervals include the uncertainty of the optima."
        )
        keys.append("wortsman2023")
    return texts, keys


def _compute(page: Page) -> str:
    facts = dict(page.methods)
    facts["time"] = re.sub(r": .*? for drawing batches\)", "", facts.get("time", ""))  # the appendix has the shares
    parts = [
        f"Processor: {facts['device']}." if facts.get("device") else "",
        *(f"{path} was left to the plan, which chose {setting}." for path, setting in page.info.auto),
        f"Time: {facts['time']}." if facts.get("time") else "",
    ]
    return breakable(sentences(*parts, f"Software: {facts['versions']}." if facts.get("versions") else ""))

"""Captions and the paragraph on methods: which test, how many seeds, which correction, and what the intervals are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.extras.paper.marks import legend
from attnlab.extras.paper.references import Citation, cite
from attnlab.extras.paper.tabular import breakable, escape, sentences, typeset
from attnlab.report.captions import (
    describe_seeds,
    differences_of,
    interval_clause,
    metric_name,
    simultaneous_clause,
    test_clause,
)
from attnlab.report.control import control_notes
from attnlab.report.margin import margin_notes
from attnlab.report.methods import values_text
from attnlab.report.page import Page
from attnlab.report.verdicts import note_on_batches
from attnlab.report.wording import better, count, describe_baselines, describe_test, describe_verdict
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.paired import Difference
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


def verdict_caption(cells: Sequence[CellSummary], spec: ComparisonSpec, *, has_bold: bool, has_scores: bool) -> str:
    """Return the caption of the main table."""
    differences = differences_of(cells)
    seeds = describe_seeds([cell.seeds for cell in cells if cell.seeds])
    opening = f"{_tested(cells, spec)} ({better(spec.direction)}): {spec.estimator.words.summary.format(seeds=seeds)}"
    interval = interval_clause(spec, [cell.estimate or cell.value for cell in cells], whose="its")
    texts = [typeset(f"{opening} {interval}.")]
    if differences:
        interval = interval_clause(spec, [difference.interval for difference in differences])
        test = test_clause(differences, spec, of="comparison", equivalent="rows marked ≈")
        clauses = f"Difference: {spec.estimator.words.difference}, paired by seed, {interval}. p: {test}."
        texts.append(typeset(clauses + simultaneous_clause(differences)))
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


def methods_paragraphs(page: Page, cited: Sequence[Citation]) -> tuple[list[str], list[str]]:
    """Return the paragraphs on methods as LaTeX, and the references that they cite: keys or BibTeX entries."""
    spec, cells, records = page.results.spec, page.cells, page.records
    analyses = [(breakable(" ".join(texts)), references) for texts, references in page.analyzed.methods()]
    statistics, keys = _statistics(differences_of(cells), spec, is_all=not analyses)
    notes = [*margin_notes(cells, spec), *control_notes(cells, spec)]
    return [
        sentences(_design(page), _classes(cited), _training(records, spec), escape(_seeds(records)), _pairs(cells)),
        sentences(*statistics, *map(breakable, notes)),
        *(f"{text.removesuffix('.')}{cite(references)}." for text, references in analyses),
        sentences(*map(breakable, (*page.summary.records, *page.warnings)), _compute(page)),
    ], [*keys, *(key for _, references in analyses for key in references)]


def _design(page: Page) -> str:
    spec, cells = page.results.spec, page.cells
    baselines = list(dict.fromkeys(cell.baseline for cell in comparisons(cells) if cell.difference))
    text = f"{'We compare' if baselines else 'The study has'} {count(len(cells), 'cell')}"
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
        groups.setdefault(citation.kind, []).append(f"{breakable(citation.name)}{cite(citation.entries.values())}")
    texts = [f"{kind if len(names) == 1 else f'{kind}s'} {', '.join(names)}" for kind, names in groups.items()]
    return f"{'; '.join(texts)[:1].upper()}{'; '.join(texts)[1:]}." if texts else ""


def _training(records: Sequence[Mapping[str, Any]], spec: ComparisonSpec) -> str:
    """Return the task and the most important settings of models and training; the appendix has all."""
    groups = {"Models": MODEL, "Training": TRAINING}
    texts = [f"Task: {tasks}."] if (tasks := values_text(records, "task")) and not spec.tasks.axis else []
    for title, fields in groups.items():
        values = [f"{name} {text}" for field, name in fields.items() if (text := values_text(records, field))]
        texts += [f"{title}: {', '.join(values)}."] if values else []
    return breakable(" ".join(texts))


def _seeds(records: Sequence[Mapping[str, Any]]) -> str:
    seeds = sorted({int(record["seed"]) for record in records})
    return f"Cells are trained with {count(len(seeds), 'seed')} ({', '.join(map(str, seeds))})."


def _pairs(cells: Sequence[CellSummary]) -> str:
    return breakable(note_on_batches(cells)) if differences_of(cells) else ""


def _statistics(differences: Sequence[Difference], spec: ComparisonSpec, *, is_all: bool) -> tuple[list[str], list[str]]:
    """Return sentences on the tests, and the keys that they cite; `is_all`: no analysis describes others."""
    if all(difference.p is None for difference in differences):
        return ["No cells are compared by a test."] if is_all else [], []
    priors = [difference.interval.prior for difference in differences if difference.interval.prior]
    level = "5\\,\\%" if spec.margin is None else "5\\,\\% each for a difference and for equivalence"
    if spec.estimator.words.test_note:
        keys = [*spec.estimator.references]
        texts = [f"The test is {escape(spec.estimator.words.test_note)}{cite(keys)}."]
    else:
        texts, keys = ["Differences are paired by seed and tested by two-sided $t$-tests, with 95\\,\\% $t$-intervals."], []
        if any(difference.p is not None and difference.interval.sd == 0 for difference in differences):
            texts.append("A difference that is the same in all seeds is tested by its sign.")
    if priors:
        degrees = count(priors[0].degrees_of_freedom, "degree")
        texts.append(
            "In the test of the table, variances are moderated~\\cite{smyth2004}: each is averaged with the mean of all, which "
            f"has the weight of {degrees} of freedom. A verdict also needs the $t$-test of the comparison alone below "
            "5\\,\\%; $p$ is the larger of the two $p$-values."
        )
        keys.append("smyth2004")
    texts.append(f"$p$-values are corrected by Holm's method~\\cite{{holm1979}} over all comparisons at a level of {level}.")
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

"""Captions and the paragraph on methods: which test, how many seeds, which correction, and what the intervals are.

The bibliography of a paper: the papers of the variants, components and position schemes of its runs, and of its tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnlab.config.axes import LAYERS
from attnlab.config.comparability import is_program_test
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.extras.paper.tabular import breakable, escape, legend, sentences, typeset
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS, Registry
from attnlab.report.methods import values_text
from attnlab.report.notes import control_notes, margin_notes
from attnlab.report.page import Page
from attnlab.report.verdicts import note_on_batches
from attnlab.report.wording import (
    better,
    count,
    describe_baselines,
    describe_seeds,
    describe_test,
    describe_verdict,
    differences_of,
    interval_clause,
    metric_name,
    simultaneous_clause,
    test_clause,
)
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.paired import Difference
from attnlab.stats.records import is_present
from attnlab.stats.verdict import VerdictKind

KINDS = (VARIANTS, COMPONENTS, POSITIONS)
PARTS = ("model.encoder", "model.decoder", "model.cross")  # of an encoder-decoder: variants and position schemes of their own

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


@dataclass(frozen=True)
class Citation:
    """A class of a study.

    Attributes:
        kind: "variant", "component" or "position scheme".
        name: As in the study.
        entries: Key -> BibTeX entry of each of its papers.
        known: False for a class that is neither built in nor installed: its file is not imported to make a paper.
    """

    kind: str
    name: str
    entries: Mapping[str, str]
    known: bool = True


def citations(records: Iterable[Mapping[str, Any]]) -> list[Citation]:
    """Return the variants, components and position schemes of runs, each once, variants first; none of a program's."""
    trained = [record for record in records if not is_program_test(record.get("test"))]  # its axes may have such names
    names = dict.fromkeys((registry.kind, name) for record in trained for registry, name in _recorded_classes(record))
    return [_citation(registry, name) for registry in KINDS for kind, name in names if kind == registry.kind]


def _recorded_classes(record: Mapping[str, Any]) -> Iterator[tuple[Registry, str]]:
    """Yield the classes that a run names, as it records them: ``dense with qk_norm, gate per=head`` and the like."""
    parts = [record, *(record[part] for part in PARTS if isinstance(record.get(part), Mapping))]
    for fields in parts:
        if is_present(fields.get("variant")):
            yield from _of_variant(fields["variant"])
        if is_present(fields.get("position")):
            yield POSITIONS, _name(fields["position"])
    if is_present(record.get(LAYERS)):
        known = set(VARIANTS.names())
        yield from ((VARIANTS, word) for word in re.findall(r"\w+", str(record[LAYERS])) if word in known)


def _of_variant(variant: Any) -> Iterator[tuple[Registry, str]]:
    base, _, components = str(_name(variant, whole=True)).partition(f" {WITH} ")
    yield VARIANTS, base.partition(" ")[0]
    yield from ((COMPONENTS, text.partition(" ")[0]) for text in components.split(", ") if text)


def _name(value: Any, *, whole: bool = False) -> str:
    """Return the name in a label such as ``rotary fraction=0.5``, or the whole label."""
    text = str(value.get("name", "") if isinstance(value, Mapping) else value)
    return text if whole else text.partition(" ")[0]


def _citation(registry: Registry, name: str) -> Citation:
    kind = "position scheme" if registry is POSITIONS else registry.kind
    if name not in registry.names():
        return Citation(kind, name, {}, known=False)
    references: Sequence[str] = getattr(registry.get(name), "references", ())
    return Citation(kind, name, dict(map(_entry, references)))


def _entry(reference: str) -> tuple[str, str]:
    """Return the key and the BibTeX entry of a reference of a class, which is one or the other."""
    if (own := re.match(r"\s*@\w+\s*\{\s*([^\s,]+)", reference)) is not None:
        return own[1], reference.strip()
    if reference not in known_entries():
        raise UserError(f"expected a BibTeX entry or a key of references.bib, got {reference!r}", "references")
    return reference, known_entries()[reference]


def cite(references: Iterable[str]) -> str:
    """Return a citation of references as LaTeX, with the space before it; "" for none."""
    keys = ",".join(_entry(reference)[0] for reference in references)
    return f"~\\cite{{{keys}}}" if keys else ""


@lru_cache
def known_entries() -> dict[str, str]:
    """Return key -> BibTeX entry of the papers that attnlab knows."""
    text = (Path(__file__).parent / "references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),\n.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^@\w+\{.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    return dict(zip(entries, blocks, strict=True))


def bibliography(cited: Sequence[Citation], keys: Iterable[str]) -> str:
    """Return the text of a BibTeX file.

    Args:
        cited: The classes of the study.
        keys: Further keys of `known_entries` or BibTeX entries, for the tests.
    """
    entries = {key: entry for citation in cited for key, entry in citation.entries.items()}
    entries |= dict(map(_entry, keys))
    head = '% "others" stands for authors that attnlab does not list, arXiv for the venue: complete the entries.'
    return "\n\n".join([head, *entries.values()]) + "\n"


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
        sentences(*map(breakable, page.warnings), _compute(page)),
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
    if spec.margin is not None:
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
        f"Time: {facts['time']}." if facts.get("time") else "",
    ]
    return breakable(sentences(*parts, f"Software: {facts['versions']}." if facts.get("versions") else ""))

"""The contrasts of several studies: which effects they share, and verdicts that are corrected over all of them.

All comparisons of the studies' tables, and the means over studies, are one family for Holm's method; trends are another. The
equivalence tests have a separate level, as in the table of one study.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from attnlab.config.axes import label_text
from attnlab.config.comparability import files_of_test, is_program_test
from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.compare import judge_cells
from attnlab.stats.moderation import cap_priors
from attnlab.stats.paired import Difference
from attnlab.stats.pooling import (
    Effect,
    PooledEffect,
    average,
    independent_groups,
    pool,
    relative_effect,
    scaled_effect,
)
from attnlab.stats.records import comparison_name
from attnlab.stats.share_summary import CellShare
from attnlab.stats.trend import Trend, correct_trends
from attnlab.stats.verdict import Correction, VerdictKind

DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")  # SHA-256 or MD5
ContrastName = tuple[str, str]  # names of a cell and of its baseline, without the axes that both share


@dataclass(frozen=True)
class StudyTable:
    """The results of one study.

    Attributes:
        name: The study's name.
        spec: The comparison that the study makes.
        cells: Its cells, compared.
        trends: As `attnlab.stats.trend.summarize_trends` returns them.
        shares: As `attnlab.stats.share_summary.summarize_shares` returns them.
    """

    name: str
    spec: ComparisonSpec
    cells: Sequence[CellSummary]
    trends: Sequence[Trend] = ()
    shares: Sequence[CellShare] = ()


@dataclass(frozen=True)
class ContrastEffect:
    """The effect of one contrast in one study.

    Attributes:
        table: The study.
        comparisons: The cells that have the contrast, at the highest level of `over`.
        lower_levels: The same at its other levels.
        effects: The relative effect of each of them.
        effect: Their mean; None when the study's metric has no known natural zero.
        share: The logarithm of the share of training in which the cell reaches the baseline's score; None when it is not known.
        trends: The trends of these cells, corrected over the page.
    """

    table: StudyTable
    comparisons: tuple[CellSummary, ...]
    lower_levels: tuple[CellSummary, ...]
    effects: tuple[Effect | None, ...]
    effect: Effect | None
    share: Effect | None = None
    trends: tuple[Trend, ...] = ()


@dataclass(frozen=True)
class Contrast:
    """A cell against a baseline, in all studies that compare them.

    Attributes:
        name: Of the cell, without the axes that it shares with its baseline.
        baseline: Of the baseline, likewise.
        studies: Its effect in each study.
        groups: Indices of studies that count as one, because they share data and seeds.
        pooled: The mean over the groups; None for too few groups, or if a study has no relative effect.
        pooled_share: The same of the logarithms of the shares of training.
        corrections: Other verdicts on the mean, which it would have without a choice of records.
        other_shares: (choice, mean) of the shares of training without a choice of records.
    """

    name: str
    baseline: str
    studies: tuple[ContrastEffect, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    pooled: PooledEffect | None = None
    pooled_share: PooledEffect | None = None
    corrections: tuple[Correction, ...] = ()
    other_shares: tuple[tuple[str, PooledEffect | None], ...] = ()

    @property
    def label(self) -> str:
        """The names of the cell and its baseline: "no_wo against dense"."""
        return comparison_name(self.name, self.baseline)


@dataclass(frozen=True)
class JointResult:
    """The results of several studies, with verdicts corrected over all of them.

    Attributes:
        tables: The studies.
        contrasts: Those in several studies first, otherwise in the order of the studies. Controls are left out.
        family: Number of tests in the family of differences and means.
    """

    tables: tuple[StudyTable, ...]
    contrasts: tuple[Contrast, ...]
    family: int


def combine_tasks(tables: Sequence[StudyTable]) -> JointResult:
    """Pool the contrasts of a study's tasks, after verdicts and trends are corrected over the study.

    The means over tasks are a separate family.
    """
    contrasts = [_pooled(contrast) for contrast in _contrasts(tables)]
    means = paired.correct([contrast.pooled.mean if contrast.pooled else None for contrast in contrasts])
    pooled = _shared_first(_with_mean(contrast, mean) for contrast, mean in zip(contrasts, means, strict=True))
    differences = [c.difference for table in tables for c in comparisons(table.cells)]
    return JointResult(tuple(tables), pooled, sum(d is not None and d.p is not None for d in differences))


def combine(tables: Sequence[StudyTable]) -> JointResult:
    """Correct the verdicts of several studies together, and pool the contrasts that they share."""
    contrasts = [_pooled(contrast) for contrast in _contrasts(tables)]
    differences = cap_priors([[c.difference for c in comparisons(table.cells)] for table in tables])
    means = [contrast.pooled.mean if contrast.pooled else None for contrast in contrasts]
    family = [difference for table in differences for difference in table] + means
    corrected = iter(paired.correct(family))
    tables = [
        replace(table, cells=judge_cells(table.cells, [next(corrected) for _ in of_table], table.spec))
        for table, of_table in zip(tables, differences, strict=True)
    ]
    pooled_means = list(corrected)
    tables = _with_joint_trends(tables)
    pooled = _shared_first(
        _with_mean(replace(contrast, studies=judged.studies), mean)
        for contrast, judged, mean in zip(contrasts, _contrasts(tables), pooled_means, strict=True)
    )
    tests = sum(difference is not None and difference.p is not None for difference in family)
    return JointResult(tuple(tables), pooled, tests)


def with_tables(result: JointResult, tables: Sequence[StudyTable], contrasts: Sequence[Contrast]) -> JointResult:
    """Return a result with other verdicts in its tables, which its contrasts have as well.

    Args:
        tables: Those of the result, with other verdicts on the same comparisons and trends.
        contrasts: Those of the result.
    """
    by_name = {table.name: table for table in tables}
    cells = {table.name: {(c.name, c.baseline): c for c in comparisons(table.cells)} for table in tables}

    def replaced(study: ContrastEffect) -> ContrastEffect:
        table = by_name[study.table.name]
        shown, lower = (
            tuple(cells[table.name][c.name, c.baseline] for c in group) for group in (study.comparisons, study.lower_levels)
        )
        names = {cell.name for cell in shown}
        trends = tuple(trend for trend in table.trends if {comparison.name for comparison in trend.comparisons} & names)
        return replace(study, table=table, comparisons=shown, lower_levels=lower, trends=trends)

    contrasts = [replace(contrast, studies=tuple(map(replaced, contrast.studies))) for contrast in contrasts]
    return replace(result, tables=tuple(tables), contrasts=tuple(contrasts))


def mean_kind(mean: Difference) -> VerdictKind:
    """Return the outcome of the test of a mean after correction; positive effects are worse."""
    kinds = {"higher": VerdictKind.WORSE, "lower": VerdictKind.BETTER}
    return kinds.get(mean.conclusion, VerdictKind.INCONCLUSIVE)


def _shared_first(contrasts: Iterable[Contrast]) -> tuple[Contrast, ...]:
    """Return contrasts with those in several studies first, otherwise in the same order."""
    return tuple(sorted(contrasts, key=lambda contrast: len(contrast.studies) < 2))


def _with_mean(contrast: Contrast, mean: Difference | None) -> Contrast:
    return replace(contrast, pooled=replace(contrast.pooled, mean=mean)) if contrast.pooled and mean else contrast


def _with_joint_trends(tables: Sequence[StudyTable]) -> list[StudyTable]:
    """Correct the trends of all studies together; a table's trends have its verdicts."""
    prepared: list[Trend] = []
    for table in tables:
        by_pair = {(c.name, c.baseline): c for c in comparisons(table.cells)}
        for trend in table.trends:
            judged = tuple(by_pair[c.name, c.baseline] for c in trend.comparisons)
            prepared.append(replace(trend, comparisons=judged))
    corrected = iter(correct_trends(prepared))
    return [replace(table, trends=tuple(next(corrected) for _ in table.trends)) for table in tables]


def _contrasts(tables: Sequence[StudyTable]) -> list[Contrast]:
    """Return each contrast with its effect in each study that has it."""
    studies: dict[ContrastName, list[ContrastEffect]] = {}
    for table in tables:
        compared: dict[ContrastName, list[CellSummary]] = {}
        for comparison in comparisons(table.cells):
            if comparison.difference is not None and not table.spec.is_control(comparison.axes):
                compared.setdefault(contrast_name(comparison, table.spec), []).append(comparison)
        for name, cells in compared.items():
            studies.setdefault(name, []).append(_effect_in(table, cells))
    return [Contrast(*name, tuple(effects)) for name, effects in studies.items()]


def contrast_name(comparison: CellSummary, spec: ComparisonSpec) -> ContrastName:
    """Return the names of a cell and its baseline, without the axes on which they agree."""
    baseline = next(b for b in spec.baselines if _is_compared_with(comparison, b, spec))
    axes = [axis for axis in baseline if comparison.axes[axis] != label_text(baseline[axis])] or list(baseline)
    return (
        cell_name({axis: comparison.axes[axis] for axis in axes}),
        cell_name({axis: label_text(baseline[axis]) for axis in axes}),
    )


def _is_compared_with(comparison: CellSummary, baseline: Mapping[str, object], spec: ComparisonSpec) -> bool:
    name = cell_name({axis: label_text(baseline.get(axis, value)) for axis, value in comparison.axes.items()})
    return comparison.baseline in (name, spec.doubles.get(name))


def _effect_in(table: StudyTable, every: Sequence[CellSummary]) -> ContrastEffect:
    """Return the effect of a contrast, given all comparisons of a study that have it."""
    over = table.spec.over
    highest = max(float(cell.axes[over]) for cell in every) if over else 0.0
    cells = [cell for cell in every if not over or float(cell.axes[over]) == highest]
    by_name = {cell.name: cell for cell in table.cells}
    effects = tuple(relative_effect(cell, by_name[cell.baseline], table.spec) for cell in cells)
    names = {cell.name for cell in cells}
    known = [effect for effect in effects if effect is not None]
    shares = [scaled_effect(share.share.log_ratio) for share in table.shares if share.cell in names]
    trends = tuple(trend for trend in table.trends if {comparison.name for comparison in trend.comparisons} & names)
    return ContrastEffect(
        table,
        tuple(cells),
        tuple(cell for cell in every if cell not in cells),
        effects,
        average(known) if len(known) == len(effects) else None,
        average(shares) if len(shares) == len(cells) else None,
        trends,
    )


def _pooled(contrast: Contrast) -> Contrast:
    """Return a contrast with its means over independent studies."""
    data = [
        data_of(study.comparisons[0]) | copy for study, copy in zip(contrast.studies, _copies(contrast.studies), strict=True)
    ]
    groups = independent_groups([(of, frozenset(_seeds(study))) for of, study in zip(data, contrast.studies, strict=True)])
    effects = [study.effect for study in contrast.studies]
    shares = [study.share for study in contrast.studies]
    looks = [c.difference.looks for study in contrast.studies for c in study.comparisons if c.difference]
    tries = max((own.tries for own in looks if own), default=0)
    return replace(
        contrast,
        groups=tuple(map(tuple, groups)),
        pooled=_pool_groups(effects, groups, tries=tries),
        pooled_share=_pool_groups(shares, groups),
    )


def _pool_groups(effects: Sequence[Effect | None], groups: Sequence[Sequence[int]], *, tries: int = 0) -> PooledEffect | None:
    """Return the mean over groups; None when a study has no effect: a mean over the others would answer another question."""
    known = [effect for effect in effects if effect is not None]
    if len(known) < len(effects):
        return None
    return pool([average([known[i] for i in group]) for group in groups], tries=tries)


def data_of(cell: CellSummary) -> frozenset[str]:
    """Return identities of the data that a cell is tested on, for example digests of their files; empty when unknown.

    Two tasks that read one file have its digest in common, whatever they make of it. The data of a program are the files that
    its command names, or what the program itself and its texts stand for.
    """
    if is_program_test(cell.test):
        return frozenset(files_of_test(cell.test).values()) or frozenset(cell.batches.values())
    data = str((json.loads(cell.test) if cell.test else {}).get("data") or "").partition(" token_bytes ")[0]
    return frozenset(DIGEST.findall(data) or [data] * bool(data))


def _copies(studies: Sequence[ContrastEffect]) -> list[frozenset[str]]:
    """Return for each study an identity that it has in common with those that have its scores, seed by seed: copies of one."""
    first: dict[tuple[tuple[float, ...], ...], int] = {}
    identities = []
    for i, study in enumerate(studies):
        by_name = {cell.name: cell for cell in study.table.cells}
        pairs = [(cell.values, by_name[cell.baseline].values) for cell in study.comparisons]
        scores = tuple(tuple(float(f"{of[seed]:.6g}") for of in pair for seed in sorted(of)) for pair in pairs)
        scatters = any(len({*cell.values()}) > 1 for pair in pairs for cell in pair)  # solved tasks have equal scores, too
        copy = first.setdefault(scores, i) if scatters else i
        identities.append(frozenset({f"scores of {copy}"}))
    return identities


def _seeds(study: ContrastEffect) -> set[int]:
    return {seed for comparison in study.comparisons for seed in comparison.values}

"""The contrasts of several studies: which effects they share, and verdicts that are corrected over all of them.

All comparisons of the studies' tables, and the means over studies, are one family for Holm's method; trends are another. The
equivalence tests have a separate level, as in the table of one study.

Several studies of one question: relative effects, their mean over studies, and one correction for all verdicts.

Effects are in per cent, larger is worse: the difference from the baseline over the baseline's mean score for metrics with a
natural zero that training lowers (bits per byte, loss), over its mean error rate for accuracy. Dividing by a constant changes
no p-value.

A study contributes one effect to the mean of a contrast (a cell against a baseline, without the axes that both share). Levels
of `over` count with the highest. Cells of other axes share seeds and data and are no independent studies: their effects are
averaged, with the mean of their intervals as the interval, which is right if they are perfectly correlated and too wide
otherwise. Studies on the same data with a seed in common are averaged in the same way before they enter the mean.

The mean over studies weights all of them alike, and its interval comes from a t-test of the studies' effects. Its coverage is
at least 95 % for all spreads of the effects and of their errors (Ibragimov and Müller 2010, after Bakirov and Székely
2005). With the spreads estimated from 3 to 5 seeds, the interval of Hartung and Knapp with inverse-variance weights and the
between-study variance of Paule and Mandel covers 85 to 95 % in simulations with 3 to 5 studies, and the prediction interval of
Higgins et al. (2009) 87 to 100 %. The prediction interval here is for a further effect from the same normal distribution as
the observed ones, errors included: 95 to 100 % (`reports/validity`). Two studies have no mean: with one degree of freedom its
interval is 12.7 standard errors wide on each side.

Heterogeneity is the variance of the effects beyond the mean of their squared standard errors, with an interval from the F
distribution of the ratio of the two, where the degrees of freedom of the second follow Satterthwaite (1946).

References:
    Bakirov, N. K. and Székely, G. J. (2005). Student's t-test for Gaussian scale mixtures. Zapiski Nauchnyh Seminarov POMI
    328, 5-19.
    Higgins, J. P. T., Thompson, S. G. and Spiegelhalter, D. J. (2009). A re-evaluation of random-effects meta-analysis.
    Journal of the Royal Statistical Society A 172, 137-159.
    Ibragimov, R. and Müller, U. K. (2010). t-statistic based correlation and heterogeneity robust inference. Journal of
    Business and Economic Statistics 28, 453-468.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from attnlab.config.axes import label_text
from attnlab.config.comparability import files_of_test, is_program_test
from attnlab.config.grid import cell_name
from attnlab.stats import paired
from attnlab.stats.cells import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.compare import judge_cells
from attnlab.stats.joint import cap_priors, simultaneous_interval
from attnlab.stats.paired import LEVEL, Difference, Interval, t_quantile
from attnlab.stats.records import comparison_name
from attnlab.stats.training_share import CellShare
from attnlab.stats.trend import Trend, correct_trends
from attnlab.stats.verdict import VerdictKind

MIN_STUDIES = 3  # with a mean and a prediction interval
SCALES = {  # metric -> the quantity that effects are per cent of
    "bits_per_byte": "bits per byte",
    "bits_per_token": "bits per token",
    "loss": "loss",
    "accuracy": "error rate",
    "bleu": "BLEU",
    "chrf": "chrF",
}

DIGEST = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")  # SHA-256 or MD5
ContrastName = tuple[str, str]  # names of a cell and of its baseline, without the axes that both share


@dataclass(frozen=True)
class Effect:
    """An effect in per cent, or as the logarithm of a share of training; larger is worse.

    Attributes:
        mean: The estimate.
        low, high: Ends of its 95 % interval; None when there is none.
        outer_low, outer_high: Ends of the interval that holds together with all others of the page; likewise.
        error: Its standard error; None with one seed, or if all seeds have the same difference.
        degrees_of_freedom: Of the standard error.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    outer_low: float | None = None
    outer_high: float | None = None
    error: float | None = None
    degrees_of_freedom: int = 0


@dataclass(frozen=True)
class Heterogeneity:
    """The spread of true effects over studies.

    Attributes:
        tau: Estimated standard deviation of the true effects.
        i_squared: Its share in the variance of the observed effects, between 0 and 1.
        low, high: 95 % interval of `i_squared`.
    """

    tau: float
    i_squared: float
    low: float
    high: float


@dataclass(frozen=True)
class PooledEffect:
    """The mean of independent effects.

    Attributes:
        mean: The mean with its t-test. Its `interval.n` is the number of effects.
        prediction: Ends of the 95 % prediction interval of a further effect.
        heterogeneity: None when an effect has no standard error.
    """

    mean: Difference
    prediction: tuple[float, float]
    heterogeneity: Heterogeneity | None = None


def scale_of(spec: ComparisonSpec) -> str:
    """Return the quantity that a study's effects are per cent of; "" for a metric without a known natural zero.

    "" also for another estimand than the mean: its effects are not differences of mean scores.
    """
    return SCALES.get(spec.metric, "") if spec.estimator.is_mean else ""


def relative_effect(comparison: CellSummary, baseline: CellSummary, spec: ComparisonSpec) -> Effect | None:
    """Return a cell's difference from its baseline in per cent of the baseline's score or error rate.

    Args:
        comparison: The cell, with a difference.
        baseline: Its baseline.
        spec: The comparison that the study makes.

    Returns:
        None without a difference, if the two cells lost different numbers of seeds, for a metric without a known natural zero,
        if the baseline's score or error rate is 0, or if it is negative with a seed, which has no natural zero either.
    """
    difference = comparison.difference
    if difference is None or difference.no_test is paired.NoTest.LOSSES or not scale_of(spec):
        return None
    scores = [baseline.values[seed] for seed in baseline.values.keys() & comparison.values.keys()]
    sizes = [1 - score for score in scores] if spec.metric == "accuracy" else scores
    quantity = fmean(sizes)
    if quantity <= 0 or min(sizes) < 0:
        return None
    sign = -1 if spec.direction == "max" else 1
    return scaled_effect(difference.interval, sign * 100 / quantity, outer=simultaneous_interval(difference))


def scaled_effect(interval: Interval, factor: float = 1.0, *, outer: Interval | None = None) -> Effect:
    """Return an interval over seeds as an effect in another unit; a negative factor exchanges its ends."""
    low, high = _scaled(interval, factor)
    outer_low, outer_high = _scaled(outer, factor) if outer else (None, None)
    error = abs(factor) * interval.moderated_sd / math.sqrt(interval.n) if interval.moderated_sd else None
    return Effect(interval.mean * factor, low, high, outer_low, outer_high, error, interval.degrees_of_freedom)


def _scaled(interval: Interval, factor: float) -> tuple[float | None, float | None]:
    ends = [None if end is None else end * factor for end in (interval.low, interval.high)]
    return (ends[1], ends[0]) if factor < 0 else (ends[0], ends[1])


def average(effects: Sequence[Effect]) -> Effect:
    """Return the mean of effects that are not independent, with the mean of their intervals and of their errors."""
    if len(effects) == 1:
        return effects[0]
    return Effect(
        fmean(effect.mean for effect in effects),
        *(_mean([getattr(effect, name) for effect in effects]) for name in ("low", "high", "outer_low", "outer_high", "error")),
        degrees_of_freedom=min(effect.degrees_of_freedom for effect in effects),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def independent_groups(studies: Sequence[tuple[frozenset[str], frozenset[int]]]) -> list[list[int]]:
    """Return the indices of studies by groups: those with data and a seed in common are in one group.

    Args:
        studies: The data of each study, as identities of their parts, and its seeds. Unknown data are empty, and are taken to
            be in no other study.
    """
    groups: list[list[int]] = []
    for i, (data, seeds) in enumerate(studies):
        linked = [group for group in groups if any(studies[j][0] & data and studies[j][1] & seeds for j in group)]
        merged = sorted([*(j for group in linked for j in group), i])
        groups = [*(group for group in groups if group not in linked), merged]
    return sorted(groups)


def pool(effects: Sequence[Effect]) -> PooledEffect | None:
    """Return the mean of independent effects; None for fewer than `MIN_STUDIES`, or if all are the same.

    Args:
        effects: One of each study.
    """
    if len(effects) < MIN_STUDIES:
        return None
    values: Mapping[int, float] = {i: effect.mean for i, effect in enumerate(effects)}
    mean = paired.difference(values, dict.fromkeys(values, 0.0))
    assert mean is not None and mean.interval.sd is not None
    n, sd = mean.interval.n, mean.interval.sd
    if not sd:
        return None
    half_width = t_quantile(1 - LEVEL / 2, n - 1) * sd * math.sqrt(1 + 1 / n)
    prediction = (mean.interval.mean - half_width, mean.interval.mean + half_width)
    return PooledEffect(mean, prediction, heterogeneity(effects))


def heterogeneity(effects: Sequence[Effect]) -> Heterogeneity | None:
    """Return the spread of the true effects; None when there is one effect only, or one has no standard error."""
    from scipy.special import fdtri

    squares = [(effect.error**2, effect.degrees_of_freedom) for effect in effects if effect.error]
    if len(effects) < 2 or len(squares) < len(effects):
        return None
    within = fmean(square for square, _ in squares)
    total = paired.interval([effect.mean for effect in effects]).sd or 0.0
    ratio, degrees = total**2 / within, sum(s for s, _ in squares) ** 2 / sum(s**2 / df for s, df in squares)
    # ratio / (1 + tau^2 / within) has the F distribution
    ends = [ratio / float(fdtri(len(effects) - 1, degrees, p)) for p in (1 - LEVEL / 2, LEVEL / 2)]
    low, high = (max(0.0, 1 - 1 / end) if end else 0.0 for end in ends)
    excess = max(0.0, total**2 - within)
    return Heterogeneity(math.sqrt(excess), excess / total**2 if total else 0.0, low, high)


@dataclass(frozen=True)
class StudyTable:
    """The results of one study.

    Attributes:
        name: The study's name.
        spec: The comparison that the study makes.
        cells: Its cells, compared.
        trends: As `attnlab.stats.trend.summarize_trends` returns them.
        shares: As `attnlab.stats.training_share.summarize_shares` returns them.
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
    """

    name: str
    baseline: str
    studies: tuple[ContrastEffect, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    pooled: PooledEffect | None = None
    pooled_share: PooledEffect | None = None

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
    return replace(
        contrast,
        groups=tuple(map(tuple, groups)),
        pooled=_pool_groups(effects, groups),
        pooled_share=_pool_groups(shares, groups),
    )


def _pool_groups(effects: Sequence[Effect | None], groups: Sequence[Sequence[int]]) -> PooledEffect | None:
    """Return the mean over groups; None when a study has no effect: a mean over the others would answer another question."""
    known = [effect for effect in effects if effect is not None]
    if len(known) < len(effects):
        return None
    return pool([average([known[i] for i in group]) for group in groups])


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

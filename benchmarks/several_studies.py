"""Simulated pages of several studies: false verdicts with one correction for the page, and the mean over studies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy

from attnlab.stats.paired import LEVEL, t_quantile
from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, MAX_DEGREES_OF_FREEDOM_OF_GROUPS
from benchmarks.simulate import FAR, unequal_tables
from benchmarks.simulation import FALSE, Kind, Quantity, Setting, Share, Simulation
from benchmarks.table_tests import join, t_tests

SCALES = (1.0, 3.0, 0.3, 1.0, 2.0)  # of the runs of each study
# (key of `SPREADS`, all cells but one differ by far)
SPREADS_OF_PAGES = (
    ("equal", False),
    ("baseline x2", False),
    ("baseline x4", False),
    ("one cell x2", True),
    ("one cell x4", True),
    ("one unpaired", True),
)
BASELINES_X4 = "baselines that scatter four times as much as the cells in all studies of a page"
# Name -> standard errors of the effects of each study.
PRECISIONS = {
    "equal errors": (1.0, 1.0, 1.0, 1.0, 1.0),
    "errors x2": (1.0, 2.0, 1.0, 2.0, 1.0),
    "errors x4": (1.0, 1.0, 4.0, 1.0, 4.0),
    "one precise study": (4.0, 4.0, 1.0, 4.0, 4.0),
}


def page(size: tuple[int, int], seeds: int, spread: str, others: bool, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate pages of studies.

    Args:
        size: Number of studies, and of cells of each without the baseline.
        seeds: Number of seeds of each study.
        spread: Key of `SPREADS`, for all studies.
        others: All cells but the first of the first study differ by far; else nothing differs.
        studies: Number of pages.
        seed: Random seed.
    """
    tables = []
    for i, scale in enumerate(SCALES[: size[0]]):
        differences = scale * unequal_tables(spread, seeds, size[1], studies=studies, seed=seed + i)
        differences[:, 0 if i else 1 :] += FAR * others
        tables.append(differences)

    def false(most: int) -> Share:
        tests = join([t_tests(table, moderated=True, most=most) for table in tables])
        return Share(tests.differs[:, : 1 if others else None].any(1).sum(), studies)

    return {"false": false(MAX_DEGREES_OF_FREEDOM_OF_GROUPS), "false, full priors": false(MAX_DEGREES_OF_FREEDOM)}


def mean_over_studies(errors: str, number: int, spread: float, studies: int, seed: int) -> Mapping[str, Share]:
    """Simulate means over studies, and the prediction of the effect in a further one.

    Args:
        errors: Key of `PRECISIONS`.
        number: Number of studies.
        spread: Standard deviation of the true effects.
        studies: Number of means.
        seed: Random seed.
    """
    random = numpy.random.RandomState(seed)
    truths = spread * random.standard_normal((studies, number + 1))
    effects = truths[:, :-1] + numpy.array(PRECISIONS[errors][:number]) * random.standard_normal((studies, number))
    mean, sd, quantile = effects.mean(1), effects.std(1, ddof=1), t_quantile(1 - LEVEL / 2, number - 1)
    covered = abs(mean) <= quantile * sd / number**0.5
    predicted = abs(mean - truths[:, -1]) <= quantile * sd * (1 + 1 / number) ** 0.5
    return {"covered": Share(covered.sum(), studies), "predicted": Share(predicted.sum(), studies)}


SEVERAL_STUDIES = Simulation(
    "several-studies",
    "Several studies on one page",
    f"""\
Pages of studies whose runs scatter differently, as above. Nothing differs, or all cells but one differ by far. Holm's method
corrects over all comparisons of the page. The comparisons of a study borrow from each other's variances, with a prior of at
most {MAX_DEGREES_OF_FREEDOM_OF_GROUPS} degrees of freedom. “Full priors”: those of a single study, which attnlab does not use
here. The tasks of one study are corrected in the same way.""",
    settings=[
        Setting(
            f"{seeds} seeds, {spread}{', others differ' if others else ''}",
            f"{size[0]} studies of {size[1]} cells",
            partial(page, size, seeds, spread, others),
            BASELINES_X4 if spread == "baseline x4" else "",
        )
        for seeds in (2, 3, 5)
        for spread, others in SPREADS_OF_PAGES
        for size in ((2, 3), (2, 6), (3, 4), (5, 6))
    ],
    quantities=(FALSE, Quantity("false, full priors", "false verdicts with full priors")),
    hard={"the same, pages of several studies": ("false", "others differ")},
)

MEAN_OVER_STUDIES = Simulation(
    "mean-over-studies",
    "Means over studies",
    """\
The mean of the effects in several studies, all weighted alike, with the interval of a t-test, and the prediction interval of
the true effect in a further study. The true effects have the standard deviation that is given, in units of the smallest
standard error of a study's effect.""",
    settings=[
        Setting(errors, f"{number} studies, true effects ± {spread:g}", partial(mean_over_studies, errors, number, spread))
        for errors in PRECISIONS
        for number in (3, 4, 5)
        for spread in (0.0, 1.0, 3.0)
    ],
    quantities=(
        Quantity("covered", "coverage of the mean's 95 % interval", Kind.COVERAGE, level=0.95, limit=0.94),
        Quantity("predicted", "coverage of the prediction interval", Kind.COVERAGE, level=0.95, limit=0.94),
    ),
)

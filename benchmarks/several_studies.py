"""Simulated studies of several tasks: false verdicts with one correction for the study."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from attnlab.stats.variance_prior import MAX_DEGREES_OF_FREEDOM, MAX_DEGREES_OF_FREEDOM_OF_GROUPS
from benchmarks.simulate import FAR, unequal_tables
from benchmarks.simulation import FALSE, Quantity, Setting, Share, Simulation
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
BASELINES_X4 = "baselines that scatter four times as much as the cells in all tasks of a study"


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


SEVERAL_STUDIES = Simulation(
    "several-studies",
    "Several tasks in one study",
    f"""\
Studies of several tasks whose runs scatter differently, as above. Nothing differs, or all cells but one differ by far. Holm's
method corrects over all comparisons of the study. The comparisons of a task borrow from each other's variances, with a prior
of at most {MAX_DEGREES_OF_FREEDOM_OF_GROUPS} degrees of freedom. “Full priors”: those of a study of one task, which attnlab
does not use here.""",
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
    hard={"the same, several tasks": ("false", "others differ")},
)

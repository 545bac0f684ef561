"""The verdict on a cell: how it compares with its baseline, and on which grounds.

A verdict is data. `attnlab.report.wording` writes it as the short text of a table and as part of a sentence.

The control of a study is a cell that must be found worse than its baseline before another one counts as equivalent. A study
that is too small, too short or too noisy to tell attention from no attention finds every cell "equivalent" within a wide enough
margin. The control shows that the study can see a difference: assay sensitivity (ICH 2000, guideline E10, section 1.5). The
control has to be worse by at least the margin; if it is worse by less, the margin would admit the control itself.

The control keeps its place in Holm's correction of the tests for a difference, so that all verdicts of better and worse,
the control's included, have one error of 5 %; a control that is far worse is the first to be rejected and costs the others
nothing. It has no equivalence test and does not count in their correction: an equivalence of other cells is only supported
once the control is shown to differ, so the control's equivalence is never a question (a gate tested before its family;
Dmitrienko and Tamhane 2007).

References:
    ICH (2000). Choice of control group and related issues in clinical trials. Guideline E10.
    Dmitrienko, A. and Tamhane, A. C. (2007). Gatekeeping procedures with clinical trial applications. Pharmaceutical
    Statistics 6, 171-180.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from attnlab.stats.paired import MIN_SEEDS_FOR_ESTIMATE, SEEDS_OF_IDENTICAL, Difference, NoTest
from attnlab.stats.predict import Futility, Prediction, predict, predicted_seeds
from attnlab.stats.sequential import FARTHEST_LOOK


class VerdictKind(StrEnum):
    """The possible outcomes of a comparison with the baseline."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    IDENTICAL = "identical"
    INCONCLUSIVE = "inconclusive"
    BASELINE = "baseline"
    NO_COMPARISON = "no comparison"


class Reason(StrEnum):
    """The reason why a verdict is inconclusive, or why there is no comparison."""

    ONE_SEED = "one seed has no interval"
    BEFORE_FIRST_LOOK = "fewer pairs of seeds than the first look has"
    FEW_SEEDS = "too few seeds to predict a verdict"
    CONSTANT = "the difference is the same in all seeds, which may be one run repeated"
    LOSSES = "the cell and its baseline lost different numbers of seeds"
    CHOICE = "the verdict depends on the seeds that choose the best values tried"
    MORE_SEEDS = "more seeds are needed"
    EXACT_TEST = "the exact test is not significant"
    NO_SIGNIFICANT_RESULT = "no result of so few seeds is significant"
    NO_SHARED_SEED = "the cell and its baseline share no completed seed"
    BASELINE_MISSING = "the baseline is not in the table"
    OTHER_TEST = "the cell and its baseline are not tested on the same data in the same way"
    NO_BEST = "the best value of the swept hyperparameter is the smallest or largest tried"
    BASELINE_WITHOUT_VALUE = "no run of the baseline completed"


class Sensitivity(StrEnum):
    """The evidence that a study could have seen a difference: its control, or its margin."""

    SHOWN = "the control was found worse"
    NOT_SHOWN = "the control was not found worse"
    WITHIN_MARGIN = "the control is worse by less than the margin"
    NO_RESULT = "the control has no result"
    WIDE_MARGIN = "the margin is too wide for the scores of the study"


@dataclass(frozen=True)
class NewItems:
    """What a difference shows about new test items, drawn like the items of the test.

    Attributes:
        half_width: Half the width of the 95 % interval over seeds and items.
        holds: The verdict of better, worse or equivalent holds for them, too.
    """

    half_width: float
    holds: bool


@dataclass(frozen=True)
class Verdict:
    """The verdict on one cell.

    Attributes:
        kind: The outcome.
        reason: The reason for an inconclusive or missing outcome, else None.
        pairs: Number of seeds that both the cell and its baseline completed.
        seeds: Number of seeds that the cell completed; 0 when it does not matter.
        prediction: Probabilities of the verdicts with one more seed, for `Reason.MORE_SEEDS` of pairs that scatter.
        needed: Number of seeds in total with which the comparison is conclusive with probability `predict.POWER`, or, if all
            pairs have the same value, with which it is if they stay equal; None when there is no prediction, or the number is
            above `predict.MAX_SEEDS`. For `Reason.NO_SIGNIFICANT_RESULT` the smallest number that can be conclusive.
        fragile: Tests corrected for skewness do not share the outcome (`attnlab.stats.paired`).
        first_look: Number of seeds at the first look, for `Reason.BEFORE_FIRST_LOOK`.
        within_margin: The cell differs from its baseline, by less than the margin.
        constant: All pairs have the same difference: "value" if it is zero, "difference" otherwise, "" if they scatter.
        lost: (number, state) of the cell's runs that ended without a result; there may be worse values among them.
        baseline_lost: The same for its baseline.
        sensitivity: For an outcome of equivalent or identical in a study with a control: what the control shows. For equivalent
            with a margin that is too wide for the scores (`attnlab.stats.question`): that. Else None.
        detail: Further information on the reason, as text.
        futility: For an inconclusive verdict: why the comparison received no more seeds, if it was futile.
        new_items: If test items are a notable part of the uncertainty: what the difference shows about others like them.
    """

    kind: VerdictKind
    reason: Reason | None = None
    pairs: int = 0
    seeds: int = 0
    prediction: Prediction | None = None
    needed: int | None = None
    first_look: int | None = None
    within_margin: bool = False
    constant: str = ""
    lost: tuple[tuple[int, str], ...] = ()
    baseline_lost: tuple[tuple[int, str], ...] = ()
    detail: str = ""
    sensitivity: Sensitivity | None = None
    fragile: bool = False
    futility: Futility | None = None
    new_items: NewItems | None = None

    @property
    def is_unsupported(self) -> bool:
        """True for an outcome of equivalent or identical of a study of which nothing shows that it sees differences."""
        return self.sensitivity not in (None, Sensitivity.SHOWN)


def p_of_verdict(difference: Difference | None) -> float | None:
    """Return the p-value that a verdict rests on, after Holm's correction: for equivalent cells of the equivalence test."""
    if difference is None:
        return None
    return difference.p_equivalent_holm if difference.conclusion == "equivalent" else difference.p_holm


def judge(difference: Difference | None, *, direction: str) -> Verdict:
    """Return the verdict on a cell from its paired difference.

    Args:
        difference: The cell minus its baseline, corrected over its table by `paired.correct`; None without a shared seed.
        direction: "min" when smaller values of the metric are better, else "max".
    """
    if difference is None:
        return Verdict(VerdictKind.NO_COMPARISON, Reason.NO_SHARED_SEED)
    n, conclusion = difference.interval.n, difference.conclusion
    if conclusion == "identical":
        return Verdict(VerdictKind.IDENTICAL, pairs=n)
    if conclusion == "equivalent":
        return Verdict(VerdictKind.EQUIVALENT, pairs=n, fragile=difference.fragile)
    if conclusion:
        better = (conclusion == "lower") == (direction == "min")
        kind = VerdictKind.BETTER if better else VerdictKind.WORSE
        return Verdict(kind, pairs=n, within_margin=difference.within_margin, fragile=difference.fragile)
    return _inconclusive(difference)


def _inconclusive(difference: Difference) -> Verdict:
    kind, n = VerdictKind.INCONCLUSIVE, difference.interval.n
    if difference.no_test is not None:
        constant = "difference" if difference.no_test is NoTest.CONSTANT else ""
        return Verdict(kind, Reason[difference.no_test.name], pairs=n, constant=constant)
    if difference.p is None and difference.looks and n > 1:
        return Verdict(kind, Reason.BEFORE_FIRST_LOOK, pairs=n, first_look=difference.looks.first)
    if difference.fewest_seeds([n]) is None:
        needed = difference.fewest_seeds(range(n + 1, FARTHEST_LOOK + 1))
        return Verdict(kind, Reason.NO_SIGNIFICANT_RESULT, pairs=n, needed=needed)
    if difference.interval.is_exact:  # of which nothing is predicted
        return Verdict(kind, Reason.EXACT_TEST, pairs=n)
    if difference.interval.sd is None:
        return Verdict(kind, Reason.ONE_SEED, pairs=n)
    constant = "value" if difference.identical else ""
    if n < MIN_SEEDS_FOR_ESTIMATE:
        return Verdict(kind, Reason.FEW_SEEDS, pairs=n, constant=constant)
    if constant:
        return Verdict(kind, Reason.MORE_SEEDS, pairs=n, needed=SEEDS_OF_IDENTICAL, constant=constant)
    prediction = predict(difference, n + 1)
    return Verdict(kind, Reason.MORE_SEEDS, pairs=n, prediction=prediction, needed=predicted_seeds(difference))


def sensitivity(verdict: Verdict | None, difference: Difference | None, *, margin: float | None) -> Sensitivity:
    """Return the sensitivity of a study: the result of its control against the baseline.

    Args:
        verdict: The control's verdict; None when the control is not in the table, or has no value.
        difference: The control minus its baseline.
        margin: Largest difference that counts as equivalent, in the metric's unit.
    """
    if verdict is None or difference is None or verdict.kind is VerdictKind.NO_COMPARISON:
        return Sensitivity.NO_RESULT
    if verdict.kind is not VerdictKind.WORSE:
        return Sensitivity.NOT_SHOWN
    return Sensitivity.WITHIN_MARGIN if abs(difference.interval.mean) < (margin or 0) else Sensitivity.SHOWN

"""The control of a study: a cell that must be found worse than its baseline before another one counts as equivalent.

A study that is too small, too short or too noisy to tell attention from no attention finds every cell "equivalent" within a
wide enough margin. The control shows that the study can see a difference: assay sensitivity (ICH 2000, guideline E10, section
1.5). The control has to be worse by at least the margin; if it is worse by less, the margin would admit the control itself.

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

from attnlab.stats.paired import Difference
from attnlab.stats.verdict import Sensitivity, Verdict, VerdictKind


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

"""The result of a study: the records of its runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attnlab._util.run_state import WITHOUT_RESULT

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.artifacts import ReferenceScore
    from attnlab.tracking.record import RunRecord


@dataclass(frozen=True)
class StudyResult:
    """The result of a study.

    Attributes:
        rows: the record of each run, stages first, and of each refused cell, in the plan's order. That of a run without a
            record in MLflow has no ``run_id``.
        reference_scores: scores of trivial methods on the test split, when the study requests them.
    """

    plan: Plan
    rows: list[RunRecord]
    reference_scores: list[ReferenceScore] = field(default_factory=list)

    @property
    def failed(self) -> list[RunRecord]:
        """The runs without a result; running the study again tries them again."""
        return [row for row in self.rows if row.state in WITHOUT_RESULT]

    @property
    def ok(self) -> bool:
        """True when every run has a result (a refusal, a divergence and running out of memory are results)."""
        return not self.failed

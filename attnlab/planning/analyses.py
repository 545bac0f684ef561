"""The analyses of a study, as the plan asks them for notes (`attnlab.report.analysis`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.registry import ANALYSES

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

SECTIONS = {"factorial": "factors", "stages": "stages"}  # attnlab's own analyses with notes -> the section of the study


def analysis_notes(plan: Plan) -> Iterator[str]:
    """Yield the notes of the analyses that a study has.

    Raises:
        UserError: The study names an analysis that does not exist, or cannot be analysed in this way.
    """
    study = plan.study
    for name, section in SECTIONS.items():
        if getattr(study, section):
            yield from ANALYSES.get(name)().notes(plan)
    for i, ref in enumerate(study.analyses):
        if ANALYSES.is_builtin(ref):
            message = f"expected an analysis of your own, got {ref!r}: a study has attnlab's own ones without being asked"
            raise UserError(message, study.where("analyses", i))
        try:
            analysis = ANALYSES.get(ref, relative_to=study.folder)()
        except UserError as error:
            raise UserError(str(error), study.where("analyses", i)) from error
        yield from analysis.notes(plan)

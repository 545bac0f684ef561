"""The check before a study starts: the user's variants, components and position schemes must not be wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnlab._util.plural import count

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)


def check_own_variants(plan: Plan, *, start: Callable[[str], None] | None = None) -> None:
    """Check the variants, components and position schemes of a plan that are not attnlab's, at the shapes of the study.

    What has passed is not checked again until its code or its shapes change.

    Args:
        plan: its refused cells are not checked.
        start: called with a description of each check before it runs.

    Raises:
        UserError: a check failed.
    """
    if plan.study.command is not None:
        return
    configs = [cell.config for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    if not any(config.sources or config.packages for config in configs):
        return
    from attnlab.testing.study_contract import require_correct_variants

    if checked := require_correct_variants(configs, start=start):
        logger.info("checked %s at the shapes of the study", count(checked, "variant"))

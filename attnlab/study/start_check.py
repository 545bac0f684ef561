"""The start of a study: the user's variants, components and position schemes must not be wrong, and workers can be forked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from attnlab._util import known_code
from attnlab._util.plural import count
from attnlab._util.process import start_fork_server
from attnlab.config.run import RunConfig
from attnlab.study.execution.job import PRELOAD, PRELOAD_OF_COMMANDS

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


def start_workers(plan: Plan) -> None:
    """Start the server that the workers of a study are forked from, and remember the code of the user that they run."""
    start_fork_server(PRELOAD if plan.study.command is None else PRELOAD_OF_COMMANDS)
    known_code.remember(_code(plan))


def _code(plan: Plan) -> dict[str, str]:
    """Return the users' files and modules that the plan runs -> digests."""
    configs = [cell.settings for cell in (*plan.stages, *plan.cells) if cell.refusal is None]
    configs = [config for config in configs if isinstance(config, RunConfig)]
    return {name: digest for config in configs for name, digest in {**config.sources, **config.packages}.items()}

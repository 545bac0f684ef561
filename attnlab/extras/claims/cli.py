"""`attnlab claims`: list, run and publish the court of claims."""

from __future__ import annotations

import logging
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.cli._arguments import Parser
from attnlab.cli._study import add_workers_argument

if TYPE_CHECKING:
    from attnlab.extras.claims.court import Case, Claim
    from attnlab.planning.plan import Plan
    from attnlab.study.execution.concurrency import Workers

HELP = "judge published claims: list, run, page"
DESCRIPTION = (
    "List the claims that study files state, run the studies that are not settled, or write the page on all of them. A claim "
    "is a study file with the section claim; a run adds seeds until there is a verdict."
)
ENOUGH_SEEDS = 6  # the smallest number that shows a solve rate above a half: 0.025^(1/6) = 0.54
logger = logging.getLogger(__name__)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("action", choices=("list", "run", "page"), help="what to do")
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims: names of files without .yaml (default all)")
    parser.add_argument("--studies", metavar="FOLDER", type=Path, help="folder of the study files (default ablations/claims)")
    parser.add_argument(
        "--reports", metavar="FOLDER", type=Path, help="folder of their reports and the page (default reports/claims)"
    )
    add_workers_argument(parser)


def main(arguments: Namespace) -> int:
    from attnlab.extras.claims.court import REPORTS, STUDIES, judge, read_claims

    claims = read_claims(arguments.studies or STUDIES, arguments.ids)
    reports = arguments.reports or REPORTS
    if arguments.action == "list":
        _print_cases([judge(claim, reports) for claim in claims])
        return 0
    failed = 0
    if arguments.action == "run":
        named = set(arguments.ids)
        failed = sum(not _run(claim, reports, named=claim.id in named, workers=arguments.workers) for claim in claims)
    _write(arguments.studies or STUDIES, reports)
    return 1 if failed else 0


def _run(claim: Claim, reports: Path, *, named: bool, workers: Workers | None) -> bool:
    """Train the study of a claim until its verdicts are conclusive, and write its report; return False when it failed.

    A claim that is settled or out of reach is left alone, unless it is named.
    """
    from attnlab.errors import UserError
    from attnlab.extras.claims.court import MAX_SEEDS, judge
    from attnlab.planning.plan import plan as make_plan
    from attnlab.report.write import write_report
    from attnlab.study.adaptive import run_until_conclusive
    from attnlab.study.run import run

    case = judge(claim, reports)
    if not named and (case.is_settled or claim.is_out_of_reach):
        logger.info(f"{claim.id}: {case.verdict}")
        return True
    try:
        plan = make_plan(claim.path)
        if _has_enough_seeds(claim, plan):
            result = run(plan, workers=workers)
        else:
            result = run_until_conclusive(plan, run=run, max_seeds=MAX_SEEDS, workers=workers)
        write_report(claim.study.study, out=reports / claim.study.study)
    except UserError as error:
        logger.warning(f"{claim.id}: {error}")
        return False
    logger.info(f"{claim.id}: {judge(claim, reports).verdict}")
    return result.ok


def _has_enough_seeds(claim: Claim, plan: Plan) -> bool:
    """Return True for a study that is run with the seeds of its file: nothing adds to them, or the claim needs no more of them.

    A solve rate has an interval without a comparison: `ENOUGH_SEEDS` seeds that agree settle it.
    """
    from attnlab.config.question import OF_SOLVE_RATES
    from attnlab.errors import UserError
    from attnlab.extras.claims.court import MAX_SEEDS
    from attnlab.study.adaptive import require_seeds_can_be_added

    if claim.config.direction in OF_SOLVE_RATES and len(plan.seeds) >= ENOUGH_SEEDS:
        return True
    try:
        require_seeds_can_be_added(plan, max_seeds=MAX_SEEDS)
    except UserError:  # a design, or no baseline
        return True
    return False


def _write(studies: Path, reports: Path) -> None:
    """Write the page on all claims of a folder."""
    from attnlab.cli._printing import relative
    from attnlab.extras.claims.court import judge, read_claims
    from attnlab.extras.claims.page import summarize, write_page

    cases = [judge(claim, reports) for claim in read_claims(studies)]
    write_page(reports, cases)
    print(summarize(cases))
    print(f"page: {relative(reports / 'index.html')}")


def _print_cases(cases: list[Case]) -> None:
    from attnlab._util.text import format_table
    from attnlab.extras.claims.page import summarize

    rows = [[case.claim.id, case.claim.config.sentence, case.verdict] for case in cases]
    print(format_table(["ID", "claim", "verdict"], rows, width=80, wrap=("claim", "verdict")))
    print(summarize(cases))

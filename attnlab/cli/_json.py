"""Answers for programs: with `--json`, a verb prints one JSON object on standard output, and all else on standard error.

The verb sets `arguments.answer`. The objects hold what its tables and sentences say, from the same records. Numbers that are
not finite are null.
"""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from attnlab.cli._arguments import Parser
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.config.study import StudyConfig
    from attnlab.planning.plan import Plan
    from attnlab.stats.cells import ComparisonSpec
    from attnlab.stats.compared import Compared
    from attnlab.study.result import StudyResult
    from attnlab.testing import CheckResults

NOT_BETTER = 10  # the exit code of `--exit-verdict`


def add_json_argument(parser: Parser) -> None:
    """Add `--json`."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on standard output, and everything else on standard error"
    )


def add_verdict_arguments(parser: Parser) -> None:
    """Add `--json` and `--exit-verdict`."""
    add_json_argument(parser)
    parser.add_argument(
        "--exit-verdict",
        action="store_true",
        help=f"exit with code {NOT_BETTER} unless every compared cell, except for a control, is better than its baseline",
    )


def call(arguments: Namespace) -> int:
    """Call the verb and return its exit code; with `--json`, print its answer."""
    if not getattr(arguments, "json", False):
        return int(arguments.main(arguments))
    with _stdout_to_stderr():
        code = int(arguments.main(arguments))
    print(json.dumps(_plain(arguments.answer), allow_nan=False))
    return code


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Write to standard error what is printed, also by other processes and by code that is not Python's."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(of_key) for key, of_key in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def study_answer(compared: Compared, texts: Sequence[str]) -> dict[str, Any]:
    """Return the answer of a study: a row for each cell and each baseline that it is compared with."""
    from attnlab.report.conclusion import describe_choice, effect_rows, verdict_rows

    spec = compared.spec
    skipped = [{"cell": name, "because": reason} for name, reason in spec.skipped]
    about = {"study": spec.study, "question": spec.question, "answer": list(texts)}
    rows = {"cells": verdict_rows(compared), "effects": effect_rows(compared)}
    return {**about, **rows, "skipped": skipped, "notes": describe_choice(compared)}


def run_answer(result: StudyResult) -> dict[str, Any]:
    """Return the states of the runs of a study, and the reason of each that has no result."""
    failed = [{"run": row.name, "state": row.state, "reason": row.reason} for row in result.failed]
    return {"runs": Counter(row.state for row in result.rows), "failed": failed}


def require_comparisons(arguments: Namespace, spec: StudyConfig | ComparisonSpec) -> None:
    """Raise `UserError` for `--exit-verdict` of a study that compares no cells."""
    if getattr(arguments, "exit_verdict", False) and not spec.baselines:
        raise UserError("expected a study with a baseline, because cells without one are not compared", "--exit-verdict")


def exit_code(arguments: Namespace, compared: Compared, cells: Collection[str] | None = None) -> int:
    """Return 0, or with `--exit-verdict` `NOT_BETTER` unless all compared cells are better, except for a control.

    Args:
        cells: The names of the cells that count; None: all.
    """
    from attnlab.report.conclusion import verdict_rows

    if not getattr(arguments, "exit_verdict", False):
        return 0
    rows = [row for row in verdict_rows(compared) if row["baseline"] and not row["control"]]
    verdicts = {row["verdict"] for row in rows if cells is None or row["cell"] in cells}
    return 0 if verdicts == {"better"} else NOT_BETTER


def plan_answer(plan: Plan) -> dict[str, Any]:
    """Return the cells of a plan with their costs or the reason of their refusal."""
    names = ("parameters", "attention_parameters", "train_flops", "cache_bytes", "state_bytes")
    cells = [
        {"cell": cell.name, "axes": cell.axes, "refused": cell.refusal, **{name: getattr(cell, name) for name in names}}
        for cell in plan.cells
    ]
    skipped = [{"cell": cell.name, "because": cell.because} for cell in plan.skipped]
    about = {"study": plan.study.study, "question": plan.study.question or "", "planned_runs": plan.total}
    return {**about, "train_flops": plan.train_flops or None, "cells": cells, "skipped": skipped, "notes": plan.notes}


def check_answer(name: str, results: CheckResults) -> dict[str, Any]:
    """Return the results of the checks of a class."""
    fields = ("check", "status", "detail", "advice", "seconds")
    return {"name": name, "checks": [{field: getattr(result, field) for field in fields} for result in results]}

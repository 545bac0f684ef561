"""Arguments and steps that the verbs which plan or run a study share.

The cells that a plan leaves out, and its notes, are printed in groups by reason, so that a large grid stays readable.
"""

from __future__ import annotations

import logging
import shutil
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli._arguments import Parser, positive_int, workers
from attnlab.cli._json import exit_code, require_comparisons, run_answer, study_answer
from attnlab.cli._printing import print_text, relative, show_progress
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

logger = logging.getLogger(__name__)

DEFAULT_STUDY = "study.yaml"
Axes = Mapping[str, Any]  # axis -> label
MAX_VALUES = 8  # of one axis that are listed
MIN_NOTES = 3  # equal notes on fewer cells are printed for each cell


def add_study_arguments(parser: Parser) -> None:
    """Add the study file, `--set`, `--only` and `--seeds`."""
    parser.add_argument(
        "study", metavar="STUDY.yaml", nargs="?", default=DEFAULT_STUDY, help=f"a study file (default {DEFAULT_STUDY})"
    )
    parser.add_repeatable("--set", metavar="KEY=VALUE", help="override a key, for example train.steps=50 (repeatable)")
    parser.add_repeatable(
        "--only", metavar="AXIS=VALUE[,VALUE]", help="select cells, for example variant=no_wo,dense (repeatable)"
    )
    parser.add_argument(
        "--seeds", metavar="SEEDS", help="seeds of each cell: 0-4, 0,7, auto or 'fresh 6' (with a search: the confirming seeds)"
    )


def add_seed_arguments(parser: Parser) -> None:
    """Add `--until-conclusive`, `--max-seeds` and `--futility`."""
    parser.add_argument(
        "--until-conclusive",
        action="store_true",
        help="add seeds to cells with an inconclusive verdict; verdicts are corrected for the repeated looks",
    )
    parser.add_argument(
        "--max-seeds",
        type=positive_int,
        metavar="N",
        help="with --until-conclusive, the maximum number of seeds per cell, overriding max_seeds of the study (default 12)",
    )
    parser.add_argument(
        "--futility",
        type=float,
        metavar="P",
        help="with --until-conclusive, add no seeds to a cell when its probability of a verdict at --max-seeds is below P "
        "(default 0.1; 0: add seeds to every inconclusive cell)",
    )


def add_queue_arguments(parser: Parser) -> None:
    """Add `--workers`, `--storage`, `--retry` and `--no-check`."""
    add_workers_argument(parser)
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="postgresql://..., a queue that several machines share (default: ATTNLAB_STORAGE)",
    )
    parser.add_repeatable("--retry", metavar="STATE", help="rerun runs in this state, for example failed (repeatable)")
    parser.add_argument("--no-check", action="store_true", help="skip the quick check of your variants before the runs")


def add_workers_argument(parser: Parser) -> None:
    """Add `--workers N`; None when it is not given."""
    parser.add_argument(
        "--workers",
        type=workers,
        metavar="N",
        help="number of concurrent runs (default: ATTNLAB_WORKERS, else auto: as many small runs as processors, or one "
        "large run; at least one on each CUDA device)",
    )


def add_output_arguments(parser: Parser) -> None:
    """Add `--no-reference-scores` and `--no-report`."""
    parser.add_argument("--no-reference-scores", action="store_true", help="skip the reference scores (gzip, n-gram, ...)")
    parser.add_argument("--no-report", action="store_true", help="skip writing runs/reports/STUDY/")


def parse_sets(words: Sequence[str]) -> dict[str, Any]:
    """Return the assignments of `KEY=VALUE` words as dotted path -> value."""
    from attnlab.config.yaml import parse_assignments

    return parse_assignments(words)


def add_components_argument(parser: Parser) -> None:
    """Add `--with COMPONENT`; the parsed argument `components` is a list of names and mappings, as in a study."""
    parser.add_repeatable(
        "--with",
        dest="components",
        metavar="COMPONENT",
        type=lambda text: parse_sets([f"with={text}"])["with"],
        help="for a variant: a component, for example gate or '{name: gate, per: head}' (repeatable)",
    )


def parse_only(words: Sequence[str]) -> dict[str, Any]:
    """Return the values of `AXIS=VALUE[,VALUE]` words by axis."""
    only: dict[str, Any] = {}
    for word in words:
        axis, equals, value = word.partition("=")
        if not equals or not axis or not value:
            raise UserError("expected AXIS=VALUE or AXIS=VALUE,VALUE", f"--only {word}")
        if axis in only:
            raise UserError(f"expected each axis once, got {axis!r} again: write {axis}=A,B", f"--only {word}")
        only[axis] = value
    return only


def study_sets(arguments: Namespace) -> dict[str, Any]:
    """Return the assignments of `--set` and `--seeds`."""
    sets = parse_sets(arguments.set)
    if arguments.seeds is None:
        return sets
    from attnlab.config.reader import read_study

    searched = read_study(arguments.study, sets=sets).search is not None
    key = "confirm.seeds" if searched else "seeds"
    if key in sets:
        raise UserError(f"expected the seeds once, got --set {key} as well", f"--seeds {arguments.seeds}")
    return {**sets, key: arguments.seeds}


def plan_study(arguments: Namespace) -> Plan:
    """Return the plan of the study file, with `--set`, `--seeds` and `--only` applied."""
    from attnlab.planning.plan import plan

    sets, only = study_sets(arguments), parse_only(arguments.only)
    with show_progress() as progress:
        return plan(arguments.study, sets=sets, only=only, progress=progress)


def adaptive_options(arguments: Namespace) -> dict[str, Any] | None:
    """Return the options of `--until-conclusive`, for `attnlab.study.adaptive.run_until_conclusive`, or None without it.

    Raises:
        UserError: `--max-seeds` or `--futility` without `--until-conclusive`.
    """
    options = {name: getattr(arguments, name) for name in ("max_seeds", "futility") if getattr(arguments, name) is not None}
    if options and not arguments.until_conclusive:
        raise UserError(f"--{next(iter(options)).replace('_', '-')} requires --until-conclusive")
    if not arguments.until_conclusive:
        return None
    return options


def run_plan(plan: Plan, arguments: Namespace, *, only: dict[str, Any], adaptive: dict[str, Any] | None = None) -> int:
    """Run a plan, print its results, write its report, and return the exit code.

    Args:
        only: not empty when the plan is a part of its study; the records of the other cells are then kept.
        adaptive: add seeds until every verdict is conclusive, with these options; None: only if the study has `max_seeds`.

    Raises:
        UserError: every cell is refused.
    """
    from attnlab.cli._plan_parts import print_new_files
    from attnlab.cli._results import print_failures, print_results, print_verdict
    from attnlab.report.analysis import analyze_tasks
    from attnlab.report.conclusion import conclusions, publish
    from attnlab.study.adaptive import MAX_SEEDS, require_seeds_can_be_added, run_until_conclusive
    from attnlab.study.comparison import compare_info, load_judged
    from attnlab.study.plan import check_own_variants, code_change_notes, seed_notes
    from attnlab.study.run import run

    plan.require_runs()
    require_comparisons(arguments, plan.study)
    if adaptive is not None or plan.study.max_seeds is not None:
        adaptive = {"max_seeds": plan.study.max_seeds or MAX_SEEDS, **(adaptive or {})}
        require_seeds_can_be_added(plan, **adaptive)  # before the checks, which take seconds
    if not arguments.no_check:
        with show_progress() as progress:
            check_own_variants(plan, start=progress)
    max_seeds = adaptive["max_seeds"] if adaptive else None
    for note in (*code_change_notes(plan), *look_notes(plan), *seed_notes(plan, max_seeds=max_seeds)):
        logger.info(note)
    options = {"workers": arguments.workers, "only": only, "storage": arguments.storage, "retry": arguments.retry}
    options |= {"reference_scores": not arguments.no_reference_scores, "check": False}
    result = run(plan, **options) if adaptive is None else run_until_conclusive(plan, run=run, **adaptive, **options)
    name = plan.study.study
    info, runs = load_judged(name)
    compared = compare_info(info, runs)
    analyzed = analyze_tasks(compared)
    print_results(info, compared, analyzed)
    if plan.study.command is not None:
        print_new_files(plan)
    print_omissions(plan)
    print_failures(result)
    print_verdict(texts := conclusions(compared, analyzed))
    if arguments.no_report:
        publish(name, compared, texts)
    else:
        from attnlab.report.write import REPORTS, write_judged

        write_judged(REPORTS / name, info, runs, compared)
        print(f"report: {relative(REPORTS / name / 'index.html')}")
    print(f"To browse the runs in MLflow: {command_name()} ui {name}")
    arguments.answer = {**study_answer(compared, texts), **run_answer(result)}
    return exit_code(arguments, compared, {cell.name for cell in plan.cells}) if result.ok else 1


def look_notes(plan: Plan) -> list[str]:
    """Return a note on a further look at the verdicts of a study; a study without comparisons has none."""
    if not (plan.study.baselines or plan.study.factors):
        return []
    from attnlab.study.looks import further_look_notes

    return further_look_notes(plan)


def command_name() -> str:
    """Return the command that starts attnlab here: its path if its environment is not activated."""
    return "attnlab" if shutil.which("attnlab") or not sys.argv[0].endswith("attnlab") else relative(Path(sys.argv[0]))


def print_omissions(plan: Plan, *, each: bool = False) -> None:
    """Print the refused and the skipped cells with their reasons, and the notes of the plan.

    Args:
        each: print a line for each cell instead of one for each reason.
    """
    refused = [(cell.name, cell.axes, str(cell.refusal)) for cell in plan.cells if cell.refusal is not None]
    skipped = [(cell.name, cell.axes, cell.because) for cell in plan.skipped]
    every = [cell.axes for cell in (*plan.cells, *plan.unselected, *plan.skipped)]
    grouped = False
    for kind, cells in (("refused", refused), ("skipped", skipped)):
        reasons: dict[str, list[tuple[str, Axes]]] = {}
        for name, axes, reason in cells:
            reasons.setdefault(f"{name}: {reason}" if each else reason, []).append((name, axes))
        for reason, group in reasons.items():
            print_text(f"{kind}: {reason if each else f'{_describe(group, every)}: {reason}'}")
            grouped |= len(group) > 1
    if grouped:
        print("(attnlab plan --all lists each of these cells.)")
    for note in plan.notes if each else _grouped_notes(plan, every):
        print_text(f"note: {note}")


def _describe(group: Sequence[tuple[str, Axes]], every: Sequence[Axes]) -> str:
    """Return the name of a single cell; of several, their number and the values of the axes that distinguish them."""
    if len(group) == 1:
        return group[0][0]
    values = " and ".join(_shared_values([axes for _, axes in group], every))
    return f"{len(group)} cells{f' with {values}' if values else ''}"


def _shared_values(group: Sequence[Axes], every: Sequence[Axes]) -> list[str]:
    """Return the values of each axis of which the group does not have all, as `--only` takes them: ``variant=dense,wide``."""
    ends = [axis.rpartition(".")[2] for axis in group[0]]
    texts = []
    for axis, end in zip(group[0], ends, strict=True):
        values = list(dict.fromkeys(str(axes[axis]) for axes in group))
        total = len({str(axes[axis]) for axes in every})
        if len(values) < total:
            listed = ",".join(values) if len(values) <= MAX_VALUES else f"({len(values)} of {total} values)"
            texts.append(f"{end if ends.count(end) == 1 else axis}={listed}")
    return texts


def _grouped_notes(plan: Plan, every: Sequence[Axes]) -> list[str]:
    """Return the notes; those that make the same statement on several cells are one."""
    statements: dict[str, list[tuple[str, Axes]]] = {}
    for note in plan.notes:
        cell = next((cell for cell in plan.cells if note.startswith(f"{cell.name!r} ")), None)
        if cell is None:
            statements[note] = []
        else:
            statements.setdefault(note.removeprefix(repr(cell.name)), []).append((cell.name, cell.axes))
    notes = []
    for statement, group in statements.items():
        if len(group) < MIN_NOTES:
            notes += [f"{name!r}{statement}" for name, _ in group] or [statement]
        else:
            notes.append(f"each of {_describe(group, every)}{statement}")
    return notes

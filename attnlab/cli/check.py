"""`attnlab check`: test a variant, component, position scheme, task or model against its contract and explain each failure."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli._arguments import Parser, positive_int
from attnlab.cli._json import add_json_argument, check_answer
from attnlab.cli._printing import print_table, print_text, show_progress
from attnlab.cli._study import add_components_argument, parse_sets
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.testing import CheckResults

HELP = "test a variant, component, position scheme, task or model against its contract: attnlab check my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Exit codes: 0: the class has every property that it declares; 1: a check failed; 2: this configuration is not supported."
)
OF_CLASSES = ("position", "backend", "heads", "dim", "components", "options")  # arguments that a study has instead


def add_arguments(parser: Parser) -> None:
    parser.add_argument("target", metavar="NAME|PATH", nargs="?", help="a name, file.py:Class or package.module:Class")
    parser.add_argument(
        "--study",
        metavar="STUDY.yaml",
        help="instead of a name: check every variant of a study, also at the shapes of the study",
    )
    parser.add_argument("--position", metavar="NAME", help="for a variant: position scheme of all checks (default: none)")
    parser.add_argument("--backend", metavar="NAME", help="for a variant: backend of all checks (default: the variant's first)")
    parser.add_argument("--device", help="auto (default), cpu, cuda or cuda:N")
    parser.add_argument(
        "--heads", type=positive_int, metavar="N", help="heads of all checks (default: 3, then 4 and random numbers)"
    )
    parser.add_argument(
        "--dim", type=positive_int, metavar="N", help="model width of all checks (default: 21, then random widths)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="for a variant: seed of the random sizes (default 0)")
    add_components_argument(parser)
    parser.add_repeatable("--options", metavar="KEY=VALUE", help="option of the class, for example stride=4 (repeatable)")
    parser.add_repeatable("--only", metavar="CHECK", help="run this check only, for example 'causality by value' (repeatable)")
    parser.add_repeatable("--imports", metavar="FILE", help="import a Python file that registers classes (repeatable)")
    add_json_argument(parser)


def main(arguments: Namespace) -> int:
    """Print a row per check, and for each failure the smallest failing case and the change to make.

    Returns:
        0 when no check failed, else 1.

    Raises:
        UserError: the class does not support the position scheme, backend or device; the message has the reason.
    """
    from attnlab._util.user_code import load_file

    for file in arguments.imports:
        load_file(Path(file).expanduser())
    if (arguments.target is None) == (arguments.study is None):
        raise UserError("expected either a name or --study STUDY.yaml")
    if arguments.study is not None:
        return _check_study(arguments)
    results, configuration = _check(arguments)
    if {result.status for result in results} == {"refused"}:
        reasons = dict.fromkeys(result.detail for result in results)
        raise UserError(f"not supported: {'; '.join(reasons)}", arguments.target)
    print_table(
        ["check", "result", "time", "measured"],
        [[r.check, r.status, f"{r.seconds:.2f} s", "see below" if r.status == "failed" else r.detail] for r in results],
        wrap=("check", "measured"),
    )
    _print_failures(results, debug=arguments.debug)
    print()
    print_text(f"{arguments.target}{f' ({configuration})' if configuration else ''}: {results.counts}")
    arguments.answer = check_answer(arguments.target, results)
    return 1 if results.failed else 0


def _check_study(arguments: Namespace) -> int:
    """Check every variant of a study, print a line for each and its failures; return the exit code."""
    from attnlab.planning.plan import plan
    from attnlab.testing.contract import resolve_check_device
    from attnlab.testing.study_contract import check_study, study_targets

    for name in OF_CLASSES:
        if getattr(arguments, name):
            raise UserError(f"--{'with' if name == 'components' else name} is part of the study, got it with --study")
    study_plan = plan(arguments.study)
    study_plan.require_runs()
    if study_plan.study.command is not None:
        raise UserError("expected a study of attnlab's own training, got one with 'command'", str(arguments.study))
    configs = [cell.config for cell in (*study_plan.stages, *study_plan.cells) if cell.refusal is None]
    targets = study_targets(configs, device=resolve_check_device(arguments.device or "auto"), seed=arguments.seed or 0)
    any_failed, answers = False, list[dict[str, Any]]()
    with show_progress() as progress:
        for target, results in check_study(targets, only=arguments.only or None, start=progress):
            print_text(f"{target.label}: {results.counts}")
            _print_failures(results, debug=arguments.debug)
            answers.append(check_answer(target.label, results))
            any_failed = any_failed or bool(results.failed)
    arguments.answer = {"study": study_plan.study.study, "variants": answers}
    return 1 if any_failed else 0


def _check(arguments: Namespace) -> tuple[CheckResults, str]:
    """Run the checks, with their progress on a terminal; return the results and a description of the configuration."""
    from attnlab.testing import check
    from attnlab.testing.dispatch import TAKEN_BY, require_taken, resolve
    from attnlab.training.device import resolve_device

    options = parse_sets(arguments.options)
    kind, cls = resolve(arguments.target, options)
    given = {name: value for name in TAKEN_BY if (value := getattr(arguments, name, None))}
    require_taken(kind, given, flags={name: f"--{name}" for name in given} | {"components": "--with"})
    configuration = ""
    if kind in TAKEN_BY["device"]:
        given["device"] = arguments.device or "auto"
        configuration = resolve_device(given["device"])
    if kind in TAKEN_BY["position"]:
        position = f"position {arguments.position}" if arguments.position else "no position scheme"
        backend = f"backend {arguments.backend or cls.backends[0]}, " if kind == "variant" else ""
        configuration = f"{'' if backend else 'in dense, '}{position}, {backend}{configuration}"
    with show_progress() as progress:
        return check(arguments.target, options=options, only=arguments.only or None, start=progress, **given), configuration


def _print_failures(results: CheckResults, *, debug: bool) -> None:
    from attnlab.testing.checks import PRECONDITIONS

    for result in results.failed:
        print()
        for line in str(result).splitlines():
            print_text(line)
        if debug and result.traceback:
            print(result.traceback)
    if results.failed and results[-1].check in PRECONDITIONS:
        print("\nThe other checks depend on this one and were skipped.")

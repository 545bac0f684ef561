"""`attnlab check`: test a variant, component, position scheme, task or model against its contract and explain each failure."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli._arguments import Parser, positive_int
from attnlab.cli._printing import print_table
from attnlab.cli._progress import ProgressLine
from attnlab.cli._study import add_components_argument, parse_sets
from attnlab.errors import UserError, nearest

if TYPE_CHECKING:
    from attnlab.testing import CheckResult

HELP = "test a variant, component, position scheme, task or model against its contract: attnlab check my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Exit codes: 0: the class has every property that it declares; 1: a check failed; 2: this configuration is not supported."
)
KINDS = ("variant", "component", "position scheme", "task", "model")
# Arguments that only some kinds take -> these kinds.
TAKEN_BY = {
    "components": KINDS[:1],
    "position": KINDS[:2],
    "backend": KINDS[:2],
    "device": KINDS[:3],
    "heads": KINDS[:3],
    "dim": KINDS[:3],
    "seed": KINDS[:1],
}


def add_arguments(parser: Parser) -> None:
    parser.add_argument("target", metavar="NAME|PATH", nargs="?", help="a name, file.py:Class or package.module:Class")
    parser.add_argument(
        "--study", metavar="STUDY.yaml", help="instead of a name: check every variant of a study, at its shapes as well"
    )
    parser.add_argument("--position", metavar="NAME", help="of a variant: position scheme of all checks (default: none)")
    parser.add_argument("--backend", metavar="NAME", help="of a variant: backend of all checks (default: the variant's first)")
    parser.add_argument("--device", help="auto (default), cpu, cuda or cuda:N")
    parser.add_argument(
        "--heads", type=positive_int, metavar="N", help="heads of all checks (default: 3, then 4 and drawn numbers)"
    )
    parser.add_argument(
        "--dim", type=positive_int, metavar="N", help="model width of all checks (default: 21, then drawn widths)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of a variant: seed of the sizes that are drawn at random (default 0)"
    )
    add_components_argument(parser)
    parser.add_repeatable("--options", metavar="KEY=VALUE", help="option of the class: stride=4 (repeatable)")
    parser.add_repeatable("--only", metavar="CHECK", help="run this check only, as in --only 'causality by value' (repeatable)")
    parser.add_repeatable("--imports", metavar="FILE", help="import a Python file that registers classes (repeatable)")


def main(arguments: Namespace) -> int:
    """Print a row per check, and for each failure the smallest failing case and the change to make.

    Returns:
        0 if no check failed, else 1.

    Raises:
        UserError: the class does not support the position scheme, backend or device; the message has the reason.
    """
    from attnlab._util.user_code import load_file
    from attnlab.testing.adapters import adapt, is_adapted

    for file in arguments.imports:
        load_file(Path(file).expanduser())
    if (arguments.target is None) == (arguments.study is None):
        raise UserError("expected either a name or --study STUDY.yaml")
    if arguments.study is not None:
        return _check_study(arguments)
    if is_adapted(arguments.target):  # the options are those of the other library's constructor
        kind, cls = KINDS[0], adapt(arguments.target, parse_sets(arguments.options))
        arguments.options = []
    else:
        kind, cls = _resolve(arguments.target)
    for name, kinds in TAKEN_BY.items():
        if kind not in kinds and getattr(arguments, name):
            flag = "with" if name == "components" else name
            raise UserError(f"--{flag} is an option for a {' or '.join(kinds)}, got the {kind} {arguments.target}")
    results, configuration = _check(kind, cls, arguments)
    if {result.status for result in results} == {"refused"}:
        reasons = dict.fromkeys(result.detail for result in results)
        raise UserError(f"not supported: {'; '.join(reasons)}", arguments.target)
    failed = [result for result in results if result.status == "failed"]
    _print_results(results, failed, debug=arguments.debug)
    counts = ", ".join(f"{count} {status}" for status, count in Counter(result.status for result in results).items())
    seconds = sum(result.seconds for result in results)
    print(f"\n{arguments.target}{f' ({configuration})' if configuration else ''}: {counts}, in {seconds:.1f} s")
    return 1 if failed else 0


def _check_study(arguments: Namespace) -> int:
    """Check every variant of a study, print a line for each and its failures; return the exit code."""
    from attnlab.planning.plan import plan
    from attnlab.testing.contract import resolve_check_device
    from attnlab.testing.study_contract import check_study, study_targets

    for name in (*TAKEN_BY, "options"):
        if name not in ("seed", "device") and getattr(arguments, name):
            raise UserError(f"--{'with' if name == 'components' else name} is part of the study, got it with --study")
    study_plan = plan(arguments.study)
    study_plan.require_runs()
    if study_plan.study.command is not None:
        raise UserError("expected a study of attnlab's own training, got one with 'command'", str(arguments.study))
    configs = [cell.config for cell in (*study_plan.stages, *study_plan.cells) if cell.refusal is None]
    targets = study_targets(configs, device=resolve_check_device(arguments.device or "auto"), seed=arguments.seed or 0)
    any_failed = False
    with ProgressLine() as progress:
        for target, results in check_study(targets, only=arguments.only or None, start=progress.show):
            failed = [result for result in results if result.status == "failed"]
            counts = ", ".join(f"{count} {status}" for status, count in Counter(r.status for r in results).items())
            print(f"{target.label}: {counts}, in {sum(result.seconds for result in results):.1f} s")
            _print_failures(results, failed, debug=arguments.debug)
            any_failed = any_failed or bool(failed)
    return 1 if any_failed else 0


def _resolve(ref: str) -> tuple[str, type]:
    """Return the kind and the class of a name or path.

    Raises:
        UserError: no class has this name, or it is of another kind.
    """
    from attnlab.components import Component
    from attnlab.models.base import Model
    from attnlab.positions import Position
    from attnlab.registry import COMPONENTS, MODELS, POSITIONS, TASKS, VARIANTS
    from attnlab.tasks import Task
    from attnlab.variants import Variant

    registries = (VARIANTS, COMPONENTS, POSITIONS, TASKS, MODELS)
    names = [name for registry in registries for name in registry.names()]
    if ":" in ref or ref.endswith(".py"):
        cls = COMPONENTS.get(ref)  # of every kind: a path leads to any class, and to a function of a component
    elif ref in names:
        cls = next(registry for registry in registries if ref in registry.names()).get(ref)
    else:
        near = nearest(ref, names, anywhere=True)
        raise UserError(f"unknown {', '.join(KINDS[:-1])} or {KINDS[-1]} {ref!r}{near}; known: {', '.join(names)}")
    for kind, base in zip(KINDS, (Variant, Component, Position, Task, Model), strict=True):
        if issubclass(cls, base):
            return kind, cls
    raise UserError(
        f"expected a subclass of attnlab's Variant, Component, Position, Task or Model, got {cls.__qualname__}", ref
    )


def _check(kind: str, cls: Any, arguments: Namespace) -> tuple[list[CheckResult], str]:
    """Run the checks, with their progress on a terminal; return the results and a description of the configuration."""
    from attnlab.testing import check, check_component, check_model, check_position, check_task
    from attnlab.training.device import resolve_device

    options, only = parse_sets(arguments.options), arguments.only or None
    with ProgressLine() as progress:
        if kind in ("task", "model"):
            check_class = check_task if kind == "task" else check_model
            return check_class(cls, options=options, only=only, start=progress.show), ""
        device = arguments.device or "auto"
        common: dict[str, Any] = {"device": device, "heads": arguments.heads, "dim": arguments.dim}
        common |= {"options": options, "only": only, "start": progress.show}
        if kind == "position scheme":
            return check_position(cls, **common), resolve_device(device)
        position = f"position {arguments.position}" if arguments.position else "no position scheme"
        common |= {"position": arguments.position, "backend": arguments.backend}
        if kind == "component":
            return check_component(cls, **common), f"in dense, {position}, {resolve_device(device)}"
        configuration = f"{position}, backend {arguments.backend or cls.backends[0]}, {resolve_device(device)}"
        return check(cls, components=arguments.components, seed=arguments.seed or 0, **common), configuration


def _print_results(results: Sequence[CheckResult], failed: Sequence[CheckResult], *, debug: bool) -> None:
    print_table(
        ["check", "result", "time", "measured"],
        [
            [result.check, result.status, f"{result.seconds:.2f} s", "see below" if result in failed else result.detail]
            for result in results
        ],
    )
    _print_failures(results, failed, debug=debug)


def _print_failures(results: Sequence[CheckResult], failed: Sequence[CheckResult], *, debug: bool) -> None:
    for result in failed:
        print(f"\nFAILED {result.check}\n  smallest case:  {result.detail}\n  what to change: {result.advice}")
        if debug and result.traceback:
            print(result.traceback)
    if failed and results[-1].check == "shapes":
        print("\nThe other checks depend on this one and were skipped.")

"""What each verb of the command line does: arguments in, text out, an exit code back.

Heavy imports stand inside the functions, so that each verb waits only for what it uses.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli.printing import near, show
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan

DEFAULT_STEPS = 1000
NAMING = ("variant", "position", "task", "backend")  # what names a cell of `attnlab train`


def plan(given: Namespace) -> int:
    """Print the cells, what each costs, and what is refused or left out and why."""
    from attnlab.cli.summary import print_plan
    from attnlab.planning.plan import plan as make_plan

    print_plan(make_plan(given.study, sets=_assignments(given.set), only=_only(given.only)), tflops=given.tflops)
    return 0


def run(given: Namespace) -> int:
    """Run a study, print its table, write its report."""
    from attnlab.planning.plan import plan as make_plan

    if given.max_seeds is not None and not given.until_conclusive:
        raise UserError("expected --until-conclusive beside it", f"--max-seeds {given.max_seeds}")

    found = make_plan(given.study, sets=_assignments(given.set), only=_only(given.only))
    return _run(found, given, only=_only(given.only))


def train(given: Namespace) -> int:
    """Run one cell without a study file: what was said of variant, position and task are its axes, and its name."""
    from attnlab.config.study import StudyConfig, assignment
    from attnlab.planning.plan import plan as make_plan

    words = _assignments(given.assignments)
    own = {key: value for key, value in words.items() if key in StudyConfig.model_fields}
    grid = {key: [value] for key, value in words.items() if key.partition(".")[0] in NAMING}
    sets = {key: value for key, value in words.items() if key not in (*own, *grid)}
    base = {} if {"train.steps", "train.epochs"} & sets.keys() else {"train": {"steps": DEFAULT_STEPS}}
    try:
        found = make_plan({"study": "train", "base": base, "grid": grid, **own}, sets=sets)
    except UserError as error:  # it names a place in the grid that nobody wrote: name what was typed
        typed = {f"grid.{key}": assignment(key, value) for key, value in words.items()}
        place = error.where.partition("[")[0]
        raise UserError(error.message.removeprefix("grid."), typed.get(place, error.where)) from error
    return _run(found, given, only=grid)  # the other cells of the study "train" stay as they are


def _run(found: Plan, given: Namespace, *, only: dict[str, Any]) -> int:
    from attnlab.cli.summary import print_left_out, print_reasons, print_results
    from attnlab.study.adaptive import MAX_SEEDS, run_until_conclusive
    from attnlab.study.run import run as run_study

    _check_some_can_run(found)
    how = {"workers": given.workers, "only": only, "storage": given.storage, "retry": given.retry}
    how |= {"reference_scores": not given.no_reference_scores}
    if getattr(given, "until_conclusive", False):
        result, looks = run_until_conclusive(found, max_seeds=given.max_seeds or MAX_SEEDS, **how)
    else:
        result, looks = run_study(found, **how), None
    name = found.study.study
    print_results(result, looks=looks)
    print_left_out(found)
    print_reasons(result)
    if not given.no_report:
        from attnlab.report.write import report as write_report

        print(f"report: {near(write_report(name) / 'index.html')}")
    print(f"To browse the runs in MLflow: {_command()} ui {name}")
    return 0 if result.ok else 1


def _check_some_can_run(found: Plan) -> None:
    """Raise where every cell is refused: there is nothing to do, and no result would come of it."""
    if not found.total:
        reasons = dict.fromkeys(str(cell.refusal) for cell in found.cells)
        raise UserError(f"no cell of the study {found.study.study!r} can be run: {'; '.join(reasons)}")


def _command() -> str:
    """How to call attnlab from here: by its path where the environment it is in has not been activated."""
    return "attnlab" if shutil.which("attnlab") or not sys.argv[0].endswith("attnlab") else near(Path(sys.argv[0]))


def report(given: Namespace) -> int:
    """Write a study's report."""
    from attnlab.report.write import report as write_report

    print(near(write_report(given.study, out=given.out) / "index.html"))
    return 0


def maps(given: Namespace) -> int:
    """Record the attention maps of a study's trained models."""
    from attnlab.study.attention_maps import record_attention_maps

    for cell, said in record_attention_maps(given.study, length=given.length):
        print(f"{cell}: {said}")
    print(f"`{_command()} report {given.study}` draws them")
    return 0


def runs(given: Namespace) -> int:
    """Print the studies there are, or the runs of one."""
    from attnlab.cli.runs import print_runs, print_studies

    if given.study is None:
        if given.where or given.columns or given.sort:
            raise UserError("expected a study's name beside --where, --columns and --sort, got none")
        print_studies()
    else:
        print_runs(given.study, where=given.where, columns=given.columns, sort=given.sort, form=given.format)
    return 0


def ui(given: Namespace) -> int:
    """Serve the MLflow UI until Ctrl-C."""
    from attnlab.tracking import ui as mlflow_ui

    mlflow_ui.ui(port=given.port, study=given.study)
    return 0


def generate(given: Namespace) -> int:
    """Sample from a trained language model."""
    from attnlab.study.trained import generate as sample

    found = sample(given.run, prompt=given.prompt, temperature=given.temperature, length=given.length, seed=given.seed)
    print(f"--- {found.model}")
    print(f"--- seed: {found.origin}\n{found.prompt}")
    how = f"{given.length} bytes at temperature {given.temperature:g}, seed {given.seed}"
    print(f"--- sample: {how}\n{found.text}")
    return 0


def data(given: Namespace) -> int:
    """List, fetch or verify data sets."""
    from attnlab.tasks import datasets as sets

    known = [each.source.name for each in sets.status()]
    sources = [sets.find(name) for name in given.names or known]
    if given.action == "list":
        lines = [
            [
                each.source.name,
                "missing" if each.found is None else "here",
                f"{each.source.size / 1e6:.0f} MB",
                "yes" if each.prepared else "no",
                str(each.path),
                each.source.url,
            ]
            for each in sets.status()
            if each.source in sources
        ]
        show(["name", "archive", "size", "prepared", "file", "from"], lines)
        return 0
    missing = 0
    for source in sources:
        try:
            done = sets.verify(source) if given.action == "verify" else sets.fetch(source)
            print(f"{source.name}: {done}")
        except UserError as error:  # say it of every data set before giving up
            print(f"attnlab: {error}", file=sys.stderr)
            missing += 1
    return 2 if missing else 0


def _assignments(words: Sequence[str]) -> dict[str, Any]:
    from attnlab.config.yaml import parse_assignments

    return parse_assignments(words)


def _only(words: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for word in words:
        axis, equals, value = word.partition("=")
        if not equals or not axis or not value:
            raise UserError("expected AXIS=VALUE or AXIS=VALUE,VALUE", f"--only {word}")
        if axis in found:
            raise UserError(f"expected each axis once, got {axis!r} again: write {axis}=A,B", f"--only {word}")
        found[axis] = value
    return found


def listing(given: Namespace) -> int:
    """Print what the registries hold, with where each is defined."""
    from attnlab.cli.list import print_registries
    from attnlab.cli.list_config import print_keys
    from attnlab.registry import load_file

    if given.kind == "keys":
        print_keys()
        return 0
    for path in given.imports:
        load_file(Path(path))
    print_registries([given.kind] if given.kind else ["variants", "positions", "tasks", "backends"])
    return 0


def check(given: Namespace) -> int:
    """Hold a variant against the contract, and say of each failure what to change."""
    from attnlab.cli.check import print_outcomes

    return print_outcomes(
        given.variant,
        options=_assignments(given.options),
        position=given.position,
        backend=given.backend,
        device=given.device,
        debug=given.debug,
    )


def bench(given: Namespace) -> int:
    """Measure what a layer costs, beside dense."""
    from attnlab.cli.bench import print_bench
    from attnlab.testing.benchmark.suite import FAST, Bench

    asked = Bench(
        given.variants,
        lengths=given.lengths,
        backends=given.backend,
        batch=given.batch,
        dim=given.dim,
        heads=given.heads,
        position=given.position,
        precision=given.precision,
        options=_assignments(given.options),
        rounds=given.rounds,
        machine=FAST.model_copy(update={"device": given.device}),
        torch_defaults=given.torch_defaults,
    )
    return print_bench(asked, out=given.out, command=shlex.join(["attnlab", *given.words]))


def submit(given: Namespace) -> int:
    """Hand a study to several machines."""
    from attnlab.cli.submit import submit as submit_jobs

    return submit_jobs(given, sets=_assignments(given.set), only=_only(given.only))


COMMANDS = {
    "plan": plan,
    "run": run,
    "submit": submit,
    "train": train,
    "report": report,
    "maps": maps,
    "runs": runs,
    "ui": ui,
    "generate": generate,
    "list": listing,
    "check": check,
    "bench": bench,
    "data": data,
}

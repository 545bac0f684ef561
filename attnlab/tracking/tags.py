"""The params, tags and notes of runs and studies, as plain dictionaries and text.

Params have flat names and begin with the axes of the grid, so that MLflow's table, charts and comparison are readable.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from attnlab._util.colors import colors_of
from attnlab._util.files import file_lock, replacing
from attnlab._util.git import git
from attnlab._util.packages import version_of
from attnlab._util.redact import command_line, redact
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import flatten_config, identity_of_test, task_length
from attnlab.config.grid import assigned_base
from attnlab.config.reader import read_study
from attnlab.config.types import text
from attnlab.errors import UserError
from attnlab.tracking.record import NOTE_TAG, to_tags

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan, Run

# Params that every run has -> their paths in the configuration.
COMMON_PARAMS = {
    "seed": "seed",
    "dim": "model.dim",
    "depth": "model.depth",
    "heads": "model.heads",
    "mem_len": "model.mem_len",
    "backend": "backend",
    "precision": "train.precision",
    "device": "machine.device",
    "lr": "train.lr",
    "batch_size": "train.batch_size",
    "steps": "train.steps",
    "epochs": "train.epochs",
}
NOTE_LIMIT = 7_900  # characters; MLflow rejects a run's tag longer than 8,000
STUDY_NOTE_LIMIT = 4_900  # characters; MLflow rejects an experiment's tag longer than 5,000
RULE = "\n\n---\n\n"  # between the answer of a study and its plan


def param_names(axes: list[str]) -> dict[str, str]:
    """Map each axis to the name of its MLflow param: ``train.lr`` -> ``lr``, or the whole path if two would collide."""
    names: dict[str, str] = {}
    for axis in axes:
        short = axis.rpartition(".")[2]
        taken = short in names.values() or COMMON_PARAMS.get(short, axis) != axis
        names[axis] = axis if taken else short
    return names


def run_params(run: Run) -> dict[str, str]:
    """Return the MLflow params of a run, the axes first; all runs of a study have the same names.

    A run of a searched or swept study also has its phase and the values that the search chose or the sweep set.
    """
    axes = run.cell.axes
    names = param_names([*axes, *run.params])
    params = {names[axis]: str(axes[axis]) for axis in axes}
    if isinstance(run.settings, CommandConfig):
        values = {name: _short(value) for name, value in run.settings.values.items()}
        return values | params | {"seed": str(run.seed)}
    config = run.config
    fields = flatten_config(json.loads(config.to_json()))
    if run.phase != "grid":
        params |= {"phase": run.phase, **{names[path]: _short(value) for path, value in run.params.items()}}
    for key in ("variant", "position", "task"):
        params.setdefault(key, fields[key])
    params.setdefault("length", str(task_length(config)))
    for key, path in COMMON_PARAMS.items():
        value = fields[path]
        if value is not None:  # a run has either steps or epochs
            params.setdefault(key, _short(value))
    return params


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else text(value) if isinstance(value, list) else str(value)


def run_tags(run: Run, *, plan: Plan) -> dict[str, str]:
    """Return the MLflow tags of a run: its origin, how to repeat it, and how the UI shows it."""
    cell = run.cell
    variant = str(cell.axes.get("variant", ""))
    config = json.dumps(json.loads(run.settings.to_json()), separators=(",", ":"))
    fields = {"study": plan.study.study, "cell": cell.name, "seed": run.seed, "phase": run.phase, "key": run.key}
    fields |= {"axes": cell.axes, "config": config, "test": identity_of_test(run.settings), "folder": f"work/{run.key}"}
    fields |= {"versions": versions(), "command": command(), **({} if run.trial is None else {"trial": run.trial})}
    fields |= {} if run.phase == "grid" else {"params": run.params}
    of_cell = {name: getattr(cell, name) for name in ("factors", "matched", "data_notes", "data_sizes")}
    commit, dirty = checkout(str(plan.study.folder))
    return {
        **to_tags(**fields, **{name: value for name, value in of_cell.items() if value}),
        "mlflow.source.name": plan.study.path.name if plan.study.path else "a dictionary",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": user(),
        # A report draws the cells of a variant in shades of this color.
        "mlflow.runColor": colors_of([*(str(cell.axes.get("variant", "")) for cell in plan.cells), variant])[variant],
        NOTE_TAG: run_note(run, plan=plan),
        **({"mlflow.source.git.commit": commit, **to_tags(commit=commit[:12] + dirty)} if commit else {}),
    }


def run_note(run: Run, *, plan: Plan, reason: str = "") -> str:
    """Return Markdown for the run's page: its name, axes, size and task, and the ``reason`` if it was refused."""
    identity = f"seed {run.seed}" if run.trial is None else f"trial {run.trial} of its search (seed {run.seed})"
    lines = [f"**{run.cell.name}**, {identity}, of the study *{plan.study.study}*", ""]
    source = "of the sweep" if run.phase == "sweep" else "chosen by the search"
    if run.phase == "stage":
        lines += ["Other runs of the study start from its weights; it is no cell of the table.", ""]
    if run.cell.stage is not None:
        lines += [f"Starts from *{run.cell.stage.name} s{run.seed}*: {run.cell.taken}.", ""]
    if reason:
        lines += [f"> {reason}", ""]
    lines += [
        "| axis | value |",
        "|---|---|",
        *(f"| {axis} | {value} |" for axis, value in run.cell.axes.items()),
        *(f"| {path} ({source}) | {text(value)} |" for path, value in run.params.items()),
        "",
    ]
    lines += [f"{run.cell.parameters:,} parameters" if run.cell.parameters else "", ""]
    lines += [f"{_summary(run)}; the full configuration is the artifact `config.json`."]
    return "\n".join(lines)[:NOTE_LIMIT]


def _summary(run: Run) -> str:
    """Return a line on the configuration of a run: its command, or its task, size and backend."""
    if isinstance(run.settings, CommandConfig):
        return f"`{redact(shlex.join(run.settings.arguments))}`"
    fields = flatten_config(json.loads(run.config.to_json()))
    task = f"{fields['task']}, {fields['model.depth']} x {fields['model.dim']}, {fields['model.heads']} heads"
    return f"{task}; backend {fields['backend']}"


def study_note(plan: Plan) -> str:
    """Return Markdown for the experiment's page: the cells and seeds, and the refused and skipped cells with the reasons."""
    study = plan.study
    seeds = f"seeds {', '.join(map(str, plan.seeds))}"
    if study.search is not None:
        seeds = f"{study.search.trials} trials each, the best of each cell retrained with {seeds}"
    if study.sweep is not None:
        seeds = f"{seeds} at each {study.sweep.path} of {', '.join(map(text, plan.sweep_values))}"
    lines = [f"attnlab study **{study.study}**: {len(plan.cells)} cells, {seeds}.", ""]
    refused = [f"- {cell.name}: {cell.refusal}" for cell, _ in plan.refused]
    skipped = [f"- {cell.name}: {cell.because}" for cell in plan.skipped]
    for title, entries in (("Refused", refused), ("Skipped by the study", skipped), ("Notes", plan.notes)):
        if entries:
            lines += [f"{title}:", "", *(f"- {entry.removeprefix('- ')}" for entry in entries), ""]
    lines += [f"For differences from the baseline with their intervals, run `attnlab report {study.study}`."]
    return "\n".join(lines)[:STUDY_NOTE_LIMIT]


@cache
def versions() -> str:
    """Return the versions of the packages that affect the results, in one line."""
    from attnlab._version import __version__

    parts = [f"attnlab {__version__}", f"python {platform.python_version()}"]
    for package in ("torch", "xformers", "optuna", "mlflow-skinny"):
        if number := version_of(package):  # xformers is optional
            parts.append(f"{package.removesuffix('-skinny')} {number}")
    return ", ".join(parts)


@cache
def checkout(folder: str) -> tuple[str, str]:
    """Return the commit of the checkout at ``folder``, and ``+dirty`` if files differ; "" outside of a checkout."""
    commit = git(folder, "rev-parse", "HEAD")
    is_dirty = commit and git(folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    return commit, "+dirty" if is_dirty else ""


def command(most: int = 500) -> str:
    """Return at most `most` characters of this process's command line, without the program's folder and without secrets."""
    program = Path(sys.argv[0]).name or "python"
    return command_line(["attnlab" if program == "__main__.py" else program, *sys.argv[1:]])[:most]  # python -m attnlab


def user() -> str:
    """Return the login name, for MLflow's user column."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in some containers
        return str(os.getuid())


def owner_id(root: Path) -> str:
    """Return the ID of a runs folder, which keeps it if its path or host changes; a missing one is created.

    On a server that several folders use, a study may only end stale runs of its own folder.
    """
    path = root / "owner_id"
    with file_lock(root / "locks" / "owner_id.lock", activity=f"{path} is being created", timeout=20):
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(uuid4().hex, encoding="utf-8")
        return path.read_text(encoding="utf-8")


def device_name(device: str) -> str:
    """Return the vendor's name of the processor that a run uses. For CUDA, call it in the run's process."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or an architecture without model names
        return platform.processor() or platform.machine()


def to_yaml(value: dict[str, Any]) -> str:
    """Return a dictionary as YAML 1.2."""
    from io import StringIO

    from ruamel.yaml import YAML

    stream = StringIO()
    writer = YAML()
    writer.dump(value, stream)
    return stream.getvalue()


def with_answer(answer: str, note: str) -> str:
    """Return the note of a study with its answer above the plan."""
    return f"{answer[: STUDY_NOTE_LIMIT - len(RULE)]}{RULE}{note}"[:STUDY_NOTE_LIMIT] if answer else note


def split_note(tags: Mapping[str, str]) -> tuple[str, str]:
    """Return the answer and the plan in the note of a study; "" for an answer that it does not have yet."""
    answer, _, note = tags.get(NOTE_TAG, "").rpartition(RULE)
    return answer, note


def study_tags(plan: Plan, answer: str = "") -> dict[str, str]:
    """Return the tags of the study's experiment that follow from its plan; an earlier answer stays above it."""
    return {NOTE_TAG: with_answer(answer, study_note(plan))}


def study_text(plan: Plan) -> str:
    """Return the study's YAML file with secrets redacted, or YAML made from the dictionary and assignments of a call.

    A file that includes another one is written out as both together, below its own first comment.
    """
    study = plan.study
    if text := study.source.text:
        if study.source.includes:
            comment = takewhile(lambda line: line.startswith("#"), text.splitlines(keepends=True))
            text = "".join(comment) + to_yaml(study.source.written)
        return redact(text)
    fields = study.model_copy(update={"base": assigned_base(study)}).model_dump(mode="json", exclude_defaults=True)
    return redact(to_yaml(fields))


def planned_cells(plan: Plan) -> dict[str, list[int]]:
    """Return the cells that a plan and its study file have, without refused ones -> their seeds."""
    seeds = _planned_seeds(plan)
    return {cell.name: seeds for cell in (*plan.cells, *plan.unselected) if cell.refusal is None}


def _planned_seeds(plan: Plan) -> list[int]:
    """Return the seeds of a plan, or of its study file if a call chose a part of them."""
    study = plan.study
    if study.path is None or not {"seeds", "confirm.seeds"} & study.assignments.keys():
        return plan.seeds
    try:
        in_file = read_study(study.source.written).reported_seeds
    except UserError:  # the command line completes the file
        return plan.seeds
    return in_file if set(plan.seeds) < set(in_file) else plan.seeds

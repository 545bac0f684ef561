"""What MLflow is told about a run, in plain dictionaries: params, tags and the note beside it.

Flat names that begin with what a person compares: MLflow's own table, charts and comparison then read well.
"""

from __future__ import annotations

import getpass
import inspect
import json
import os
import platform
import socket
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.colors import color_of
from attnlab._util.redact import command_line, redact
from attnlab.config.axes import text

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig
    from attnlab.planning.plan import Plan, Run

# Parameters that every run has, and where in the configuration they stand.
FIXED = {
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
NOTE_LIMIT = 7_900  # characters: MLflow refuses a tag longer than 8,000


def flat(fields: dict[str, Any]) -> dict[str, Any]:
    """A configuration as read from its JSON, with dotted names: ``{"train.lr": 3e-4, "variant": "dense"}``.

    Takes plain fields so that the records of another version of attnlab can be read.
    """
    found: dict[str, Any] = {}
    for key, value in fields.items():
        if key in ("task", "variant", "position"):
            found[key] = text(value) if value else "none"
        elif isinstance(value, dict) and key != "sources":
            found |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            found[key] = value
    return found


def param_names(axes: list[str]) -> dict[str, str]:
    """Axis -> the name of its MLflow param: ``train.lr`` -> ``lr``; the whole path where two collide."""
    names: dict[str, str] = {}
    for axis in axes:
        short = axis.rpartition(".")[2]
        taken = short in names.values() or FIXED.get(short, axis) != axis
        names[axis] = axis if taken else short
    return names


def params(run: Run) -> dict[str, str]:
    """One flat param for each thing that people compare, the axes first; the same names in every run.

    Of a searched study also the phase, and what the search chose.
    """
    config, axes = run.config, run.cell.axes
    fields = flat(json.loads(config.to_json()))
    names = param_names([*axes, *run.params])
    shown = {names[axis]: str(axes[axis]) for axis in axes}
    if run.phase != "grid":
        shown |= {"phase": run.phase, **{names[path]: _short(value) for path, value in run.params.items()}}
    for key in ("variant", "position", "task"):
        shown.setdefault(key, fields[key])
    shown.setdefault("length", str(length(config)))
    for key, path in FIXED.items():
        value = fields[path]
        if value is not None:  # a run has steps or epochs
            shown.setdefault(key, _short(value))
    return shown


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else text(value) if isinstance(value, list) else str(value)


def length(config: RunConfig) -> int | str:
    """The task's sequence length: its option, else its constructor's default."""
    from attnlab.registry import TASKS

    if "length" in config.task.options:
        return config.task.options["length"]
    parameter = inspect.signature(TASKS.get(config.task.name)).parameters.get("length")
    return parameter.default if parameter and parameter.default is not parameter.empty else "-"


def tags(run: Run, *, plan: Plan) -> dict[str, str]:
    """What a record needs and nobody compares: where it comes from, how to repeat it, how the UI shows it."""
    config = run.config
    found = {
        "attnlab.study": plan.study.study,
        "attnlab.cell": run.cell.name,
        "attnlab.seed": str(run.seed),
        "attnlab.phase": run.phase,
        "attnlab.fingerprint": run.key,
        "attnlab.axes": json.dumps(run.cell.axes),
        "attnlab.config": json.dumps(json.loads(config.to_json()), separators=(",", ":")),
        "attnlab.versions": versions(),
        "attnlab.folder": f"work/{run.key}",
        "attnlab.command": command(),
        "mlflow.source.name": plan.study.path.name if plan.study.path else "a dictionary",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": user(),
        "mlflow.runColor": color_of(str(run.cell.axes.get("variant", run.cell.config.variant.label))),  # as in the report
        "mlflow.note.content": note(run, plan=plan),
        **git(str(plan.folder)),
    }
    if plan.study.search is not None:
        found["attnlab.search"] = plan.study.search.model_dump_json(exclude_none=True)
        found["attnlab.params"] = json.dumps(run.params)
    if run.cell.matched:
        found["attnlab.matched"] = run.cell.matched
    if run.trial is not None:
        found["attnlab.trial"] = str(run.trial)
    return found


def note(run: Run, *, plan: Plan, reason: str = "") -> str:
    """Markdown for the run's page: what this is, and what there is to say about how it ended."""
    fields = flat(json.loads(run.config.to_json()))
    what = f"seed {run.seed}" if run.trial is None else f"trial {run.trial} of its search (seed {run.seed})"
    lines = [f"**{run.cell.name}**, {what}, of the study *{plan.study.study}*", ""]
    if reason:
        lines += [f"> {reason}", ""]
    lines += [
        "| axis | value |",
        "|---|---|",
        *(f"| {axis} | {value} |" for axis, value in run.cell.axes.items()),
        *(f"| {path} (chosen by the search) | {text(value)} |" for path, value in run.params.items()),
        "",
    ]
    lines += [f"{run.cell.parameters:,} parameters" if run.cell.parameters else "", ""]
    task = f"{fields['task']}, {fields['model.depth']} x {fields['model.dim']}, {fields['model.heads']} heads"
    lines += [f"{task}; backend {fields['backend']}; the whole configuration is the artifact `config.yaml`."]
    return "\n".join(lines)[:NOTE_LIMIT]


def names(plan: Plan) -> set[str]:
    """What the runs of the whole study are called, those of cells that ``only`` leaves out included."""
    from attnlab.config.grid import expand

    cells, _ = expand(plan.study)
    ends = [f"s{seed}" for seed in plan.seeds]
    ends += [f"t{trial:02d}" for trial in range(plan.study.search.trials if plan.study.search else 0)]
    return {cell.name for cell in cells} | {f"{cell.name} {end}" for cell in cells for end in ends}


def study_note(plan: Plan) -> str:
    """Markdown for the experiment's page: what is compared, what was refused or left out, and why."""
    study = plan.study
    seeds = f"seeds {', '.join(map(str, plan.seeds))}"
    if study.search is not None:
        seeds = f"{study.search.trials} trials in each, the best of each trained anew with {seeds}"
    lines = [f"attnlab study **{study.study}**: {len(plan.cells)} cells, {seeds}.", ""]
    refused = [f"- {cell.name}: {cell.refusal}" for cell, _ in plan.refused]
    skipped = [f"- {cell.name}: {cell.because}" for cell in plan.skipped]
    for title, entries in (("Refused", refused), ("Left out by the study", skipped), ("Notes", plan.notes)):
        if entries:
            lines += [f"{title}:", "", *(f"- {entry.removeprefix('- ')}" for entry in entries), ""]
    lines += [f"The difference from the baseline and its interval: `attnlab report {study.study}`."]
    return "\n".join(lines)[:4_900]  # an experiment's tag is shorter than a run's


@cache
def versions() -> str:
    """The packages that decide the numbers, in one line."""
    from attnlab._version import __version__

    found = [f"attnlab {__version__}", f"python {platform.python_version()}"]
    for package in ("torch", "xformers", "optuna", "mlflow"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # xformers is optional
            continue
    return ", ".join(found)


@cache
def git(folder: str) -> dict[str, str]:
    """The commit that ``folder`` is at, ``+dirty`` when files differ from it; without a checkout nothing."""

    def ask(*words: str) -> str:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=False, timeout=20)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = ask("rev-parse", "HEAD")
        dirty = "+dirty" if commit and ask("status", "--porcelain", "--untracked-files=no") else ""
    except (OSError, subprocess.TimeoutExpired):  # no git on this machine
        return {}
    return {"mlflow.source.git.commit": commit, "attnlab.commit": commit[:12] + dirty} if commit else {}


def command() -> str:
    """The command line this process was started with, without the folder of its program and without secrets."""
    program = Path(sys.argv[0]).name or "python"
    return command_line(["attnlab" if program == "__main__.py" else program, *sys.argv[1:]])[:500]  # python -m attnlab


def user() -> str:
    """The login name, for MLflow's own column."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())


def owner(root: Path) -> str:
    """Names the folder of runs without spelling it out: a study may end only its own stale runs."""
    from zlib import crc32

    return f"{socket.gethostname()}-{crc32(str(root.resolve()).encode()):08x}"


def device_name(device: str) -> str:
    """The processor that a run uses, as its maker calls it. For CUDA: call it in the run's own process."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):  # not Linux, or an architecture that names no model
        return platform.processor() or platform.machine()


def as_yaml(value: dict[str, Any]) -> str:
    """A dictionary as YAML 1.2."""
    from io import StringIO

    from ruamel.yaml import YAML

    written = StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.dump(value, written)
    return written.getvalue()


def question(plan: Plan) -> dict[str, Any]:
    """What the study asks of its runs, as JSON can have it."""
    study = plan.study
    return {"metric": plan.metric, "direction": plan.direction, "baseline": study.baseline, "margin": study.margin}


def study_text(plan: Plan) -> str:
    """The study's YAML as it was written (a comment may hold a password: it goes), or made from what a notebook passed."""
    path = plan.study.path
    if path is not None and path.is_file():
        return redact(path.read_text(encoding="utf-8"))
    return as_yaml(plan.study.model_dump(mode="json", exclude_defaults=True))

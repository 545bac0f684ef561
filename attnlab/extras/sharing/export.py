"""`attnlab export`: write the runs of a study in the format of another tool.

The formats are TensorBoard's event files and W&B's offline runs.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from attnlab._util.metrics import is_curve
from attnlab._util.packages import require
from attnlab._util.run_state import RunState
from attnlab._util.text import escape_controls, escape_surrogates
from attnlab.cli._arguments import Parser
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.tracking.transfer import StoredRun, StoredStudy

HELP = "write a study's runs for TensorBoard or Weights & Biases"
DESCRIPTION = (
    "Write the configurations, curves and scores of the runs that a study reports as event files of TensorBoard or as offline "
    "runs of Weights & Biases. Needs pip install 'attnlab[export]'."
)
NEXT = {"tensorboard": "tensorboard --logdir {folder}", "wandb": "wandb sync {folder}/wandb/offline-run-*"}

Tool = Literal["tensorboard", "wandb"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
LONGEST_NAME = 200  # characters of a folder's name


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument("--to", choices=TOOLS, required=True, help="the tool")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="a new or empty folder (default STUDY-TOOL)")


def main(arguments: Namespace) -> int:
    folder = export(arguments.study, arguments.to, arguments.out)
    print(f"To look at {folder}: {NEXT[arguments.to].format(folder=folder)}")
    return 0


def export(study: str, tool: Tool, out: str | Path | None = None, *, root: str | Path | None = None) -> Path:
    """Write the runs that a study reports, with their configurations, curves and scores, and return their folder.

    Args:
        study: the study's name.
        tool: `tensorboard` or `wandb`.
        out: a new or empty folder; default `STUDY-TOOL` in the working directory.
        root: the runs folder; default `ATTNLAB_RUNS`, else `runs`.

    Raises:
        UserError: the study does not exist or has no run that has ended, the folder holds files, or the tool is not installed.
    """
    from attnlab.tracking.transfer import read_study_record

    folder = Path(out or f"{study}-{tool}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"expected a new or empty folder, got {folder}", "--out")
    require("the export", tool, where="--to")
    write = {"tensorboard": _write_tensorboard, "wandb": _write_wandb}[tool]
    record = read_study_record(study, root, files=False)
    if not any(_shown(record)):
        raise UserError(f"expected a study with runs that have ended, got {study!r}, which has none")
    write(record, folder)
    return folder


def _write_tensorboard(record: StoredStudy, folder: Path) -> None:
    from torch.utils.tensorboard.writer import SummaryWriter

    for run in _shown(record):
        with SummaryWriter(str(folder / _folder_name(run))) as writer:
            for name, value, time, step in run.points:
                if is_curve(name):
                    writer.add_scalar(name, value, step, walltime=time / 1_000)
            hyperparameters = {
                key: value if isinstance(value, bool | int | float) else str(value) for key, value in _settings(run).items()
            }
            writer.add_hparams(hyperparameters, _scores(run), run_name=".")


def _folder_name(run: StoredRun) -> str:
    """Return the name of a run's folder, which stays inside its parent: the name of the run may be a stranger's."""
    name = escape_controls(run.name).replace("/", "_")[:LONGEST_NAME]
    return name if name.strip(".") else run.key


def _write_wandb(record: StoredStudy, folder: Path) -> None:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)
    settings = wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True, x_disable_meta=True)
    for run in _shown(record):
        config = _settings(run)
        about = {"project": record.name, "name": escape_controls(run.name), "group": config["cell"], "config": config}
        with wandb.init(**about, dir=str(folder), mode="offline", settings=settings) as logged:
            for step, values in _by_step(run):
                logged.log(values, step=step)
            logged.summary.update(_scores(run))


def _shown(record: StoredStudy) -> Iterator[StoredRun]:
    return (run for run in record.runs if run.is_current and run.record.state != RunState.REFUSED)


def _settings(run: StoredRun) -> dict[str, Any]:
    """Return the configuration of a run with dotted names, its axes, cell and state.

    JSON can hold surrogates, which the formats of the tools cannot.
    """
    from attnlab.config.comparability import flatten_config

    record = run.record
    fields = flatten_config(record.config) | record.axes | {"cell": record.cell, "state": record.state}
    return {
        escape_surrogates(key): escape_surrogates(value) if isinstance(value, str) else value for key, value in fields.items()
    }


def _scores(run: StoredRun) -> dict[str, float]:
    """Return the scores and costs of a run."""
    from attnlab.tracking.system_metrics import PREFIX

    return {name: value for name, value, _, _ in run.points if not is_curve(name) and not name.startswith(PREFIX)}


def _by_step(run: StoredRun) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each step, in order, with the values of the curves there."""
    points: dict[int, dict[str, float]] = {}
    for name, value, _, step in run.points:
        if is_curve(name):
            points.setdefault(step, {})[name] = value
    yield from sorted(points.items())

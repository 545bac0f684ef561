"""Studies of a program as a store has them after their runs, without running anything."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.config.command import CommandConfig
from attnlab.config.comparability import PROGRAM
from attnlab.tracking.client import connect, search_runs
from attnlab.tracking.experiment import Call, call_tags
from attnlab.tracking.record import StudyRecord, to_tags
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import to_yaml
from attnlab.tracking.transfer import StoredRun, StoredStudy, _write_run, write_study_record

COMPARISON = {"axes": ["variant"], "metric": "loss", "direction": "min", "baselines": [{"variant": "dense"}]}
COMMAND = "python train.py --variant {variant} --seed {seed}"
Scores = Mapping[str, Mapping[int, float]]


def store_study(
    root: Path,
    name: str,
    scores: Scores,
    *,
    start: int = 1_000,
    planned: Mapping[str, list[int]] | None = None,
    state: str = "completed",
    base: Mapping[str, float] | None = None,
) -> None:
    """Write a study whose runs start and end at ``start`` ms; without ``planned``, its plan has these runs.

    Runs that are there are those of the plan no longer.
    """
    seeds = sorted({seed for of_cell in scores.values() for seed in of_cell})
    base = base or {}
    file = {"study": name, "command": command_of(base), "base": {**base}, "grid": {"variant": [*scores]}, "seeds": seeds}
    file |= {"metric": {"name": "loss", "direction": "min"}}
    text = to_yaml({**file, "baseline": {"variant": "dense"}})
    tags = call_tags(Call(f"attnlab run {name}.yaml", f"{name}.yaml", text), number=0)
    planned = planned or {cell: [*of_cell] for cell, of_cell in scores.items()}
    comparison = {**COMPARISON, "study": name, "order": [*scores]}
    tags |= to_tags(StudyRecord, comparisons=[comparison], planned=planned)
    values = [(cell, seed, value) for cell, of_cell in scores.items() for seed, value in of_cell.items()]
    runs = [_run(name, *run, start, state, base) for run in values]
    client = connect(root)
    if (old := client.get_experiment_by_name(name)) is None:
        write_study_record(StoredStudy(name, tags, runs), root)
    else:
        for record in search_runs(client, old.experiment_id):
            client.set_tag(record.run_id, "attnlab.current", "no")
        for key, value in to_tags(StudyRecord, planned=planned).items():
            client.set_experiment_tag(old.experiment_id, key, value)
        for run in runs:
            _write_run(client, old.experiment_id, run)


def add_runs(root: Path, name: str, scores: Scores, *, start: int) -> None:
    """Add runs to a study."""
    client = connect(root)
    experiment_id = find_experiment(client, name).experiment_id
    for cell, of_cell in scores.items():
        for seed, value in of_cell.items():
            _write_run(client, experiment_id, _run(name, cell, seed, value, start, "completed"))


def ask(root: Path, name: str, *changes: Mapping[str, Any]) -> None:
    """Set the comparisons that a study has made since it had results; the last one is the present one."""
    client = connect(root)
    for key, asked in to_tags(StudyRecord, comparisons=[{**COMPARISON, "study": name, **made} for made in changes]).items():
        client.set_experiment_tag(find_experiment(client, name).experiment_id, key, asked)


def record_ids(root: Path, name: str, cell: str) -> dict[int, str]:
    """Return seed -> ID of the active records of a cell."""
    client = connect(root)
    records = search_runs(client, find_experiment(client, name).experiment_id)
    return {record.seed: record.run_id for record in records if record.cell == cell}


def command_of(base: Mapping[str, float]) -> str:
    """Return the command line of a study with these values of the base."""
    return COMMAND + "".join(f" --{name} {{{name}}}" for name in base)


def _config(cell: str, seed: int = 0, base: Mapping[str, float] | None = None) -> dict[str, Any]:
    base = base or {}
    command = CommandConfig(command=command_of(base), values={"variant": cell, **base}, seed=seed)
    return command.model_dump(mode="json", exclude={"folder"})


def _run(
    study: str, cell: str, seed: int, value: float, start: int, state: str, base: Mapping[str, float] | None = None
) -> StoredRun:
    config = _config(cell, seed, base)
    key = CommandConfig.model_validate(config).fingerprint()
    tags = {
        "attnlab.fingerprint": key,
        "attnlab.study": study,
        "attnlab.cell": cell,
        "attnlab.seed": str(seed),
        "attnlab.axes": json.dumps({"variant": cell}),
        "attnlab.config": json.dumps(config),
        "attnlab.test": PROGRAM,
        "attnlab.state": state,
        "attnlab.phase": "grid",
        "attnlab.current": "yes",
        "attnlab.folder": f"work/{key}",
        "attnlab.command": f"attnlab run {study}.yaml",
    }
    points = [("loss", value, start, 0)] if state == "completed" else []
    status = "FINISHED" if state in ("completed", "diverged", "out_of_memory") else "FAILED"
    return StoredRun(f"{cell} s{seed}", status, start, start, tags, {}, points)

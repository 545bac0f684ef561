"""Studies of a program as a store has them after their runs, without running anything."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab.config.command import CommandConfig
from attnlab.tracking.attempts import QUESTIONS_TAG
from attnlab.tracking.calls import Call, call_tags
from attnlab.tracking.client import connect, search_runs
from attnlab.tracking.history import Entry, Event, append_history, configuration_key
from attnlab.tracking.runs import find_experiment
from attnlab.tracking.tags import to_yaml
from attnlab.tracking.transfer import RunRecord, StudyRecord, write_study_record

QUESTION = {"metric": "loss", "direction": "min", "baseline": {"variant": "dense"}, "margin": None}
COMMAND = "python train.py --variant {variant} --seed {seed}"
Scores = Mapping[str, Mapping[int, float]]


def store_study(
    root: Path,
    name: str,
    scores: Scores,
    *,
    start: int = 1_000,
    planned: Mapping[str, list[int]] | None = None,
    question: Mapping[str, Any] | None = None,
    state: str = "completed",
) -> None:
    """Write a study whose runs start and end at ``start`` ms; without ``planned``, its plan has these runs."""
    asked = {**QUESTION, **(question or {})}
    seeds = sorted({seed for of_cell in scores.values() for seed in of_cell})
    file = {"study": name, "command": COMMAND, "grid": {"variant": [*scores]}, "seeds": seeds}
    file |= {"metric": {"name": "loss", "direction": "min"}}
    text = to_yaml({**file, "baseline": asked["baseline"]})
    tags = {QUESTIONS_TAG: json.dumps([asked])}
    tags |= call_tags(Call(f"attnlab run {name}.yaml", f"{name}.yaml", text, time=start), number=0)
    runs = [_run(name, cell, seed, value, start, state) for cell, of_cell in scores.items() for seed, value in of_cell.items()]
    write_study_record(StudyRecord(name, tags, runs), root)
    plan = planned or {cell: [*of_cell] for cell, of_cell in scores.items()}
    cells = {configuration_key(_config(cell), ""): (cell, tuple(seeds)) for cell, seeds in plan.items()}
    append_history(connect(root), [Entry(Event.PLANNED, name, start, cells)], root)


def add_runs(root: Path, name: str, scores: Scores, *, start: int) -> None:
    """Add runs to a study."""
    client = connect(root)
    experiment_id = find_experiment(client, name).experiment_id
    from attnlab.tracking.transfer import _write_run

    for cell, of_cell in scores.items():
        for seed, value in of_cell.items():
            _write_run(client, experiment_id, _run(name, cell, seed, value, start, "completed"))


def ask(root: Path, name: str, *questions: Mapping[str, Any]) -> None:
    """Set the questions that a study has asked since it had results; the last one is the present one."""
    client = connect(root)
    asked = json.dumps([{**QUESTION, **question} for question in questions])
    client.set_experiment_tag(find_experiment(client, name).experiment_id, QUESTIONS_TAG, asked)


def record_ids(root: Path, name: str, cell: str) -> dict[int, str]:
    """Return seed -> ID of the active records of a cell."""
    client = connect(root)
    records = search_runs(client, find_experiment(client, name).experiment_id)
    tags = [(record.info.run_id, record.data.tags) for record in records]
    return {int(of_run["attnlab.seed"]): run_id for run_id, of_run in tags if of_run["attnlab.cell"] == cell}


def _config(cell: str, seed: int = 0) -> dict[str, Any]:
    return CommandConfig(command=COMMAND, values={"variant": cell}, seed=seed).model_dump(mode="json", exclude={"folder"})


def _run(study: str, cell: str, seed: int, value: float, start: int, state: str) -> RunRecord:
    config = _config(cell, seed)
    key = CommandConfig.model_validate(config).fingerprint()
    tags = {
        "attnlab.fingerprint": key,
        "attnlab.study": study,
        "attnlab.cell": cell,
        "attnlab.seed": str(seed),
        "attnlab.axes": json.dumps({"variant": cell}),
        "attnlab.config": json.dumps(config),
        "attnlab.state": state,
        "attnlab.phase": "grid",
        "attnlab.current": "yes",
        "attnlab.folder": f"work/{key}",
        "attnlab.command": f"attnlab run {study}.yaml",
    }
    points = [("loss", value, start, 0)] if state == "completed" else []
    status = "FINISHED" if state in ("completed", "diverged", "out_of_memory") else "FAILED"
    return RunRecord(f"{cell} s{seed}", status, start, start, tags, {}, points)

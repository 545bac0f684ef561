"""The history of configurations: which studies planned them, judged them, and withdrew their runs. Entries are only added.

A configuration is all that determines a run except its seed. Its history does not depend on the name of a study: it is kept as
tags of a separate MLflow experiment, and so it outlasts deleted runs and deleted studies.

A user may withdraw records: they are deleted, or kept without counting any longer. Their runs are trained again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attnlab.config.command import CommandConfig
from attnlab.config.comparability import Subject
from attnlab.config.reader import read_study
from attnlab.errors import UserError, nearest
from attnlab.tracking.artifacts import FILES, WEIGHTS_TAG, logged_models
from attnlab.tracking.attempts import CHAIN_TAG, REDONE_TAG
from attnlab.tracking.client import log_batch, search_runs, search_studies
from attnlab.tracking.experiment import find_or_create
from attnlab.tracking.schema import require_entry
from attnlab.tracking.tags import flatten_config, versions

if TYPE_CHECKING:
    from pathlib import Path

    from mlflow import MlflowClient
    from mlflow.entities import Run as Record

    from attnlab.planning.cell import Cell
    from attnlab.planning.plan import Plan


EXPERIMENT = "attnlab history"  # no study can have this name, because it has a space
NOTE = "Written by attnlab: at which seeds each configuration was judged, in which study. Reports need it; please keep it."
LARGEST = 1 << 24  # bytes of an entry
PART_LENGTH = 4_500  # characters; MLflow rejects an experiment's tag longer than 5,000


class Event(StrEnum):
    """What happened to configurations."""

    PLANNED = "planned"
    JUDGED = "judged"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Entry:
    """One event in the history of configurations.

    Attributes:
        study: The study's name.
        time: In milliseconds since the epoch.
        cells: Key of a configuration (`configuration_key`) -> name of its cell in the study, and the seeds.
        question: As `attnlab.tracking.tags.question` returns it, of a table that was judged; else None.
        version: Of attnlab, of a table that was judged; keys of other versions belong to other configurations.
        subjects: Key of a configuration -> its subject, of a table that was judged; empty in records of older versions.
    """

    event: Event
    study: str
    time: int
    cells: Mapping[str, tuple[str, tuple[int, ...]]]
    question: Mapping[str, Any] | None = field(default=None)
    version: str = ""
    subjects: Mapping[str, Subject] = field(default_factory=dict)

    def pack(self) -> dict[str, str]:
        """Return the tags that store this entry; equal entries of different times have the same tags. The last one is `.0`."""
        content = {name: value for name, value in asdict(self).items() if name != "time" and (value or name != "subjects")}
        text = json.dumps(content, sort_keys=True).encode()
        packed = base64.b64encode(zlib.compress(text, 9)).decode()
        parts = [packed[at : at + PART_LENGTH] for at in range(0, len(packed), PART_LENGTH)]
        parts[0] = f"{self.time} {len(parts)} {parts[0]}"
        name = f"{self.event}.{hashlib.sha256(text).hexdigest()[:16]}"
        return {f"{name}.{i}": parts[i] for i in reversed(range(len(parts)))}

    @classmethod
    def unpack(cls, tags: Mapping[str, str], name: str) -> Entry:
        """Return the entry with tags that begin with `name`; raises `ValueError` or `KeyError` if one is missing or damaged."""
        time, number, first = tags[f"{name}.0"].split(" ")
        packed = first + "".join(tags[f"{name}.{i}"] for i in range(1, int(number)))
        try:
            fields = json.loads(zlib.decompressobj().decompress(base64.b64decode(packed), LARGEST))
        except (zlib.error, RecursionError) as error:
            raise ValueError(f"damaged entry: {error}") from None
        require_entry({**fields, "time": int(time)})
        cells = {key: (cell, tuple(seeds)) for key, (cell, seeds) in fields.pop("cells").items()}
        subjects = {key: Subject(**subject) for key, subject in fields.pop("subjects", {}).items()}
        return cls(Event(fields.pop("event")), cells=cells, time=int(time), subjects=subjects, **fields)


def read_history(client: MlflowClient) -> list[Entry]:
    """Return all entries in the order of time; a damaged one is left out."""
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return unpack_entries(experiment.tags if experiment else {})


def unpack_entries(tags: Mapping[str, str]) -> list[Entry]:
    """Return the entries that tags store (`Entry.pack`), in the order of time; a damaged one is left out."""
    entries = []
    for name in (tag.removesuffix(".0") for tag in tags if tag.endswith(".0")):
        try:
            entries.append(Entry.unpack(tags, name))
        except (KeyError, TypeError, ValueError):
            continue
    return sorted(entries, key=lambda entry: entry.time)


def latest_plan(study: str, history: Iterable[Entry]) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Return the cells of a study's latest plan, given a history in the order of time; empty without one."""
    plans = [entry.cells for entry in history if entry.study == study and entry.event is Event.PLANNED]
    return plans[-1] if plans else {}


def append_history(client: MlflowClient, entries: Iterable[Entry], root: Path) -> None:
    """Add entries. Of an equal one that is recorded, a plan gets the new time, because the latest plan counts.

    Args:
        root: the runs folder.
    """
    experiment = find_or_create(client, EXPERIMENT, root, tags={"mlflow.note.content": NOTE})
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    for entry in entries:
        tags = entry.pack()
        recorded = entry.event is not Event.PLANNED and tags.keys() <= experiment.tags.keys()
        for key, value in ({} if recorded else tags).items():
            if experiment.tags.get(key) != value:
                client.set_experiment_tag(experiment.experiment_id, key, value)


def comparable_fields(config: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return what must be equal in the runs of one cell: all but seeds and folders, and the digests of code, not its files.

    Args:
        config: The configuration, as read from its JSON.
        version: Of attnlab.
    """
    fields = {name: _without_folders(value) for name, value in flatten_config(dict(config)).items()}
    fields |= {"code": ", ".join(sorted(digest[:12] for digest in config.get("sources", {}).values()))}
    return {name: value for name, value in fields.items() if name not in ("seed", "sources", "init.run")} | {"attnlab": version}


def _without_folders(value: Any) -> Any:
    return value.rpartition("/")[2] if isinstance(value, str) else value


def configuration_key(config: Mapping[str, Any], version: str, *, chosen: Collection[str] = (), chain: str = "") -> str:
    """Return 12 hex digits that are equal for runs of one configuration with any seed.

    Args:
        config, version: As for `comparable_fields`. Of a program, attnlab's version does not count.
        chosen: Dotted paths of the fields that a sweep or a search sets, which do not count.
        chain: Of a run that starts from a stage: the key of the stage (`key_of_stage`). Without it, such runs have a key for
            each seed.
    """
    if "command" in config:
        return CommandConfig.model_validate({**config, "seed": 0}).fingerprint()[:12]
    fields = {name: value for name, value in comparable_fields(config, version).items() if name not in chosen}
    if init := config.get("init"):
        fields["init.run"] = chain or init["fingerprint"]
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()[:12]


def key_of_stage(cell: Cell) -> str:
    """Return the key of the stage that the runs of a cell start from, including earlier stages; "" without one."""
    if cell.stage is None:
        return ""
    return configuration_key(json.loads(cell.stage.settings.to_json()), present_version(), chain=key_of_stage(cell.stage))


def key_of_record(record: Record) -> str:
    """Return the key of the configuration of a recorded run."""
    tags = record.data.tags
    config = {name: value for name, value in json.loads(tags["attnlab.config"]).items() if name != "seed"}
    chosen = tuple(json.loads(tags.get("attnlab.params", "{}")))
    if tags.get(CHAIN_TAG) and config.get("init"):
        config["init"] = {**config["init"], "fingerprint": ""}  # which differs between seeds
    return _cached_key(json.dumps(config), version_of(tags), chosen, tags.get(CHAIN_TAG, ""))


@lru_cache(maxsize=4096)
def _cached_key(config: str, version: str, chosen: tuple[str, ...], chain: str) -> str:
    return configuration_key(json.loads(config), version, chosen=chosen, chain=chain)


def version_of(tags: Mapping[str, str]) -> str:
    """Return the version of attnlab in the tags of a run; "" in a record without one."""
    return tags.get("attnlab.versions", "").partition(",")[0].removeprefix("attnlab ")


def present_version() -> str:
    """Return the version of attnlab, as `version_of` reads it from the runs that this process records."""
    return version_of({"attnlab.versions": versions()})


def planned_entry(plan: Plan, *, time: int) -> Entry:
    """Return the entry of the cells and seeds that a plan and its study file have; refused cells have none."""
    chosen = [*(plan.study.search.space if plan.study.search else ()), *([plan.study.swept_path] if plan.study.sweep else ())]
    version, seeds = present_version(), tuple(planned_seeds(plan))
    cells = [cell for cell in (*plan.cells, *plan.unselected) if cell.refusal is None]
    keys = {
        cell.name: configuration_key(json.loads(cell.settings.to_json()), version, chosen=chosen, chain=key_of_stage(cell))
        for cell in cells
    }
    return Entry(Event.PLANNED, plan.study.study, time, {key: (name, seeds) for name, key in keys.items()})


def planned_seeds(plan: Plan) -> list[int]:
    """Return the seeds of a plan, or of its study file if a call chose a part of them."""
    study = plan.study
    if study.path is None or not {"seeds", "confirm.seeds"} & study.assignments.keys():
        return plan.seeds
    try:
        in_file = read_study(study.path).reported_seeds
    except (OSError, UserError):  # the command line completes the file
        return plan.seeds
    return in_file if set(plan.seeds) < set(in_file) else plan.seeds


def select_records(client: MlflowClient, experiment_id: str, targets: Sequence[str]) -> list[Record]:
    """Return the records of a study that ``targets`` name, each once, in the order in which they started.

    A target is a run's name, a cell's name (all of its runs), or the beginning of a run's ID. A name selects current
    records only; an ID also selects records that the study's plan no longer contains.

    Raises:
        UserError: a target names nothing, or is the beginning of several IDs; ``where`` is the target.
    """
    records = search_runs(client, experiment_id)
    current = [record for record in records if record.data.tags.get("attnlab.current") != "no"]
    selected: set[str] = set()
    for target in targets:
        matches = [record for record in current if target in (record.info.run_name, record.data.tags["attnlab.cell"])]
        matches = matches or [record for record in records if target and record.info.run_id.startswith(target)]
        if not matches:
            names = {str(record.info.run_name) for record in current} | {record.data.tags["attnlab.cell"] for record in current}
            raise UserError(f"no run and no cell of the study has this name or ID{nearest(target, names)}", target)
        if len(matches) > 1 and target not in (matches[0].info.run_name, matches[0].data.tags["attnlab.cell"]):
            raise UserError(f"the IDs of {len(matches)} runs begin like this: give more of one", target)
        selected |= {record.info.run_id for record in matches}
    return [record for record in records if record.info.run_id in selected]


def studies_sharing(client: MlflowClient, record: Record) -> list[str]:
    """Return the names of the other studies that have a record of the same run, and so use the same folder."""
    key = record.data.tags["attnlab.fingerprint"]
    names = {study.experiment_id: study.name for study in search_studies(client)}
    others = [experiment_id for experiment_id in names if experiment_id != record.info.experiment_id]
    sharing = [search_runs(client, experiment_id, f"tags.`attnlab.fingerprint` = '{key}'") for experiment_id in others]
    return [names[experiment_id] for experiment_id, records in zip(others, sharing, strict=True) if records]


def delete_record(client: MlflowClient, record: Record) -> None:
    """Delete a record as MLflow's UI does: MLflow keeps it among its deleted runs until ``mlflow gc``."""
    if record.info.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.info.run_id, "KILLED")
    client.delete_run(record.info.run_id)
    for model in logged_models(client, record):
        client.delete_logged_model(model.model_id)


def withdraw_record(client: MlflowClient, record: Record, *, folder: str) -> None:
    """Keep a record, but let it no longer count as the result of its run.

    Args:
        folder: where the files of the recorded attempt will be, relative to the runs folder.
    """
    if record.info.status == "RUNNING":  # its parent is dead
        client.set_terminated(record.info.run_id, "KILLED")
    tags = {
        REDONE_TAG: record.data.tags["attnlab.fingerprint"],
        "attnlab.fingerprint": f"redone-{record.info.run_id}",  # no longer the key of any run
        "attnlab.current": "no",
        "attnlab.reason": "withdrawn by attnlab redo",
        "attnlab.folder": folder,
    }
    log_batch(client, record.info.run_id, tags=tags)
    for model in logged_models(client, record):
        client.set_logged_model_tags(model.model_id, {WEIGHTS_TAG: f"{folder}/{FILES[0]}"})

"""Invariants of a finished study after any disturbance, checked in its stores instead of through attnlab's own view."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import optuna
from mlflow import MlflowClient
from mlflow.entities import Run as Record
from mlflow.entities import ViewType

from attnlab.planning.plan import Plan
from attnlab.tracking.record import CELL_RUN
from attnlab.tracking.system_metrics import PREFIX

MEASURED = re.compile(
    r"(_seconds|tokens_per_s|_peak_mib)$"
)  # metrics that depend on the machine: their values are not compared

Curves = dict[str, list[tuple[int, str]]]  # metric -> its points in the order of their steps: step, value to the last bit


@dataclass(frozen=True)
class Stores:
    """The stores of a study: MLflow's address and Optuna's."""

    tracking: str
    storage: str

    def records(self, study: str) -> list[Record]:
        """Return all MLflow runs of a study, including deleted ones."""
        client = MlflowClient(self.tracking)
        experiment = client.get_experiment_by_name(study)
        assert experiment is not None, f"no experiment {study!r}"
        runs = client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL, max_results=50_000)
        return [run for run in runs if CELL_RUN not in run.data.tags]

    def curves(self, record: Record) -> Curves:
        """Return every point of every metric of a record, except the load of the machine."""
        client = MlflowClient(self.tracking)
        return {
            key: sorted((point.step, point.value.hex()) for point in client.get_metric_history(record.info.run_id, key))
            for key in record.data.metrics
            if not key.startswith(PREFIX)
        }

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """Return every trial in Optuna's storage."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        names = optuna.get_all_study_names(self.storage)
        return [trial for name in names for trial in optuna.load_study(study_name=name, storage=self.storage).trials]


def broken_promises(plan: Plan, stores: Stores, *, reference: dict[str, Curves]) -> list[str]:
    """Return one line for each promise that a finished study breaks.

    Args:
        reference: fingerprint -> the curves of the same run without disturbance.
    """
    records = stores.records(plan.study.study)
    names = {run.fingerprint: run.name for run in (*plan.stage_runs, *plan.runs)}
    return [
        *_records(records, names),
        *_trials(stores.trials(), names),
        *_points(finished(records), names, stores, reference),
    ]


def finished(records: list[Record]) -> dict[str, Record]:
    """Return the finished records by fingerprint."""
    return {_key(record): record for record in records if record.info.status == "FINISHED"}


def _key(record: Record) -> str:
    return record.data.tags["attnlab.fingerprint"]


def _records(records: list[Record], names: dict[str, str]) -> Iterator[str]:
    """Check that each run has exactly one finished record, that none is active, and that no run is unplanned."""
    done = Counter(_key(record) for record in records if record.info.status == "FINISHED")
    active = Counter(_key(record) for record in records if record.info.lifecycle_stage == "active")
    for key, name in names.items():
        if done[key] != 1:
            yield f"{name}: {done[key]} finished records"
        if active[key] != 1:
            yield f"{name}: {active[key]} active records"
    for record in records:
        if record.info.status in ("RUNNING", "SCHEDULED"):
            yield f"{record.info.run_name}: left {record.info.status} ({record.info.lifecycle_stage})"
        if record.info.status == "FINISHED" and record.data.tags["attnlab.state"] != "completed":
            yield f"{record.info.run_name}: {record.data.tags['attnlab.state']}"
        if _key(record) not in names:
            yield f"{record.info.run_name}: not of this study"


def _trials(trials: list[optuna.trial.FrozenTrial], names: dict[str, str]) -> Iterator[str]:
    """Check that each run has exactly one complete trial, and that no ticket is waiting or running."""

    def key(attributes: dict[str, Any]) -> str:
        return attributes.get("key") or attributes.get("fingerprint") or "?"

    complete = Counter(key(trial.user_attrs) for trial in trials if trial.state.name == "COMPLETE")
    for fingerprint in names.keys() | complete.keys():
        if complete[fingerprint] != 1:
            yield f"{names.get(fingerprint, fingerprint)}: {complete[fingerprint]} complete trials"
    for trial in trials:
        if not trial.state.is_finished():
            yield f"{names.get(key(trial.user_attrs))}: trial {trial.number} left {trial.state.name}"


def _points(records: dict[str, Record], names: dict[str, str], stores: Stores, reference: dict[str, Curves]) -> Iterator[str]:
    """Check that the points equal those without disturbance: none missing, none twice, each value equal in every bit."""
    for key in records.keys() & names.keys():
        curves, expected = stores.curves(records[key]), reference[key]
        if curves.keys() != expected.keys():
            yield f"{names[key]}: {sorted(curves.keys() ^ expected.keys())} only with or only without disturbance"
        for metric in curves.keys() & expected.keys():
            steps = [step for step, _ in curves[metric]]
            if len(set(steps)) < len(steps):
                yield f"{names[key]}: {metric}: points logged twice: {steps}"
            elif steps != [step for step, _ in expected[metric]]:
                yield f"{names[key]}: {metric}: steps {steps}"
            elif not MEASURED.search(metric) and curves[metric] != expected[metric]:
                yield f"{names[key]}: {metric}: other values than without disturbance"

"""What must be true of a study when it is done, whatever was done to it: read from its stores, not from attnlab's own view."""

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

MEASURED = re.compile(r"(_seconds|tokens_per_s|_peak_mib)$")  # what the machine decides: its values are not compared

Curves = dict[str, list[tuple[int, str]]]  # metric -> its points in the order of their steps: step, value to the last bit


@dataclass(frozen=True)
class Stores:
    """Where a study is written down: MLflow's address and Optuna's."""

    tracking: str
    storage: str

    def records(self, study: str) -> list[Record]:
        """Every MLflow run there ever was of a study, deleted ones too."""
        client = MlflowClient(self.tracking)
        experiment = client.get_experiment_by_name(study)
        assert experiment is not None, f"no experiment {study!r}"
        return list(client.search_runs([experiment.experiment_id], run_view_type=ViewType.ALL, max_results=50_000))

    def curves(self, record: Record) -> Curves:
        """Every point of every metric of a record."""
        client = MlflowClient(self.tracking)
        return {
            key: sorted((point.step, point.value.hex()) for point in client.get_metric_history(record.info.run_id, key))
            for key in record.data.metrics
        }

    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """Every trial of Optuna's."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        names = optuna.get_all_study_names(self.storage)
        return [trial for name in names for trial in optuna.load_study(study_name=name, storage=self.storage).trials]


def broken_promises(plan: Plan, stores: Stores, *, reference: dict[str, Curves]) -> list[str]:
    """One line for each promise that a finished study breaks.

    Args:
        reference: fingerprint -> the curves of the same run where nothing had been done to it.
    """
    records = stores.records(plan.study.study)
    names = {run.fingerprint: run.name for run in plan.runs}
    return [
        *_records(records, names),
        *_trials(stores.trials(), names),
        *_points(finished(records), names, stores, reference),
    ]


def finished(records: list[Record]) -> dict[str, Record]:
    """Fingerprint -> its finished record."""
    return {_key(each): each for each in records if each.info.status == "FINISHED"}


def _key(record: Record) -> str:
    return record.data.tags["attnlab.fingerprint"]


def _records(records: list[Record], names: dict[str, str]) -> Iterator[str]:
    """Exactly one finished record for each run, none under way, none of a run that nobody planned."""
    done = Counter(_key(each) for each in records if each.info.status == "FINISHED")
    active = Counter(_key(each) for each in records if each.info.lifecycle_stage == "active")
    for key, name in names.items():
        if done[key] != 1:
            yield f"{name}: {done[key]} finished records"
        if active[key] != 1:
            yield f"{name}: {active[key]} active records"
    for each in records:
        if each.info.status in ("RUNNING", "SCHEDULED"):
            yield f"{each.info.run_name}: left {each.info.status} ({each.info.lifecycle_stage})"
        if each.info.status == "FINISHED" and each.data.tags["attnlab.state"] != "completed":
            yield f"{each.info.run_name}: {each.data.tags['attnlab.state']}"
        if _key(each) not in names:
            yield f"{each.info.run_name}: not of this study"


def _trials(trials: list[optuna.trial.FrozenTrial], names: dict[str, str]) -> Iterator[str]:
    """Exactly one complete trial for each run, and no ticket that waits or runs."""

    def key(attributes: dict[str, Any]) -> str:
        return attributes.get("key") or attributes.get("fingerprint") or "?"

    complete = Counter(key(each.user_attrs) for each in trials if each.state.name == "COMPLETE")
    for fingerprint in names.keys() | complete.keys():
        if complete[fingerprint] != 1:
            yield f"{names.get(fingerprint, fingerprint)}: {complete[fingerprint]} complete trials"
    for each in trials:
        if not each.state.is_finished():
            yield f"{names.get(key(each.user_attrs))}: trial {each.number} left {each.state.name}"


def _points(found: dict[str, Record], names: dict[str, str], stores: Stores, reference: dict[str, Curves]) -> Iterator[str]:
    """The same points as without disturbance: none missing, none twice, each value equal in every bit."""
    for key in found.keys() & names.keys():
        here, there = stores.curves(found[key]), reference[key]
        if here.keys() != there.keys():
            yield f"{names[key]}: {sorted(here.keys() ^ there.keys())} only with or only without disturbance"
        for metric in here.keys() & there.keys():
            steps = [step for step, _ in here[metric]]
            if len(set(steps)) < len(steps):
                yield f"{names[key]}: {metric}: points logged twice: {steps}"
            elif steps != [step for step, _ in there[metric]]:
                yield f"{names[key]}: {metric}: steps {steps}"
            elif not MEASURED.search(metric) and here[metric] != there[metric]:
                yield f"{names[key]}: {metric}: other values than without disturbance"

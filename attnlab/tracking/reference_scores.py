"""The trivial baselines that a study stands beside, as tags of its MLflow experiment.

They are no runs: they have no seed, no variant and no curve, and nothing that lists runs needs to know of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient

PREFIX = "attnlab.baseline."


@dataclass(frozen=True)
class ReferenceScore:
    """What one baseline comes to on the test split of one task.

    `task` is the task's name, with those of its options that decide the value; `data` the identity of its data and `limit`
    its `evaluate.test_limit`: it stands beside the runs that have the same. `seconds` is what it took to compute.
    """

    name: str
    task: str
    data: str
    limit: int | None
    metric: str
    value: float
    seconds: float
    about: str

    @property
    def tag(self) -> str:
        """What its tag is called: the same for the same baseline of the same test."""
        what = json.dumps([self.name, self.task, self.data, self.limit])
        return PREFIX + hashlib.sha256(what.encode()).hexdigest()[:12]


def write(client: MlflowClient, experiment: str, scores: Sequence[ReferenceScore], *, partial: bool = False) -> None:
    """Record the scores; `partial` leaves those of an earlier call that are not among them."""
    wanted = {score.tag: json.dumps(asdict(score)) for score in scores}
    there = _tags(client, experiment)
    stale = [] if partial else [key for key in there if key not in wanted]
    for key, value in [*wanted.items(), *((key, "") for key in stale)]:  # not every store can delete a tag
        if there.get(key) != value:
            client.set_experiment_tag(experiment, key, value)


def read(client: MlflowClient, experiment: str) -> list[ReferenceScore]:
    """What is recorded of a study's baselines, by task and value."""
    found = [ReferenceScore(**json.loads(text)) for text in _tags(client, experiment).values() if text]
    return sorted(found, key=lambda score: (score.task, score.limit or 0, score.value))


def _tags(client: MlflowClient, experiment: str) -> Mapping[str, str]:
    tags = client.get_experiment(experiment).tags
    return {key: value for key, value in tags.items() if key.startswith(PREFIX)}

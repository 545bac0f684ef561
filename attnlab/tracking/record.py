"""What attnlab keeps of a run and of a study in MLflow, and under which names: no other module names a tag.

`RunRecord` and `StudyRecord` are the schema. A record that does not fit it is named in one line and left out, and a bundle is
checked as a whole before it is merged. What a record holds is data: names that lead to a folder stay inside the runs folder,
and no text of it is run or imported.

Params, metrics, data sets and files are what MLflow's own pages show. Final metrics are doubles; one that is not finite reads
as infinity again, like every value too large for statistics.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from sys import intern
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from attnlab._util.metrics import is_curve
from attnlab._util.run_state import NOT_COMPARED, Reset, RunState
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import flatten_config, test_identity
from attnlab.config.study import STUDY_NAME
from attnlab.errors import one_line

if TYPE_CHECKING:
    from mlflow.entities import Experiment
    from mlflow.entities import Run as MlflowRun

    from attnlab.planning.plan import Run

PREFIX = "attnlab."  # of every tag
NAME_TAG = "mlflow.runName"
REQUEST_TAG = "attnlab.attempt_id"  # of a run: the request that created it
MAPS_TAG = "attnlab.maps"  # of a run: "" if it has attention maps, else the reason why it has none; of a part, with its name
NOTE_TAG = "mlflow.note.content"  # the Markdown on the page of a run or of a study
PARENT_TAG = "mlflow.parentRunId"  # of the run of a seed: the run of its cell
CELL_RUN = "attnlab.cell_run"  # of the run of a cell, which is no record: the cell's name
VIEW_KEY, RUNS_VIEW_KEY = "attnlab", "attnlab-runs"
VIEW = "mlflow.sharedViewState."  # of a study: a preset view of the UI, with its key
VERDICT_TAG, BASELINE_TAG, SENTENCE_TAG = "verdict", "baseline", "sentence"  # of the run of a cell
# Beginnings of the tags of studies with any number of entries, each entry as JSON.
OWN_LOOKS = "attnlab.judged."  # a comparison with looks of its own
FUTILE = "attnlab.futile."  # a comparison that received no more seeds
REFERENCE_SCORE = "attnlab.reference_score."  # "" for one that the study has no longer
CALL = "attnlab.call."  # a call that ran the study
ENTRIES = {OWN_LOOKS: list, FUTILE: list, REFERENCE_SCORE: dict, CALL: dict}
TEXT = "attnlab.text."  # a part of a long text, compressed
PART_LENGTH = 4_500  # characters of one part; MLflow rejects an experiment's tag longer than 5,000
LARGEST_TEXT = 1 << 24  # bytes of a long text
LONG = ("attnlab.comparisons", "attnlab.planned")  # tags of studies that refer to a long text
RETRIED = "retried"  # value of `RunRecord.replaced`: the record had a result, and the user wanted another attempt
RESULTS = (RunState.COMPLETED, RunState.DIVERGED)  # a run that failed or had too little memory may be tried again
LARGEST = 1e70  # moments of larger values overflow; MLflow writes 1.7976931348623157e308 for infinity

# Fields that MLflow has itself; the others are tags.
MLFLOW = {"name", "experiment_id", "tags", "run_id", "status", "start", "end", "metrics", "logged", "artifact_uri", "created"}
UNTAGGED = {*MLFLOW, "reused"}
KEY = "[A-Za-z0-9_][A-Za-z0-9_.~-]{0,249}"  # names a folder


class DamagedRecord(ValueError):
    """A tag cannot be read; the message names it."""


def _from_json(text: Any) -> Any:
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: {intern(key): value for key, value in pairs})  # keys once
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _readable(config: dict[str, Any]) -> dict[str, Any]:
    """Require a configuration that its readers can flatten and compare."""
    try:
        flatten_config(config)
        CommandConfig.model_validate(config) if "command" in config else test_identity(config, None)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from None
    return config


Key = Annotated[str, Field(pattern=f"^{KEY}$")]
Whole = Annotated[int, BeforeValidator(lambda text: text or 0), Field(ge=0, lt=10**18)]
Object = Annotated[dict, BeforeValidator(_from_json)]
List = Annotated[list, BeforeValidator(_from_json)]


class _Record(BaseModel):
    """The fields in the tags of a run or an experiment, and those that MLflow has itself.

    Attributes:
        name: of the run or the study.
        experiment_id: MLflow's ID of the study.
        tags: all of them, as text.
    """

    model_config = ConfigDict(frozen=True, alias_generator=lambda name: name if name in UNTAGGED else f"{PREFIX}{name}")

    name: str = ""
    experiment_id: str = ""
    tags: dict[str, str] = Field(default={}, repr=False)

    @classmethod
    def of_tags(cls, tags: Mapping[str, str], **fields: Any) -> Self:
        """Return the record with these tags, and fields of MLflow.

        Raises:
            DamagedRecord: a tag is missing, or cannot be read.
        """
        own = {name: read_text(tags, name) if name in LONG else text for name, text in tags.items() if name.startswith(PREFIX)}
        try:
            return cls.model_validate({**own, **fields, "tags": dict(tags)})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            problem = "is missing" if first["type"] == "missing" else f"is damaged: {first['msg']}, got {first['input']!r:.60}"
            raise DamagedRecord(one_line(f"its tag {first['loc'][0]} {problem}")) from None


class RunRecord(_Record):
    """What is kept of a run.

    Attributes:
        run_id, status, start, end, artifact_uri: as in MLflow, which writes the status last; times in milliseconds.
        metrics, logged: MLflow's metrics, those of curves included, and its params.
        key: of the run: its fingerprint; of a trial or a refused cell a similar text.
        study, cell, seed, axes, phase, trial, params, factors, matched, data_notes, data_sizes: as in the plan.
        config: the resolved configuration.
        test: what the run is tested on, as JSON.
        state, reason: how it ended; ``running`` until then.
        attempt, failures: the number of this attempt, and of those that failed up to it; not of those that lost their parent.
        earlier: how the attempt before ended.
        current: "no" for a run that the latest plan does not contain.
        owner: the runs folder in which it was trained.
        folder: of its files, relative to the runs folder.
        reset: the files of an earlier attempt that its process removes first.
        device: the processor, known when the process starts to train.
        replaced: how attnlab deleted the record: "yes", or `RETRIED`; None: the user did.
        redone: the key that the record had before ``attnlab redo``.
        items: "yes" for a run with the scores of its test's items.
        init: which tensors it took over from its stage.
        command, versions, commit: the call, the packages and the checkout that trained it.
        reused: in the result of ``attnlab.run``, the run was finished before, or by another parent; not stored.
    """

    run_id: str = ""
    status: str = "RUNNING"
    start: int = 0
    end: int | None = None
    metrics: dict[str, float] = Field(default={}, repr=False)
    logged: dict[str, str] = Field(default={}, repr=False)
    artifact_uri: str = ""
    reused: bool = False

    key: Key = Field(alias=f"{PREFIX}fingerprint")
    study: Annotated[str, Field(pattern=STUDY_NAME)] = ""
    cell: str
    seed: Annotated[int, Field(ge=0, lt=10**18)]
    axes: Object
    config: Annotated[Object, AfterValidator(_readable)]
    phase: str = "grid"
    trial: Whole | None = None
    params: Object = {}
    factors: Object = {}
    matched: str = ""
    data_notes: List = []
    data_sizes: str = ""
    test: str | None = None
    state: str = ""
    reason: str = ""
    attempt: Whole = 1
    failures: Whole = 0
    earlier: str = ""
    current: str = "yes"
    owner: str = ""
    folder: Annotated[str, Field(pattern=f"^work/{KEY}$")] = ""
    reset: Reset = Reset.NONE
    device: str | None = None
    replaced: str | None = None
    redone: Key | None = None
    items: str = ""
    init: str | None = None
    command: str = ""
    versions: str = ""
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{7,64}(\+dirty)?)?$")] = ""

    @classmethod
    def of(cls, run: MlflowRun) -> Self:
        """Return the record in a run of MLflow; raise as `of_tags`."""
        info, data = run.info, run.data
        own = {"name": info.run_name or "", "experiment_id": info.experiment_id, "run_id": info.run_id, "status": info.status}
        own |= {"start": info.start_time, "end": info.end_time, "artifact_uri": info.artifact_uri}
        return cls.of_tags(data.tags, **own, metrics=data.metrics, logged=data.params)

    @property
    def is_current(self) -> bool:
        """Whether the latest plan of its study contains the run."""
        return self.current != "no"

    @property
    def is_finished(self) -> bool:
        """Whether the record is complete, and its run needs no other attempt."""
        return self.status == "FINISHED"

    @property
    def is_compared(self) -> bool:
        """Whether the run is one of a cell: no trial of a search, and no stage."""
        return self.phase not in NOT_COMPARED

    @property
    def is_result(self) -> bool:
        """Whether the run counts in its cell, or did."""
        return self.is_finished and self.is_compared and self.state in RESULTS

    def has_result(self, *, retries: int) -> bool:
        """Return whether the run is not tried again: it is finished, or has failed more than ``retries`` times."""
        return self.is_finished or self.failures > retries

    @property
    def starts_from(self) -> str:
        """The key of the run that the run started from, or ""."""
        init = self.config.get("init")
        return init["fingerprint"] if init else ""

    @property
    def pending_reset(self) -> Reset:
        """The files that the run's process should have removed, if it ended before it did so."""
        return self.reset if self.device is None else Reset.NONE

    @property
    def summary(self) -> dict[str, float]:
        """The final metrics."""
        return {name: restored(value) for name, value in self.metrics.items() if not is_curve(name)}

    @property
    def untested_lengths(self) -> dict[str, str]:
        """``length.512`` -> the reason why the run has no score at this length."""
        texts = ((name.removeprefix(PREFIX), text) for name, text in self.tags.items())
        return {name: text for name, text in texts if name.startswith("length.")}

    @property
    def version(self) -> str:
        """The version of attnlab that trained the run; "" if it is not recorded."""
        return self.versions.partition(",")[0].removeprefix("attnlab ")


def unrecorded(run: Run, reason: str, **fields: Any) -> RunRecord:
    """Return the record of a run that has none in MLflow, with the reason why it failed, or other fields."""
    own = {"name": run.name, "key": run.key, "cell": run.cell.name, "seed": run.seed, "axes": run.cell.axes, "config": {}}
    own |= {"phase": run.phase, "trial": run.trial, "params": run.params, "state": RunState.FAILED, "reason": reason}
    return RunRecord.model_construct(**own | fields)


class StudyRecord(_Record):
    """What is kept of a study.

    Attributes:
        created: in milliseconds.
        comparisons: those that the study has made since it had results, the present one last, as JSON objects
            (`attnlab.study.comparison`).
        threads: CPU threads of each run whose configuration leaves their number open.
        planned: the cells of the study's latest plan -> their seeds.
        looks: the first and last number of seeds, and the time, of the looks that were announced.
        judged: the number of seeds and the time of each other look.
    """

    created: int | None = None

    study: Annotated[str, Field(pattern=STUDY_NAME)] = ""
    comparisons: List = []
    threads: Whole | None = None
    planned: Object = {}
    looks: List | None = None
    judged: List = []

    @classmethod
    def of_tags(cls, tags: Mapping[str, str], **fields: Any) -> Self:
        for prefix, kind in ENTRIES.items():
            for tag, entry in entries(tags, prefix).items():
                if not isinstance(entry, kind):
                    raise DamagedRecord(f"its tag {tag} is damaged: expected a {kind.__name__} as JSON, got {entry!r:.60}")
        return super().of_tags(tags, **fields)

    @classmethod
    def of(cls, experiment: Experiment) -> Self:
        """Return the record in an experiment of MLflow; raise as `of_tags`."""
        own = {"name": experiment.name, "experiment_id": experiment.experiment_id, "created": experiment.creation_time}
        return cls.of_tags(experiment.tags, **own)


def entries(tags: Mapping[str, str], prefix: str) -> dict[str, Any]:
    """Return the values of the tags that begin like this, from their JSON; empty ones are left out.

    Raises:
        DamagedRecord: one is not JSON.
    """
    found: dict[str, Any] = {}
    for tag, text in tags.items():
        try:
            found |= {tag: _from_json(text)} if tag.startswith(prefix) and text else {}
        except ValueError as error:
            raise DamagedRecord(one_line(f"its tag {tag} is damaged: {error}")) from None
    return found


def text_tags(name: str, text: str, **further: Any) -> dict[str, str]:
    """Return the tags that hold a long text; the last one, of this name, refers to the others, and may have further fields."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    parts = [packed[at : at + PART_LENGTH] for at in range(0, len(packed), PART_LENGTH)]
    return {f"{TEXT}{digest}.{i}": part for i, part in enumerate(parts)} | {
        name: json.dumps({**further, "text": [digest, len(parts)]})
    }


def read_text(tags: Mapping[str, str], name: str) -> str:
    """Return the text that a tag of `text_tags` refers to.

    Raises:
        DamagedRecord: it cannot be read.
    """
    try:
        digest, parts = _from_json(tags[name])["text"]
        packed = "".join(tags[f"{TEXT}{digest}.{i}"] for i in range(parts))
        return zlib.decompressobj().decompress(base64.b64decode(packed), LARGEST_TEXT).decode()
    except (LookupError, TypeError, ValueError, zlib.error) as error:
        raise DamagedRecord(one_line(f"its tag {name} is damaged: {error}")) from None


def to_tags(record: type[_Record] = RunRecord, /, **fields: Any) -> dict[str, str]:
    """Return the tags with these fields of a record; values that are not text are written as JSON."""
    tags: dict[str, str] = {}
    for field, value in fields.items():
        name, text = tag(field, record), value if isinstance(value, str) else json.dumps(value)
        tags |= text_tags(name, text) if name in LONG else {name: text}
    return tags


def tag(field: str, record: type[_Record] = RunRecord) -> str:
    """Return the name of the tag with a field of a record."""
    return str(record.model_fields[field].alias)


def with_tag(field: str, value: str, *, equal: bool = True) -> str:
    """Return MLflow's filter for the runs with this value of a field, or another one."""
    return f"tags.`{tag(field)}` {'=' if equal else '!='} '{value}'"


def restored(value: float) -> float:
    """Return a metric as statistics read it: infinite from `LARGEST` on, where the run counts as diverged."""
    return value if not abs(value) >= LARGEST else math.copysign(math.inf, value)

"""The schema of what attnlab stores in MLflow, against which a record is checked before anything else reads it.

A runs folder, a store or a bundle may come from somebody else, or be damaged. What it holds is data: names that lead to a
file stay inside the folder, a commit is a commit, and no text of it is run or imported.
The dataclasses have the shapes of JSON values in records; unknown fields are left alone.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from attnlab._util.run_state import RunState
from attnlab.config.question import SHARE, EstimandConfig
from attnlab.errors import UserError, one_line

if TYPE_CHECKING:
    from mlflow.entities import Experiment, Run
    from pydantic import TypeAdapter

MAX_TIME = 253_402_300_799_000  # milliseconds since the epoch: the end of the year 9999, the last that Python has
Time = Annotated[int, Field(ge=0, le=MAX_TIME)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[int, Field(ge=0, le=1_000_000)]  # a number of seeds
Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Annotated[str, Field(pattern=f"^{SHARE}$")] | None
Direction = Literal["min", "max"]
Looks = list[tuple[Seeds, Time]]
Announced = tuple[()] | tuple[Seeds, Seeds, Time]
Futile = tuple[Whole, Seeds, Annotated[float, Field(ge=0, le=1)], Time]
KEY = "[A-Za-z0-9_][A-Za-z0-9_.~-]*"
SURROGATE = re.compile(r"(?<=\\)u[dD][89a-fA-F][0-9a-fA-F]{2}")  # in JSON: of a file name that is not UTF-8
Checked = tuple[str, str]  # name of the tag that does not fit, and what was expected


def misfit_of_record(run: Run) -> str | None:
    """Return in one line which field of a run's record does not fit the schema, and why; None when all do."""
    info, data = run.info, run.data
    kinds: tuple[tuple[str, Mapping[str, Any], Any], ...] = (
        ("tag", data.tags, str),
        ("parameter", data.params, str),
        ("metric", data.metrics, int | float),
    )
    for kind, fields, types in kinds:
        if odd := _of_another_type(fields, types):
            return f"{kind} {odd}"
    if not isinstance(info.run_name, str | None):
        return f"name is damaged: got {info.run_name!r:.60}"
    for time in (info.start_time, info.end_time):
        if not (time is None or is_time(time)):
            return f"time is damaged: expected milliseconds since 1970 up to the year 9999, got {time!r:.60}"
    misfit = misfit_of_run(data.tags)
    return misfit and f"tag {' '.join(misfit)}"


def misfit_of_run(tags: Mapping[str, str]) -> Checked | None:
    """Return the first tag of a run's record that does not fit the schema, and why; None when all do."""
    return _misfit(tags, _run_tags()) or _unreadable_config(tags) or _unfit_of_sweep(tags)


def is_time(value: object) -> bool:
    """Return whether Python has a date for a time in milliseconds since the epoch."""

    return isinstance(value, int) and 0 <= value <= MAX_TIME


def is_point(name: object, value: object, time: object, step: object) -> bool:
    """Return whether a point of a curve has fields of the kinds that its readers expect: SQLite holds any."""
    return isinstance(name, str) and isinstance(value, int | float) and is_time(time) and isinstance(step, int)


def misfit_of_study(tags: Mapping[str, str]) -> Checked | None:
    """Return the first tag of a study's experiment that does not fit the schema, and why; None when all do."""
    return _misfit(tags, _study_tags()) or _unreadable_calls(tags)


def require_study(experiment: Experiment) -> Experiment:
    """Return the experiment of a study.

    Raises:
        UserError: a tag of it does not fit the schema.
    """
    odd = _of_another_type(experiment.tags, str) or " ".join(misfit_of_study(experiment.tags) or ())
    if odd:
        raise UserError(f"cannot use the record of the study {experiment.name!r}: its tag {odd}", "MLflow")
    return experiment


def _of_another_type(fields: Mapping[Any, Any], types: Any) -> str:
    """Return which field is not a text with a value of these types; "" if all are: a column of SQLite holds any type."""
    odd = (item for item in fields.items() if not (isinstance(item[0], str) and isinstance(item[1], types)))
    return next((f"{name!r:.60} is damaged: got {value!r:.60}" for name, value in odd), "")


def _misfit(tags: Mapping[str, str], adapters: Mapping[str, tuple[bool, TypeAdapter[Any]]]) -> Checked | None:
    from attnlab.tracking.attempts import SUMMARY_TAG

    for name, (required, adapter) in adapters.items():
        found = [tag for tag in tags if tag.startswith(name)] if name.endswith(".") else [name] if name in tags else []
        if required and not found:
            return name, "is missing"
        for tag in found:
            try:
                adapter.validate_python(_without_surrogates(tags[tag]), strict=True)
                if tag not in (SUMMARY_TAG, "attnlab.cell") and tags[tag][:1] in ("[", "{"):  # a cell's name is no JSON
                    json.dumps(json.loads(tags[tag], parse_int=_of_64_bits), allow_nan=False)
            except ValueError as error:
                return tag, f"is damaged: {_first_line(error)}"
    return None


def _of_64_bits(digits: str) -> int:
    """Return a whole number of JSON; raise `ValueError` if it has more than 64 bits, which no column of a table holds."""
    if not -(2**63) <= (number := int(digits)) < 2**63:
        raise ValueError(f"expected whole numbers of 64 bits, got {digits[:60]}")
    return number


def _unreadable_calls(tags: Mapping[str, str]) -> Checked | None:
    """Return the prefix of the calls if the text of a study file, which has tags of its own, is missing or damaged."""
    from attnlab.tracking.calls import CALL_PREFIX, read_calls

    try:
        read_calls(tags)
    except (KeyError, ValueError, zlib.error) as error:
        return CALL_PREFIX, f"has no readable study file: {error}"
    return None


def _unfit_of_sweep(tags: Mapping[str, str]) -> Checked | None:
    """Return the tag of a swept value that no curve over a logarithm can hold."""
    swept = json.loads(tags.get("attnlab.params", "{}")) if tags.get("attnlab.phase") == "sweep" else {}
    for path, value in swept.items():
        if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf):
            return "attnlab.params", f"is damaged: expected a positive number as the {path} of a sweep, got {value!r:.60}"
    return None


def _unreadable_config(tags: Mapping[str, str]) -> Checked | None:
    """Return the tag of a configuration if its sections do not form a run: all readers flatten it."""
    from attnlab.config.command import CommandConfig
    from attnlab.config.comparability import identity_of_test, test_identity
    from attnlab.tracking.tags import flatten_config

    config = json.loads(_without_surrogates(tags["attnlab.config"]))
    sections = ("command", "values", "env", "files") if "command" in config else ("task", "data", "train", "evaluate")
    if missing := [name for name in sections if name not in config]:
        return "attnlab.config", f"is damaged: it has no {missing[0]!r}"
    try:
        if "command" in config:
            identity_of_test(CommandConfig.model_validate(json.loads(tags["attnlab.config"])))  # as it is read
        else:
            _require_json(_config(), config)
            _require_scalars(config)
            test_identity(config, None)
        flatten_config(config)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return "attnlab.config", f"is damaged: {_first_line(error)}"
    return None


def _require_scalars(config: Mapping[str, Any]) -> None:
    """Raise `ValueError` when a field for a number or a text has another kind of value: readers compute with the numbers."""
    for section, kinds in _scalar_kinds().items():
        for name, value in (config.get(section) or {}).items():
            kind = kinds.get(name)
            if isinstance(value, dict | list) if kind == "scalar" else kind and not _is_number(value):
                raise ValueError(f"expected a {kind} in {section}.{name}, got {value!r:.60}")


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _require_json(adapter: TypeAdapter[Any], value: Any) -> None:
    """Raise `ValueError` when a value of JSON does not have the adapter's type; text does not count as a number."""
    adapter.validate_json(_without_surrogates(json.dumps(value)), strict=True)


def _without_surrogates(text: str) -> str:
    """Return a JSON text with surrogates replaced by spaces, which Python reads and pydantic refuses."""
    return SURROGATE.sub("u0020", text)


def _first_line(error: Exception) -> str:
    """Return what an error says in one line, with the field that pydantic names."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]
    first = error.errors()[0]
    return one_line(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"]))))


@cache
def _config() -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(Config)


@cache
def _scalar_kinds() -> dict[str, dict[str, Literal["number", "scalar"]]]:
    """Return section of a run's configuration -> name of a field that is no list or mapping -> its kind of value."""
    from attnlab.config.run import EvaluateConfig, ModelConfig, TrainConfig

    kinds: dict[str, dict[str, Literal["number", "scalar"]]] = {}
    for section, model in {"train": TrainConfig, "evaluate": EvaluateConfig, "model": ModelConfig}.items():
        fields = model.model_json_schema()["properties"]
        types = {
            name: {choice.get("type", "object") for choice in about.get("anyOf", [about])} for name, about in fields.items()
        }
        scalars = {name: kind - {"null"} for name, kind in types.items() if not kind & {"object", "array"}}
        kinds[section] = {name: "number" if kind <= {"integer", "number"} else "scalar" for name, kind in scalars.items()}
    return kinds


@cache
def _run_tags() -> dict[str, tuple[bool, TypeAdapter[Any]]]:
    """Return name of a run's tag -> whether every record has it, and the type of its text."""
    from pydantic import Json, StringConstraints, TypeAdapter

    key = Annotated[str, StringConstraints(pattern=rf"^{KEY}$", max_length=250)]  # names a folder
    whole = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]
    fields = Json[dict[str, Any]]
    required = {"attnlab.fingerprint": key, "attnlab.cell": str, "attnlab.seed": whole}
    required |= {"attnlab.axes": fields, "attnlab.config": fields}
    optional = {
        "attnlab.state": Literal[tuple(map(str, RunState))],
        "attnlab.phase": Literal["grid", "sweep", "search", "confirm", "stage"],
        "attnlab.attempt": whole,
        "attnlab.failures": whole | Literal[""],
        "attnlab.trial": whole,
        "attnlab.params": fields,
        "attnlab.factors": fields,
        "attnlab.test": Json[Tested],
        "attnlab.search": fields,
        "attnlab.summary": Json[dict[str, float | None]] | Literal[""],
        "attnlab.data_notes": Json[list[str]],
        "attnlab.data_sizes": str,
        "attnlab.folder": Annotated[str, StringConstraints(pattern=rf"^work/{KEY}$", max_length=255)],
        "attnlab.redone": key,
        "attnlab.commit": Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{7,64}(\+dirty)?)?$")],
        "attnlab.current": Literal["yes", "no"],
    }
    adapters = {name: (True, TypeAdapter(kind)) for name, kind in required.items()}
    return adapters | {name: (False, TypeAdapter(kind)) for name, kind in optional.items()}


@cache
def _study_tags() -> dict[str, tuple[bool, TypeAdapter[Any]]]:
    """Return name, or prefix with a final ".", of an experiment's tag -> False, and the type of its text."""
    from pydantic import Json, StringConstraints, TypeAdapter

    from attnlab.config.study import STUDY_NAME

    optional = {
        "attnlab.study": Annotated[str, StringConstraints(pattern=STUDY_NAME)],
        "attnlab.questions": Json[list[Question]],
        "attnlab.doubles": Json[dict[str, str]],
        "attnlab.planned": Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*=*$")],
        "attnlab.threads": Annotated[str, StringConstraints(pattern=r"^[0-9]{0,6}$")],
        "attnlab.looks": Json[Announced],
        "attnlab.judged": Json[Looks],
        "attnlab.judged.": Json[tuple[str, Looks]],
        "attnlab.futile.": Json[tuple[str, Futile]],
        "attnlab.reference_score.": Json[Reference] | Literal[""],
        "attnlab.call.": Json[Call],
    }
    return {name: (False, TypeAdapter(kind)) for name, kind in optional.items()}


@dataclass
class Call:
    """A call of ``attnlab.tracking.calls``: its text is the digest and the number of parts of a study file."""

    command: str
    file: str
    text: tuple[str, int]
    partial: bool = False
    time: Time = 0


@dataclass
class Reference:
    """A score of ``attnlab.tracking.artifacts.ReferenceScore``."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    task: str
    data: str
    limit: Whole | None
    metric: str
    value: float
    seconds: float
    about: str


@dataclass
class Named:
    """A task with its options."""

    name: str


@dataclass
class Tested:
    """The identity of a run's test: the data files of a program; other fields are only compared."""

    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Config:
    """The fields of a run's configuration that its readers take for granted, also in records of other versions."""

    task: Named
    train: dict[str, Any]
    evaluate: dict[str, Any]
    data: Any
    seed: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)


@dataclass
class Question:
    """A question of ``attnlab.tracking.tags.question``."""

    metric: Annotated[str, Field(min_length=1, max_length=250)]
    direction: Direction
    baseline: dict[str, Any] | list[dict[str, Any]] | None
    margin: Margin | dict[str, Margin]
    control: dict[str, Any] | None = None
    over: str | None = None
    estimand: EstimandConfig | None = None
    moderate: bool = True
    task_axis: str | None = None
    tasks: dict[str, tuple[str, Direction]] = field(default_factory=dict)
    questions: list[tuple[str, Direction, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Raise `ValueError` when the margins are of several tasks and the study has one."""
        if isinstance(self.margin, dict) and not self.tasks:
            raise ValueError("expected one margin, because there is one task")

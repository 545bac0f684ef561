"""The shapes of the JSON values in records, as ``attnlab.tracking.schema`` checks them; unknown fields are left alone."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from attnlab.config.estimand import EstimandConfig
from attnlab.config.question import SHARE

MAX_TIME = 253_402_300_799_000  # milliseconds since the epoch: the end of the year 9999, the last that Python has
Time = Annotated[int, Field(ge=0, le=MAX_TIME)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Seeds = Annotated[int, Field(ge=0, le=1_000_000)]  # a number of seeds
Margin = Annotated[float, Field(ge=0, allow_inf_nan=False)] | Annotated[str, Field(pattern=f"^{SHARE}$")] | None
Direction = Literal["min", "max"]
Looks = list[tuple[Seeds, Time]]
Announced = tuple[()] | tuple[Seeds, Seeds, Time]
Futile = tuple[Whole, Seeds, Annotated[float, Field(ge=0, le=1)], Time]


@dataclass
class Call:
    """A call of ``attnlab.tracking.calls``: its text is the digest and the number of parts of a study file."""

    command: str
    file: str
    text: tuple[str, int]
    partial: bool = False
    time: Time = 0


@dataclass
class Setting:
    """A value that the plan chose for a field of the machine, and its reason."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    value: Any
    reason: str


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

    def __post_init__(self) -> None:
        """Raise `ValueError` if the margins are of several tasks and the study has one."""
        if isinstance(self.margin, dict) and not self.tasks:
            raise ValueError("expected one margin, because there is one task")


@dataclass
class HistoryEntry:
    """An entry of ``attnlab.tracking.history``."""

    event: Literal["planned", "judged", "withdrawn"]
    study: Annotated[str, Field(min_length=1)]
    time: Time
    cells: dict[str, tuple[str, list[Whole]]]
    question: Question | None = None
    version: str = ""

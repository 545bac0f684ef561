"""Building blocks of configurations: strict sections, names with options, small types, and the errors of one field.

Validation is strict: ``"8"`` is not a number, ``true`` is not 1, and an unknown key is an error.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_serializer, model_validator
from pydantic_core import PydanticCustomError

MAX_SEEDS = 1_000  # of a range


def expected(what: str) -> PydanticCustomError:
    """Return the error of one field; ``what`` completes "expected ..."."""
    return PydanticCustomError("expected", "{what}", {"what": what})


def conflict(message: str, field: str) -> PydanticCustomError:
    """Return the error of fields that contradict each other; the message shows the place of ``field``."""
    return PydanticCustomError("conflict", "{message}", {"message": message, "field": field})


class Section(BaseModel):
    """Base class of the parts of a configuration: frozen, strict, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Named(Section):
    """A registry name with its options: ``dense`` or ``{name: strided_sparse, stride: 16}``."""

    name: str = Field(min_length=1)
    options: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if not isinstance(value, dict):
            raise expected("a name, or {name: ..., option: ...}")
        if set(value) == {"name", "options"} and isinstance(value["options"], dict):
            return value
        if "name" not in value:
            raise expected("the key 'name' in addition to the options")
        own = {key: item for key, item in value.items() if key in cls.model_fields and key != "options"}
        return {**own, "options": {key: item for key, item in value.items() if key not in own}}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    @property
    def label(self) -> str:
        """A short name for tables: ``strided_sparse stride=16``; a path shows only its class: ``Cosine``."""
        return " ".join([self.name.rpartition(":")[2], *(f"{k}={v}" for k, v in self.options.items())])


class Match(Section):
    """Adjust the field ``by`` until a cell has the same ``cost`` as its baseline."""

    cost: Literal["params", "flops"]
    by: str = Field(default="model.ff_mult", min_length=1, description="a dotted path to a number")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if not isinstance(value, dict) and value not in ("params", "flops"):
            raise expected("'params', 'flops' or {cost: ..., by: ...}")
        return {"cost": value} if isinstance(value, str) else value


class NamedVariant(Named):
    """A variant, optionally matched to the baseline: ``{name: no_wo, match: params}``. The plan resolves ``match`` to None."""

    match: Match | None = None

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        match = {"match": self.match.model_dump()} if self.match else {}
        return {"name": self.name, **match, **self.options}


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _seeds(value: Any) -> Any:
    """Convert ``"0-4"`` and ``"0-2, 7"`` to a list."""
    if not isinstance(value, str):
        return value
    seeds: list[int] = []
    for part in value.split(","):
        match = re.fullmatch(r" *(\d{1,18})(?: *- *(\d{1,18}))? *", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last:
            raise expected("a list of whole numbers, or a range such as 0-4")
        if last - first + len(seeds) >= MAX_SEEDS:
            raise expected(f"at most {MAX_SEEDS:,} seeds")
        seeds += range(first, last + 1)
    return seeds


Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Betas = Annotated[tuple[Fraction, Fraction], BeforeValidator(_tuple)]
Lengths = Annotated[tuple[Count, ...], BeforeValidator(_tuple)]

_SEEDS_SCHEMA = {
    "anyOf": [
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}},
        {"type": "string", "pattern": r"^ *\d+( *- *\d+)? *(, *\d+( *- *\d+)? *)*$"},
    ]
}
Seeds = Annotated[list[Seed], BeforeValidator(_seeds), Field(min_length=1), WithJsonSchema(_SEEDS_SCHEMA)]

_NAME = {"type": "string", "minLength": 1}
_NAMED_SCHEMA = {
    "anyOf": [_NAME, {"type": "object", "properties": {"name": _NAME}, "required": ["name"]}],
}
NamedField = Annotated[Named, WithJsonSchema(_NAMED_SCHEMA)]
VariantField = Annotated[NamedVariant, WithJsonSchema(_NAMED_SCHEMA)]

"""Building blocks of configurations: strict sections, names with options, small types, and the errors of one field.

Validation is strict: ``"8"`` is not a number, ``true`` is not 1, and an unknown key is an error.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

MAX_SEEDS = 1_000  # of a range
WITH = "with"  # the key of the components of a variant


def expected(what: str) -> PydanticCustomError:
    """Return the error of one field; ``what`` completes "expected ..."."""
    return PydanticCustomError("expected", "{what}", {"what": what})


def conflict(message: str, field: str | int) -> PydanticCustomError:
    """Return the error of fields that contradict each other; the message shows the place of ``field``, a name or an index."""
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
        keys = {field.alias or name for name, field in cls.model_fields.items() if name != "options"}
        own = {key: item for key, item in value.items() if key in keys}
        return {**own, "options": {key: item for key, item in value.items() if key not in own}}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {"name": self.name, **self.options}

    @property
    def label(self) -> str:
        """A short name for tables: ``strided_sparse stride=16``; a path shows only its class: ``Cosine``."""
        return " ".join([self.short_name, *(f"{k}={v}" for k, v in self.options.items())])

    @property
    def short_name(self) -> str:
        """The name without its options; for a path, the name of the class."""
        return self.name.rpartition(":")[2]


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


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _components(value: Any) -> Any:
    """Convert a list, or a single component, to a tuple."""
    if not isinstance(value, list | tuple | str | dict):
        raise expected("a list of components, such as [qk_norm, {name: gate, per: head}]")
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _distinct(components: tuple[Named, ...]) -> tuple[Named, ...]:
    """Require each component once: the parameters of a variant's components are named after them."""
    names = [component.short_name for component in components]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise conflict(f"expected each component once, got {name!r} again", i)
    return components


class ComposedVariant(Named):
    """A variant with components that change it: ``{name: dense, with: [qk_norm, {name: gate, per: head}]}``."""

    components: Annotated[tuple[Named, ...], BeforeValidator(_components), AfterValidator(_distinct)] = Field(
        default=(), alias=WITH
    )

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        components = {WITH: [component.model_dump() for component in self.components]} if self.components else {}
        return {"name": self.name, **components, **self.options}

    @property
    def label(self) -> str:
        """A short name for tables: ``dense with qk_norm, gate per=head``."""
        components = ", ".join(component.label for component in self.components)
        return f"{super().label} with {components}" if components else super().label


class NamedVariant(ComposedVariant):
    """A variant, optionally matched to the baseline: ``{name: no_wo, match: params}``. The plan resolves ``match`` to None."""

    match: Match | None = None

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        match = {"match": self.match.model_dump()} if self.match else {}
        components = {WITH: [component.model_dump() for component in self.components]} if self.components else {}
        return {"name": self.name, **match, **components, **self.options}


def _seeds(value: Any) -> Any:
    """Convert ``"0-4"`` and ``"0-2, 7"`` to a list."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise expected("a list such as [0, 1], or a range such as 0-4")
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
AUTO_SEEDS, FIRST_SEEDS, MAX_ADDED_SEEDS = "auto", [0, 1, 2], 12  # seeds: auto: the first ones, and the most in all
StudySeeds = Annotated[Seeds, WithJsonSchema({"anyOf": [*_SEEDS_SCHEMA["anyOf"], {"const": AUTO_SEEDS}]})]

_NAME = {"type": "string", "minLength": 1}
NAMED_SCHEMA = {
    "anyOf": [_NAME, {"type": "object", "properties": {"name": _NAME}, "required": ["name"]}],
}
_COMPONENTS_SCHEMA = {"anyOf": [*NAMED_SCHEMA["anyOf"], {"type": "array", "items": NAMED_SCHEMA}]}
_VARIANT_SCHEMA = {
    "anyOf": [
        _NAME,
        {"type": "object", "properties": {"name": _NAME, WITH: _COMPONENTS_SCHEMA}, "required": ["name"]},
    ],
}
NamedField = Annotated[Named, WithJsonSchema(NAMED_SCHEMA)]
ComposedField = Annotated[ComposedVariant, WithJsonSchema(_VARIANT_SCHEMA)]
VariantField = Annotated[NamedVariant, WithJsonSchema(_VARIANT_SCHEMA)]

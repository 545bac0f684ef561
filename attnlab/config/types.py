"""Building blocks of configurations: strict sections, names with options, patterns of layers, and texts of values.

Validation is strict: ``"8"`` is not a number, ``true`` is not 1, and an unknown key is an error.

``model.layers: [gru, gru, {name: dense, position: rotary}]`` gives block i the entry i modulo 3. An entry is written like a
variant, with its options and optionally its position scheme; ``{pattern: [...], match: params}`` matches the cost of the model
to the baseline, as ``{name: no_wo, match: params}`` does for a variant.
"""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from itertools import groupby
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

from attnlab._util.text import escape_controls

MAX_SEEDS = 1_000  # of a range
WITH = "with"  # the key of the components of a variant
LAYERS = "model.layers"  # the axis whose values are patterns of variants
Label = str | int | float | bool


def text(value: Any) -> str:
    """Return a value on one line: ``strided_sparse stride=16``, ``0.9,0.98``, ``true``; a path shows only its class.

    The components of a variant follow its options: ``dense with qk_norm, gate per=head``; an empty list is ``none``. Control
    characters are escaped: names of cells are made of such texts.
    """
    if isinstance(value, dict):
        if set(value) == {"from"}:  # of init
            return text(value["from"])
        name, components = value.get("name"), value.get(WITH)
        parts = [escape_controls(name.rpartition(":")[2])] if isinstance(name, str) else []
        parts += [f"{escape_controls(str(k))}={text(v)}" for k, v in value.items() if k not in ("name", WITH)]
        if components:
            parts += [WITH, ", ".join(_item_texts(components if isinstance(components, list) else [components]))]
        return " ".join(parts)
    if isinstance(value, list):
        return ",".join(_item_texts(value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "null" if value is None else escape_controls(str(value))


def _item_texts(items: list[Any]) -> list[str]:
    return [text({"name": item} if isinstance(item, str) else item) for item in items]


def pattern_text(names: Sequence[str]) -> str:
    """Return the names of the entries of a pattern on one line: ``[gru x2, dense]``."""
    runs = [(f"({name})" if ", " in name else name, len(list(group))) for name, group in groupby(names)]
    return f"[{', '.join(name if count == 1 else f'{name} x{count}' for name, count in runs)}]"


def layers_text(value: Any) -> str:
    """Return a value of ``model.layers``, as a study writes it, on one line."""
    if isinstance(value, dict) and "pattern" in value:
        match = value.get("match")
        return layers_text(value["pattern"]) + (f" match={text(match)}" if match else "")
    return pattern_text(_item_texts(value)) if isinstance(value, list) else text(value)


def canonical(value: Any) -> str:
    """Return a text that is equal for equal values: ``dense`` and ``{name: dense}``, 1 and 1.0, but not 1 and true."""
    if isinstance(value, dict) and set(value) in ({"name"}, {"from"}):
        value = next(iter(value.values()))
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        value = float(value)  # beyond 2**53, two integers may have one float
    return json.dumps(value, sort_keys=True, default=str)


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


def require_distinct(values: Sequence[Any], what: str, *, shown: Callable[[Any], str] = text) -> None:
    """Raise the error of a list in which a value occurs twice."""
    keys = [canonical(value) for value in values]
    for i, key in enumerate(keys):
        if key in keys[:i]:
            raise conflict(f"expected each {what} once, got {shown(values[i])} again", i)


def _distinct(components: tuple[Named, ...]) -> tuple[Named, ...]:
    """Require each component once: the parameters of a variant's components are named after them."""
    require_distinct([component.short_name for component in components], "component", shown=repr)
    return components


def _distinct_seeds(seeds: list[int]) -> list[int]:
    require_distinct(seeds, "seed")
    return seeds


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
Seeds = Annotated[
    list[Seed], BeforeValidator(_seeds), Field(min_length=1), AfterValidator(_distinct_seeds), WithJsonSchema(_SEEDS_SCHEMA)
]
MAX_ADDED_SEEDS = 12  # of a comparison, with seeds: auto
_FRESH = r"^fresh ([1-9]\d{0,2})$"
_STUDY_SEEDS_SCHEMA = {"anyOf": [*_SEEDS_SCHEMA["anyOf"], {"const": "auto"}, {"type": "string", "pattern": _FRESH}]}
StudySeeds = Annotated[Seeds, WithJsonSchema(_STUDY_SEEDS_SCHEMA)]


def with_named_seeds(fields: Any) -> Any:
    """Replace `seeds: auto` by the first seeds and their largest number, and `seeds: fresh 6` by seeds of the study's name."""
    seeds = fields.get("seeds") if isinstance(fields, dict) else None
    if seeds == "auto":
        return {**fields, "seeds": [0, 1, 2], "max_seeds": fields.get("max_seeds") or MAX_ADDED_SEEDS}
    if isinstance(seeds, str) and (fresh := re.fullmatch(_FRESH, seeds)):
        first = 1_000 * (1 + int(hashlib.sha256(str(fields.get("study")).encode()).hexdigest(), 16) % 10**6)
        return {**fields, "seeds": [*range(first, first + int(fresh[1]))]}
    return fields


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


class LayerConfig(ComposedVariant):
    """One entry of a pattern: a variant with its options, and optionally its position scheme."""

    position: NamedField | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_match(cls, value: Any) -> Any:
        if isinstance(value, dict) and "match" in value:
            raise expected("no 'match' in an entry: {pattern: [...], match: ...} matches the whole model")
        return value

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        components = {WITH: [component.model_dump() for component in self.components]} if self.components else {}
        position = {"position": self.position.model_dump()} if self.position else {}
        return {"name": self.name, **position, **components, **self.options}


def _entries(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise expected("a list of variants, such as [gru, gru, dense]")
    return tuple(value)


_PATTERN_SCHEMA: dict[str, Any] = {"type": "array", "minItems": 1, "items": NAMED_SCHEMA}


class LayersConfig(Section):
    """A pattern of variants, optionally matched to the baseline. The plan resolves ``match`` to None."""

    pattern: Annotated[
        tuple[LayerConfig, ...], BeforeValidator(_entries), Field(min_length=1), WithJsonSchema(_PATTERN_SCHEMA)
    ] = Field(
        description="instead of 'variant': the variants of the first blocks, each with its options and position; the pattern "
        "repeats over model.depth; model.layers: [gru, gru, dense] is short for {pattern: [gru, gru, dense]}"
    )
    match: Match | None = Field(default=None, description="match the cost of the model to the baseline")

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return value if isinstance(value, dict) and "name" not in value else {"pattern": value}

    @model_serializer
    def _as_written(self) -> Any:
        pattern = [entry.model_dump() for entry in self.pattern]
        return {"pattern": pattern, "match": self.match.model_dump()} if self.match else pattern

    @property
    def variant_label(self) -> str:
        """The variants of the pattern, as in ``[gru x2, dense]``."""
        return pattern_text([entry.label for entry in self.pattern])

    def blocks(self, depth: int) -> tuple[LayerConfig, ...]:
        """Return the entry of each of ``depth`` blocks."""
        return tuple(self.pattern[i % len(self.pattern)] for i in range(depth))


_MATCH_SCHEMA: dict[str, Any] = {"anyOf": [{"enum": ["params", "flops"]}, {"type": "object"}]}
_MATCHED_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"pattern": _PATTERN_SCHEMA, "match": _MATCH_SCHEMA},
    "required": ["pattern"],
    "additionalProperties": False,
}
LayersField = Annotated[LayersConfig, WithJsonSchema({"anyOf": [_PATTERN_SCHEMA, _MATCHED_SCHEMA]})]


def layer_entries(layers: Any) -> list[dict[str, Any]]:
    """Return the entries of ``model.layers`` in the fields of a configuration, as dictionaries; [] without a pattern."""
    return layers["pattern"] if isinstance(layers, dict) else layers or []


def recorded_variant(layers: Any) -> str:
    """Return the variants of ``model.layers`` in the fields of a configuration: ``[gru x2, dense]``."""
    entries = layer_entries(layers)
    return pattern_text([text({key: value for key, value in entry.items() if key != "position"}) for entry in entries])


def recorded_position(layers: Any) -> str:
    """Return the position schemes of ``model.layers`` in the fields of a configuration; one name if all entries agree."""
    names = [text(entry.get("position") or {"name": "none"}) for entry in layer_entries(layers)]
    return names[0] if len(set(names)) == 1 else pattern_text(names)

"""The section ``model.layers``: a pattern of variants that repeats over the blocks of a model.

``model.layers: [gru, gru, {name: dense, position: rotary}]`` gives block i the entry i modulo 3. An entry is written like a
variant, with its options and optionally its position scheme; ``{pattern: [...], match: params}`` matches the cost of the model
to the baseline, as ``{name: no_wo, match: params}`` does for a variant.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_serializer, model_validator

from attnlab.config.axes import LAYERS, pattern_text, text
from attnlab.config.types import WITH, ComposedVariant, Match, NamedField, Section, expected

__all__ = ["LAYERS", "LayerConfig", "LayersConfig", "LayersField", "layer_entries", "recorded_position", "recorded_variant"]


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


_ENTRY_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]},
    ]
}
_PATTERN_SCHEMA: dict[str, Any] = {"type": "array", "minItems": 1, "items": _ENTRY_SCHEMA}


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

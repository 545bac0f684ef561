"""The types of a study's metric and margin, each one value or one for each task."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from attnlab.config.types import expected

SHARE = r" *(\d+(?:\.\d+)?) *% *of *steps *"


def _margin(value: Any) -> Any:
    if isinstance(value, dict):
        if not value:
            raise expected("at least one task with its margin, such as {enwik8: 0.01, imdb: 0.005}")
        return {str(task): _margin(margin) for task, margin in value.items()}
    if isinstance(value, str):
        match = re.fullmatch(SHARE, value)
        if match is None or not 0 < float(match[1]) < 100:
            raise expected("a number greater than 0, or a share of training such as 5 % of steps")
        return f"{float(match[1]):g} % of steps"
    if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
        raise expected("a number greater than 0, or a share of training such as 5 % of steps")
    return value


_ONE_MARGIN = [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{SHARE}$"}]
Margin = Annotated[
    float | str | dict[str, float | str] | None,
    BeforeValidator(_margin),
    WithJsonSchema(
        {
            "anyOf": [
                *_ONE_MARGIN,
                {"type": "object", "minProperties": 1, "additionalProperties": {"anyOf": _ONE_MARGIN}},
                {"type": "null"},
            ]
        }
    ),
]


def _metric(value: Any) -> Any:
    names = value.values() if isinstance(value, dict) else [] if value is None else [value]
    if value == {} or not all(isinstance(name, str) for name in names):
        raise expected("the name of a metric, or one for each task, such as {enwik8: bits_per_byte, imdb: accuracy}")
    return value


Metric = Annotated[
    str | dict[str, str] | None,
    BeforeValidator(_metric),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}},
                {"type": "null"},
            ]
        }
    ),
]


def share_of_steps(margin: float | str | None) -> float | None:
    """Return the share of a margin such as "5 % of steps", here 0.05; None for a margin in the metric's unit."""
    match = re.fullmatch(SHARE, margin) if isinstance(margin, str) else None
    return float(match[1]) / 100 if match else None

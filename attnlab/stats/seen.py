"""Results that were known before: an earlier table of the same runs, or runs that were withdrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Seeds = tuple[int, ...]


@dataclass(frozen=True)
class Seen:
    """A table of these configurations that was judged earlier, or runs of them that were withdrawn.

    Attributes:
        study: The study's name at the time.
        time: In milliseconds since the epoch.
        seeds: Name of the cell as the present study has it -> seeds.
        question: The comparison that was made, as `question_of` reads it; None for runs that were withdrawn.
    """

    study: str
    time: int
    seeds: Mapping[str, Seeds]
    question: Mapping[str, Any] | None = None

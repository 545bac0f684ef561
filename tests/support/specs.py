"""Comparisons of made-up studies, by the names of single settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.stats.cells import ComparisonSpec


def comparison_spec(
    study: str, axes: Sequence[str], metric: str, direction: str, baseline: Mapping[str, Any] | None = None, **settings: Any
) -> ComparisonSpec:
    """Return the comparison of a study; `settings` are those of `changed`."""
    return changed(ComparisonSpec(study, tuple(axes), metric, direction), baseline=baseline or {}, **settings)


def changed(spec: ComparisonSpec, **settings: Any) -> ComparisonSpec:
    """Return a comparison with other settings; `baseline` is the first of its baselines."""
    first, further = settings.pop("baseline", spec.baseline), settings.pop("further_baselines", spec.baselines[1:])
    return replace(spec, baselines=(*([first] if first else []), *further), **settings)

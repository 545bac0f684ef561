"""Comparisons of made-up studies, by the names of single settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from attnlab.config.design import FactorialDesign
from attnlab.stats.cells import ComparisonSpec, Goal, Over, Sweep

GROUPS = {
    "goal": {"metric": "metric", "direction": "direction", "margin": "margin"},
    "judged": {"looks": "looks", "own_looks": "own", "futile": "futile"},
    "tasks": {"task_axis": "axis", "tasks": "goals"},
}
SECTIONS = {"over": Over, "sweep": Sweep, "factorial": FactorialDesign}


def comparison_spec(
    study: str, axes: Sequence[str], metric: str, direction: str, baseline: Mapping[str, Any] | None = None, **settings: Any
) -> ComparisonSpec:
    """Return the comparison of a study; `settings` are those of `changed`."""
    spec = ComparisonSpec(study, tuple(axes), Goal(metric, direction))
    return changed(spec, baseline=baseline or {}, **settings)


def changed(spec: ComparisonSpec, **settings: Any) -> ComparisonSpec:
    """Return a comparison with other settings: fields of the specification, of its parts, or the content of a section."""
    for group, names in GROUPS.items():
        own = {names[name]: settings.pop(name) for name in names if name in settings}
        spec = replace(spec, **{group: replace(getattr(spec, group), **own)})
    for name, kind in SECTIONS.items():
        if name in settings:
            content = settings.pop(name)
            content = kind(content) if content and kind is not FactorialDesign else content
            others = (section for section in spec.sections if not isinstance(section, kind))
            spec = replace(spec, sections=(*others, *([content] if content else [])))
    first, further = settings.pop("baseline", spec.baseline), settings.pop("further_baselines", spec.baselines[1:])
    return replace(spec, baselines=(*([first] if first else []), *further), **settings)

"""The section ``factors`` of a study: axes of a factorial design, and the checks and cell names that belong to it.

A factor is on or off, or has several levels. Each becomes an axis of the grid, so that planning, running and resuming a
factorial study work as in any other; the design selects the cells. The first level of a factor is its off level:

    no_wo: {variant: no_wo}                    # off: the base; on: the fields that are set
    position: [learned, rotary]                # the values of a field; the first one is off
    size: {small: {}, large: {model.dim: 64}}  # named levels, as in a grid
    gate: {with: {name: gate, per: head}}      # off: the base; on: a component is added to its variant

A list of components, ``factors: [qk_norm, {name: gate, per: head}]``, makes each of them such a factor.
"""

from typing import Any

from pydantic import ValidationError

from attnlab.config.axes import label_text, labels
from attnlab.config.design import (
    DesignConfig,
    Factor,
    FactorialDesign,
    Point,
    default_fraction,
    design_size,
    fractions,
)
from attnlab.config.run import RunConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import LAYERS, WITH, Named
from attnlab.config.validation import field_names
from attnlab.config.yaml import Where, kind
from attnlab.errors import UserError

MAX_LISTED = 3  # factors in the name of a cell that lists what is off instead of what is on needs more than these


def with_named_factors(fields: dict[str, Any], *, where: Where) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Convert a list of components under ``factors`` to factors of their names.

    Args:
        fields: of the study, not validated yet.
        where: the places of the study's values.

    Returns:
        The fields, and the names of the factors.

    Raises:
        UserError: an entry that is no component, or a name that occurs twice; with its place.
    """
    factors: dict[str, Any] = {}
    for i, entry in enumerate(fields["factors"]):
        try:
            name = Named.model_validate(entry).short_name
        except ValidationError:
            message = (
                f"factors[{i}]: expected a component, such as gate or {{name: gate, per: head}}, got {kind(entry)}: "
                "write factors that set other fields as a mapping, such as gate: {with: gate}"
            )
            raise UserError(message, where(("factors", i))) from None
        if name in factors:
            raise UserError(f"factors: expected each component once, got {name!r} again", where(("factors", i)))
        factors[name] = {WITH: entry}
    return {**fields, "factors": factors}, tuple(factors)


def with_factor_axes(study: StudyConfig) -> StudyConfig:
    """Return a study with its factors as axes of the grid.

    Raises:
        UserError: a factor without two levels; with the place.
    """
    axes = {name: _levels(study, name, levels) for name, levels in study.factors.items()}
    return study.model_copy(update={"grid": axes})


def _levels(study: StudyConfig, name: str, levels: Any) -> Any:
    """Return the levels of a factor as levels of an axis: the fields that an on/off factor sets become its level ``on``."""
    if (
        name != LAYERS
        and isinstance(levels, dict)
        and (_sets_fields(levels) or not all(isinstance(level, dict) for level in levels.values()))
    ):
        return {"off": {}, "on": levels}
    if len(levels) < 2:
        message = f"factors.{name}: expected the fields that are set when it is on, or at least two levels, got one level"
        raise UserError(message, study.where("factors", name))
    return levels


def _sets_fields(levels: dict[str, Any]) -> bool:
    return any("." in key or key == WITH or key in field_names(RunConfig, ()) for key in levels)


def check_design(study: StudyConfig) -> None:
    """Check that the design can be built over the study's factors.

    Raises:
        UserError: the reason, with its place.
    """
    design, count = study.design or DesignConfig(name="full"), len(study.factors)
    place = study.where("design") if study.design else study.where("factors", key=True)
    if count < 2:
        raise UserError("factors: expected at least two, got one: use 'grid'", study.where("factors", key=True))
    if design.name == "full":
        return
    for axis, levels in study.axes.items():
        if len(levels) > 2:
            reason = {
                "fractional": "a fraction is defined by products of two-level factors",
                "leave_one_out": "each factor is left out by its off level",
            }[design.name]
            message = f"design: {design.name} expects factors with two levels, got {axis!r} with {len(levels)}: {reason}"
            raise UserError(message, study.where("factors", axis))
    if design.name == "fractional":
        _check_fraction(design, count, place=place)


def _check_fraction(design: DesignConfig, count: int, *, place: str) -> None:
    known = fractions(count)
    if not known:
        reason = "use the design full" if count < 3 else f"no table has fractions of {count} factors"
        raise UserError(f"design: a fractional design expects 3 to 15 factors, got {count}: {reason}", place)
    if design.cells is not None and design.cells not in known:
        listed = ", ".join(f"{cells} (resolution {roman(resolution)})" for cells, resolution in known.items())
        full = f"; the full design has {2**count}" if count < 15 else ""
        raise UserError(f"design.cells: expected one of {listed} for {count} factors, got {design.cells}{full}", place)


def roman(resolution: int) -> str:
    """Return a resolution as a Roman numeral, as is usual for designs."""
    return ("III", "IV", "V", "VI", "VII", "VIII")[resolution - 3]


def factorial_design(study: StudyConfig) -> FactorialDesign | None:
    """Return the factors and the design of a study that ``reader`` has checked; None when it has no factors."""
    if not study.factors:
        return None
    design, axes = study.design or DesignConfig(name="full"), study.axes
    cells = design.cells or default_fraction(len(axes))
    size = design_size(design.name, [len(levels) for levels in axes.values()], cells)
    return FactorialDesign(design.name, tuple(_factors(axes)), size)


def _factors(axes: dict[str, list[Any]]) -> list[Factor]:
    """Return the factors, with texts of their levels that are unique in the study."""
    levels = {axis: [label_text(label) for label in labels(values, axis=axis)] for axis, values in axes.items()}
    short = {axis: [_level_text(axis, text) for text in texts] for axis, texts in levels.items()}
    every = [text for texts in short.values() for text in texts[1:]]
    factors = []
    for axis, texts in levels.items():
        if any(every.count(text) > 1 for text in short[axis][1:]):
            short[axis] = [f"{axis}={text}" for text in texts]
        factors.append(Factor(axis, tuple(texts), ("", *short[axis][1:])))
    return factors


def _level_text(axis: str, text: str) -> str:
    if text == "on":
        return axis
    return text if axis in ("task", "variant", "position", "backend", LAYERS) else f"{axis.rpartition('.')[2]}={text}"


def design_cell_name(design: FactorialDesign, point: Point) -> str:
    """Return the name of a cell: the factors that are on, as in ``no_wo+rotary``; ``all on``, ``all but no_wo``, ``all off``.

    A factor with more than two levels is listed with its level unless that is the first one.
    """
    factors, two_levels = design.factors, all(len(factor.levels) == 2 for factor in design.factors)
    on = [factor.texts[level] for factor, level in zip(factors, point, strict=True) if level]
    if not on:
        return "all off"
    if two_levels and len(on) == len(factors):
        return "all on"
    if two_levels and len(on) == len(factors) - 1 and (len(factors) > MAX_LISTED or design.name == "leave_one_out"):
        off = next(factor.texts[1] for factor, level in zip(factors, point, strict=True) if not level)
        return f"all but {off}"
    return "+".join(on)

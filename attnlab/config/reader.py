"""Read a study: turn a file or a dict into a ``StudyConfig``, or the first mistake into a ``UserError`` with its place.

``checks`` checks what needs no class. The plan checks names and options of variants, positions and tasks.

``include`` names a base file that completes a study. The base file is merged under the study: mappings are merged key by key,
and all other values of the study replace the values of the base file. A mapping with a ``name`` replaces the other one, because
its options belong to that name, and a ``claim`` the other claim. Paths in a base file are relative to the study's file, like
all paths in it.

``over`` has the levels at which the cells of a study are compared, to find out how their differences change. ``over:
{train.steps: [500, 1500, 4500]}`` is an axis like any other of the grid, with a role: each cell is compared with its baseline
at every level, and the change of the difference from level to level is tested (``attnlab.stats.trend``). Reading a study
appends the axis to its grid, so that planning and running treat it like any other.

Levels that need several fields have names: ``over: {width: {"64": {model.dim: 64, train.lr: 4e-3}, "128":
{...}}}``. The names are the numbers that the trend is computed over.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab._util.files import real_path
from attnlab.config.axes import check_axis, labels, pick
from attnlab.config.checks import check_parts, check_secrets, check_skip, check_training
from attnlab.config.command import check_command
from attnlab.config.factors import check_design, with_factor_axes, with_named_factors
from attnlab.config.grid import ONE_OF
from attnlab.config.question import OF_SOLVE_RATES, OF_TRENDS, ClaimConfig
from attnlab.config.run import RunConfig, set_path
from attnlab.config.study import StudyConfig, StudySource, check_added_seeds
from attnlab.config.types import text
from attnlab.config.validation import field_names, validate
from attnlab.config.yaml import Loc, SourceMap, Where, constant_place, dotted, kind, read
from attnlab.errors import UserError

INCLUDE = "include"
# Parts of a study that --set does not replace.
NOT_ASSIGNED = ("include", "base", "grid", "over", "factors", "design", "skip", "imports")


def read_study(source: str | Path | dict[str, Any], *, sets: dict[str, Any] | None = None) -> StudyConfig:
    """Read and check a study.

    Args:
        source: the path of a YAML file, or the content of one as a dict.
        sets: dotted path -> value. Paths such as ``seeds`` and ``search.trials`` replace a part of the study, all others
            are set in the base of every cell.

    Raises:
        UserError: the first mistake, with its place: ``file:line:column``, or the assignment.
    """
    sets = sets or {}
    if isinstance(source, dict):
        written, source_map, path = dict(source), SourceMap(), None
    else:
        path = Path(source)
        written, source_map = read(path, what="a study")
    text_of_file = source_map.text
    folder, files = (path.parent, (real_path(path),)) if path else (Path(), ())
    fields, source_map = with_included(written, source_map, folder=folder, ancestors=files)

    # Split the assignments into those over the study itself and those over the base.
    assignable = set(StudyConfig.model_fields).difference(NOT_ASSIGNED)
    study_sets = {key: value for key, value in sets.items() if key.partition(".")[0] in assignable}
    base_sets = {key: value for key, value in sets.items() if key not in study_sets}

    check_secrets(fields, where=source_map.at)
    for key, value in sets.items():
        check_secrets(value, where=constant_place(f"--set {key}"))
    for key in (key for key in fields if key in field_names(RunConfig, ())):  # nearest to an unrelated key of the study
        message = f"expected {key!r} under base: (or its values under grid:), got it at the top level"
        raise UserError(message, source_map.at((key,), key=True))

    complete, over = with_levels(_with_assignments(fields, study_sets), where=source_map.at)
    listed: tuple[str, ...] = ()
    if isinstance(complete.get("factors"), list):
        complete, listed = with_named_factors(complete, where=source_map.at)
    origin = StudySource(
        source_map, study_sets, base_sets, fields, over, listed, path, text_of_file, includes=fields is not written
    )
    study = validate(StudyConfig, complete, where=origin.at)
    study.set_source(origin)
    check_parts(study)
    if study.command is not None:
        check_command(study)
        study = study.model_copy(update={"reference_scores": False})
    else:
        study = with_factor_axes(study) if study.factors else study
        check_training(study)
    if study.factors:
        check_design(study)
    check_skip(study)
    if study.max_seeds is not None:
        check_added_seeds(study, study.max_seeds, place=study.where("seeds" if "seeds" in complete else "max_seeds"))
    return _with_labels(study)


def _with_assignments(fields: dict[str, Any], sets: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a study with assignments applied: keys first, then the dotted paths into them."""
    fields = {**fields, **{key: value for key, value in sets.items() if "." not in key}}
    for path, value in sets.items():
        if "." in path:
            set_path(fields, path, value)
    return fields


def _with_labels(study: StudyConfig) -> StudyConfig:
    """Return the study with the values of its baselines, its control and its claim replaced by the labels of the axes."""
    changes: dict[str, Any] = {}
    if isinstance(study.baseline, list):
        baselines = [_labelled(study, baseline, ("baseline", i)) for i, baseline in enumerate(study.baseline)]
        for i, baseline in enumerate(baselines):
            if baseline in baselines[:i]:
                raise UserError(f"baseline: expected each cell once, got {text(baseline)} again", study.where("baseline", i))
        changes["baseline"] = baselines
    elif study.baseline is not None:
        changes["baseline"] = _labelled(study, study.baseline, ("baseline",))
    study = study.model_copy(update=changes)
    if study.control is not None:
        study = study.model_copy(update={"control": _labelled_control(study, study.control)})
    if study.claim is not None:
        study = study.model_copy(update={"claim": _labelled_claim(study, study.claim, ("claim",))})
    claims = {name: _labelled_claim(study, claim, ("claims", name)) for name, claim in study.claims.items()}
    return study.model_copy(update={"claims": claims})


def _labelled_control(study: StudyConfig, control: dict[str, Any]) -> dict[str, Any]:
    try:
        labelled = _labelled(study, control, ("control",))
    except UserError as error:
        raise UserError(f"{error.message} (the control is trained as a cell of the grid)", error.where) from error
    for baseline in study.baselines:
        if all(labelled[axis] == baseline[axis] for axis in labelled.keys() & baseline.keys()):
            message = f"control: expected another value than the baseline {text(baseline)} on one of its axes"
            raise UserError(f"{message}, got {text(labelled)}", study.where("control"))
    return labelled


def _labelled_claim(study: StudyConfig, claim: ClaimConfig, loc: Loc) -> ClaimConfig:
    """Return the claim with labels, after a check that the study compares what the claim is about."""
    if not study.baselines and claim.effect is None and claim.direction not in OF_SOLVE_RATES:
        raise UserError("claim: expected a 'baseline' that cells are compared with, got none", study.where(*loc))
    if claim.direction in OF_TRENDS and not study.over:
        message = f"claim: expected levels in 'over', along which it {claim.direction}"
        raise UserError(message, study.where(*loc, "direction"))
    if claim.effect is not None and not study.factors:
        raise UserError("claim: expected a study with 'factors', which have effects", study.where(*loc, "effect"))
    parts = {name: getattr(claim, name) for name in ("cell", "baseline")}
    labelled = {name: _labelled(study, axes, (*loc, name)) for name, axes in parts.items() if axes is not None}
    baseline = labelled.get("baseline")
    if baseline is not None and not any(baseline.items() <= one.items() for one in study.baselines):
        message = f"claim: expected one of the study's baselines, got {text(baseline)}"
        raise UserError(message, study.where(*loc, "baseline"))
    return claim.model_copy(update=labelled)


def _labelled(study: StudyConfig, baseline: dict[str, Any], loc: Loc) -> dict[str, Any]:
    """Return the axes of a baseline or control, which the study has at ``loc``, with the labels of the axes as values."""
    labelled: dict[str, Any] = {}
    for axis, value in baseline.items():
        check_axis(study, axis, place=study.where(*loc, axis, key=True))
        place = study.where(*loc, axis)
        axis_labels = labels(study.axes[axis], axis=axis)
        matches = [axis_labels[i] for i in pick(axis, study.axes[axis], value, place=place)]
        if len(matches) > 1:
            names = ", ".join(map(str, matches))
            raise UserError(f"{axis}: expected one value, got {text(value)}, which matches {names}: write one of these", place)
        labelled[axis] = matches[0]
    return labelled


def with_included(
    fields: dict[str, Any], source_map: SourceMap, *, folder: Path, ancestors: tuple[Path, ...]
) -> tuple[dict[str, Any], SourceMap]:
    """Return the values of a study merged over the file that it includes, if any, and the places of all.

    Args:
        folder: that the path of the included file is relative to.
        ancestors: the files that include this one, and itself.

    Raises:
        UserError: the included file cannot be read, or includes one of ``ancestors``; with the place.
    """
    if INCLUDE not in fields:
        return fields, source_map
    name, place = fields[INCLUDE], source_map.at((INCLUDE,))
    if not isinstance(name, str) or not name.strip():
        raise UserError(f"include: expected the path of a file, got {kind(name)}", place)
    try:
        path = folder / Path(name).expanduser()
    except RuntimeError as error:  # an unknown ~user
        raise UserError(f"include: {error}", place) from None
    if real_path(path) in ancestors:
        cycle = ancestors[ancestors.index(real_path(path)) :]
        through = f", through {', '.join(file.name for file in cycle[1:])}" if cycle[1:] else ""
        raise UserError(f"include: {path.name} includes itself{through}", place)
    try:
        base, base_map = read(path, what="a study to include")
    except UserError as error:
        if error.where != str(path):  # a place in the file
            raise
        raise UserError(f"include: {error.message}", place) from None
    base, base_map = with_included(base, base_map, folder=path.parent, ancestors=(*ancestors, real_path(path)))
    if not source_map.values:
        source_map = _map_of(fields)
    own = {key: value for key, value in fields.items() if key != INCLUDE}
    places = SourceMap({**base_map.values, **source_map.values}, {**base_map.keys, **source_map.keys})
    return _merged(base, own), places


def _merged(base: dict[str, Any], own: dict[str, Any], loc: Loc = ()) -> dict[str, Any]:
    merged = dict(base)
    for key, value in own.items():
        below = merged.get(key)
        other = ONE_OF.get(f"train.{key}", "") if loc == ("base", "train") else ""
        if other not in own:
            merged.pop(other, None)
        whole = loc == () and key in ("claim", "claims")  # the size of another claim is not that of this one
        if isinstance(value, dict) and isinstance(below, dict) and "name" not in value and not whole:
            value = _merged(below, value, (*loc, key))
        merged[key] = value
    return merged


def _map_of(fields: dict[str, Any]) -> SourceMap:
    """Return the dotted paths of a dictionary's values as their places."""
    places: dict[Loc, str] = {(): ""}

    def add(value: Any, loc: Loc) -> None:
        places[loc] = dotted(loc)
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            add(child, (*loc, key))

    add(fields, ())
    return SourceMap(places, {loc: place for loc, place in places.items() if loc})


def with_levels(fields: dict[str, Any], *, where: Where) -> tuple[dict[str, Any], str]:
    """Append the axis of ``over`` to the grid of a study.

    Args:
        fields: of the study, not validated yet; an ``over`` that is not a mapping of one axis is left to
        the validation.
        where: the places of the study's values.

    Returns:
        The fields, and the name of the axis; "" without ``over``.

    Raises:
        UserError: the grid has other values of the same axis.
    """
    over, grid = fields.get("over"), fields.get("grid", {})
    if not isinstance(over, dict) or len(over) != 1 or not isinstance(grid, dict):
        return fields, ""
    axis, values = next(iter(over.items()))
    if not isinstance(values, list | dict) or not values:
        return fields, ""
    if axis in grid and grid[axis] != values:
        message = f"over: expected an axis that the grid does not have, got {axis!r}: list its values in one of the two"
        raise UserError(message, where(("over", axis), key=True))
    return {**fields, "grid": {**grid, axis: values}}, axis

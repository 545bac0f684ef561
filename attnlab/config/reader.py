"""Read a study: turn a file or a dict into a ``StudyConfig``, or the first mistake into a ``UserError`` with its place.

This module checks everything that needs no registry. The plan checks names and options of variants, positions and tasks.

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

import math
from pathlib import Path
from typing import Any

from attnlab._util.files import real_path
from attnlab._util.redact import holds_login, redact
from attnlab.config.axes import canonical, labels, pick, text
from attnlab.config.command import check_command, check_training
from attnlab.config.factors import check_design, with_factor_axes, with_named_factors
from attnlab.config.levels import check_levels, paths_of_axis
from attnlab.config.paths import StudySource, assignment, check_path, check_value
from attnlab.config.question import OF_SOLVE_RATES, OF_TRENDS
from attnlab.config.run import RunConfig, set_path
from attnlab.config.search import Dimension
from attnlab.config.stages import check_stages
from attnlab.config.study import StudyConfig, check_added_seeds, check_axis
from attnlab.config.tasks import check_tasks
from attnlab.config.validation import FILLED_IN, check_part, field_names, unknown_key, validate
from attnlab.config.yaml import Loc, SourceMap, Where, constant_place, dotted, kind, read, within
from attnlab.errors import UserError

INCLUDE = "include"
ONE_OF = {"steps": "epochs", "epochs": "steps"}  # keys of base.train of which a run has one
NOT_ASSIGNED = (
    "include",
    "base",
    "grid",
    "over",
    "factors",
    "design",
    "skip",
    "imports",
)  # parts of a study that --set does not replace
# Fields of a run that a search must not choose -> the reason.
UNSEARCHABLE = {
    "seed": "expected no 'seed': trials are trained with search.seed, the confirming runs with confirm.seeds",
    "task": "expected no path into 'task': cells are compared, so all must be trained and tested on the same data",
    "evaluate": "expected no path into 'evaluate': trials are compared, so all must be evaluated in the same way",
    "machine": "expected no path into 'machine', which decides speed: set it in the base or the grid",
    "backend": "expected no 'backend', which computes the same function in another way: set it in the base or the grid",
}


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

    _check_secrets(fields, where=source_map.at)
    for key, value in sets.items():
        _check_secrets(value, where=constant_place(f"--set {key}"))
    _check_top_level(fields, where=source_map.at)

    complete, over = with_levels(_with_assignments(fields, study_sets), where=source_map.at)
    complete, listed = with_named_factors(complete, where=source_map.at)
    origin = StudySource(source_map, study_sets, frozenset(fields), over, listed)
    study = validate(StudyConfig, complete, where=origin.at)
    study.set_source(path, origin, base_sets, written=fields, text=text_of_file, includes=fields is not written)
    _check_seeds(study)
    if study.command is None:
        study = _checked_training(study)
    else:
        check_command(study)
        study = study.model_copy(update={"reference_scores": False})
    _check_skip(study)
    if study.max_seeds is not None:
        check_added_seeds(study, study.max_seeds, place=study.where("seeds" if "seeds" in complete else "max_seeds"))
    return _with_claim_labels(_with_control_labels(_with_baseline_labels(study)))


def _checked_training(study: StudyConfig) -> StudyConfig:
    """Return a study of attnlab's training with its factors as axes, after checks of all that this training decides."""
    check_training(study)
    _check_base(study)
    check_stages(study)
    study = with_factor_axes(study)
    check_over(study)
    _check_grid(study)
    check_design(study)
    check_sweep(study)
    check_search(study)
    check_tasks(study)
    _check_sets(study)
    return study


def _with_assignments(fields: dict[str, Any], sets: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a study with assignments applied: keys first, then the dotted paths into them."""
    fields = {**fields, **{key: value for key, value in sets.items() if "." not in key}}
    for path, value in sets.items():
        if "." in path:
            set_path(fields, path, value)
    return fields


def _with_baseline_labels(study: StudyConfig) -> StudyConfig:
    """Return the study with the values of its baselines replaced by the labels of the axes."""
    if not isinstance(study.baseline, list):
        labelled = None if study.baseline is None else _labelled(study, study.baseline, ("baseline",))
        return study.model_copy(update={"baseline": labelled})
    baselines = [_labelled(study, baseline, ("baseline", i)) for i, baseline in enumerate(study.baseline)]
    for i, baseline in enumerate(baselines):
        if baseline in baselines[:i]:
            raise UserError(f"baseline: expected each cell once, got {text(baseline)} again", study.where("baseline", i))
    return study.model_copy(update={"baseline": baselines})


def _with_control_labels(study: StudyConfig) -> StudyConfig:
    """Return the study with the values of its control replaced by the labels of the axes."""
    if study.control is None:
        return study
    place = study.where("control")
    if not study.baselines:
        raise UserError("control: expected a 'baseline', which the control must be worse than, got none", place)
    for axis, value in study.control.items():
        if axis in study.grid and isinstance(study.grid[axis], list):
            _check_control_value(study, axis, value)
    control = _labelled(study, study.control, ("control",))
    for baseline in study.baselines:
        if all(control[axis] == baseline[axis] for axis in control.keys() & baseline.keys()):
            message = f"control: expected another value than the baseline {text(baseline)} on one of its axes"
            raise UserError(f"{message}, got {text(control)}", place)
    return study.model_copy(update={"control": control})


def _with_claim_labels(study: StudyConfig) -> StudyConfig:
    """Return the study with the axes of its claim as labels, after a check that the study compares what the claim is about."""
    claim = study.claim
    if claim is None:
        return study
    if not study.baselines and claim.effect is None and claim.direction not in OF_SOLVE_RATES:
        raise UserError("claim: expected a 'baseline' that cells are compared with, got none", study.where("claim"))
    if claim.direction in OF_TRENDS and not study.over:
        raise UserError(
            f"claim: expected levels in 'over', along which it {claim.direction}", study.where("claim", "direction")
        )
    if claim.effect is not None and not study.factors:
        raise UserError("claim: expected a study with 'factors', which have effects", study.where("claim", "effect"))
    parts = {name: getattr(claim, name) for name in ("cell", "baseline")}
    labelled = {name: _labelled(study, axes, ("claim", name)) for name, axes in parts.items() if axes is not None}
    if (baseline := labelled.get("baseline")) is not None and not any(
        baseline.items() <= one.items() for one in study.baselines
    ):
        raise UserError(f"claim: expected one of the study's baselines, got {text(baseline)}", study.where("claim", "baseline"))
    return study.model_copy(update={"claim": claim.model_copy(update=labelled)})


def _check_control_value(study: StudyConfig, axis: str, value: Any) -> None:
    """Raise ``UserError`` with the advice to add the control to the grid unless it is there."""
    place = study.where("control", axis)
    try:
        pick(axis, study.axes[axis], value, place=place)
    except UserError as error:
        raise UserError(f"{error.message}: add {text(value)} to grid.{axis}, so that it is trained", place) from error


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


# ---------------------------------------------------------------- checks


def _check_secrets(value: Any, *, where: Where, loc: Loc = ()) -> None:
    """Raise if a text holds a password: every record of the study would repeat it."""
    if isinstance(value, str) and holds_login(value):
        message = "expected an address without a password, which every record would repeat: read it from the environment"
        raise UserError(f"{message}, got {redact(value)!r}", where(loc))
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        _check_secrets(child, where=where, loc=(*loc, key))


def _check_top_level(fields: dict[str, Any], *, where: Where) -> None:
    """Raise if a field of a run is at the top level: "did you mean" would suggest an unrelated key of the study."""
    for key in fields:
        if key in field_names(RunConfig, ()):
            message = f"expected {key!r} under base: (or its values under grid:), got it at the top level"
            raise UserError(message, where((key,), key=True))


def _check_seeds(study: StudyConfig) -> None:
    for i, seed in enumerate(study.seeds):
        if seed in study.seeds[:i]:
            raise UserError(f"seeds: expected each seed once, got {seed} again", study.where("seeds", i))


def _check_base(study: StudyConfig) -> None:
    if "seed" in study.base:
        place = study.where("base", "seed", key=True)
        raise UserError("base: expected 'seeds: [...]' at the top level, got 'seed'", place)
    for key in FILLED_IN:
        if key in study.base:
            message = unknown_key(key, field_names(RunConfig, ()), ("base",))
            raise UserError(message, study.where("base", key, key=True))
    check_part(RunConfig, study.base, prefix=("base",), where=within(study.place, "base"))


def _check_grid(study: StudyConfig) -> None:
    check_levels(study)
    for axis, values in study.grid.items():
        if isinstance(values, dict):
            continue
        check_path(axis, place=study.where("grid", axis, key=True), stages=study.stages)
        seen: set[str] = set()
        for i, value in enumerate(values):
            check_value(axis, value, where=within(study.place, "grid", axis, i))
            if canonical(value) in seen:
                message = f"{study.section(axis)}.{axis}: expected each value once, got {text(value)} again"
                raise UserError(message, study.where("grid", axis, i))
            seen.add(canonical(value))


def _check_sets(study: StudyConfig) -> None:
    """Check the assignments over the base; fields that the grid or the search sets cannot be assigned."""
    for path, value in study.sets.items():
        place = assignment(path, value)
        check_path(path, place=place)
        check_value(path, value, where=constant_place(place))
        if study.search is not None and path in study.search.space:
            raise UserError("the search sets this field in each trial: change its range in search.space", place)
        if study.sweep is not None and path == study.sweep.path:
            raise UserError("the sweep sets this field in each run: change its values in sweep", place)
        for axis in study.grid:
            if any(path == taken or path.startswith(f"{taken}.") for taken in paths_of_axis(study, axis, added=False)):
                raise UserError(f"the axis {axis!r} of the grid sets this field in each cell: select cells with --only", place)


def _check_skip(study: StudyConfig) -> None:
    for i, skip in enumerate(study.skip):
        for axis, value in skip.where.items():
            loc = ("skip", i, "where", axis)
            check_axis(study, axis, place=study.where(*loc, key=True))
            if not isinstance(value, list):
                pick(axis, study.axes[axis], value, place=study.where(*loc))
                continue
            if not value:
                raise UserError(f"{axis}: expected at least one value, got an empty list", study.where(*loc))
            for n, item in enumerate(value):
                pick(axis, study.axes[axis], item, place=study.where(*loc, n))


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
        if loc == ("base", "train") and ONE_OF.get(key) not in own:
            merged.pop(ONE_OF.get(key, ""), None)
        whole = loc == () and key == "claim"  # the size of another claim is not that of this one
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


def check_over(study: StudyConfig) -> None:
    """Check that the levels of ``over`` are positive numbers, and that each is compared with a baseline of
    its own.

    Raises:
        UserError: the first mistake, with its place.
    """
    if study.over is None:
        return
    axis, place = study.over_axis, study.where("over", study.over_axis, key=True)
    values = study.over[axis]
    if len(values) < 2:
        raise UserError(f"over.{axis}: expected at least two levels, got {len(values)}", place)
    levels: list[float] = []
    for key, value in enumerate(values) if isinstance(values, list) else ((name, name) for name in values):
        levels.append(_level(axis, value, place=study.where("over", axis, key, key=isinstance(key, str))))
        if levels[-1] in levels[:-1]:
            message = f"over.{axis}: expected each level once, got {value} again"
            raise UserError(message, study.where("over", axis, key, key=isinstance(key, str)))
    if not study.baselines:
        raise UserError(
            "over: expected a 'baseline' in the study, got none: the trend describes the differences from it", place
        )
    for i, baseline in enumerate(study.baselines):
        if axis in baseline:
            loc: Loc = ("baseline", i, axis) if isinstance(study.baseline, list) else ("baseline", axis)
            message = (
                f"baseline: expected no {axis!r}: at each level of 'over', cells are compared with the baseline of that level"
            )
            raise UserError(message, study.where(*loc, key=True))


def _level(axis: str, value: Any, *, place: str) -> float:
    """Return a level as a number."""
    try:
        level = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        level = math.nan
    if not 0 < level < math.inf:
        raise UserError(f"over.{axis}: expected levels that are numbers above 0, got {kind(value)}", place)
    return level


def check_search(study: StudyConfig) -> None:
    """Check that ``search`` and ``confirm`` are both present or both absent, and that every value of the space fits its field.

    Raises:
        UserError: the first mistake, with its place.
    """
    if study.search is None:
        if study.confirm is not None:
            message = "expected 'confirm' only together with 'search'; without a search: seeds: [...]"
            raise UserError(message, study.where("confirm", key=True))
        return
    _check_search_seeds(study)
    for path, dimension in study.search.space.items():
        _check_field(study, path)
        _check_range(study, path, dimension)
        _check_choices(study, path, dimension)


def _check_search_seeds(study: StudyConfig) -> None:
    """Check that the confirming seeds are present and distinct, and that the search uses none of them."""
    assert study.search is not None
    if study.confirm is None:
        message = "expected 'confirm: {seeds: [...]}' together with 'search', got none: only fresh seeds are reported"
        raise UserError(message, study.where("search", key=True))
    if "seeds" in study.model_fields_set:
        message = "expected 'confirm: {seeds: [...]}' in a study with 'search', got 'seeds' at the top level"
        raise UserError(message, study.where("seeds", key=True))
    for i, seed in enumerate(study.confirm.seeds):
        if seed in study.confirm.seeds[:i]:
            raise UserError(f"confirm.seeds: expected each seed once, got {seed} again", study.where("confirm", "seeds", i))
        if seed == study.search.seed:
            message = f"confirm.seeds: expected fresh seeds, got {seed}, which is search.seed"
            raise UserError(message, study.where("confirm", "seeds", i))


def _check_field(study: StudyConfig, path: str) -> None:
    """Check that the path names a single field that neither the grid nor the study itself sets."""
    place = study.where("search", "space", path, key=True)
    first, _, rest = path.partition(".")
    if first in UNSEARCHABLE:
        raise UserError(f"search.space: {UNSEARCHABLE[first]}", place)
    check_path(path, place=place)
    if not rest:
        message = (
            f"search.space: expected a path into {path!r}, got {path!r} itself: compare such values as an axis of the grid"
        )
        raise UserError(message, place)
    check_free_path(study, path, section="search.space", place=place)


def check_free_path(study: StudyConfig, path: str, *, section: str, place: str) -> None:
    """Raise ``UserError`` when an axis of the grid sets a field that ``section`` sets."""
    for axis, values in study.grid.items():
        inner = path.removeprefix(f"{axis}.") if path.startswith(f"{axis}.") else ""
        in_values = isinstance(values, list) and any(isinstance(value, dict) and inner in value for value in values)
        if path in paths_of_axis(study, axis) or in_values:
            raise UserError(f"{section}: expected no {path!r}: the axis {axis!r} of the grid sets it", place)


def _check_range(study: StudyConfig, path: str, dimension: Dimension) -> None:
    """Check that both ends, as written and as sampled, and the first step fit the field."""
    if dimension.low is None:
        return
    values: list[tuple[Any, Any]] = [(("low",), dimension.low), (("high",), dimension.high)]
    if dimension.step is not None:
        values.append((("step",), dimension.low + dimension.step))
    for loc, value in [*values, *dimension.ends]:
        check_value(path, value, where=constant_place(study.where("search", "space", path, *loc)))


def _check_choices(study: StudyConfig, path: str, dimension: Dimension) -> None:
    """Check that every choice fits the field and is listed once."""
    seen: set[str] = set()
    for i, value in enumerate(dimension.choices or []):
        where = within(study.place, "search", "space", path, "choices", i)
        check_value(path, value, where=where)
        if canonical(value) in seen:
            raise UserError(f"search.space.{path}: expected each choice once, got {text(value)} again", where(()))
        seen.add(canonical(value))


def check_sweep(study: StudyConfig) -> None:
    """Check that no value is listed twice, and that neither a search nor the grid sets the swept field.

    Raises:
        UserError: the first mistake, with its place.
    """
    if study.sweep is None:
        return
    if study.search is not None:
        message = "expected one of 'sweep' and 'search', got both: a search chooses a value in each cell, a sweep tries all"
        raise UserError(message, study.where("sweep", key=True))
    path = study.sweep.path
    check_free_path(study, path, section="sweep", place=study.where("sweep", path, key=True))
    values = study.sweep.listed
    for i, value in enumerate(values):
        if value in values[:i]:
            place = study.where("sweep", path, i)
            raise UserError(f"sweep.{path}: expected each value once, got {text(value)} again", place)

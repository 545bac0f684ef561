"""Checks of the sections ``search``, ``confirm`` and ``sweep`` against the rest of a study."""

from typing import Any

from attnlab.config.axes import canonical, text
from attnlab.config.levels import paths_of_axis
from attnlab.config.paths import check_path, check_value
from attnlab.config.search import Dimension
from attnlab.config.study import StudyConfig
from attnlab.config.yaml import constant_place, within
from attnlab.errors import UserError

# Fields of a run that a search must not choose -> the reason.
UNSEARCHABLE = {
    "seed": "expected no 'seed': trials are trained with search.seed, the confirming runs with confirm.seeds",
    "task": "expected no path into 'task': cells are compared, so all must be trained and tested on the same data",
    "evaluate": "expected no path into 'evaluate': trials are compared, so all must be evaluated in the same way",
    "machine": "expected no path into 'machine', which decides speed: set it in the base or the grid",
    "backend": "expected no 'backend', which computes the same function in another way: set it in the base or the grid",
}


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
    _check_seeds(study)
    for path, dimension in study.search.space.items():
        _check_field(study, path)
        _check_range(study, path, dimension)
        _check_choices(study, path, dimension)


def _check_seeds(study: StudyConfig) -> None:
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

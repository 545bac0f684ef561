"""Read a study file strictly, and check everything that needs no registry."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.redact import holds_login, redact
from attnlab.config.axes import Label, canonical, labels, pick, text
from attnlab.config.paths import check_path, check_value
from attnlab.config.run import RunConfig, set_path
from attnlab.config.study import StudyConfig, _Origin, assignment, check_axis
from attnlab.config.validation import FILLED_IN, check_part, field_names, unknown_key, validate
from attnlab.config.yaml import Loc, SourceMap, read
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.config.study import StudyConfig
from attnlab.config.search import Dimension


def read_study(source: str | Path | dict[str, Any], *, sets: dict[str, Any] | None = None) -> StudyConfig:
    """Read a study file, or take one that is a dict, and check everything that needs no registry.

    Args:
        sets: dotted path -> value, over the base; ``seeds``, ``search.trials`` and the like over the study itself.

    Raises:
        UserError: the first mistake, with ``file:line:column``.
    """
    if isinstance(source, dict):
        data, places, path = dict(source), SourceMap(), None
    else:
        path = Path(source)
        data, places = read(path, what="a study")
    own = set(StudyConfig.model_fields) - {"base", "grid", "skip", "imports"}
    over_study = {path: value for path, value in (sets or {}).items() if path.partition(".")[0] in own}
    origin = _Origin(places, over_study, frozenset(data))
    _check_secrets(data, where=places.at)
    for key, value in (sets or {}).items():
        _check_secrets(value, where=lambda loc, key=key: f"--set {key}")
    _check_top(data, where=places.at)
    study = validate(StudyConfig, _over(data, over_study), where=origin.at)
    study._path, study._origin = path, origin
    study._sets = {key: value for key, value in (sets or {}).items() if key not in over_study}
    seen: set[int] = set()
    for i, seed in enumerate(study.seeds):
        if seed in seen:
            raise UserError(f"seeds: expected each seed once, got {seed} again", study.where("seeds", i))
        seen.add(seed)
    _check_base(study)
    _check_grid(study)
    check_search(study)
    _check_sets(study)
    _check_skip(study)
    return study if study.baseline is None else _with_baseline(study)


def _check_top(data: dict[str, Any], *, where: Callable[..., str]) -> None:
    """Refuse a field of a run where only those of a study may stand: the nearest name of these would lead astray."""
    for key in data:
        if key in field_names(RunConfig, ()):
            message = f"expected {key!r} under base: (or its values under grid:), got it at the top"
            raise UserError(message, where((key,), key=True))


def _over(data: dict[str, Any], assignments: dict[str, Any]) -> dict[str, Any]:
    """The study with the assignments over it: a key replaces what it had, a dotted path sets a part of it."""
    fields = {**data, **{path: value for path, value in assignments.items() if "." not in path}}
    for path, value in assignments.items():
        if "." in path:
            set_path(fields, path, value)
    return fields


def _check_secrets(value: Any, *, where: Callable[..., str], loc: Loc = ()) -> None:
    """Refuse a password: what a study holds is written into every record of it."""
    if isinstance(value, str) and holds_login(value):
        message = "expected an address without a password, which every record would repeat: read it from the environment"
        raise UserError(f"{message}, got {redact(value)!r}", where(loc))
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        _check_secrets(item, where=where, loc=(*loc, key))


def _check_base(study: StudyConfig) -> None:
    if "seed" in study.base:
        place = study.where("base", "seed", key=True)
        raise UserError("base: expected 'seeds: [...]' at the top of the study, got 'seed'", place)
    for key in FILLED_IN:
        if key in study.base:
            message = unknown_key(key, field_names(RunConfig, ()), ("base",))
            raise UserError(message, study.where("base", key, key=True))

    def where(loc: Loc, *, key: bool = False) -> str:
        return study.where("base", *loc, key=key)

    check_part(RunConfig, study.base, prefix=("base",), where=where)


def _check_grid(study: StudyConfig) -> None:
    for axis, values in study.grid.items():
        check_path(axis, place=study.where("grid", axis, key=True))
        seen: set[str] = set()
        for i, value in enumerate(values):

            def where(loc: Loc, *, key: bool = False, at: Loc = ("grid", axis, i)) -> str:
                return study.where(*at, *loc, key=key)

            check_value(axis, value, where=where)
            if canonical(value) in seen:
                message = f"grid.{axis}: expected each value once, got {text(value)} again"
                raise UserError(message, study.where("grid", axis, i))
            seen.add(canonical(value))


def _check_sets(study: StudyConfig) -> None:
    for path, value in study.sets.items():
        place = assignment(path, value)
        check_path(path, place=place)
        check_value(path, value, where=lambda loc, key=False, place=place: place)
        if study.search is not None and path in study.search.space:
            raise UserError("the search sets it in each trial: its range stands in search.space", place)
        for axis in study.grid:
            if path == axis or path.startswith(f"{axis}."):
                raise UserError(f"the axis {axis!r} of the grid sets it in each cell: choose with --only", place)


def _check_skip(study: StudyConfig) -> None:
    for i, skip in enumerate(study.skip):
        for axis, wanted in skip.where.items():
            loc = ("skip", i, "where", axis)
            check_axis(study, axis, place=study.where(*loc, key=True))
            if isinstance(wanted, list) and not wanted:
                raise UserError(f"{axis}: expected at least one value, got an empty list", study.where(*loc))
            for n, item in enumerate(wanted if isinstance(wanted, list) else [wanted]):
                place = study.where(*loc, n) if isinstance(wanted, list) else study.where(*loc)
                pick(axis, study.grid[axis], item, place=place)


def _with_baseline(study: StudyConfig) -> StudyConfig:
    """The study with its baseline in the labels of the axes."""
    found: dict[str, Label] = {}
    for axis, wanted in (study.baseline or {}).items():
        check_axis(study, axis, place=study.where("baseline", axis, key=True))
        place = study.where("baseline", axis)
        which = pick(axis, study.grid[axis], wanted, place=place)
        named = [labels(study.grid[axis])[i] for i in which]
        if len(named) > 1:
            raise UserError(
                f"{axis}: expected one value, got {text(wanted)}, which names {', '.join(map(str, named))}",
                place,
            )
        found[axis] = named[0]
    return study.model_copy(update={"baseline": found})


NOT_SEARCHED = {
    "seed": "expected no 'seed': a search trains with search.seed, what it chose with confirm.seeds",
    "evaluate": "expected no path into 'evaluate': trials are compared, so all must be read in the same way",
    "machine": "expected no path into 'machine': it decides speed; what it runs on stands in the base or the grid",
    "backend": "expected no 'backend': it computes the same in another way; it stands in the base or the grid",
}


def check_search(study: "StudyConfig") -> None:
    """Raise unless ``search`` and ``confirm`` go together and every value of the space fits its field."""
    if study.search is None:
        if study.confirm is not None:
            message = "expected 'confirm' only beside 'search'; without a search: seeds: [...]"
            raise UserError(message, study.where("confirm", key=True))
        return
    if study.confirm is None:
        message = "expected 'confirm: {seeds: [...]}' beside 'search', got none: only fresh seeds are reported"
        raise UserError(message, study.where("search", key=True))
    if "seeds" in study.model_fields_set:
        message = "expected 'confirm: {seeds: [...]}' in a study with 'search', got 'seeds' at the top"
        raise UserError(message, study.where("seeds", key=True))
    for i, seed in enumerate(study.confirm.seeds):
        if seed in study.confirm.seeds[:i]:
            raise UserError(f"confirm.seeds: expected each seed once, got {seed} again", study.where("confirm", "seeds", i))
        if seed == study.search.seed:
            message = f"confirm.seeds: expected fresh seeds, got {seed}, which is search.seed"
            raise UserError(message, study.where("confirm", "seeds", i))
    for path, dimension in study.search.space.items():
        _check_field(study, path)
        _check_range(study, path, dimension)
        _check_choices(study, path, dimension)


def _check_field(study: "StudyConfig", path: str) -> None:
    place = study.where("search", "space", path, key=True)
    first, _, rest = path.partition(".")
    if first in NOT_SEARCHED:
        raise UserError(f"search.space: {NOT_SEARCHED[first]}", place)
    check_path(path, place=place)
    if not rest:
        message = f"search.space: expected a path into {path!r}, got all of it: what is compared as a whole stands in the grid"
        raise UserError(message, place)
    for axis, values in study.grid.items():
        inside = path.removeprefix(f"{axis}.") if path.startswith(f"{axis}.") else ""
        if axis == path or any(isinstance(value, dict) and inside in value for value in values):
            raise UserError(f"search.space: expected no {path!r}: the axis {axis!r} of the grid sets it", place)


def _check_range(study: "StudyConfig", path: str, dimension: Dimension) -> None:
    """Both ends are values of the field as they stand and as they are sampled, and so is the first step."""
    if dimension.low is None:
        return
    tried: list[tuple[Any, Any]] = [(("low",), dimension.low), (("high",), dimension.high)]
    if dimension.step is not None:
        tried.append((("step",), dimension.low + dimension.step))
    for loc, value in [*tried, *dimension.ends]:
        place = study.where("search", "space", path, *loc)
        check_value(path, value, where=lambda loc, key=False, place=place: place)


def _check_choices(study: "StudyConfig", path: str, dimension: Dimension) -> None:
    seen: set[str] = set()
    for i, value in enumerate(dimension.choices or []):

        def where(loc: Any, *, key: bool = False, i: int = i) -> str:
            return study.where("search", "space", path, "choices", i, *loc, key=key)

        check_value(path, value, where=where)
        if canonical(value) in seen:
            message = f"search.space.{path}: expected each choice once, got {text(value)} again"
            raise UserError(message, where(()))
        seen.add(canonical(value))

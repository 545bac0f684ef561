"""Validation with pydantic, with one-line errors: the expected value, the actual one, the place, and the nearest name."""

from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from attnlab.config.yaml import Loc, Where, dotted, kind
from attnlab.errors import UserError, nearest

M = TypeVar("M", bound=BaseModel)

FILLED_IN = ("seed", "sources", "packages", "data", "fingerprint")  # fields of a run that the plan sets, not a study file


def validate(model: type[M], fields: dict[str, Any], *, where: Where) -> M:
    """Return ``fields`` as an instance of ``model``.

    Args:
        where: the place of a location in ``fields``.

    Raises:
        UserError: the first mistake, in one line.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _first(error, model, where) from None


def _first(error: ValidationError, model: type[BaseModel], where: Where) -> UserError:
    # A misspelt key is also a missing one; the misspelling is the mistake, so it is reported first. What depends on several
    # fields is reported last.
    ranks = {"extra_forbidden": 0, "conflict": 2, "missing": 3}
    problem = min(error.errors(), key=lambda problem: ranks.get(problem["type"], 1))
    loc: Loc = problem["loc"]
    context = problem.get("ctx", {})
    if problem["type"] == "extra_forbidden":
        return UserError(unknown_key(str(loc[-1]), field_names(model, loc[:-1]), loc[:-1]), where(loc, key=True))
    if problem["type"] == "conflict":
        loc = (*loc, context["field"]) if context["field"] != "" else loc
        return _error(loc, context["message"], where(loc))
    if problem["type"] == "missing":
        if isinstance(loc[-1], int):  # a list that is too short
            return _error(loc[:-1], f"expected a list of more than {loc[-1]}, got {kind(problem['input'])}", where(loc))
        return UserError(f"expected the key {loc[-1]!r}{_inside(loc[:-1])}, got none", where(loc))
    value = problem["input"]
    near = nearest(value, _choices(context.get("expected", "")), anywhere=True) if isinstance(value, str) else ""
    return _error(loc, f"expected {_expectation(problem)}, got {kind(value)}{near}", where(loc))


def check_option(cls: Any, option: str, value: Any, *, place: str) -> None:
    """Check the value of an option against the annotation of the constructor's parameter, as ``check_hint`` does."""
    try:
        hint = get_type_hints(cls.__init__)[option]
    except (KeyError, NameError, TypeError):  # no annotation, or one that only type checkers can resolve
        return
    check_hint(hint, value, loc=(option,), place=place)


def check_hint(hint: Any, value: Any, *, loc: Loc, place: str) -> None:
    """Check a value against a type annotation, as strictly as a study; a type unknown to pydantic accepts anything.

    Args:
        loc: the name of the value in the message.
        place: the origin of the value.
    """
    try:
        adapter = TypeAdapter(hint, config=ConfigDict(strict=True, allow_inf_nan=False))
    except (TypeError, PydanticUserError):
        return
    try:
        adapter.validate_python(tuple(value) if isinstance(value, list) and "tuple" in str(hint) else value)
    except ValidationError as error:
        raise _field_error(error, loc, place) from None


def _field_error(error: ValidationError, loc: Loc, place: str) -> UserError:
    """Return the error for the first mistake in a value named ``loc``."""
    problem = error.errors()[0]
    expectations = " or ".join(dict.fromkeys(_expectation(p) for p in error.errors()))  # one for each type of a union
    return _error((*loc, *_inner(problem)), f"expected {expectations}, got {kind(problem['input'])}", place)


def _inner(problem: Any) -> Loc:
    """Return the location inside the value: only its indices, because pydantic also adds names of types."""
    return tuple(part for part in problem["loc"] if isinstance(part, int))


def _error(loc: Loc, message: str, place: str) -> UserError:
    """Return the error with the field's path before the message, unless ``place`` begins with that path."""
    repeated = not loc or place.startswith(dotted(loc))
    return UserError(message if repeated else f"{dotted(loc)}: {message}", place)


def _inside(loc: Loc) -> str:
    return f" in {dotted(loc)}" if loc else ""


def unknown_key(name: str, known: list[str], loc: Loc) -> str:
    """Return the message for a key that is not among ``known``, the keys that ``loc`` can have."""
    expectation = f"expected one of {', '.join(known)}"
    return f"unknown key {name!r}{_inside(loc)}{nearest(name, known, anywhere=True)}: {expectation}"


def field_names(model: type[BaseModel], loc: Loc) -> list[str]:
    """Return the keys that a study file or a configuration can have at ``loc``."""
    for part in loc:
        if part not in model.model_fields:  # an index or a key of a list or a mapping of models
            continue
        model = next(iter(_models(model.model_fields[part].annotation)), model)
    return [field.alias or name for name, field in model.model_fields.items() if name not in FILLED_IN]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in getattr(annotation, "__args__", ()) for model in _models(inner)]


def _choices(text: str) -> list[str]:
    """Return the choices in pydantic's wording of a Literal, for example ``"'relu' or 'gelu'"``."""
    return text.split("'")[1::2]


_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "greater_than": "a number greater than {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number less than {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "string_too_short": "a text that is not empty",
    "string_too_long": "a text of at most {max_length} characters",
    "string_pattern_mismatch": "letters, digits, '_', '-' and '.' only",
    "literal_error": "{expected}",
    "expected": "{what}",
    "too_long": "a list of {max_length}",
}


def _expectation(problem: Any) -> str:
    """Return the expectation of pydantic, in words that complete "expected ..."."""
    context = problem.get("ctx", {})
    if problem["loc"] == ("grid",):
        return "at least one axis, such as variant: [dense, no_wo]"
    if problem["type"] == "too_short":
        return "at least one key" if context["field_type"] == "Dictionary" else "at least one value in the list"
    template = _TYPES.get(problem["type"])
    return template.format(**context) if template else problem["msg"]

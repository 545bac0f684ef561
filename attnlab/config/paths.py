"""Dotted paths into a run's configuration, such as ``train.lr``: which there are, and which values they take."""

from collections.abc import Callable
from typing import Any

from attnlab.config.run import RunConfig, set_path
from attnlab.config.validation import RENAMED, check_part, field_names
from attnlab.errors import UserError, nearest

NAMED = ("task", "variant", "position")  # fields whose options are checked in the plan, against their classes


def check_path(path: str, *, place: str) -> None:
    """Raise unless the dotted path names a field of a run."""
    if path == "seed":
        raise UserError("expected 'seeds: [...]' at the top of the study, got 'seed'", place)
    known = field_names(RunConfig, ())
    sections = [name for name in known if name not in (*NAMED, "backend")]
    paths = known + [f"{section}.{name}" for section in sections for name in field_names(RunConfig, (section,))]
    first, _, rest = path.partition(".")
    if path in paths or (first in NAMED and rest and "." not in rest):
        return
    parent, _, end = path.rpartition(".")
    renamed = ".".join(filter(None, (parent, RENAMED.get(end, ""))))
    if end in RENAMED and renamed in paths:
        raise UserError(f"{path} is now called {renamed}", place)
    same_end = [known for known in paths if known.rpartition(".")[2] == path.rpartition(".")[2]]
    near = f" (did you mean {same_end[0]!r}?)" if same_end else nearest(path, paths)
    expectation = f"expected one of {', '.join(known)}, or a path into one, such as train.lr"
    raise UserError(f"{path!r} names no field of a run{near}: {expectation}", place)


def check_value(path: str, value: Any, *, where: Callable[..., str]) -> None:
    """Check the type of one value under a dotted path; options of a task or variant wait for the plan.

    Args:
        where: ``where(loc, key=False)`` is the place of ``loc`` inside the value.
    """
    parts = tuple(path.split("."))
    if parts[0] in NAMED and len(parts) > 1:
        return
    fields: dict[str, Any] = {}
    set_path(fields, path, value)
    check_part(RunConfig, fields, where=lambda loc, key=False: where(loc[len(parts) :], key=key))

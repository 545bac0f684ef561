"""The place in a user's file where an exception comes from, for messages in one line."""

import inspect
import sys
from pathlib import Path
from types import TracebackType

from attnlab.errors import UserError

LIBRARIES = frozenset({"attnlab", "einops", "numpy", "torch", "triton", "xformers", *sys.stdlib_module_names})


def describe_error(error: BaseException, *classes: type) -> str:
    """Return the type and first line of an error with its place: ``"ValueError: no such power (cosine.py:12)"``.

    A ``UserError`` is described by its message alone. The place is the innermost line outside of attnlab and the libraries that
    it is built on. Without one (a call that does not fit a signature), it is the definition of the first of ``classes``
    outside of them, else the line that raised.
    """
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    if not isinstance(error, UserError):
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return text + _describe_place(error, classes)


def _describe_place(error: BaseException, classes: tuple[type, ...]) -> str:
    places = [_definition(cls) for cls in classes if not _is_library(cls.__module__)]
    frames = list(_frames(error.__traceback__))
    own = [(frame, line) for frame, line, module in frames if not _is_library(module)]
    raised = frames[-1][:2] if frames and not isinstance(error, UserError) else None  # attnlab's own messages need no place
    place = own[-1] if own else next((place for place in places if place), raised)
    return f" ({Path(place[0]).name}:{place[1]})" if place else ""


def _is_library(module: str) -> bool:
    """Return True for a module of attnlab, of the libraries that it is built on, or of Python."""
    return module.partition(".")[0] in LIBRARIES


def _definition(cls: type) -> tuple[str, int] | None:
    try:
        return str(inspect.getsourcefile(cls)), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):  # defined in an interactive session
        return None


def _frames(trace: TracebackType | None) -> list[tuple[str, int, str]]:
    """Return file, line and module of each frame, the innermost last."""
    frames = []
    while trace is not None:
        frame = trace.tb_frame
        frames.append((frame.f_code.co_filename, trace.tb_lineno, str(frame.f_globals.get("__name__", ""))))
        trace = trace.tb_next
    return frames

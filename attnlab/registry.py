"""From names in a YAML to classes: variants, position schemes and tasks.

Three doors lead into one table: a decorator in a file that the YAML imports, a path where a name would stand
(``../lab/cosine.py:Cosine`` or ``package.module:Cosine``), and an entry point of an installed package. Built-ins are
named here as strings and imported when first asked for, so that importing attnlab stays quick.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from attnlab._util.files import sha256
from attnlab.errors import UserError, nearest

T = TypeVar("T", bound=type)


class Registry:
    """A table from names to classes of one kind.

    Args:
        kind: what it holds, in the singular, for messages: ``"variant"``.
        group: the entry-point group under which installed packages add to it.
        builtin: name -> ``"module:Class"`` of attnlab's own.
    """

    def __init__(self, kind: str, *, group: str, builtin: dict[str, str]) -> None:
        self.kind = kind
        self._group = group
        self._builtin = builtin
        self._registered: dict[str, type] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that enters a class under ``name``; a name that is taken raises ``UserError``."""

        def enter(cls: T) -> T:
            taken = self._registered.get(name)
            if taken is not None and not _same_definition(taken, cls):
                raise UserError(f"the {self.kind} {name!r} is registered twice: {source(taken)} and {source(cls)}")
            if name in self._builtin:
                raise UserError(f"the {self.kind} {name!r} of {source(cls)} has the name of a built-in one: rename it")
            self._registered[name] = cls
            return cls

        return enter

    def names(self) -> list[str]:
        """Every name that can be asked for: built-in, registered, and offered by installed packages."""
        return list(dict.fromkeys([*self._builtin, *self._registered, *self._entry_points()]))

    def get(self, ref: str, *, relative_to: Path | None = None) -> type:
        """The class that ``ref`` names: a known name, ``path/to/file.py:Class`` or ``package.module:Class``.

        Args:
            relative_to: the folder that a relative file path starts from; default the working directory.

        Raises:
            UserError: nothing goes by that name, or importing it failed.
        """
        if ":" in ref:
            return self._from_path(ref, relative_to or Path.cwd())
        if ref.endswith(".py"):
            raise UserError(self._without_class(ref, relative_to or Path.cwd()))
        if ref in self._registered:
            return self._registered[ref]
        if ref in self._builtin:
            return _attribute(*self._builtin[ref].split(":"))
        offered = self._entry_points()
        if ref in offered:
            return self._load(offered[ref])
        raise UserError(f"unknown {self.kind} {ref!r}{nearest(ref, self.names())}; known: {', '.join(self.names())}")

    def _entry_points(self) -> dict[str, EntryPoint]:
        found: dict[str, EntryPoint] = {}
        for point in entry_points(group=self._group):
            other = found.setdefault(point.name, point)
            if other.value != point.value or point.name in self._builtin:
                theirs = self._builtin.get(point.name, other.value)
                raise UserError(f"two packages offer the {self.kind} {point.name!r}: {theirs} and {point.value}")
        return found

    def _load(self, point: EntryPoint) -> type:
        try:
            return point.load()
        except Exception as error:  # a package of someone else's: whatever it raises, say whose it is
            raise UserError(f"{self.kind} {point.name!r}: importing {point.value} failed: {error}") from error

    def _from_path(self, ref: str, folder: Path) -> type:
        place, _, name = ref.rpartition(":")
        if not place.endswith(".py"):
            try:
                return _attribute(place, name)
            except UserError:
                raise
            except (Exception, SystemExit) as error:  # the module may be anyone's: it raises what it likes
                why = f"{type(error).__name__}: {error}"
                raise UserError(f"{self.kind} {ref!r}: no module {place!r} can be imported ({why})") from error
        module = load_file(folder / place)
        if not isinstance(getattr(module, name, None), type):
            classes = _classes(module)
            raise UserError(
                f"{self.kind} {ref!r}: {place} defines no class {name!r}{nearest(name, classes)}; "
                f"it defines {', '.join(classes) or 'none'}"
            )
        return getattr(module, name)

    def _without_class(self, ref: str, folder: Path) -> str:
        """What to write instead of a file alone, whose classes are likely meant."""
        named = [f"{ref}:{name}" for name in _classes(load_file(folder / ref))]
        return f"{self.kind} {ref!r}: expected a class of the file, {' or '.join(named) or f'{ref}:NAME'}, got the file alone"


def _classes(module: ModuleType) -> list[str]:
    """The names of the classes that a module defines itself."""
    return [name for name, c in vars(module).items() if isinstance(c, type) and c.__module__ == module.__name__]


def _attribute(module: str, name: str) -> type:
    found = getattr(importlib.import_module(module), name, None)
    if not isinstance(found, type):
        raise UserError(f"module {module} has no class {name!r}")
    return found


def _same_definition(one: type, other: type) -> bool:
    """A file that is imported again (a notebook cell run twice) redefines its own class: that is no conflict."""
    return source(one).split(":")[0] == source(other).split(":")[0] and one.__qualname__ == other.__qualname__


def load_file(path: Path) -> ModuleType:
    """Import a user's Python file, once however often it is named.

    Raises:
        UserError: it is not there, or running it failed.
    """
    path = path.resolve()
    if not path.is_file():
        raise UserError(f"expected a Python file at {path}: it is not there")
    name = f"attnlab_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a .py file that exists always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickling look their own module up
    try:
        spec.loader.exec_module(module)
    except UserError:
        del sys.modules[name]
        raise
    except (Exception, SystemExit) as error:  # the file is the user's: whatever it raises, name the file and the line
        del sys.modules[name]
        raise UserError(f"importing {path} failed: {type(error).__name__}: {error}", _line_in(path, error)) from error
    return module


def load_sources(sources: dict[str, str]) -> None:
    """Import the files that a run was planned with.

    Args:
        sources: paths -> sha256, as the plan found them.

    Raises:
        UserError: a file is not there, has changed since, or running it failed.
    """
    for name, expected in sources.items():
        path = Path(name)
        if path.is_file() and (found := sha256(path)) != expected:
            raise UserError(f"{path} has changed since this was planned: expected sha256:{expected}, found sha256:{found}")
        load_file(path)


def _line_in(path: Path, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{path.name}:{error.lineno}"
    lines = [frame for frame in inspect.getinnerframes(error.__traceback__) if frame.filename == str(path)]  # type: ignore[arg-type]
    return f"{path.name}:{lines[-1].lineno}" if lines else path.name


def source(cls: type) -> str:
    """``file:line`` of a class, for lists and messages; its module where there is no file."""
    try:
        return f"{inspect.getsourcefile(cls)}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):  # defined in an interactive session
        return cls.__module__


def options_of(cls: type) -> dict[str, inspect.Parameter]:
    """The options that a YAML may set for a class: its constructor's keyword-only parameters."""
    parameters = inspect.signature(cls).parameters.values()
    return {p.name: p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def check_options(cls: type, options: dict[str, Any], *, what: str) -> None:
    """Bind ``options`` to a constructor's signature without calling it.

    Raises:
        UserError: an option that it does not take, or a required one that is missing.
    """
    known = options_of(cls)
    for name in options:
        if name not in known:
            raise UserError(f"{what} has no option {name!r}{nearest(name, known)}; it takes {', '.join(known) or 'no options'}")
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise UserError(f"{what} needs the option {name!r}")


VARIANTS = Registry(
    "variant",
    group="attnlab.variants",
    builtin={
        "dense": "attnlab.variants.dense:Dense",
        "einsum": "attnlab.variants.einsum:Einsum",
        "no_wo": "attnlab.variants.no_wo:NoWo",
        "transformer_xl": "attnlab.variants.transformer_xl:TransformerXL",
        "strided_sparse": "attnlab.variants.strided_sparse:StridedSparse",
        "fixed_sparse": "attnlab.variants.fixed_sparse:FixedSparse",
        "wide": "attnlab.variants.wide:Wide",
        "narrow": "attnlab.variants.narrow:Narrow",
        "basic": "attnlab.variants.basic:Basic",
        "gru": "attnlab.variants.gru:Gru",
        "lstm": "attnlab.variants.lstm:Lstm",
        "convolution": "attnlab.variants.convolution:Convolution",
    },
)
POSITIONS = Registry(
    "position scheme",
    group="attnlab.positions",
    builtin={
        "none": "attnlab.positions.none:NoPosition",
        "learned": "attnlab.positions.learned:Learned",
        "sinusoidal": "attnlab.positions.sinusoidal:Sinusoidal",
        "relative": "attnlab.positions.relative:Relative",
        "rotary": "attnlab.positions.rotary:Rotary",
        "alibi": "attnlab.positions.alibi:Alibi",
    },
)
TASKS = Registry(
    "task",
    group="attnlab.tasks",
    builtin={
        "imdb": "attnlab.tasks.imdb:Imdb",
        "enwik8": "attnlab.tasks.enwik8:Enwik8",
        "pydocs": "attnlab.tasks.pydocs:PyDocs",
        "text": "attnlab.tasks.text:Text",
    },
)

register_variant = VARIANTS.register
register_position = POSITIONS.register
register_task = TASKS.register

"""Classes of users' files, which a process registers once."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from attnlab.registry import ANALYSES, COMPONENTS, MODELS, OPTIMIZERS, POSITIONS, TASKS, VARIANTS


@contextmanager
def forget_users_files() -> Iterator[None]:
    """Forget the classes of users' files that the block registers: another file may register the same names."""
    tables = (VARIANTS, COMPONENTS, POSITIONS, TASKS, MODELS, OPTIMIZERS, ANALYSES)
    before = [(table, dict(table._registered)) for table in tables]
    modules = set(sys.modules)
    yield
    for table, known in before:
        table._registered = known
    for name in [name for name in sys.modules if name.startswith("attnlab_user_") and name not in modules]:
        del sys.modules[name]

"""attnlab: a testbed for attention variants, with an ablation runner.

Importing this package is cheap: nothing heavy (torch, mlflow, optuna, pandas) is loaded before it is needed.
"""

from typing import TYPE_CHECKING, Any

from attnlab._version import __version__
from attnlab.registry import register_model, register_position, register_task, register_variant

if TYPE_CHECKING:
    from attnlab.planning.plan import plan
    from attnlab.study.run import run
    from attnlab.tracking.runs import load_curves, load_runs

__all__ = [
    "__version__",
    "load_curves",
    "load_runs",
    "plan",
    "register_model",
    "register_position",
    "register_task",
    "register_variant",
    "run",
]

_LAZY = {
    "plan": "attnlab.planning.plan",
    "run": "attnlab.study.run",
    "load_runs": "attnlab.tracking.runs",
    "load_curves": "attnlab.tracking.runs",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)

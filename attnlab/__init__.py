"""A testbed for attention variants, with an ablation runner.

A study is a YAML file or a dict. `plan` resolves its cells and estimates their cost. `run` trains what is missing and returns a
result with the verdicts as a data frame. `verdicts` and `load_runs` return the verdicts and the runs of a recorded study,
`write_report` writes its page, `load_model` returns a trained model, and `check` tests a variant that you wrote:

    >>> import attnlab
    >>> study = {
    ...     "study": "wo",
    ...     "base": {"task": {"name": "pydocs", "length": 32}, "model": {"dim": 16}, "train": {"steps": 10}},
    ...     "grid": {"variant": ["dense", "no_wo"]},
    ...     "seeds": [0, 1],
    ... }
    >>> attnlab.plan(study)
    plan of wo: 2 cells, 4 runs, bits_per_byte (min)
      dense: ... parameters
      no_wo: ... parameters

Importing this package is cheap: torch, MLflow, Optuna and pandas are loaded when they are needed.

The public interface is what this package, `attnlab.variants`, `attnlab.components`, `attnlab.positions`, `attnlab.models`,
`attnlab.tasks`, `attnlab.nn`, `attnlab.report`, `attnlab.testing` and `attnlab.extras.bench.suite` export. Everything else is
internal and may change without notice.
"""

import os

from attnlab._version import __version__

# `python -m attnlab` runs this with the working directory in front of the standard library, of which only modules that Python
# has loaded at its start may be imported here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from attnlab.extras.profile.run import profile
    from attnlab.planning.plan import plan
    from attnlab.registry import (
        register_analysis,
        register_component,
        register_model,
        register_optimizer,
        register_position,
        register_task,
        register_variant,
    )
    from attnlab.report.result import Result, run, verdicts
    from attnlab.report.write import write_report
    from attnlab.testing.dispatch import check
    from attnlab.tracking.artifacts import load_items
    from attnlab.tracking.runs import load_curves, load_runs
    from attnlab.trained.model import TrainedModel, load_model

__all__ = [
    "Result",
    "TrainedModel",
    "__version__",
    "check",
    "load_curves",
    "load_items",
    "load_model",
    "load_runs",
    "plan",
    "profile",
    "register_analysis",
    "register_model",
    "register_optimizer",
    "register_component",
    "register_position",
    "register_task",
    "register_variant",
    "run",
    "verdicts",
    "write_report",
]

_LAZY = {
    "TrainedModel": "attnlab.trained.model",
    "load_model": "attnlab.trained.model",
    "plan": "attnlab.planning.plan",
    "profile": "attnlab.extras.profile.run",
    "run": "attnlab.report.result",
    "verdicts": "attnlab.report.result",
    "Result": "attnlab.report.result",
    "write_report": "attnlab.report.write",
    "check": "attnlab.testing.dispatch",
    "load_runs": "attnlab.tracking.runs",
    "load_curves": "attnlab.tracking.runs",
    "load_items": "attnlab.tracking.artifacts",
    "register_analysis": "attnlab.registry",
    "register_model": "attnlab.registry",
    "register_optimizer": "attnlab.registry",
    "register_component": "attnlab.registry",
    "register_position": "attnlab.registry",
    "register_task": "attnlab.registry",
    "register_variant": "attnlab.registry",
}


if not os.path.isabs(os.path.expanduser("~")):  # neither HOME nor an entry in the list of users, as in some containers
    os.environ["HOME"] = "/"  # as Docker sets it: MLflow cannot be imported without a home


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> "Any":
    if name not in _LAZY:
        raise AttributeError(f"module 'attnlab' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)

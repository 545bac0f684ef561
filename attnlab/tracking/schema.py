"""The schema of what attnlab stores in MLflow.

A record that cannot be read is named in one line and left out, and a bundle is checked as a whole before it is merged. What a
record holds is data: names that lead to a folder stay inside the runs folder, and no text of it is run or imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from attnlab.config.study import STUDY_NAME
from attnlab.errors import UserError, one_line

if TYPE_CHECKING:
    from mlflow.entities import Experiment

KEY = "[A-Za-z0-9_][A-Za-z0-9_.~-]{0,249}"  # names a folder
WHOLE = "[0-9]{1,18}"
PATTERNS = {
    "attnlab.fingerprint": KEY,
    "attnlab.redone": KEY,
    "attnlab.folder": f"work/{KEY}",
    "attnlab.study": STUDY_NAME,
    "attnlab.commit": r"([0-9a-f]{7,64}(\+dirty)?)?",
    "attnlab.seed": WHOLE,
    "attnlab.attempt": WHOLE,
    "attnlab.trial": WHOLE,
    "attnlab.failures": f"({WHOLE})?",
    "attnlab.threads": "[0-9]{0,6}",
}
JSON_TYPES = {  # tag, or prefix with a final "." -> type of the JSON value in it; "" stands for an empty one
    "attnlab.axes": dict,
    "attnlab.params": dict,
    "attnlab.factors": dict,
    "attnlab.search": dict,
    "attnlab.data_notes": list,
    "attnlab.questions": list,
    "attnlab.doubles": dict,
    "attnlab.looks": list,
    "attnlab.judged": list,
    "attnlab.futile.": list,
    "attnlab.reference_score.": dict,
    "attnlab.call.": dict,
}
Misfit = tuple[str, str]  # name of the tag, and what is wrong with it


def misfit_of_run(tags: Mapping[str, str]) -> Misfit | None:
    """Return the first tag of a run's record that cannot be read, and why; None when all can."""
    missing = [name for name in ("fingerprint", "cell", "seed", "axes", "config") if f"attnlab.{name}" not in tags]
    return (
        (f"attnlab.{missing[0]}", "is missing")
        if missing
        else misfit_of_study(tags) or _unreadable_config(tags["attnlab.config"])
    )


def misfit_of_study(tags: Mapping[str, str]) -> Misfit | None:
    """Return the first tag of a study's experiment that cannot be read, and why; None when all can."""
    for name, text in tags.items():
        if (pattern := PATTERNS.get(name)) and not re.fullmatch(pattern, text):
            return name, f"is damaged: got {text!r:.60}"
        kind = JSON_TYPES.get(name) or next((JSON_TYPES[p] for p in JSON_TYPES if p.endswith(".") and name.startswith(p)), None)
        try:
            if kind and text and not isinstance(json.loads(text), kind):
                return name, f"is damaged: expected a {kind.__name__} as JSON, got {text!r:.60}"
        except (ValueError, RecursionError) as error:
            return name, f"is damaged: {one_line(str(error))}"
    return None


def require_study(experiment: Experiment) -> Experiment:
    """Return the experiment of a study.

    Raises:
        UserError: a tag of it cannot be read.
    """
    if misfit := misfit_of_study(experiment.tags):
        raise UserError(f"cannot use the record of the study {experiment.name!r}: its tag {' '.join(misfit)}", "MLflow")
    return experiment


def _unreadable_config(text: str) -> Misfit | None:
    """Return the tag of a configuration that its readers cannot flatten or compare."""
    from attnlab.config.command import CommandConfig
    from attnlab.config.comparability import test_identity
    from attnlab.tracking.tags import flatten_config

    try:
        config = json.loads(text)
        flatten_config(config)
        CommandConfig.model_validate(config) if "command" in config else test_identity(config, None)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        return "attnlab.config", f"is damaged: {one_line(str(error).partition(chr(10))[0])}"
    return None

"""The result of a run, and its record in the run's folder. A run with a recorded result is not trained again."""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from attnlab._util.files import replacing
from attnlab.config.run import RunConfig

logger = logging.getLogger(__name__)

Report = Callable[[int, dict[str, float]], bool]
History = list[tuple[int, dict[str, float]]]  # every (step, metrics) that was reported, in order

FILE = "result.json"


@dataclass
class Result:
    """The end of a run.

    Attributes:
        state: ``completed``, ``diverged`` (a loss became NaN or infinite), ``out_of_memory`` or ``pruned``.
        summary: final metrics by name; without test metrics unless completed.
        step: the last step taken.
        reason: one line; empty if the state is ``completed``.
        tags: texts by name, such as ``length.1024``: the reason why there is no score at that length.
    """

    state: str
    summary: dict[str, float] = field(default_factory=dict)
    step: int = 0
    reason: str = ""
    tags: dict[str, str] = field(default_factory=dict)


def save_result(result: Result, history: History, *, config: RunConfig, folder: Path) -> None:
    """Record the result of a run; afterwards the run is not trained again."""
    record = {"fingerprint": config.fingerprint(), "result": asdict(result), "history": history}
    with replacing(folder / FILE) as half:
        half.write_text(json.dumps(record), encoding="utf8")


def load_result(folder: Path, *, config: RunConfig) -> tuple[Result, History] | None:
    """Return the recorded result and history of a run; None if there is no usable record, with a warning if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf8"))
        if record["fingerprint"] != config.fingerprint():
            raise ValueError(f"expected fingerprint {config.fingerprint()}, got {record['fingerprint']}")
        return Result(**record["result"]), [(step, metrics) for step, metrics in record["history"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("ignoring unusable result %s: %s: %s", path, type(error).__name__, error)
        return None


def remove_result(folder: Path) -> None:
    """Remove the recorded result, so that the run is trained again."""
    (folder / FILE).unlink(missing_ok=True)

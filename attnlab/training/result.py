"""The result of a run, and its record in the run's folder. A run with a recorded result is not trained again."""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from attnlab._util.files import replacing
from attnlab.config.command import CommandConfig
from attnlab.config.run import RunConfig
from attnlab.errors import one_line

logger = logging.getLogger(__name__)

Report = Callable[[int, dict[str, float]], bool]
History = list[tuple[int, dict[str, float]]]  # every (step, metrics) that was reported, in order

FILE = "result.json"


@dataclass
class Result:
    """The end of a run.

    Attributes:
        state: ``completed``, ``diverged`` (a loss became NaN or infinite), ``out_of_memory`` or ``pruned``; in a study also
            ``failed``, ``timed_out`` or ``interrupted``.
        summary: final metrics by name; without test metrics unless completed.
        step: the last step taken.
        reason: one line; empty when the state is ``completed``.
        tags: texts by name, for example ``length.1024``: the reason why there is no score at that length.
        traceback: of an exception that is not the user's mistake; not stored, like ``is_lost``.
        is_lost: the process ended for an unknown reason, so one more attempt may succeed.
    """

    state: str
    summary: dict[str, float] = field(default_factory=dict)
    step: int = 0
    reason: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    traceback: str = field(default="", repr=False)
    is_lost: bool = field(default=False, repr=False)


def save_result(result: Result, history: History, *, config: RunConfig | CommandConfig, folder: Path) -> None:
    """Record the result of a run; afterwards the run is not trained again."""
    fields = {name: value for name, value in asdict(result).items() if name not in ("traceback", "is_lost")}
    record = {"fingerprint": config.fingerprint(), "result": fields, "history": history}
    with replacing(folder / FILE) as half:
        half.write_text(json.dumps(record), encoding="utf-8")


def load_result(folder: Path, *, config: RunConfig | CommandConfig) -> tuple[Result, History] | None:
    """Return the recorded result and history of a run; None when there is no record, or, with a warning, if it is unusable."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return _parse(path.read_text(encoding="utf-8"), fingerprint=config.fingerprint())
    except (OSError, ValueError, LookupError, TypeError) as error:
        logger.warning("training again, because the result in %s is unusable: %s", path, one_line(str(error)))
        return None


def _parse(text: str, *, fingerprint: str) -> tuple[Result, History]:
    """Return the result and the history in a result file; raise an error if it is damaged or belongs to another run."""
    record = json.loads(text)
    if record["fingerprint"] != fingerprint:
        raise ValueError(f"expected fingerprint {fingerprint}, got {record['fingerprint']}")
    return Result(**record["result"]), [(step, metrics) for step, metrics in record["history"]]


def remove_result(folder: Path) -> None:
    """Remove the recorded result, so that the run is trained again."""
    (folder / FILE).unlink(missing_ok=True)

"""How a run ended, and the record of it in the run's folder: what has an end is never trained again."""

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
    """How a run ended.

    Attributes:
        state: ``completed``, ``diverged`` (a loss became NaN or infinite), ``out_of_memory`` or ``pruned``.
        summary: final metrics by name; empty of test metrics unless completed.
        step: the last step taken.
        reason: one line, where the state is not ``completed``.
        tags: what there is to say that is no number, by name: ``length.1024`` -> why there is no score at that length.
    """

    state: str
    summary: dict[str, float] = field(default_factory=dict)
    step: int = 0
    reason: str = ""
    tags: dict[str, str] = field(default_factory=dict)


def keep(result: Result, history: History, *, config: RunConfig, folder: Path) -> None:
    """Write the end of a run; from here on it is not trained again."""
    record = {"fingerprint": config.fingerprint(), "result": asdict(result), "history": history}
    with replacing(folder / FILE) as half:
        half.write_text(json.dumps(record), encoding="utf8")


def kept(folder: Path, *, config: RunConfig) -> tuple[Result, History] | None:
    """Return the recorded result and history of a run; None, with a warning if the record is unusable, where it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf8"))
        if record["fingerprint"] != config.fingerprint():
            raise ValueError(f"expected one of {config.fingerprint()}, got one of {record['fingerprint']}")
        return Result(**record["result"]), [(step, metrics) for step, metrics in record["history"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        logger.warning("ignoring unusable result %s: %s: %s", path, type(error).__name__, error)
        return None


def forget(folder: Path) -> None:
    """Remove the record, so that the run may be trained again."""
    (folder / FILE).unlink(missing_ok=True)

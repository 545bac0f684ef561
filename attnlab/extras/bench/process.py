"""A process that measures one case: first its memory, then on each request the time of some passes or tokens."""

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from time import perf_counter, process_time
from typing import Any

from attnlab._util.memory import available_memory, limit_memory
from attnlab._util.process import describe_exit_code, fork
from attnlab._util.raise_site import describe_error
from attnlab.errors import UserError, one_line
from attnlab.extras.bench.decoding import Decoding
from attnlab.extras.bench.layer import BenchCase, ForwardBackward, unsupported
from attnlab.training.device import set_up
from attnlab.training.out_of_memory import is_out_of_memory, requested_memory

MIN_ROUND_SECONDS = 0.1  # shorter passes are repeated until a round takes about this long
MEMORY_SHARE = 0.9  # of the available memory, the limit of a process on the CPU


class BenchProcess:
    """The parent's handle of a measuring process: ``start``, any number of ``time_round``, ``close``.

    Attributes:
        seconds: the time of one forward and backward pass, or of one decoded token, a value per round.
        figures: the memory of one pass or sequence, by the names of ``BenchResult``.
        reason: why the case cannot be measured, or an empty string; further rounds are then skipped.
        failed: True if the layer raised an error, False if the variant or the machine does not support the case.
    """

    def __init__(self, case: BenchCase) -> None:
        self.case = case
        self.seconds: list[float] = []
        self.figures: dict[str, Any] = {}
        self.reason, self.failed = "", False
        self._ends: list[Any] = []
        preload = "attnlab.training.preload"
        self._process = fork(_child, lambda: (case, self._open_pipe()), name="attnlab-bench", preload=preload, daemon=True)
        self._ends[1].close()

    def _open_pipe(self) -> Any:
        """Open a new pipe, replacing an earlier attempt's, and return the child's end."""
        for end in self._ends:
            end.close()
        self._pipe, child_pipe = multiprocessing.Pipe()
        self._ends = [self._pipe, child_pipe]
        return child_pipe

    def start(self) -> None:
        """Measure the memory of a pass and warm up the layer; return when both are done.

        Raises:
            UserError: the variant does not take the value of an option.
        """
        self.figures = self._request() or {}

    def time_round(self) -> None:
        """Time one round of passes and append the result to ``seconds``."""
        seconds = None if self.reason else self._request()
        if seconds is not None:
            self.seconds.append(seconds)

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _request(self) -> Any:
        """Return the next measurement of the process; if it has none, set ``reason`` and return None."""
        content: Any
        try:
            self._pipe.send("next")
            kind, content = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            kind, content = "error", describe_exit_code(self._process.exitcode or 0)
        if kind == "user error":
            raise content
        if kind == "measurement":
            return content
        self.reason, self.seconds, self.failed = content, [], kind == "error"
        return None


def _child(case: BenchCase, pipe: Connection) -> None:
    """Send a measurement for each request until the parent closes the pipe."""
    measurements = _measurements(case)
    try:
        while pipe.recv():
            pipe.send(("measurement", next(measurements)))
    except (EOFError, BrokenPipeError):
        return
    except UserError as error:
        pipe.send(("user error", error))
    except _Unsupported as reason:
        pipe.send(("unsupported", str(reason)))
    except Exception as error:  # variants are user code: any exception is the result of the case
        if is_out_of_memory(error):
            pipe.send(("unsupported", one_line(f"out of memory: requested {requested_memory(error)}")))
        else:
            pipe.send(("error", one_line(describe_error(error))))


def _measurements(case: BenchCase) -> Iterator[Any]:
    """Yield first the memory of a case, then the seconds of a pass or of a token, without end."""
    device = set_up(case.machine)
    reason = unsupported(case.layer, device)
    if reason:
        raise _Unsupported(reason)
    available = available_memory()
    if device.type == "cpu" and available is not None:
        limit_memory(int(MEMORY_SHARE * available))
    # A short pass first: memory of the libraries that it loads does not count as the layer's.
    measured_class = Decoding if case.layer.decode else ForwardBackward
    measured_class(replace(case.layer, length=min(16, case.layer.length)), device).figures()
    layer = measured_class(case.layer, device, process_time if case.cpu_time else perf_counter)
    figures: dict[str, bool | int] = {**layer.figures()}
    if measured_class is ForwardBackward and case.layer.role == "causal":
        figures |= Decoding(case.layer, device).figures()
    repeats = max(1, round(MIN_ROUND_SECONDS / layer.seconds(1)))
    yield figures
    while True:
        yield layer.seconds(repeats)


class _Unsupported(Exception):
    """Raised if the case is not supported; the message is the reason."""

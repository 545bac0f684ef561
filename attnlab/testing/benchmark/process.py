"""The process that measures a case, both ends of it: a pass for its memory, then timed passes whenever it has its turn."""

import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from attnlab._util.memory import available_memory, limit_memory
from attnlab._util.process import describe_exit_code, describe_raise_site, fork
from attnlab.errors import UserError, one_line
from attnlab.testing.benchmark.layer import BenchCase, ForwardBackward, unsupported
from attnlab.training.device import set_up
from attnlab.training.out_of_memory import is_out_of_memory, requested_memory

LEAST = 0.1  # seconds that a turn takes: short passes are repeated
LIMIT = 0.9  # of the memory that is free, what a process may ask for


class BenchProcess:
    """The parent's end: ``start``, as many turns as wanted, ``end``.

    Attributes:
        seconds: of a pass, a figure a turn.
        saved_bytes, peak_bytes: of a pass.
        reason: why there is nothing to measure; there are no turns then.
        failed: whether that is an error of the layer's, rather than what it or the machine cannot do.
    """

    def __init__(self, case: BenchCase) -> None:
        self.case = case
        self.seconds: list[float] = []
        self.saved_bytes = self.peak_bytes = 0
        self.reason, self.failed = "", False
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = fork(_child, (case, theirs), name="attnlab-bench", preload="attnlab.training.preload", daemon=True)
        theirs.close()

    def start(self) -> None:
        """Have the memory measured and the layer warmed up; returns when that is done.

        Raises:
            UserError: an option's value that the variant does not take.
        """
        self.saved_bytes, self.peak_bytes = self._ask() or (0, 0)

    def turn(self) -> None:
        """Time some passes."""
        seconds = None if self.reason else self._ask()
        if seconds is not None:
            self.seconds.append(seconds)

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _ask(self) -> Any:
        """The process's next answer; None, and ``reason`` set, where it has none."""
        answer: Any
        try:
            self._pipe.send("go on")
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(timeout=5)
            kind, answer = "error", describe_exit_code(self._process.exitcode or 0)
        if kind == "mistake":
            raise answer
        if kind == "answer":
            return answer
        self.reason, self.seconds, self.failed = answer, [], kind == "error"
        return None


def _child(case: BenchCase, pipe: Connection) -> None:
    """Answer whenever asked, until the parent is gone."""
    answers = _answers(case)
    try:
        while pipe.recv():
            pipe.send(("answer", next(answers)))
    except (EOFError, BrokenPipeError):
        return
    except UserError as mistake:
        pipe.send(("mistake", mistake))
    except _Refused as refused:
        pipe.send(("reason", str(refused)))
    except Exception as error:  # the variant is anyone's: whatever it raises is what was found
        full = is_out_of_memory(error)
        told = (
            f"out of memory: requested {requested_memory(error)}"
            if full
            else f"{type(error).__name__}: {error}{describe_raise_site()}"
        )
        pipe.send(("reason" if full else "error", one_line(told)))


def _answers(case: BenchCase) -> Iterator[Any]:
    """First the bytes that a pass saves and holds, then a pass's seconds without end."""
    device = set_up(case.machine)
    reason = unsupported(case.layer, device)
    if reason:
        raise _Refused(reason)
    free = available_memory()
    if device.type == "cpu" and free is not None:
        limit_memory(int(LIMIT * free))
    ForwardBackward(
        replace(case.layer, length=min(16, case.layer.length)), device
    ).memory()  # what libraries load is no layer's memory
    one = ForwardBackward(case.layer, device)
    memory = one.memory()
    repeats = max(1, round(LEAST / one.seconds(1)))
    yield memory
    while True:
        yield one.seconds(repeats)


class _Refused(Exception):
    """The case cannot be; says why."""

"""Measure single attention layers next to ``dense``: time, bytes saved for backward, peak memory and growth with length.

A case is a variant with a backend at a length: one layer with its projections, forward and backward, or decoding. Each case has
a separate process. The cases of a length are warmed up and then take turns (A B A B), so that a change of the machine's speed
affects all of them. A case that cannot be measured is a result, too, with the reason.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from multiprocessing.connection import Connection
from statistics import linear_regression, median
from time import process_time
from typing import Any

from torch.utils.benchmark import timer

from attnlab._util.files import real_path
from attnlab._util.machine import available_memory, limit_memory
from attnlab._util.process import describe_exit_code, fork_with_pipe
from attnlab._util.raise_site import describe_error
from attnlab.config.types import WITH, ComposedVariant
from attnlab.config.validation import validate
from attnlab.config.yaml import constant_place
from attnlab.errors import UserError, nearest, one_line
from attnlab.extras.bench.layer import BenchCase, Decoding, ForwardBackward, LayerConfig, composed_class, unsupported
from attnlab.nn.attention import BACKENDS, resolve_backend
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing.contract import resolve_check_device, validate_options
from attnlab.training.device import is_out_of_memory, requested_memory, set_up
from attnlab.variants import ROLES, Variant

MEMORY_SHARE = 0.9  # of the available memory, the limit of a process on the CPU
__all__ = ["BenchConfig", "BenchResult", "bench"]

AUTO, DENSE = "auto", "dense"
PRELOAD = "attnlab.training.preload"


@dataclass(frozen=True)
class BenchConfig(LayerConfig):
    """The cases that ``bench`` measures, and how.

    Attributes:
        variants: names, or paths as in a study (``file.py:Class``); ``dense`` is always measured in addition.
        lengths: lengths of the sequences.
        backends: backends of the variants; ``auto`` for the one that a study would use; empty: all that each variant declares.
            ``dense`` is measured with all of its backends.
        rounds: how many times each case is timed.
        components: components of the variants, but not of the baseline ``dense``: names, paths, or mappings as in a study.
        role: role of every layer; None: the first role that all variants have.
    """

    variants: Sequence[str]
    lengths: Sequence[int] = (256, 512, 1024, 2048)
    backends: Sequence[str] = ()
    rounds: int = 7
    components: Sequence[str | Mapping[str, Any]] = ()
    role: str | None = None


@dataclass
class BenchResult:
    """The measurements of one case.

    Attributes:
        case: the case.
        seconds: the time of one forward and backward pass, or of one decoded token of each sequence, a value per round; empty
            if there is a ``reason``.
        saved_bytes: the bytes that autograd saves for backward, without parameters.
        peak_bytes: the peak memory of a pass without parameters and inputs: of the device, or on a CPU of the process.
        cache_bytes: in the causal role, the bytes of keys and values that decoding keeps for one sequence.
        state_bytes: in the causal role, the bytes of recurrent states that decoding keeps for one sequence.
        cached: False when the variant declares no cache: each decoded token then computes the whole sequence again.
        reason: why the case could not be measured, or an empty string.
        failed: True when the layer raised an error, False when the variant or the machine does not support the case.
    """

    case: BenchCase
    seconds: list[float] = field(default_factory=list)
    saved_bytes: int = 0
    peak_bytes: int = 0
    cache_bytes: int = 0
    state_bytes: int = 0
    cached: bool = True
    reason: str = ""
    failed: bool = False

    @property
    def decodes(self) -> bool:
        """True when the role is causal, in which ``cached``, ``cache_bytes`` and ``state_bytes`` are measured."""
        return self.case.role == "causal"

    @property
    def time(self) -> float:
        """The median of ``seconds``; NaN when the case was not measured."""
        return median(self.seconds) if self.seconds else math.nan


def bench(config: BenchConfig, *, report: Callable[[BenchResult], None] | None = None) -> list[BenchResult]:
    """Measure every case, length by length, starting with ``dense``.

    Args:
        config: the cases and settings.
        report: called with each result as soon as its length has been measured.

    Raises:
        UserError: a name is unknown, a constructor does not take the options, or the CPU time of a CUDA device is requested.

    Examples:
        >>> from attnlab.extras.bench.suite import BenchConfig, bench
        >>> config = BenchConfig(["no_wo"], lengths=[16], backends=["reference"], dim=8, heads=2, rounds=3)
        >>> for result in bench(config):
        ...     if result.case.backend == "reference":
        ...         print(result.case.label, result.case.length, len(result.seconds), result.saved_bytes > 0)
        dense 16 3 True
        no_wo 16 3 True
    """
    results: list[BenchResult] = []
    cases = _make_cases(config)
    for length in dict.fromkeys(case.length for case in cases):
        for result in _measure_length([case for case in cases if case.length == length], rounds=config.rounds):
            results.append(result)
            if report is not None:
                report(result)
    return results


def _make_cases(config: BenchConfig) -> list[BenchCase]:
    """Return the cases in the order of their results; raise ``UserError`` for an invalid configuration."""
    variants = {DENSE: ComposedVariant(name=DENSE)}
    for name in config.variants:
        variant = _with_components(_absolute(name), config.components)
        variants.setdefault(variant.label, variant)
    classes = {label: composed_class(variant.name, variant.components) for label, variant in variants.items()}
    hook = POSITIONS.get(config.position).hook
    for backend in config.backends:
        if backend not in (AUTO, *BACKENDS):
            expected = ", ".join((AUTO, *BACKENDS))
            raise UserError(f"unknown backend {backend!r}{nearest(backend, BACKENDS)}: expected one of {expected}")
    for label, variant in variants.items():
        if label != DENSE:
            validate_options(VARIANTS.get(variant.name), dict(config.options))
    machine = config.machine.model_copy(update={"device": resolve_check_device(config.machine.device)})
    if config.cpu_time and machine.device != "cpu":
        raise UserError(f"CPU time measures layers on the device cpu only, got {machine.device}")
    shared = {shared.name: getattr(config, shared.name) for shared in fields(LayerConfig)}
    shared |= {"role": _role(config, classes.values()), "machine": machine}
    cases = []
    for length, (label, cls) in product(config.lengths, classes.items()):
        named = {"variant": variants[label].name, "components": variants[label].components, "label": label, "length": length}
        case: dict[str, Any] = shared | named | ({"options": {}} if label == DENSE else {})
        backends = cls.backends if label == DENSE or not config.backends else tuple(config.backends)
        automatic = resolve_backend(machine.device, hook=hook, backends=cls.backends)
        for backend in dict.fromkeys(automatic if backend == AUTO else backend for backend in backends):
            cases.append(BenchCase(backend=backend, **case))
    return cases


def _with_components(name: str, components: Sequence[str | Mapping[str, Any]]) -> ComposedVariant:
    """Return a variant with components; raise ``UserError`` if one has no name, or occurs twice."""
    variant = validate(ComposedVariant, {"name": name, WITH: list(components)}, where=constant_place("components"))
    absolute = (named.model_copy(update={"name": _absolute(named.name)}) for named in variant.components)
    return variant.model_copy(update={"components": tuple(absolute)})


def _absolute(name: str) -> str:
    """Make the path of ``file.py:Class`` absolute: the processes may have another working directory."""
    path, colon, cls = name.rpartition(":")
    return f"{real_path(path)}:{cls}" if colon and path.endswith(".py") else name


def _role(config: BenchConfig, classes: Collection[type[Variant]]) -> str:
    """Return the role of every layer; raise ``UserError`` if it cannot be measured."""
    if config.role not in (None, *ROLES):
        raise UserError(f"unknown role {config.role!r}{nearest(str(config.role), ROLES)}: expected one of {', '.join(ROLES)}")
    if config.decode and config.role not in (None, "causal"):
        raise UserError(f"decoding is measured in the role causal, got {config.role}")
    common = next((role for role in ROLES if all(role in cls.roles for cls in classes)), ROLES[0])
    return "causal" if config.decode else config.role or common


def _measure_length(cases: Sequence[BenchCase], *, rounds: int) -> list[BenchResult]:
    """Start a process per case, one after another, then time the cases in turns."""
    processes: list[_BenchProcess] = []
    try:
        for case in cases:
            processes.append(_BenchProcess(case))
            vars(processes[-1].result).update(processes[-1].measure() or {})
        for process in processes * rounds:
            if (seconds := process.measure()) is not None:
                process.result.seconds.append(seconds)
    finally:
        for process in processes:
            process.close()
    return [process.result for process in processes]


def failed_variants(results: Sequence[BenchResult]) -> list[str]:
    """Return the labels of variants that raised an error and have no measurement at all."""
    measured = {result.case.label for result in results if result.seconds}
    failed = (result.case.label for result in results if result.failed)
    return list(dict.fromkeys(label for label in failed if label not in measured))


def fastest_dense(results: Sequence[BenchResult], length: int) -> BenchResult | None:
    """Return the result of ``dense`` with its fastest backend at ``length``; None when it was not measured."""
    dense = [r for r in results if r.case.label == DENSE and r.case.length == length and r.seconds]
    return min(dense, key=lambda result: result.time, default=None)


def speedups(result: BenchResult, base: BenchResult) -> list[float]:
    """Return the speed of ``result`` relative to ``base`` in each round; empty when ``result`` was not measured."""
    return [theirs / own for own, theirs in zip(result.seconds, base.seconds, strict=bool(result.seconds))]


def fit_cost_exponent(costs: Mapping[int, float]) -> float:
    """Fit cost = c * length^p to positive ``costs`` by length, and return p; NaN for fewer than two lengths.

    p is the least-squares slope of log(cost) over log(length).
    """
    logs = {math.log(length): math.log(cost) for length, cost in costs.items() if cost > 0}
    return linear_regression(list(logs), list(logs.values())).slope if len(logs) > 1 else math.nan


class _BenchProcess:
    """The parent's end of a process that measures a case, which fills in the ``result``."""

    def __init__(self, case: BenchCase) -> None:
        self.result = BenchResult(case)
        self._process, self._pipe = fork_with_pipe(_child, case, name="attnlab-bench", preload=PRELOAD)

    def measure(self) -> Any:
        """Return the next measurement: first the memory of a case, then a time for each call; None from an error on.

        Raises:
            UserError: the variant does not take the value of an option.
        """
        if self.result.reason:
            return None
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
        self.result.reason, self.result.seconds, self.result.failed = content, [], kind == "error"
        return None

    def close(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()


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
    if reason := unsupported(case, device):
        raise _Unsupported(reason)
    available = available_memory()
    if device.type == "cpu" and available is not None:
        limit_memory(int(MEMORY_SHARE * available))
    # A short pass first: memory of the libraries that it loads does not count as the layer's.
    measured_class = Decoding if case.decode else ForwardBackward
    measured_class(replace(case, length=min(16, case.length)), device).figures()
    layer = measured_class(case, device)
    figures: dict[str, bool | int] = {**layer.figures()}
    if measured_class is ForwardBackward and case.role == "causal":
        figures |= Decoding(case, device).figures()
    times = layer.times(process_time if case.cpu_time else timer)
    next(times)  # warm up
    yield figures
    yield from times


class _Unsupported(Exception):
    """Raised if the case is not supported; the message is the reason."""

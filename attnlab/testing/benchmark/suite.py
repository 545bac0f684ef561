"""What one attention layer costs, side by side with ``dense``: time, bytes saved for backward, peak memory, growth with length.

    from attnlab.testing.benchmark.suite import BenchConfig, bench, fit_cost_exponent
    found = bench(BenchConfig(["my_lab/cosine.py:Cosine"], lengths=(512, 2048)))

A case is a variant with a backend at a length: one layer with its projections, forward and backward. Each has a process of its
own. The cases of a length are warmed up and then take turns (A B A B), so that whatever the machine does meanwhile meets all of
them. What cannot be is a result, too: it has a reason.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

from attnlab.config.run import MachineConfig
from attnlab.errors import UserError, nearest
from attnlab.nn.attention import BACKENDS
from attnlab.registry import POSITIONS, VARIANTS
from attnlab.testing.benchmark.layer import BenchCase, LayerConfig
from attnlab.testing.benchmark.process import BenchProcess
from attnlab.testing.contract import resolve_check_device, validate_options
from attnlab.variants import ROLES, Variant

DENSE, TORCH_DEFAULTS = "dense", "dense, torch defaults"
FAST_MACHINE = MachineConfig(matmul_precision="medium", reuse_memory=True)
LENGTHS = (256, 512, 1024, 2048)


@dataclass(frozen=True)
class BenchConfig:
    """What is to be measured.

    Attributes:
        variants: names, or paths as in a study (``file.py:Class``); ``dense`` is always beside them.
        lengths: of the sequences.
        backends: of the variants; none: all that each offers. ``dense`` is measured with all of its own.
        batch, dim, heads: the shape: (batch, length, dim).
        position: the scheme that every layer has.
        precision: ``fp32`` or ``bf16``.
        options: of the variants; those not named are ``Variant.suited`` to the length, or defaults.
        rounds: how often each case has its turn.
        machine: what all processes are set to.
        torch_defaults: also measure dense with SDPA under PyTorch's own process settings.
    """

    variants: Sequence[str]
    lengths: Sequence[int] = LENGTHS
    backends: Sequence[str] = ()
    batch: int = 2
    dim: int = 256
    heads: int = 8
    position: str = "none"
    precision: str = "fp32"
    options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 7
    machine: MachineConfig = FAST_MACHINE
    torch_defaults: bool = False


@dataclass(frozen=True)
class BenchResult:
    """What came of one case.

    Attributes:
        seconds: of one forward and backward pass, a figure a round; empty where there is a reason.
        saved_bytes: what autograd keeps for the backward pass, parameters not counted.
        peak_bytes: the most memory that the layer, its input and its passes held: of the device, or of the process on a CPU.
        reason: why it could not be measured.
        failed: whether that is an error of the layer's, rather than what it or the machine cannot do.
    """

    case: BenchCase
    seconds: tuple[float, ...] = ()
    saved_bytes: int = 0
    peak_bytes: int = 0
    reason: str = ""
    failed: bool = False

    @property
    def time(self) -> float:
        """The median over rounds, in seconds; NaN where there is none."""
        return median(self.seconds) if self.seconds else math.nan


def bench(asked: BenchConfig, *, report: Callable[[BenchResult], None] | None = None) -> list[BenchResult]:
    """Measure every case, length by length, those of ``dense`` first.

    Args:
        report: called with each case as soon as it is measured.

    Raises:
        UserError: a name that nothing has, or options that a constructor does not take.
    """
    found: list[BenchResult] = []
    cases = _cases(asked)
    for length in dict.fromkeys(case.length for case in cases):
        for each in _at_one_length([case for case in cases if case.length == length], rounds=asked.rounds):
            found.append(each)
            if report is not None:
                report(each)
    return found


def _cases(asked: BenchConfig) -> list[BenchCase]:
    """What is to be measured, in order."""
    refs = list(dict.fromkeys([DENSE, *map(_absolute, asked.variants)]))
    classes = {ref: VARIANTS.get(ref) for ref in refs}
    POSITIONS.get(asked.position)
    for backend in asked.backends:
        if backend not in BACKENDS:
            raise UserError(f"unknown backend {backend!r}{nearest(backend, BACKENDS)}: expected one of {', '.join(BACKENDS)}")
    for ref, cls in classes.items():
        if ref != DENSE:
            validate_options(cls, dict(asked.options))
    machine = asked.machine.model_copy(update={"device": resolve_check_device(asked.machine.device)})
    shared = {"position": asked.position, "batch": asked.batch, "dim": asked.dim, "heads": asked.heads}
    shared |= {"precision": asked.precision, "role": _role(classes.values())}
    cases = []
    for length, (ref, cls) in product(asked.lengths, classes.items()):
        options = {} if ref == DENSE else dict(asked.options)
        backends = cls.backends if ref == DENSE or not asked.backends else tuple(asked.backends)
        for backend in backends:
            layer = LayerConfig(variant=ref, backend=backend, length=length, options=options, **shared)
            cases.append(BenchCase(ref.rpartition(":")[2], layer, machine))
            if asked.torch_defaults and ref == DENSE and backend == "sdpa":
                plain = machine.model_copy(update={"matmul_precision": "highest", "reuse_memory": False})
                cases.append(BenchCase(TORCH_DEFAULTS, layer, plain))
    return cases


def _absolute(ref: str) -> str:
    """A file's path from the root: the processes of the cases may work elsewhere."""
    place, colon, name = ref.rpartition(":")
    return f"{Path(place).resolve()}:{name}" if colon and place.endswith(".py") else ref


def _role(classes: Collection[type[Variant]]) -> str:
    """The first role that all of them have."""
    return next((role for role in ROLES if all(role in cls.roles for cls in classes)), ROLES[0])


def _at_one_length(cases: Sequence[BenchCase], *, rounds: int) -> list[BenchResult]:
    """Give each case a process, have them measure their memory one after another, then give them turns."""
    processes: list[BenchProcess] = []
    try:
        for case in cases:
            processes.append(BenchProcess(case))
            processes[-1].start()
        for _ in range(rounds):
            for process in processes:
                process.turn()
    finally:
        for process in processes:
            process.end()
    return [BenchResult(p.case, tuple(p.seconds), p.saved_bytes, p.peak_bytes, p.reason, p.failed) for p in processes]


def failed_variants(found: Sequence[BenchResult]) -> list[str]:
    """The variants of which nothing could be measured for an error of their own."""
    there = {each.case.label for each in found if each.seconds}
    return list(dict.fromkeys(each.case.label for each in found if each.failed and each.case.label not in there))


def fastest_dense(found: Sequence[BenchResult], length: int) -> BenchResult | None:
    """``dense`` with the backend that is fastest at this length; None where none could be measured."""
    there = [each for each in found if each.case.label == DENSE and each.case.length == length and each.seconds]
    return min(there, key=lambda each: each.time, default=None)


def speedups(one: BenchResult, base: BenchResult) -> list[float]:
    """How many times as fast as ``base`` it was, in each round; empty where it could not be measured."""
    return [theirs / own for own, theirs in zip(one.seconds, base.seconds, strict=bool(one.seconds))]


def fit_cost_exponent(figures: Mapping[int, float]) -> float:
    """The exponent with which figures grow with length: the least-squares slope of their logarithms; NaN below two lengths."""
    known = {math.log(n): math.log(figure) for n, figure in figures.items() if figure > 0}
    return linear_regression(list(known), list(known.values())).slope if len(known) > 1 else math.nan

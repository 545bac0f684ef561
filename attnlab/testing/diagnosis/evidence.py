"""Evidence for causes of failures: what one call of a module changes, draws and reduces."""

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from attnlab.testing.checks.target import seed_generators
from attnlab.testing.diagnosis import operations
from attnlab.testing.diagnosis.operations import SCANS, TRANSFORMS, Operation, Recorder, Snapshot, Treatment

ROWS, QUERIES, KEYS = 31, 37, 41  # sizes that no width of a layer equals, so that dimensions can be told apart
MODULES = 5  # new modules that are compared: one in a few may differ


class Cause(NamedTuple):
    """The cause of a failed check.

    Attributes:
        name: its kind, for example ``randomness``.
        advice: what was seen, and what to change.
    """

    name: str
    advice: str


class Candidate(NamedTuple):
    """A cause for which there is evidence, and the treatment that removes it."""

    cause: Cause
    treatment: Treatment


class Subject(NamedTuple):
    """A way to call a module.

    Attributes:
        build: returns a new module, always with the same weights.
        call: calls it: ``call(module, **inputs)``.
        inputs: returns new tensors, always of the same values, by name; of ``ROWS`` rows and lengths ``QUERIES`` and ``KEYS``.
        training: whether it is in training mode.
        gradients: whether it is called with gradients.
    """

    build: Callable[[], nn.Module]
    call: Callable[..., Tensor]
    inputs: Callable[[], Mapping[str, Tensor | None]]
    training: bool = False
    gradients: bool = False


@dataclass
class Evidence:
    """What calls of a module showed.

    Attributes:
        arguments, attributes: names of what they changed.
        operations: reductions and draws of random numbers.
        random_modes: ``evaluation`` and ``training``, where outputs depend on the seed.
        mixes_rows: whether a row has another output alone.
        reads_rows: whether a row has another output where the content of the other rows is another.
        outside: the cause that equal calls of equal modules differ: ``randomness`` of other generators than torch's, or
            ``state`` outside of the module; "" if they do not.
    """

    arguments: dict[str, None] = field(default_factory=dict)
    attributes: dict[str, None] = field(default_factory=dict)
    operations: dict[Any, Operation] = field(default_factory=dict)
    random_modes: dict[str, None] = field(default_factory=dict)
    mixes_rows: bool = False
    reads_rows: bool = False
    outside: str = ""

    def collect(self, subject: Subject, device: str) -> None:
        """Add what one call shows, and calls with other seeds if it draws random numbers."""
        module, inputs = subject.build(), subject.inputs()
        before, snapshot = {name: None if z is None else z.clone() for name, z in inputs.items()}, Snapshot(module)
        with torch.set_grad_enabled(subject.gradients), Recorder(ROWS, (QUERIES, KEYS)) as recorder:
            seed_generators(1, device)
            y = subject.call(module, **inputs).detach()
        self.arguments |= dict.fromkeys(name for name, z in inputs.items() if z is not None and _differ(z, before[name]))
        self.attributes |= dict.fromkeys(snapshot.changed())
        self.operations = recorder.found | self.operations
        if not _all_close(_repeated(subject, device) for _ in range(MODULES)):
            same = _all_close(_repeated(subject, device, every_generator=True) for _ in range(MODULES))
            self.outside = "randomness" if same else "state"
        self.mixes_rows |= not _close(_changed(subject, device, _first), y[:1])
        self.reads_rows |= not _close(_changed(subject, device, _among_others)[:1], y[:1])
        if any("random" in one.kinds for one in recorder.found.values()) and _is_random(subject, y, device):
            self.random_modes["training" if subject.training else "evaluation"] = None

    def without(self, other: "Evidence") -> "Evidence":
        """Return what ``other`` does not show."""
        return Evidence(
            {name: None for name in self.arguments if name not in other.arguments},
            {name: None for name in self.attributes if name not in other.attributes},
            {place: one for place, one in self.operations.items() if place not in other.operations},
            {mode: None for mode in self.random_modes if mode not in other.random_modes},
        )

    def of_kind(self, kind: str) -> list[Operation]:
        """Return the operations of a kind."""
        return [one for one in self.operations.values() if kind in one.kinds]

    def candidates(self, method: str, roles: Collection[str]) -> Iterator[Candidate]:
        """Yield the causes that the evidence suggests, those first that explain most.

        Args:
            method: the name of the method that is called.
            roles: the roles of a variant; () for a position scheme, which has no mask.
        """
        draws, rows, positions = (self.of_kind(kind) for kind in ("random", "rows", "positions"))
        if self.arguments:
            yield Candidate(self.mutation(method), operations.with_copies)
        if self.attributes:
            cause = Cause("state", _state(method, list(self.attributes)))
            yield Candidate(cause, operations.with_restored_module)
            parts = {f"self.{name.partition('.')[0]}" for name in self.attributes}
            if kept := [one for one in rows + positions if not one.keeps_shape and any(part in one.code for part in parts)]:
                yield Candidate(cause, operations.without(kept))  # a running statistic
        if self.random_modes and draws:
            yield Candidate(Cause("randomness", _random(draws[0], self.random_modes)), operations.without(draws))
        if self.mixes_rows and not self.outside:
            yield Candidate(_batch(rows) if rows or self.reads_rows else _BATCH_SIZE, operations.row_by_row)
        norms = [one for one in rows if one.keeps_shape or one not in positions]
        if norms:
            yield Candidate(_batch(norms), operations.without(norms))
        if (turned := self.of_kind("reversed")) and not self.outside:
            yield Candidate(Cause("reversed", _reversed(turned[0])), operations.without(turned))
        if transforms := [one for one in positions if one.function in TRANSFORMS]:
            yield Candidate(transformed(transforms), operations.without(transforms))
        if positions:
            yield Candidate(Cause("statistic", _statistic(positions[0], roles)), operations.without(positions))
        for one in self.of_kind("keys"):
            advice = f"A statistic of all keys of a query, hidden ones included, reaches its output: {one} computes it. "
            cause = Cause("statistic", f"{advice}Leave out the keys that `mask` or the causal role hides.")
            for value in (1.0, 0.0):  # without effect on a quotient, and on a difference
                yield Candidate(cause, operations.without([one], value=value))

    def elsewhere(self) -> Cause | None:
        """Return the cause that lies outside of the module, or None."""
        if self.outside == "randomness":
            return Cause("randomness", "Two calls with equal inputs differ: use torch's random generator, not random or numpy.")
        if self.outside == "state":
            advice = (
                "Equal calls of new modules differ: an output depends on a class attribute or a global that calls or "
                "constructors change."
            )
            return Cause("state", advice)
        return None

    def mutation(self, method: str) -> Cause:
        """Return the cause that arguments are changed in place."""
        names = " and ".join(f"`{name}`" for name in self.arguments)
        advice = f"{method}() changes {names} in place, which its caller and other layers read, too. Work on a copy (.clone())."
        return Cause("mutation", advice)


def _repeated(subject: Subject, device: str, *, every_generator: bool = False) -> Tensor:
    """Return the output of a new module from the same seed of torch, or of all generators."""
    module, inputs, states = subject.build(), subject.inputs(), (random.getstate(), np.random.get_state())
    seed_generators(1, device)
    if every_generator:
        random.seed(1)
        np.random.seed(1)
    try:
        with torch.no_grad():
            return subject.call(module, **inputs)
    finally:
        if every_generator:
            random.setstate(states[0])
            np.random.set_state(states[1])


def _changed(subject: Subject, device: str, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the output of a new module for changed inputs."""
    seed_generators(1, device)
    with torch.no_grad():
        return subject.call(subject.build(), **{name: None if z is None else change(z) for name, z in subject.inputs().items()})


def _first(z: Tensor) -> Tensor:
    return z[:1]


def _among_others(z: Tensor) -> Tensor:
    """Return inputs (b, ...) with the first row as it is, and other content in the others; of a mask, with other padding."""
    others = z[1:].clone()
    if z.is_floating_point():
        others *= -2
    else:
        others[:, 0] = False
    return torch.cat([z[:1], others])


def _is_random(subject: Subject, y: Tensor, device: str) -> bool:
    """Return True when a new module with the same weights computes another output than ``y`` from another seed alone."""
    outputs = []
    for seed in (1, 2):
        module, inputs = subject.build(), subject.inputs()
        seed_generators(seed, device)
        with torch.no_grad():
            outputs.append(subject.call(module, **inputs))
    return _differ(y, outputs[1]) and not _differ(y, outputs[0])


def _differ(one: Tensor, other: Tensor | None) -> bool:
    return other is None or not torch.equal(one, other)


def _close(one: Tensor, other: Tensor) -> bool:
    """Return True when outputs are equal up to the rounding of other kernels, or of sums in another order."""
    return torch.allclose(one, other, rtol=1e-4, atol=1e-6)


def _all_close(outputs: Iterable[Tensor]) -> bool:
    first, *others = outputs
    return all(_close(first, other) for other in others)


_BATCH_SIZE = Cause(
    "batch size",
    "The number of rows changes the output of a row, their content does not: look for x.shape[0] and code that it selects.",
)


def _batch(rows: list[Operation]) -> Cause:
    advice = "Rows of a batch affect each other" + (f": {rows[0]} reduces the batch." if rows else ".")
    return Cause(
        "batch",
        f"{advice} Look for a norm or mean over the batch, a branch on all masks, or a reshape of b and t.",
    )


def _state(method: str, names: list[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:3])
    return (
        f"{method}() changes the module ({listed}), so that an output depends on earlier calls. Compute it from the arguments "
        "alone: no counters, running averages or stored results."
    )


def _random(draw: Operation, modes: Collection[str]) -> str:
    if "evaluation" not in modes:
        return f"Two calls with equal inputs differ in training mode without dropout: {draw} draws random numbers."
    return (
        f"Two calls with equal inputs differ in evaluation mode: {draw} draws random numbers. Pass training=self.training to "
        "dropout; draw other random numbers once, in the constructor."
    )


def transformed(operations: list[Operation]) -> Cause:
    """Return the cause that a Fourier transform mixes the positions."""
    advice = (
        f"Each output depends on all positions, later and padded ones included: {operations[0]} transforms over the positions. "
        "A filter of the past alone is a convolution padded on the left (transforms of twice the length, with the second half "
        "zero), after the positions where `mask` is False are set to zero."
    )
    return Cause("transform", advice)


def _reversed(operation: Operation) -> str:
    return (
        f"Outputs depend on later positions: {operation} reverses the order of the positions. Sums and scans of a causal role "
        "run from the first position on."
    )


def running(operation: Operation) -> Cause:
    """Return the cause that a scan over the positions starts again in each segment."""
    advice = (
        f"A running {SCANS[operation.function]} over the positions starts again in each segment: {operation} computes it. "
        "Keep its last value, and the number of positions that it counts, in the cache (`new_cache`), or compute it over the "
        "memory, too."
    )
    return Cause("statistic", advice)


def _statistic(operation: Operation, roles: Collection[str]) -> str:
    if operation.function in SCANS:
        return (
            f"Each output depends on a running {SCANS[operation.function]} over the positions, padding included: "
            f"{operation} computes it. Set the positions where `mask` is False to zero before it, and count the others alone."
        )
    what = "all positions of all rows" if "rows" in operation.kinds else "all positions"
    advice = f"Each output depends on a statistic of {what}{', padding included' if roles else ''}: {operation} computes it. "
    advice += "Compute it from the features of each position"
    if "causal" in roles or not roles:
        advice += ", or from the positions so far (cumsum)"
    return advice + (", without those where `mask` is False." if roles else ".")

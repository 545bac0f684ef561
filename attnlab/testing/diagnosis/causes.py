"""Candidates for the cause of a failed check, and the one that explains it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import torch
from torch import Tensor

from attnlab.testing.checks.result import Check
from attnlab.testing.checks.target import AttentionLayer, CheckTarget, seed_generators
from attnlab.testing.composition import component_classes
from attnlab.testing.diagnosis import treatments
from attnlab.testing.diagnosis.operations import Operation, Recorder
from attnlab.testing.diagnosis.patterns import Cause, of_causality, of_padding
from attnlab.testing.diagnosis.treatments import Snapshot, Treatment

ROWS, QUERIES, KEYS = 31, 37, 41  # sizes that no width of a layer equals, so that dimensions can be told apart
SEGMENTS = ("memory", "masked memory", "decoding", "key-value cache")


@dataclass(frozen=True)
class Candidate:
    """A cause for which there is evidence, and the treatment that removes it."""

    cause: Cause
    treatment: Treatment


class Diagnosis:
    """The causes of the failed checks of a target.

    Args:
        target: the target of the checks.
    """

    def __init__(self, target: CheckTarget) -> None:
        self.target = target

    def cause(self, check: Check[CheckTarget]) -> Cause | None:
        """Return the cause of the failure of ``check``; None if nothing better than the advice of the check is known."""
        found = self._removed(check) or self._of_modes(check) or self._pattern(check)
        return found and self._of_component(found)

    def _removed(self, check: Check[CheckTarget]) -> Cause | None:
        """Return the fewest candidates without which the check passes, as one cause."""
        target = self._where_it_fails(check) if self.candidates else self.target
        for count in range(1, len(self.candidates) + 1):
            for some in combinations(self.candidates, count) if count < 3 else [tuple(self.candidates)]:
                if self._passes(check, target, [candidate.treatment for candidate in some]):
                    advice = " Also: ".join(candidate.cause.advice for candidate in some)
                    return Cause(some[0].cause.name, advice)
        if check.name == "compile":  # of a treatment there is no graph
            return next((one.cause for one in self.candidates if one.cause.name in ("state", "randomness")), None)
        return None

    def _passes(self, check: Check[CheckTarget], target: CheckTarget, applied: Sequence[Treatment] = ()) -> bool:
        try:
            check.run(replace(target, treatments=tuple(applied)))
        except Exception:  # a failure, or an exception of user code
            return False
        return True

    def _where_it_fails(self, check: Check[CheckTarget]) -> CheckTarget:
        """Return the target without drawn sizes if the check fails there, too, which is faster to repeat."""
        small = replace(self.target, sizes=replace(self.target.sizes, name=self.target.sizes.name or "small"))
        return self.target if self._passes(check, small) else small

    def _of_modes(self, check: Check[CheckTarget]) -> Cause | None:
        """Return the cause of a failure with dropout if outputs without dropout differ between the modes."""
        if not check.name.startswith("dropout") or not self._differs_in_training:
            return None
        advice = (
            "Without dropout, too, the output in training mode differs from that in evaluation mode: look for self.training."
        )
        return Cause("training mode", advice)

    def _pattern(self, check: Check[CheckTarget]) -> Cause | None:
        """Return the pattern in which outputs depend on what they must not, for the checks that it explains."""
        try:
            if check.name.startswith("causality") or check.name in SEGMENTS:
                return self._causality
            if check.name in ("padding", "leading padding"):
                return self._causality or self._padding
        except Exception:  # of user code, at a size that the checks do not have
            return None
        return None

    @cached_property
    def _causality(self) -> Cause | None:
        return of_causality(self.target)

    @cached_property
    def _padding(self) -> Cause | None:
        return of_padding(self.target)

    def _of_component(self, cause: Cause) -> Cause:
        """Return a cause with the advice for a component, which has no `self.attend` and gets no AttentionMask."""
        places = {place for cls in component_classes(self.target.variant) for place in cls.places()}
        if not places or cause.name not in ("no mask", "no causal mask", "mask is not used", "hidden keys count", "neighbors"):
            return cause
        seen = cause.advice.split(": ")[0].split(". ")[0]
        if "input" in places:
            return Cause(cause.name, f"{seen}. `input(x, mask)` receives the mask: set x to zero where it is False first.")
        names = ", ".join(f"`{place}`" for place in sorted(places))
        return Cause(cause.name, f"{seen}. The component must not mix positions in {names}: attention does, under its masks.")

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The causes for which a forward pass gives evidence, those first that explain most."""
        try:
            return self._observed()
        except Exception:  # of user code, at a size that the checks do not have
            return []

    def _observed(self) -> list[Candidate]:
        arguments: list[str] = []
        attributes: list[str] = []
        operations: dict[tuple[str, int, str], Operation] = {}
        random_modes: list[str] = []
        for role in self.target.roles:
            for training in (False, True):
                layer = self._layer(role, training)
                inputs = self._inputs(role)
                before, snapshot = [None if z is None else z.clone() for z in inputs], Snapshot(layer)
                with torch.no_grad(), Recorder(ROWS, (QUERIES, KEYS)) as recorder:
                    seed_generators(1, self.target.device)
                    y = layer(*inputs)
                names = ("x", "context", "mask")
                arguments += [n for n, z, old in zip(names, inputs, before, strict=True) if z is not None and _differ(z, old)]
                attributes += snapshot.changed()
                operations = {**recorder.found, **operations}
                if any("random" in one.kinds for one in recorder.found.values()) or not training:
                    random_modes += ["training" if training else "evaluation"] * self._is_random(role, training, y)
        return list(_candidates(arguments, attributes, random_modes, list(operations.values()), self.target))

    def _layer(self, role: str, training: bool) -> AttentionLayer:
        return self.target.build(role).train(training)

    def _inputs(self, role: str) -> tuple[Tensor, Tensor | None, Tensor]:
        x, context = self.target.inputs(role, ROWS, QUERIES, s=KEYS)
        mask = torch.ones((x if context is None else context).shape[:2], dtype=torch.bool, device=self.target.device)
        mask[:, 4] = False
        return x, context, mask

    def _is_random(self, role: str, training: bool, y: Tensor) -> bool:
        """Return True if a new layer with the same weights computes another output than ``y`` from another seed alone."""
        outputs = [y]
        for seed in (1, 2):
            layer, inputs = self._layer(role, training), self._inputs(role)
            seed_generators(seed, self.target.device)
            with torch.no_grad():
                outputs.append(layer(*inputs))
        return _differ(outputs[0], outputs[2]) and not _differ(outputs[0], outputs[1])

    @cached_property
    def _differs_in_training(self) -> bool:
        role = self.target.roles[0]
        outputs = []
        for training in (False, True):
            layer, inputs = self._layer(role, training), self._inputs(role)
            with torch.no_grad():
                outputs.append(layer(*inputs))
        return bool((outputs[0] - outputs[1]).abs().max() > self.target.tolerance)


def _differ(one: Tensor, other: Tensor | None) -> bool:
    return other is None or not torch.equal(one, other)


def _candidates(
    arguments: list[str], attributes: list[str], random_modes: list[str], operations: list[Operation], target: CheckTarget
) -> Iterator[Candidate]:
    """Yield the candidates that these observations suggest."""
    draws, rows, positions = ([one for one in operations if kind in one.kinds] for kind in ("random", "rows", "positions"))
    if arguments:
        names = " and ".join(f"`{name}`" for name in dict.fromkeys(arguments))
        advice = f"forward() changes {names} in place, which its caller and other layers read, too. Work on a copy (.clone())."
        yield Candidate(Cause("mutation", advice), treatments.with_copies)
    if attributes:
        cause = Cause("state", _state(list(dict.fromkeys(attributes))))
        yield Candidate(cause, treatments.with_restored_module)
        parts = {f"self.{name.partition('.')[0]}" for name in attributes}
        if kept := [one for one in rows + positions if not one.keeps_shape and any(part in one.code for part in parts)]:
            yield Candidate(cause, treatments.without(kept))  # a running statistic
    if random_modes and draws:
        yield Candidate(Cause("randomness", _random(draws[0], random_modes)), treatments.without(draws))
    advice = "Rows of a batch affect each other" + (f": {rows[0]} reduces the batch." if rows else ".")
    batch = Cause("batch", f"{advice} Look for a norm or mean over the batch, or a reshape that swaps b and t.")
    yield Candidate(batch, treatments.row_by_row)
    if rows:
        yield Candidate(batch, treatments.without(rows))
    if positions:
        yield Candidate(Cause("statistic", _statistic(positions[0], target.roles)), treatments.without(positions))


def _state(names: list[str]) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:3])
    return (
        f"forward() changes the module ({listed}), so that an output depends on earlier calls. Compute it from the arguments "
        "alone: no counters, running averages or stored results."
    )


def _random(draw: Operation, modes: list[str]) -> str:
    if "evaluation" not in modes:
        return f"Two calls with equal inputs differ in training mode without dropout: {draw} draws random numbers."
    return (
        f"Two calls with equal inputs differ in evaluation mode: {draw} draws random numbers. Pass training=self.training to "
        "dropout; draw other random numbers once, in the constructor."
    )


def _statistic(operation: Operation, roles: Collection[str]) -> str:
    so_far = " or the positions so far (cumsum)," if "causal" in roles else ""
    return (
        f"Each output depends on a statistic of all positions, padding included: {operation} reduces them. Reduce the features "
        f"of each position instead,{so_far} and leave out positions where `mask` is False."
    )

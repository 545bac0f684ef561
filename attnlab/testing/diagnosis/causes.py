"""The one of several possible causes that explains a failed check."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.result import Check, NotDeclared, Unsupported
from attnlab.testing.checks.sizes import Sizes
from attnlab.testing.checks.target import AttentionLayer, CheckTarget
from attnlab.testing.checks.visibility import MASK
from attnlab.testing.checks.visibility import PADDING_ADVICE as PADDING
from attnlab.testing.composition import component_classes
from attnlab.testing.diagnosis.evidence import KEYS, QUERIES, ROWS, Candidate, Cause, Evidence, Subject, running, transformed
from attnlab.testing.diagnosis.operations import SCANS, TRANSFORMS, Treatment, with_copies, with_restored_module
from attnlab.testing.position_checks import SchemeTarget, logits
from attnlab.training.device import autocast

if TYPE_CHECKING:
    pass

Call = Callable[[Tensor | None, Tensor], Tensor]  # of a mask and the inputs that it is for
WRAPS = (
    "Only the first outputs read ahead, or only from the last inputs: torch.roll wraps around (shift by F.pad and a slice "
    "instead), or an index such as -1 takes the last position."
)
SMALL = "small"  # the name of sizes at which a failure is repeated
LENGTH, NEAR = 23, 5  # of the inputs; the largest distance that a shift or a short convolution reaches
OBSERVED = ("mutation", "state", "randomness", "batch", "statistic")
MODES = "precisions and modes"
SEGMENTS = ("memory", "masked memory", "decoding", "key-value cache")
EFFECTS = ("effect", "components take effect", "backends", "bf16")  # which another function may pass: no operation is blamed
MASKED = ("padding", "leading padding", "all padding", "batch independence", "training mode")


class Diagnosis:
    """The causes of the failed checks of a variant or a position scheme.

    Args:
        target: the target of the checks.
    """

    def __init__(self, target: Any) -> None:
        self.target = target
        self.found: list[Cause] = []  # of the checks before
        self._others: dict[tuple[int, int, int], Diagnosis] = {}
        self._places: dict[str, Any] = {}

    def cause(self, check: Check[Any], *, error: str = "", advice: str = "") -> Cause | None:
        """Return the cause of the failure of a check; None when nothing better than the advice of the check is known.

        Args:
            check: the check that failed.
            error: of a check that failed by an exception, its message.
            advice: of the check.
        """
        try:
            found = self._at_sizes(check, error, advice) or self._cause(check, error)
        except Exception:  # of user code, at a size that the checks do not have
            return None
        if found is not None:
            self.found.append(found)
        return found

    def _cause(self, check: Check[Any], error: str) -> Cause | None:
        return self._removed(check) or (self._of_error(error) if error else self._other(check))

    def _at_sizes(self, check: Check[Any], error: str, advice: str) -> Cause | None:
        """Return the cause of a failure at drawn sizes alone, or at the sizes of a study alone; None for another failure."""
        at = self._where_it_fails(check)
        if not isinstance(at, CheckTarget) or not at.sizes.name or (at.sizes.name == SMALL and self._has_shape_of(at)):
            return None
        other = self if self._has_shape_of(at) else self._with_shape_of(at)
        if at.sizes.name != SMALL:
            seen = "At small sizes this check passes: look for x.shape and code that a length or a number of rows selects. "
            return other._removed(check, at) or self._length(check) or Cause("length", seen + advice)
        found = other._cause(check, error)
        block = f", in block {at.layer}" if at.layer else ""
        where = f"With {at.heads} heads of width {at.dim // at.heads}{block}, not at the other sizes: "
        return Cause(found.name if found else "shape", where + (found.advice if found else advice))

    def _has_shape_of(self, target: CheckTarget) -> bool:
        return (target.heads, target.dim, target.layer) == (self.target.heads, self.target.dim, self.target.layer)

    def _with_shape_of(self, target: CheckTarget) -> "Diagnosis":
        """Return the diagnosis of the same variant with other heads, another width or in another block."""
        shape = (target.heads, target.dim, target.layer)
        if shape not in self._others:
            self._others[shape] = Diagnosis(_small(target))
        return self._others[shape]

    def _of_error(self, error: str) -> Cause | None:
        in_place = any(words in error for words in ("inplace operation", "written-to tensor"))
        return self._evidence.mutation(self._method) if in_place and self._evidence.arguments else None

    def _removed(self, check: Check[Any], at: CheckTarget | None = None) -> Cause | None:
        """Return the fewest candidates without which the check passes, as one cause; ``at``: where it fails."""
        candidates = [one for one in self.candidates if check.name not in EFFECTS or one.cause.name != "statistic"]
        if not candidates:
            return None
        target = at or self._where_it_fails(check)
        for count in dict.fromkeys([1, 2, len(candidates)]):
            for some in combinations(candidates, count):
                if self._passes(check, target, [candidate.treatment for candidate in some]):
                    advice = dict.fromkeys(candidate.cause.advice for candidate in some)
                    return self._of_segments(check) or Cause(some[0].cause.name, " Also: ".join(advice))
        if check.name == "compile":  # of a treatment there is no graph
            return next((one.cause for one in self.candidates if one.cause.name in ("state", "randomness")), None)
        if check.name == "key-value cache":  # calls with a cache are not treated
            return next((one for one in self.found if one.name in OBSERVED), None)
        return None

    def _of_segments(self, check: Check[Any]) -> Cause | None:
        """Return the cause of a failure with memory or a cache if the module scans the positions; else None."""
        scans = [one for one in self._evidence.of_kind("positions") if one.function in SCANS]
        return running(scans[0]) if check.name in SEGMENTS and scans else None

    def _passes(self, check: Check[Any], target: Any, applied: Sequence[Treatment] = ()) -> bool:
        try:
            check.run(replace(target, treatments=tuple(applied)))
        except Exception:  # a failure, or an exception of user code
            return False
        return True

    def _fails(self, check: Check[Any], target: Any) -> bool:
        try:
            check.run(target)
        except (NotDeclared, Unsupported):  # small sizes leave out some position schemes
            return False
        except Exception:
            return True
        return False

    def _where_it_fails(self, check: Check[Any]) -> Any:
        """Return the smallest target at which the check fails, which is the fastest to repeat.

        That is the target itself at small sizes, or at small sizes with the shape of a drawn one, or a drawn one.
        """
        if not isinstance(self.target, CheckTarget):
            return self.target
        if check.name not in self._places:
            drawn = self.target.drawn()
            places = (*map(_small, (self.target, *drawn)), *drawn)
            self._places[check.name] = next((one for one in places if self._fails(check, one)), self.target)
        return self._places[check.name]

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The causes for which calls give evidence, those first that explain most."""
        roles = () if isinstance(self.target, SchemeTarget) else self.target.roles
        return list(self._evidence.candidates(self._method, roles))

    @property
    def _method(self) -> str:
        """The name of the method that is called."""
        return self.target.hook if isinstance(self.target, SchemeTarget) else "forward"

    @cached_property
    def _evidence(self) -> Evidence:
        evidence = Evidence()
        for subject in _subjects(self.target):
            evidence.collect(subject, self.target.device)
        return evidence

    def _other(self, check: Check[Any]) -> Cause | None:
        """Return the cause that the pattern of the outputs shows, for the checks that it explains."""
        if not check.name.endswith("refused") and (outside := self._evidence.elsewhere()):
            return outside
        if not isinstance(self.target, CheckTarget):
            return None
        if check.name in MASKED and "mask" in self._evidence.arguments:
            return self._evidence.mutation(self._method)
        if check.name.startswith("dropout"):
            return self._of_training()
        if check.name == MODES:
            return self._of_modes()
        found = None
        if check.name.startswith("causality"):
            found = self._causality or self._length(check)
        elif check.name in SEGMENTS:
            found = self._causality or self._of_segments(check)
        elif check.name in ("padding", "leading padding"):
            found = self._causality or self._padding
        elif check.name == "permutation" and self._causality is not None and self._causality.name == "reshape":
            found = self._causality
        transforms = [one for one in self._evidence.of_kind("positions") if one.function in TRANSFORMS]
        if found is not None and found.name == "no mask" and transforms:
            return transformed(transforms)
        return found and _of_component(self.target, found)

    @cached_property
    def _causality(self) -> Cause | None:
        return of_causality(self._undisturbed)

    def _length(self, check: Check[Any]) -> Cause | None:
        """Return the cause of outputs that read later inputs in long sequences alone."""
        if not check.name.startswith("causality"):
            return None
        return Cause(
            "length",
            f"At length {LENGTH} no output reads a later input, at the length above outputs do: look for x.shape[1] and code "
            "that it selects, such as blocks, a mean over a block, or a mask of a fixed size.",
        )

    @cached_property
    def _padding(self) -> Cause | None:
        return of_padding(self._undisturbed)

    @property
    def _undisturbed(self) -> CheckTarget:
        """The target without changes of arguments and of the module, which would disturb a pattern."""
        return replace(self.target, treatments=(with_copies, with_restored_module))

    def _of_modes(self) -> Cause | None:
        """Return what calls in float32 and under autocast show, and calls in float64 do not.

        Without it, outputs differ from those in float64 as well, so that no treatment lets the check pass.
        """
        evidence = Evidence()
        for subject in _subjects_of_modes(self.target):
            evidence.collect(subject, self.target.device)
        for candidate in evidence.without(self._evidence).candidates(self._method, self.target.roles):
            return Cause(candidate.cause.name, f"In float32 or bf16, not in float64: {candidate.cause.advice}")
        return None

    def _of_training(self) -> Cause | None:
        """Return the cause of a failure with dropout if outputs without dropout differ between the modes."""
        evaluated, trained = (_output(subject) for subject in list(_subjects(self.target))[:2])
        if (evaluated - trained).abs().max() <= self.target.tolerance:
            return None
        advice = "Without dropout, too, outputs in training mode differ from those in evaluation mode: look for self.training."
        return Cause("training mode", advice)


def _small(target: CheckTarget) -> CheckTarget:
    """Return a copy with small sizes, as its block alone."""
    return replace(target, sizes=Sizes(name=SMALL), study_layers=(), longest=0)


def _of_component(target: CheckTarget, cause: Cause) -> Cause:
    """Return a cause with the advice for a component, which has no `self.attend` and gets no AttentionMask."""
    places = {place for cls in component_classes(target.variant) for place in cls.places()}
    if not places or cause.name not in ("no mask", "no causal mask", "mask is not used", "hidden keys count", "neighbors"):
        return cause
    seen = cause.advice.split(": ")[0].split(". ")[0]
    if "input" in places:
        return Cause(cause.name, f"{seen}. `input(x, mask)` receives the mask: set x to zero where it is False first.")
    names = ", ".join(f"`{place}`" for place in sorted(places))
    return Cause(cause.name, f"{seen}. A component must not mix positions in {names}: attention does, under its masks.")


def _subjects(target: CheckTarget | SchemeTarget) -> Iterator[Subject]:
    """Yield the calls that give evidence: in each role, of a variant in both modes."""
    for role in target.roles:
        if isinstance(target, SchemeTarget):
            if target.hook in ("rotate", "bias"):
                yield Subject(partial(target.build, role), logits, partial(_queries_keys, target))
            continue
        for training in (False, True):
            build, inputs = partial(_layer, target, role, training), partial(_inputs, target, role)
            yield Subject(build, AttentionLayer.__call__, inputs, training)


def _subjects_of_modes(target: CheckTarget) -> Iterator[Subject]:
    """Yield calls in float32 and under bf16 autocast, with gradients in training mode and without in evaluation mode."""
    for role in target.roles:
        for precision in target.precisions:
            for training in (False, True):
                build, inputs = (
                    partial(_layer, target, role, training, torch.float32),
                    partial(_inputs, target, role, torch.float32),
                )
                yield Subject(build, partial(_call, target.device, precision), inputs, training, gradients=training)


def _call(device: str, precision: str, layer: AttentionLayer, **inputs: Tensor | None) -> Tensor:
    with autocast(torch.device(device), precision):
        return layer(**inputs)


def _layer(target: CheckTarget, role: str, training: bool, dtype: torch.dtype | None = None) -> AttentionLayer:
    return target.build(role, dtype=dtype).train(training)


def _inputs(target: CheckTarget, role: str, dtype: torch.dtype | None = None) -> dict[str, Tensor | None]:
    x, context = (None if z is None else z.to(dtype or target.dtype) for z in target.inputs(role, ROWS, QUERIES, s=KEYS))
    assert x is not None
    mask = torch.ones((x if context is None else context).shape[:2], dtype=torch.bool, device=target.device)
    mask[0, 0] = mask[1, 4] = mask[2, -1] = False
    return {"x": x, "context": context, "mask": mask}


def _queries_keys(target: SchemeTarget) -> dict[str, Tensor]:
    return {"q": target.noise(QUERIES, b=ROWS), "k": target.noise(KEYS, b=ROWS, seed=2)}


def _output(subject: Subject) -> Tensor:
    with torch.no_grad():
        return subject.call(subject.build(), **subject.inputs())


def of_causality(target: "CheckTarget") -> Cause | None:
    """Return the pattern in which outputs depend on later inputs; None when they do not, at this length in evaluation mode."""
    if "causal" not in target.roles:
        return None
    layer = target.build("causal")
    ahead = _reads_ahead(target, layer)
    if not ahead.any():
        return None
    j, i = ahead.nonzero().unbind(1)
    distance = int((j - i).max())
    if distance <= NEAR:
        return _near(distance)
    if int(i.max()) < NEAR or int(j.min()) >= LENGTH - NEAR:
        return Cause("wraps around", WRAPS)
    pairs = LENGTH * (LENGTH - 1) // 2
    if len(i) < pairs and target.heads > 1 and not _reads_ahead(target, target.build("causal", heads=1)).any():
        return Cause(
            "reshape",
            "With one head no output reads a later input: heads and positions are mixed. Move the heads next to the features "
            "before the reshape, as merge_heads(y) does: y.transpose(1, 2).reshape(b, t, -1).",
        )
    if len(i) < pairs:
        return None
    if _reads_ahead(target, layer, hide=True).any():
        return Cause(
            "no mask",
            "Every output reads every later input, also where `mask` hides it. Either no mask at all is applied to the logits, "
            "or something besides the attention weights mixes all positions.",
        )
    return Cause("no causal mask", f"Every output reads every later input that `mask` does not hide. {MASK}")


def _near(distance: int) -> Cause:
    positions = "the position after its own" if distance == 1 else f"up to {distance} positions after its own"
    advice = (
        f"Each output reads {positions}, and none further ahead: a mask with a diagonal that is off by {distance} "
        "(`layers.causal_mask(t, s)` is right), or a shift or convolution that pads on both sides, where it should pad on the "
        "left alone."
    )
    return Cause("off by one" if distance == 1 else "reads ahead", advice)


def _reads_ahead(target: "CheckTarget", layer: "AttentionLayer", *, hide: bool = False) -> Tensor:
    """Return whether input j changes output i < j, (j, i); with ``hide`` where `mask` is False at j."""
    x, new = target.noise(1, LENGTH), target.noise(1, LENGTH, seed=2)
    own = torch.eye(LENGTH, dtype=torch.bool, device=target.device)
    mask = ~own if hide else None
    changed = torch.stack([_change(layer, x, torch.where(own[j, :, None], new, x), mask, j) for j in range(LENGTH)])
    return (changed > target.tolerance).tril(-1)


def _change(layer: "AttentionLayer", x: Tensor, other: Tensor, mask: Tensor | None, j: int) -> Tensor:
    hidden = None if mask is None else mask[j : j + 1]
    with torch.no_grad():
        return (layer(other, None, hidden) - layer(x, None, hidden)).abs().amax((0, 2))


def of_padding(target: "CheckTarget") -> Cause | None:
    """Return the pattern in which outputs depend on padded positions; None when they do not, at this length."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, 2, LENGTH, s=LENGTH)
        padded = x if context is None else context
        mask = torch.ones(padded.shape[:2], dtype=torch.bool, device=target.device)
        mask[:, 9:12] = False
        other = torch.where(mask[..., None], padded, 9 * target.noise(2, LENGTH, seed=5))

        def call(mask: Tensor | None, padded: Tensor, *, layer=layer, x=x, context=context) -> Tensor:  # type: ignore[no-untyped-def]
            with torch.no_grad():
                return layer(padded, None, mask) if context is None else layer(x, padded, mask)

        plain, masked = call(None, padded), call(mask, padded)
        change = (call(mask, other) - masked).abs().amax((0, 2))  # (t,)
        if context is None:
            change[9:12] = 0.0
        if not (change > target.tolerance).any():
            if _same(target, call(torch.ones_like(mask), padded), plain):
                if context is None and _counts_padding(target, call, mask, padded):
                    advice = (
                        "The number of padded positions changes the outputs, their content does not: look for x.shape[1] or a "
                    )
                    return Cause("length", advice + "mean over all keys, and count only the positions where `mask` is True.")
                continue
            return _unequal_without_padding(target, call, mask, plain, padded)
        if _same(target, masked, plain):
            return Cause("mask is not used", f"`mask` has no effect: the output is the same without it. {PADDING}")
        if _same(target, call(torch.zeros_like(mask), padded), plain):
            return _inverted()
        at = (change > target.tolerance).nonzero().flatten()
        if context is None and int(at.min()) >= 9 - NEAR and int(at.max()) < 12 + NEAR:
            return Cause(
                "neighbors",
                "Only positions next to padding change: a shift or convolution reads it. Set the positions where `mask` is "
                "False to zero before it.",
            )
        return Cause(
            "hidden keys count",
            "`mask` has an effect, but the content of hidden positions still reaches the others. Set the logits of hidden keys "
            "to torch.finfo(dtype).min before the softmax; keys or values of zero still have a weight. Before a shift or a "
            "convolution of keys or values, set the positions where `mask` is False to zero.",
        )
    return None


def _counts_padding(target: "CheckTarget", call: Call, mask: Tensor, padded: Tensor) -> bool:
    longer = call(F.pad(torch.ones_like(mask), (0, NEAR)), F.pad(padded, (0, 0, 0, NEAR)))
    return not _same(target, longer[:, :LENGTH], call(torch.ones_like(mask), padded))


def _unequal_without_padding(target: "CheckTarget", call: Call, mask: Tensor, plain: Tensor, padded: Tensor) -> Cause | None:
    return _inverted() if _same(target, call(torch.zeros_like(mask), padded), plain) else None


def _inverted() -> Cause:
    return Cause("inverted mask", f"A mask of False alone hides nothing, so `mask` is read the wrong way round. {PADDING}")


def _same(target: "CheckTarget", one: Tensor, other: Tensor) -> bool:
    return bool(((one - other).abs() <= target.tolerance).all())

"""Visibility: the positions and rows that an output depends on.

No future positions in a causal role, all positions in a bidirectional one, the context in cross-attention. A variant that
declares ``mixes_positions = False`` sees its own position alone, in every role. Padding does not affect real positions, and
rows of a batch do not affect each other.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import (
    LONG_LENGTH,
    AttentionLayer,
    CheckTarget,
    at_drawn_sizes,
    seed_generators,
    trained_parameters,
)

# A pass checks one border with each row of its batch: row j keeps the first j tokens and replaces the others.
MAX_LOGITS = 2**20  # entries (b, h, t, s) of one pass, which bounds its memory
# Length -> entries of all passes, which bounds their time: every border of length 293, some borders of other long sequences.
# Powers of two are the lengths at which implementations often take another path.
LONG_VALUES = {256: 2**23, LONG_LENGTH: 2**27, 512: 2**23, 1024: 2**22}
LONG_GRADIENTS = {256: 2**21, LONG_LENGTH: 2**21}
OTHERS = 2**21  # of drawn lengths
OTHER_INPUTS = 32  # at a position that changed no output, before it is a failure
WHOLE = 2**27  # of short lengths: every border
MIN_SCREENED = 128  # shortest sequence that is first examined in float32
SCREEN = 1e-5  # a change in float32 that is then examined in the precision of the target
MASK = (
    "`self.attend` hides later keys in the role causal: call it for every weighted sum, or hide the keys after i + s - t from "
    "query i (`layers.causal_mask(t, s)`). A mean, norm, shift or convolution over positions reads earlier ones alone."
)
PADDING_ADVICE = (
    "Pass `mask` to every call of `attend`, or hide the keys where it is False in logits of your own. Set these positions to "
    "zero before a shift or convolution, and leave them out of a mean, norm or count."
)


def by_value(target: CheckTarget) -> str:
    """Replacing the inputs from j on changes output j and no output before j; with dropout in training, too."""
    target.require_role("causal")
    worst, least = 0.0, float("inf")
    budgets = _budgets(target, LONG_VALUES)
    for t, budget in budgets.items():
        for dropout in (0.0, 0.3) if target.variant.has_attention_dropout and t not in LONG_VALUES else (0.0,):
            layer = target.build("causal", length=max(t, target.sizes.length), dropout=dropout).train(dropout > 0)
            x, new = target.noise(1, t), target.noise(1, t, seed=2)
            screen = _screen(target, layer, t)
            for borders in _passes(target, t, budget):
                before, own = _changes_of(screen or layer, x, new, borders)
                if screen and not (before <= SCREEN).all() & (own > SCREEN).all():
                    before, own = _changes_of(layer, x, new, borders)
                elif screen:
                    continue
                for row in (~(before <= target.tolerance)).nonzero().flatten().tolist():
                    _require_causal(target, layer, x, new, int(borders[row]), len(borders))
                if not dropout:  # which may drop the only weight of a query
                    for row in (~(own > target.tolerance)).nonzero().flatten().tolist():
                        _require_own(target, layer, x, new, borders[row : row + 1])
                    least = min(least, own.min().item())
                worst = max(worst, before.max().item())
    changes = f"changes before j {format_number(worst)}, at j at least {format_number(least)}"
    return f"{changes}; {_coverage(target, budgets)}"


def _screen(target: CheckTarget, layer: AttentionLayer, t: int) -> AttentionLayer | None:
    """Return a float32 copy that first examines the borders of a long sequence, for speed; None for a short one."""
    return None if t < MIN_SCREENED or target.dtype == torch.float32 else copy.deepcopy(layer).float()


def _changes_of(layer: AttentionLayer, x: Tensor, new: Tensor, borders: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest change before each border, also NaN, and the change of the output at the border, (borders,)."""
    changed = _changes(layer, x, new, borders)
    before = changed.masked_fill(~_before(borders, x.shape[1]), 0).amax(1)
    return before, changed.gather(1, borders[:, None]).squeeze(1)


def _budgets(target: CheckTarget, long: dict[int, int]) -> dict[int, int]:
    """Return the lengths to check, each with the entries of all of its passes."""
    if target.sizes.name:
        return {min(target.sizes.length, 61): WHOLE, target.sizes.length: OTHERS}
    return {**dict.fromkeys(target.sizes.lengths[1:], WHOLE), **long}


def _coverage(target: CheckTarget, budgets: dict[int, int]) -> str:
    numbers = {t: len(_borders(target, t, budget)) for t, budget in budgets.items()}
    whole = [t for t, number in numbers.items() if number == t]
    parts = [f"{number} of length {t}" for t, number in numbers.items() if number < t]
    return ", ".join([f"every position of lengths {', '.join(map(str, whole))}", *parts])


def _borders(target: CheckTarget, t: int, budget: int) -> list[int]:
    """Return the borders to check at length t: all, or those near multiples of 64, where blocks end, and some at random."""
    most = max(4, budget // (target.heads * t * t))
    if t <= most:
        return list(range(t))
    generator = random.Random(f"borders {target.seed} {t}")
    near = {j + k for j in range(64, t, 64) for k in (0, 1) if j + k < t - 1}
    chosen = {1, t - 1, *generator.sample(sorted(near), min(len(near), most // 2 - 1))}
    others = sorted(set(range(t)) - chosen)
    return sorted(chosen | set(generator.sample(others, most - len(chosen))))


def _passes(target: CheckTarget, t: int, budget: int) -> Iterator[Tensor]:
    """Yield the borders of each pass, (b,), ascending."""
    borders = torch.tensor(_borders(target, t, budget), device=target.device)
    yield from borders.split(max(1, MAX_LOGITS // (target.heads * t * t)))


def _before(borders: Tensor, t: int) -> Tensor:
    """Return (borders, t), True for the positions before each border."""
    return torch.arange(t, device=borders.device) < borders[:, None]


def _changes(layer: AttentionLayer, x: Tensor, new: Tensor, borders: Tensor) -> Tensor:
    """Return the largest change of each output when the inputs from each border on are replaced, (borders, t)."""
    dtype = next((p.dtype for p in layer.parameters()), x.dtype)
    replaced = torch.where(_before(borders, x.shape[1])[..., None], x, new).to(dtype)
    if not layer.training:
        with torch.no_grad():
            y = layer(torch.cat([x.to(dtype), replaced]))
        return (y[1:] - y[:1]).abs().amax(2)
    return _difference(layer, x.to(dtype).expand_as(replaced), replaced)


def _difference(layer: AttentionLayer, x: Tensor, other: Tensor) -> Tensor:
    """Return the largest difference of each output, (b, t); the same seed drops the same weights for both inputs."""
    outputs = []
    with torch.no_grad():
        for inputs in (x, other):
            seed_generators(0, x.device)
            outputs.append(layer(inputs))
    return (outputs[1] - outputs[0]).abs().amax(2)


def _require_causal(target: CheckTarget, layer: AttentionLayer, x: Tensor, new: Tensor, j: int, rows: int) -> None:
    """Raise ``Failure`` when replacing the inputs from j on changes an output before j.

    Every row has the same border, alone and in a batch as large as the pass has: the output of one row may depend on the
    other rows, which is another mistake.
    """
    t = x.shape[1]
    for b in (1, rows):
        inputs = torch.where(_before(torch.full((b,), j, device=x.device), t)[..., None], x, new)
        changed = _difference(layer, x.expand_as(inputs), inputs)[:, :j].amax(0)
        if not changed.max().item() <= target.tolerance:
            i = int((~(changed <= target.tolerance)).nonzero()[0])
            mode = f"causal, batch {b}, length {t}" + (f", dropout {layer.attention.dropout} in training" * layer.training)
            change = f"output {i}, which comes before it, by {format_number(changed[i].item())}"
            inputs = f"input {j}" if j == t - 1 else f"the inputs from {j} on"
            raise Failure(f"{mode}: changing {inputs} changes {change}", MASK)


def _require_own(target: CheckTarget, layer: AttentionLayer, x: Tensor, new: Tensor, border: Tensor) -> None:
    """Raise ``Failure`` when replacing the inputs from position j = ``border`` (1,) on leaves output j as it is."""
    j, t = int(border), x.shape[1]
    if j == 0 and target.variant.constant_first_output:
        return
    if not _changes(layer, x, new, border)[0, j].item() > target.tolerance:
        case = f"causal, batch 1, length {t}: changing input {j} changes output {j} not at all"
        raise Failure(case, f"A position must attend to itself. {MASK}")


def by_gradient(target: CheckTarget) -> str:
    """The gradient of output i with respect to input j is zero for j > i and not zero for j = i."""
    target.require_role("causal")
    worst, budgets = 0.0, _budgets(target, LONG_GRADIENTS)
    for t, budget in budgets.items():
        layer = target.build("causal", length=max(t, target.sizes.length))
        x, weights = target.noise(1, t), target.noise(1, t, seed=3)
        for rows in _passes(target, t, budget):
            reach = _reach(layer, x, weights, rows)  # (rows, t)
            after = reach.masked_fill(_before(rows + 1, t), 0.0)
            for row in (~(after.amax(1) <= target.tolerance)).nonzero().flatten().tolist():
                i = int(rows[row])
                alone = _reach(layer, x, weights, rows[row : row + 1])[0]  # rows that affect each other are another mistake
                late = (~(alone[i + 1 :] <= target.tolerance)).nonzero()
                if len(late):
                    j = i + 1 + int(late[0])
                    size = format_number(alone[j].item())
                    raise Failure(
                        f"causal, batch 1, length {t}: the gradient of output {i} with respect to input {j}, which comes after "
                        f"it, is {size}",
                        MASK,
                    )
            own = reach.gather(1, rows[:, None]).squeeze(1)
            for i in rows[~(own > 0)].tolist():
                if i == 0 and target.variant.constant_first_output:
                    continue
                case = f"causal, batch 1, length {t}: the gradient of output {i} with respect to input {i} is zero"
                raise Failure(
                    case, "A position must attend to itself, with a gradient: look for detach(), .data or torch.no_grad()."
                )
            worst = max(worst, after.max().item())
    return f"gradient after i {format_number(worst)}; {_coverage(target, budgets)}"


def _reach(layer: AttentionLayer, x: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
    """Return the largest gradient of output i with respect to each input, (rows, t), for each i of ``rows``."""
    inputs = x.repeat(len(rows), 1, 1).requires_grad_()
    y = (layer(inputs) * weights).sum(2).gather(1, rows[:, None]).sum()
    return torch.autograd.grad(y, inputs)[0].abs().amax(2)


def both_sides(target: CheckTarget) -> str:
    """In a bidirectional role later inputs change earlier outputs; in cross-attention each context position does."""
    if not target.variant.mixes_positions:
        raise NotDeclared("`mixes_positions` is False")
    if "bidirectional" not in target.roles:
        target.require_role("cross")
    checked = []
    for role in (role for role in ("bidirectional", "cross") if role in target.roles):
        layer = target.build(role)
        for n in target.sizes.lengths:
            x, context = target.inputs(role, 1, n, s=n)
            inputs, new = (x, target.noise(1, n, seed=2)) if context is None else (context, target.noise(1, n, seed=2))
            for positions in _passes(target, n, OTHERS):
                changed = _changed_outputs(layer, x, context, inputs, new, positions)  # (positions, n)
                if context is None:  # output 0 has no earlier one
                    changed = changed.masked_fill(~_before(positions, n) & (positions > 0)[:, None], 0.0)
                for j in positions[~(changed.amax(1) > target.tolerance)].tolist():
                    if _changes_sometimes(target, layer, x, context, j):
                        continue
                    case = f"{role}, batch 1, length {n}: changing"
                    if context is None:
                        advice = "Apply the causal mask only if self.causal is true."
                        raise Failure(f"{case} input {j} changes no output before it", advice)
                    advice = "Compute keys and values from `context` if it is not None."
                    raise Failure(f"{case} context position {j} changes no output", advice)
        checked.append(role)
    return f"{', '.join(checked)}: every position up to {target.sizes.length}"


def _changes_sometimes(target: CheckTarget, layer: AttentionLayer, x: Tensor, context: Tensor | None, j: int) -> bool:
    """Return True when some large input at j reaches an output: where content selects the keys, not each key has a weight."""
    inputs, at = x if context is None else context, torch.tensor([j], device=x.device)
    for seed in range(OTHER_INPUTS):
        new = 4 * target.noise(1, inputs.shape[1], seed=1000 + seed)
        changed = _changed_outputs(layer, x, context, inputs, new, at)[0]
        if (changed[: j or None] if context is None else changed).max().item() > target.tolerance:
            return True
    return False


def _changed_outputs(
    layer: AttentionLayer, x: Tensor, context: Tensor | None, inputs: Tensor, new: Tensor, positions: Tensor
) -> Tensor:
    """Return the largest change of each output when one input is replaced, for each of ``positions``, (positions, t)."""
    at = torch.arange(inputs.shape[1], device=inputs.device) == positions[:, None]
    other = torch.where(at[..., None], new, inputs)
    with torch.no_grad():
        y = layer(x, context)
        z = layer(other) if context is None else layer(x.expand(len(positions), -1, -1), other)
    return (z - y).abs().amax(2)


def own_position_alone(target: CheckTarget) -> str:
    """Where ``mixes_positions`` is False, changing input j changes output j and no other output, in every role."""
    if target.variant.mixes_positions:
        raise NotDeclared("`mixes_positions` is True")
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        for t in target.sizes.lengths:
            x, context = target.inputs(role, 1, t)
            with torch.no_grad():
                y = layer(x, context)
                for j in range(t):
                    other = x.clone()
                    other[:, j] = target.noise(1, t, seed=2)[:, j]
                    changed = (layer(other, context) - y).abs().amax((0, 2))  # (t,)
                    case = f"{role}, batch 1, length {t}: changing input {j} changes"
                    if not changed[j].item() > target.tolerance:
                        raise Failure(f"{case} output {j} not at all", "Compute the output from `x`.")
                    changed[j] = 0.0
                    advice = "Compute each position from its own input alone, or remove `mixes_positions = False`."
                    gap = require_small(
                        changed.max().item(), target.tolerance, f"{case} output {int(changed.argmax())}", advice
                    )
                    worst = max(worst, gap)
    return f"{', '.join(target.roles)}: other positions change by {format_number(worst)}"


def content(target: CheckTarget) -> str:
    """Neither the content nor the number of padded positions changes real outputs; an all-True mask changes no output."""
    worst, b = 0.0, max(target.sizes.batch, 2)
    for role in target.roles:
        layer = target.build(role)
        for t in target.sizes.lengths:
            x, context = target.inputs(role, b, t)
            case = f"{role}, batch {b}, length {t}"
            mask = torch.ones(b, t if context is None else context.shape[1], dtype=torch.bool, device=target.device)
            with torch.no_grad():
                appended = f"appending {target.sizes.padding} padded positions changes real outputs"
                gaps = {
                    "an all-True mask changes the output": max_abs_diff(layer(x, context, mask), layer(x, context)),
                    appended: _append_gap(layer, x, context, mask, target.sizes.padding),
                    "the content of padded positions changes real outputs": _content_gap(target, layer, x, context, mask),
                }
            for change, gap in gaps.items():
                worst = max(worst, require_small(gap, target.tolerance, f"{case}: {change}", PADDING_ADVICE))
    return f"padding changes real outputs by {format_number(worst)}"


def _append_gap(layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor, padding: int) -> float:
    """Return the change of real outputs when padded positions are appended."""
    mask = F.pad(mask, (0, padding), value=False)
    if context is not None:
        return max_abs_diff(layer(x, F.pad(context, (0, 0, 0, padding), value=1.0), mask), layer(x, context))
    return max_abs_diff(layer(F.pad(x, (0, 0, 0, padding), value=1.0), None, mask)[:, :-padding], layer(x))


def _content_gap(target: CheckTarget, layer: torch.nn.Module, x: Tensor, context: Tensor | None, mask: Tensor) -> float:
    """Return the change of real outputs when padded positions hold other values.

    Row 0 is padded at the end, row 1 at the start, and the others at every third position, each after its first.
    """
    mask, n = mask.clone(), min(mask.shape[1] // 2, target.sizes.padding)
    if n:
        mask[0, -n:] = mask[1, :n] = mask[2:, 1::3] = False
    padded = x if context is None else context
    other = torch.where(mask[..., None], padded, 9 * target.noise(*padded.shape[:2], seed=5))
    if context is not None:
        return max_abs_diff(layer(x, context, mask), layer(x, other, mask))
    return max_abs_diff(layer(x, None, mask)[mask], layer(other, None, mask)[mask])


def all_padding(target: CheckTarget) -> str:
    """A row that is all padding gives finite outputs and gradients."""
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role, max(target.sizes.batch, 2))
        x.requires_grad_()
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[1] = False
        y = layer(x, context, mask)
        case = f"{role}, batch {x.shape[0]}, length {x.shape[1]}, row 1 all padding"
        advice = (
            "`self.attend` returns zeros for a query without keys. In logits of your own, hide keys with "
            "torch.finfo(dtype).min, not -inf, whose softmax over no keys is NaN; do not divide by the number of keys."
        )
        if not torch.isfinite(y).all():
            raise Failure(f"{case}: its outputs are NaN or infinite", advice)
        leaves = [x, *trained_parameters(layer.attention).values()]
        gradients = torch.autograd.grad(y.square().sum(), leaves, allow_unused=True)
        if any(g is not None and not torch.isfinite(g).all() for g in gradients):
            raise Failure(f"{case}: a gradient is NaN or infinite", advice)
        if context is not None:
            _require_nothing_read(target, layer, x.detach(), context, mask, case)
            _require_nothing_read(target, layer, x.detach(), context, torch.zeros_like(mask), "cross, every row all padding")
    return "finite outputs and gradients"


def _require_nothing_read(
    target: CheckTarget, layer: torch.nn.Module, x: Tensor, context: Tensor, mask: Tensor, case: str
) -> None:
    """Raise ``Failure`` when queries without keys read the padding, or are not finite where there is no source at all."""
    with torch.no_grad():
        other = torch.where(mask[..., None], context, 9 * target.noise(*context.shape[:2], seed=5))
        gap = max_abs_diff(layer(x, context, mask), layer(x, other, mask))
        advice = (
            "Pass `mask` to every call of `attend`, which returns zeros for a query without keys. Multiply weights of your own "
            "by `visible.any(-1, keepdim=True)`."
        )
        require_small(gap, target.tolerance, f"{case}: the content of the padding changes outputs", advice)
        try:
            layer(x, context[:, :0])
        except Failure as failure:
            advice = "A query without keys yields zeros: a mean or a softmax over no keys is NaN."
            raise Failure(f"{failure.case}, for an empty source", advice) from failure
        except Exception:  # an empty source may be refused: an error is no wrong number
            return


def rows(target: CheckTarget) -> str:
    """A row gives the same output alone as in a batch."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role)
        mask = torch.ones(x.shape[:2] if context is None else context.shape[:2], dtype=torch.bool, device=target.device)
        mask[0, 1:][-2:] = False
        with torch.no_grad():
            y = layer(x, context, mask)
            for row in _some_rows(len(x)):
                one = slice(row, row + 1)
                alone = layer(x[one], None if context is None else context[one], mask[one])
                case = f"{role}, length {x.shape[1]}: row {row} differs alone and in a batch of {len(x)}"
                advice = "Look for an operation across the batch: a reshape that swaps b and t, or a norm over the batch."
                worst = max(worst, require_small(max_abs_diff(alone, y[one]), target.tolerance, case, advice))
    return f"alone and in a batch, outputs differ by {format_number(worst)}"


def _some_rows(b: int) -> list[int]:
    """Return the first two, the middle and the last two rows of a batch of b."""
    return sorted({row for row in (0, 1, b // 2, b - 2, b - 1) if 0 <= row < b})


CHECKS = [
    Check("causality by value", at_drawn_sizes(by_value)),
    Check("causality by gradient", at_drawn_sizes(by_gradient)),
    Check("full visibility", at_drawn_sizes(both_sides)),
    Check("no mixing", own_position_alone),
    Check("padding", at_drawn_sizes(content)),
    Check("all padding", at_drawn_sizes(all_padding)),
    Check("batch independence", at_drawn_sizes(rows)),
]

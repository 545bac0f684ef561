"""Memory: segments with memory give the outputs of the full sequence.

Cached decoding: the new positions of each call alone give the outputs of the full sequence.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnlab.models.decoding import key_value_cache
from attnlab.testing.checks.result import Check, Failure, NotDeclared, Unsupported, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import LONG_LENGTH, AttentionLayer, CheckTarget, at_drawn_sizes

PARTS = (5, 1, 1, 4, 2)  # new positions of each call
OTHER_PARTS = (1, 3, 1, 7, 1)  # one position first, then several
LONG_PARTS = (67, 1, 130, 95)  # across the chunks of recurrent layers and the blocks of kernels
MEMORY = 4  # positions
ROWS = (2, 0, 2, 1)  # that `select` keeps, of a batch of 3: as a beam does, with one row twice
CACHE_ADVICE = (
    "With a cache, forward() receives the new positions alone, and self.attend() adds the keys and values of earlier ones: "
    "call it once, with k and v of the context (x if there is none). Keep everything else that depends on earlier positions in "
    "tensors of the cache that new_cache() returns, with the batch as first dimension; or remove `supports_cache = True`."
)
MAX_SEGMENTS = 12  # of which each is a forward pass
ALIGN = (
    "Compute keys and values from `context` = [memory; x], and pass them to `self.attend` whole: query i is at position "
    "i + s - t. layers.causal_mask(t, s) is aligned this way; is_causal of scaled_dot_product_attention is not."
)


def _require_memory(target: CheckTarget) -> None:
    if not target.variant.supports_memory:
        raise NotDeclared("`supports_memory` is False")
    target.require_role("causal")
    reason = target.variant_unsupported(role="causal", memory=True)
    if reason:
        raise Unsupported(reason)


def segments(target: CheckTarget) -> str:
    """A sequence in segments, or one query at a time, with what comes before as memory, gives the outputs of the whole."""
    _require_memory(target)
    return _in_all_segments(target, ALIGN)


def masked(target: CheckTarget) -> str:
    """With a mask, too, segments with memory, single queries among them, give the outputs of the full sequence."""
    _require_memory(target)
    return f"masked, {_in_all_segments(target, MASKED, masked=True)}"


def _in_all_segments(target: CheckTarget, advice: str, *, masked: bool = False) -> str:
    """Compare segments of several lengths, single queries among them, with every scheme; return a description."""
    lengths, schemes = (1, *_segment_lengths(target)), target.with_every_scheme()
    worst = max(_in_segments(scheme, n, SINGLE * (n == 1) + advice, masked=masked) for scheme in schemes for n in lengths)
    names = [scheme.scheme_name for scheme in schemes[1:]]
    also = f"; also with {', '.join(names)}" if names else ""
    return f"segments of {', '.join(map(str, lengths))} of {_total(target)}: error {format_number(worst)}{also}"


SINGLE = "A single query must attend to all keys, including its own: a causal mask of one row masks nothing. "
MASKED = "With memory, `mask` (b, s) covers `context` = [memory; x], not x alone: apply it to the keys as it is. "


def _total(target: CheckTarget) -> int:
    """The length of memory and queries."""
    return target.sizes.memory + target.sizes.length


def _segment_lengths(target: CheckTarget) -> tuple[int, ...]:
    """Return two lengths of segments; by default neither divides the total nor leaves a last segment of length 1."""
    return (target.sizes.length,) if target.sizes.name else (3, 5)


def _in_segments(target: CheckTarget, length: int, advice: str, *, masked: bool = False) -> float:
    """Return the largest difference between the full forward pass and one in segments of ``length``.

    Args:
        masked: with padding at the start of row 1 and at every third position of the other rows; compares real positions.
    """
    total = _total(target)
    layer = target.build("causal", length=total)
    x = target.noise(max(target.sizes.batch, 2), total)
    mask = torch.ones(x.shape[:2], dtype=torch.bool, device=target.device)
    if masked:
        mask[1, : target.sizes.memory // 2 + 1] = mask[0, 1::3] = mask[2:, 2::3] = False
    worst = 0.0
    with torch.no_grad():
        y = layer(x, None, mask if masked else None)
        for start in _starts(total, length):
            end = min(start + length, total)
            part = layer(x[:, start:end], x[:, :end] if start else None, mask[:, :end] if masked else None)
            case = f"causal, position {target.scheme_name}, memory {start}, segment {start} .. {end - 1}"
            case += ", masked" if masked else ""
            worst = max(worst, _gap(part, y[:, start:end], case, target.tolerance, advice, real=mask[:, start:end]))
    return worst


def _starts(total: int, length: int) -> list[int]:
    """Return the starts of segments of ``length``; of many, the first ones and the last ones, ``MAX_SEGMENTS`` in all."""
    starts = list(range(0, total, length))
    half = MAX_SEGMENTS // 2
    return starts if len(starts) <= MAX_SEGMENTS else starts[:half] + starts[-half:]


@dataclass(frozen=True)
class _Case:
    """A way to decode: new positions of each call, with a mask, after a memory, and with ``select`` after the second call."""

    parts: tuple[int, ...]
    masked: bool = False
    memory: int = 0
    rows: tuple[int, ...] = ()

    def __str__(self) -> str:
        extras = ", with a mask" * self.masked + f", after a memory of {self.memory}" * bool(self.memory)
        selected = f", with rows {', '.join(map(str, self.rows))} selected after the second call" if self.rows else ""
        return f"calls of {', '.join(map(str, self.parts))}{extras}{selected}"


def cached(target: CheckTarget) -> str:
    """A sequence processed in parts, over a cache, gives the outputs of the full sequence."""
    if not target.variant.supports_cache:
        raise NotDeclared("`supports_cache` is False")
    variations = [(variation, role) for variation in target.with_every_scheme() for role in variation.roles]
    variations = [(variation, role) for variation, role in variations if role != "bidirectional"]
    if not variations:
        raise NotDeclared("roles causal and cross are not checked")
    worst = 0.0
    for variation, role in variations:
        layer = variation.build(role, length=LONG_LENGTH)
        for case in _cases(variation, role, whole=variation is target):
            worst = max(worst, _decode(variation, role, layer, case))
    names = dict.fromkeys(variation.scheme_name for variation, _ in variations if variation is not target)
    schemes = f"; also with {', '.join(names)}" if names else ""
    return f"parts of {', '.join(map(str, PARTS))} and others: error {format_number(worst)}{schemes}"


def _cases(target: CheckTarget, role: str, *, whole: bool) -> Iterator[_Case]:
    """Yield the cases of a role; ``whole`` adds those that do not depend on the position scheme."""
    if target.sizes.name:
        yield _Case(_drawn_parts(target), masked=True, memory=target.sizes.memory if target.has_memory(role) else 0)
        return
    yield _Case(PARTS)
    yield _Case(OTHER_PARTS, masked=True, rows=ROWS)
    if whole:
        yield _Case(LONG_PARTS, rows=ROWS)
    if target.has_memory(role):
        yield _Case(PARTS, memory=MEMORY)


def _drawn_parts(target: CheckTarget) -> tuple[int, ...]:
    """Divide the drawn length into several positions, two single ones, and several in two calls."""
    t = target.sizes.length
    first, last = 5 * t // 13, 2 * t // 13
    singles = min(2, t - first - last)
    return tuple(n for n in (first, *(1,) * singles, t - first - last - singles, last) if n)


def _decode(target: CheckTarget, role: str, layer: AttentionLayer, case: _Case) -> float:
    """Return the largest difference between the full forward pass and one in parts over a cache.

    Several cases share one layer, so that nothing of a case may be left in it.
    """
    total = sum(case.parts)
    inputs, context = target.inputs(role, t=case.memory + total)
    if layer.embed is not None:
        inputs = inputs + layer.embed.embed(case.memory + total)
    memory, x = inputs[:, : case.memory], inputs[:, case.memory :]
    hidden = case.memory + total if context is None else context.shape[1]
    mask = _mask(len(x), hidden, target.device) if case.masked else None
    where = f"{role}, position {target.scheme_name}, batch {len(x)}, {case}"
    worst, start = 0.0, 0
    with torch.no_grad():
        full = torch.cat([memory, x], dim=1) if case.memory else context
        y = layer.attention(x, context=full, mask=mask)
        with key_value_cache(layer.attention) as caches:
            for i, length in enumerate(case.parts):
                if i == 2 and case.rows:
                    rows = torch.tensor(case.rows, device=target.device)
                    caches.select(rows)
                    x, y, context, mask = (None if z is None else z[rows] for z in (x, y, context, mask))
                    assert x is not None and y is not None
                end = start + length
                new = x[:, start:end]
                source = context if context is None or start == 0 else context[:, :0]
                if case.memory and start == 0:
                    source = torch.cat([memory, new], dim=1)
                part = layer.attention(
                    new, context=source, mask=mask if mask is None or role == "cross" else mask[:, : case.memory + end]
                )
                place = f"{where}: positions {start} .. {end - 1}"
                worst = max(worst, _gap(part, y[:, start:end], place, target.tolerance, CACHE_ADVICE))
                start = end
    return worst


def _mask(batch: int, length: int, device: str) -> Tensor:
    """Return a mask (batch, length) that hides the first, the last and inner keys of different rows."""
    mask = torch.ones(batch, length, dtype=torch.bool, device=device)
    mask[0, 1:][-3:] = mask[1:2, 0] = mask[2:, 4::9] = False
    return mask


def _gap(
    part: Tensor, expected: Tensor, case: str, tolerance: float, advice: str, *, real: Tensor | slice = slice(None)
) -> float:
    """Return the largest difference of ``real`` outputs; raise ``Failure`` if they differ by more than ``tolerance``."""
    if part.shape != expected.shape:
        raise Failure(f"{case}: expected {tuple(expected.shape)}, got {tuple(part.shape)}", advice)
    gap = max_abs_diff(part[real], expected[real])
    return require_small(gap, tolerance, f"{case}: outputs differ from the full sequence", advice)


CHECKS = [
    Check("memory", at_drawn_sizes(segments)),
    Check("masked memory", at_drawn_sizes(masked)),
    Check("key-value cache", at_drawn_sizes(cached)),
]

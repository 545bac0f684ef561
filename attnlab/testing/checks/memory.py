"""Memory: segments with memory give the outputs of the full sequence, and memory carries no gradient."""

import torch

from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared, Unsupported
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes

MAX_SEGMENTS = 12  # of which each is a forward pass
ALIGN = (
    "Keys and values cover `context` = [memory; x] and end at the same position as the queries: query i is at position "
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
    """A sequence processed in segments, each with the earlier ones as memory, gives the outputs of the full sequence."""
    _require_memory(target)
    lengths = _segment_lengths(target)
    worst = max(_in_segments(variation, length, ALIGN) for variation in target.with_every_scheme() for length in lengths)
    listed = " and ".join(map(str, lengths))
    return f"segments of {listed} of {_total(target)}: error {format_number(worst)}{_describe_schemes(target)}"


def decoding(target: CheckTarget) -> str:
    """One query at a time over a cache of inputs gives the outputs of the full sequence."""
    _require_memory(target)
    worst = max(_in_segments(variation, 1, SINGLE + ALIGN) for variation in target.with_every_scheme())
    return f"one query at a time over a cache of inputs: error {format_number(worst)}{_describe_schemes(target)}"


def masked(target: CheckTarget) -> str:
    """With a mask, too, segments with memory, single queries among them, give the outputs of the full sequence."""
    _require_memory(target)
    lengths = (1, *_segment_lengths(target))
    variations = target.with_every_scheme()
    worst = max(_masked_gap(variation, n) for variation in variations for n in lengths)
    listed = ", ".join(map(str, lengths))
    return f"masked, segments of {listed} of {_total(target)}: error {format_number(worst)}{_describe_schemes(target)}"


def _masked_gap(target: CheckTarget, length: int) -> float:
    """Return the gap of segments with a mask; without one, the checks "memory" and "decoding" report it."""
    try:
        return _in_segments(target, length, MASKED, masked=True)
    except Failure:
        try:
            _in_segments(target, length, MASKED)
        except Failure as failure:
            raise NotDeclared("segments with memory differ without a mask, too") from failure
        raise


SINGLE = "A single query must attend to all keys, including its own: a causal mask of one row masks nothing. "
MASKED = "With memory, `mask` (b, s) covers `context` = [memory; x], not x alone: apply it to the keys as it is. "


def _describe_schemes(target: CheckTarget) -> str:
    names = [with_scheme.scheme_name for with_scheme in target.with_every_scheme()[1:]]
    return f"; also with {', '.join(names)}" if names else ""


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
            if part.shape != y[:, start:end].shape:
                raise Failure(f"{case}: expected {tuple(y[:, start:end].shape)}, got {tuple(part.shape)}", advice)
            real = mask[:, start:end]
            gap = max_abs_diff(part[real], y[:, start:end][real])
            if not gap <= target.tolerance:
                raise Failure(f"{case}: differs from the full sequence by {format_number(gap)}", advice)
            worst = max(worst, gap)
    return worst


def _starts(total: int, length: int) -> list[int]:
    """Return the starts of segments of ``length``; of many, the first ones and the last ones, ``MAX_SEGMENTS`` in all."""
    starts = list(range(0, total, length))
    half = MAX_SEGMENTS // 2
    return starts if len(starts) <= MAX_SEGMENTS else starts[:half] + starts[-half:]


def no_gradient(target: CheckTarget) -> str:
    """In a model of two blocks, the loss of a segment gives no gradient to the tokens of the previous segment."""
    _require_memory(target)
    from attnlab.config.run import ModelConfig, RunConfig, TrainConfig
    from attnlab.config.types import Named, NamedVariant
    from attnlab.models.build import build
    from attnlab.models.language_model import LanguageModel

    config = RunConfig(
        task=Named(name="pydocs"),
        variant=NamedVariant(name="dense"),
        position=Named(name="none"),
        backend="reference",
        model=ModelConfig(dim=target.dim, depth=2, heads=target.heads, mem_len=7),
        train=TrainConfig(steps=1),
    )
    model = build(config, _Tokens())
    assert isinstance(model, LanguageModel)
    for block in model.backbone.blocks:
        block.attention = target.build("causal").attention
    model = model.to(target.device, target.dtype)
    first, second = torch.arange(10, device=target.device).view(2, 1, 5)  # different tokens in the two segments
    _, memory = model(first)
    logits, _ = model(second, memory)
    rows = torch.autograd.grad(logits.square().sum(), model.backbone.embedding.weight)[0].abs().amax(1)
    if not rows[:5].max().item() == 0:
        raise Failure(
            "2 blocks, memory 7, segments of 5: the second segment's loss gives the tokens of the first a gradient of "
            f"{format_number(rows[:5].max().item())}",
            "The model detaches memory when it stores it; the variant must not keep tensors of earlier calls.",
        )
    if not rows[5:].min().item() > 0:
        raise Failure(
            "2 blocks, memory 7: the tokens of the second segment receive no gradient", "Look for detach() in forward()."
        )
    return "0 for the previous segment, in a model of 2 blocks"


class _Tokens:
    """The attributes of a task that ``LanguageModel`` reads."""

    kind, role, length, vocabulary, classes = "language_model", "causal", 5, 10, 0


def refused(target: CheckTarget) -> str:
    """Memory is refused if it is not declared, and always refused with absolute positions."""
    if not target.variant.supports_memory:
        if not target.variant_unsupported(memory=True, hook="none"):
            raise Failure(
                "memory is not declared, but unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, or support `context` and set "
                "`supports_memory = True`.",
            )
        return "refused: memory"
    if not target.variant_unsupported(memory=True, hook="embed"):
        raise Failure(
            "memory with absolute positions is not refused, although positions of memory and input would coincide",
            "End your override of unsupported() with `return super().unsupported(...)`.",
        )
    return "refused: memory with absolute positions"


CHECKS = [
    Check("memory", at_drawn_sizes(segments)),
    Check("decoding", at_drawn_sizes(decoding)),
    Check("masked memory", at_drawn_sizes(masked)),
    Check("memory gradient", no_gradient),
    Check("memory refused", refused),
]

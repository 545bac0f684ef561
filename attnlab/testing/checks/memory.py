"""Memory: segments with memory are the whole sequence, one position at a time too, and no gradient goes back through it."""

import torch

from attnlab.testing.checks.target import B, Check, CheckTarget, Failure, NotDeclared, Unsupported, distance, number

WHOLE = 23
SEGMENTS = (3, 5)  # neither divides 23, nor leaves a segment of one
ALIGN = (
    "Keys and values run over `context` = [memory; x], and both end at the same position: query i stands at i + s - t. "
    "layers.causal_mask(t, s) is aligned so; scaled_dot_product_attention's own is_causal is not."
)


def _claimed(subject: CheckTarget) -> None:
    if not subject.variant.memory:
        raise NotDeclared("it has no memory")
    subject.need("causal")
    reason = subject.variant_unsupported(role="causal", memory=True)
    if reason:
        raise Unsupported(reason)


def whole(subject: CheckTarget) -> str:
    """A sequence run in segments, memory in front, equals the sequence run whole."""
    _claimed(subject)
    worst = max(_in_segments(each, length, ALIGN) for each in subject.under_schemes() for length in SEGMENTS)
    return f"segments of {' and '.join(map(str, SEGMENTS))} of {WHOLE} differ from the whole by {number(worst)}{_with(subject)}"


def decoding(subject: CheckTarget) -> str:
    """One query at a time over a cache of inputs equals the full forward. (No variant offers a cache of keys and values.)"""
    _claimed(subject)
    advice = "A single query must see every key before it and itself: a causal mask of one row hides nothing. " + ALIGN
    worst = max(_in_segments(each, 1, advice) for each in subject.under_schemes())
    return f"step by step over a cache of inputs: {number(worst)} from the full forward{_with(subject)}"


def _with(subject: CheckTarget) -> str:
    tried = [each.scheme_name for each in subject.under_schemes()[1:]]
    return f"; also with {', '.join(tried)}" if tried else ""


def _in_segments(subject: CheckTarget, length: int, advice: str) -> float:
    cell = subject.build("causal", length=WHOLE)
    x = subject.noise(B, WHOLE)
    worst = 0.0
    with torch.no_grad():
        y = cell(x)
        for start in range(0, WHOLE, length):
            end = min(start + length, WHOLE)
            part = cell(x[:, start:end], x[:, :end] if start else None)
            case = f"causal, position {subject.scheme_name}, memory {start}, segment {start} .. {end - 1}"
            if part.shape != y[:, start:end].shape:
                raise Failure(f"{case}: expected {tuple(y[:, start:end].shape)}, got {tuple(part.shape)}", ALIGN)
            gap = distance(part, y[:, start:end])
            if not gap <= subject.tolerance:
                raise Failure(f"{case}: it differs from the whole sequence by {number(gap)}", advice)
            worst = max(worst, gap)
    return worst


def no_gradient(subject: CheckTarget) -> str:
    """In a model of two blocks, the loss of a segment gives no gradient to the tokens of the segment before."""
    _claimed(subject)
    from attnlab.config.run import ModelConfig, RunConfig, TrainConfig
    from attnlab.config.types import Named, NamedVariant
    from attnlab.models.language_model import LanguageModel

    config = RunConfig(
        task=Named(name="pydocs"),
        variant=NamedVariant(name="dense"),
        position=Named(name="none"),
        backend="reference",
        model=ModelConfig(dim=subject.dim, depth=2, heads=subject.heads, mem_len=7),
        train=TrainConfig(steps=1),
    )
    model = LanguageModel(config, _Tokens())
    for block in model.backbone.blocks:
        block.attention = subject.build("causal").attention
    model = model.to(subject.device, subject.dtype)
    first, second = torch.arange(10, device=subject.device).view(2, 1, 5)  # different tokens in the two segments
    _, memory = model(first)
    logits, _ = model(second, memory)
    rows = torch.autograd.grad(logits.square().sum(), model.backbone.embedding.weight)[0].abs().amax(1)
    if not rows[:5].max().item() == 0:
        raise Failure(
            "2 blocks, memory 7, segments of 5: the second segment's loss gives the first's tokens a gradient of "
            f"{number(rows[:5].max().item())}",
            "Memory is .detach()ed where it is kept; keep nothing of earlier calls in the variant itself.",
        )
    if not rows[5:].min().item() > 0:
        raise Failure("2 blocks, memory 7: the second segment's own tokens get no gradient", "Is something detached?")
    return "0 to the segment before, in a model of 2 blocks"


class _Tokens:
    """The task that the model is built for."""

    kind, role, length, vocabulary, classes = "language_model", "causal", 5, 10, 0


def refused(subject: CheckTarget) -> str:
    """Memory is refused where it is not declared, and always together with absolute positions."""
    if not subject.variant.memory:
        if not subject.variant_unsupported(memory=True, hook="none"):
            raise Failure(
                "memory is not declared, yet unsupported() returns None",
                "End your override of unsupported() with `return super().unsupported(...)`, "
                "or use `context` and set `memory = True`.",
            )
        return "refused: memory"
    if not subject.variant_unsupported(memory=True, hook="embed"):
        raise Failure(
            "memory together with absolute positions is let pass: one position would mean two things",
            "End your override of unsupported() with `return super().unsupported(...)`.",
        )
    return "refused: memory with absolute positions"


CHECKS = [
    Check("memory", whole),
    Check("decoding", decoding),
    Check("memory gradient", no_gradient),
    Check("memory refused", refused),
]

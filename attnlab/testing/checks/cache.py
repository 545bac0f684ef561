"""Cache of keys and values: new positions alone give the outputs of the full sequence."""

import torch

from attnlab.models.cache import key_value_cache
from attnlab.testing.checks.target import (
    BATCH,
    LENGTH,
    Check,
    CheckTarget,
    Failure,
    NotDeclared,
    format_number,
    max_abs_diff,
)

PARTS = (5, 1, 1, 4, 2)  # new positions of each call
ADVICE = (
    "With a cache, forward() receives the new positions alone, and self.attend() adds the keys and values of earlier ones: "
    "call it once, with k and v of the context (x if there is none), and let nothing else depend on other positions; or "
    "remove `supports_cache = True`."
)


def cached(target: CheckTarget) -> str:
    """A sequence processed in parts, over a cache of keys and values, gives the outputs of the full sequence."""
    if not target.variant.supports_cache:
        raise NotDeclared("`supports_cache` is False")
    variations = [(variation, role) for variation in target.with_every_scheme() for role in variation.roles]
    variations = [(variation, role) for variation, role in variations if role != "bidirectional"]
    if not variations:
        raise NotDeclared("roles causal and cross are not checked")
    worst = max(_in_parts(variation, role, masked) for variation, role in variations for masked in (False, True))
    names = dict.fromkeys(variation.scheme_name for variation, _ in variations if variation is not target)
    schemes = f"; also with {', '.join(names)}" if names else ""
    return f"parts of {', '.join(map(str, PARTS))}: error {format_number(worst)}{schemes}"


def _in_parts(target: CheckTarget, role: str, masked: bool) -> float:
    """Return the largest difference between the full forward pass and one in parts over a cache."""
    layer = target.build(role)
    x, context = target.inputs(role)
    if layer.embed is not None:
        x = x + layer.embed.embed(LENGTH)
    keys = x if context is None else context
    mask = torch.ones(keys.shape[:2], dtype=torch.bool, device=target.device) if masked else None
    if mask is not None:
        mask[0, -3:] = mask[1, 0] = mask[2, 4] = False
    worst, start = 0.0, 0
    with torch.no_grad():
        y = layer.attention(x, context=context, mask=mask)
        with key_value_cache(layer.attention):
            for length in PARTS:
                end = start + length
                visible = mask if mask is None or role == "cross" else mask[:, :end]
                source = context if context is None or start == 0 else context[:, :0]
                part = layer.attention(x[:, start:end], context=source, mask=visible)
                case = (
                    f"{role}, position {target.scheme_name}, batch {BATCH}, positions {start} .. {end - 1} after {start} cached"
                )
                if part.shape != y[:, start:end].shape:
                    raise Failure(f"{case}: expected {tuple(y[:, start:end].shape)}, got {tuple(part.shape)}", ADVICE)
                gap = max_abs_diff(part, y[:, start:end])
                if not gap <= target.tolerance:
                    raise Failure(f"{case}: differs from the full sequence by {format_number(gap)}", ADVICE)
                worst, start = max(worst, gap), end
    return worst


CHECKS = [Check("key-value cache", cached)]

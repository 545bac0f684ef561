"""Components: each of them changes the output."""

import torch

from attnlab.components import Component
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff
from attnlab.testing.checks.target import LONG_LENGTH, CheckTarget
from attnlab.testing.composition import compose, decompose

MAX_WINDOW = 2048  # positions that are compared
ADVICE = "A component changes the output by the methods of its places: return the changed tensor, not the argument."


def take_effect(target: CheckTarget) -> str:
    """Without any one of the components, the output is another."""
    variant, components = decompose(target.variant)
    if not components:
        raise NotDeclared("the variant has no components")
    role, least = target.roles[0], float("inf")
    x, context = target.inputs(role, 1, LONG_LENGTH)
    layer = target.build(role, length=LONG_LENGTH)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(11)
        for p in layer.attention.components.parameters():  # which may start where the component changes nothing
            p += 0.1 * torch.randn(p.shape, dtype=torch.float64, generator=generator).to(p)
        y = layer(x, context)
        for component in components:
            others = [other for other in components if other is not component]
            without = target.with_variant(compose(variant, others) if others else variant).build(role, length=LONG_LENGTH)
            state = without.state_dict()
            same = {name: z for name, z in layer.state_dict().items() if name in state and state[name].shape == z.shape}
            without.load_state_dict(same, strict=False)
            gap = max_abs_diff(y, without(x, context))
            if not gap > target.tolerance:
                raise Failure(f"{role}, batch 1, length {LONG_LENGTH}: {component.name} does not change the output", ADVICE)
            least = min(least, gap)
    return f"{role}: without each, the output differs by at least {format_number(least)}"


def window(target: CheckTarget) -> str:
    """A component that declares a window has exactly that window in ``visible``: backends compute no other logits."""
    found, role = [], next((role for role in target.roles if role != "cross"), None)
    layers = [] if role is None else target.build(role, length=LONG_LENGTH).attention.components.values()
    for component in layers:
        if not isinstance(component, Component) or component.window is None:
            continue
        n = min(max(LONG_LENGTH, component.window + 3), MAX_WINDOW)
        i, j = torch.arange(n, device=target.device)[:, None], torch.arange(n, device=target.device)
        b = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=target.device)
        h = torch.arange(target.heads, device=target.device).view(-1, 1, 1)
        wrong = component.visible(b, h, i, j).expand(1, target.heads, n, n) != ((i - j).abs() < component.window)
        if role == "causal":
            wrong = wrong & (j <= i)
        if wrong.any():
            _, head, query, key = wrong.nonzero()[0].tolist()
            case = f"{role}, window {component.window}: head {head}, query {query}, key {key}, a distance of {abs(query - key)}"
            raise Failure(
                f"{case}: visible() returns {bool((query - key) ** 2 >= component.window**2)}",
                "`window` is w where visible() is exactly |i - j| < w. Leave it None for another pattern.",
            )
        found.append(component.window)
    if not found:
        raise NotDeclared("no component declares a window")
    return f"visible() is |i - j| < {', '.join(map(str, found))}"


CHECKS = [Check("components take effect", take_effect), Check("declared window", window)]

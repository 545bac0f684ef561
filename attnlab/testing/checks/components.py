"""Components: each of them changes the output."""

import torch

from attnlab.testing.checks.measure import format_number, max_abs_diff
from attnlab.testing.checks.result import Check, Failure, NotDeclared
from attnlab.testing.checks.target import LONG_LENGTH, CheckTarget
from attnlab.testing.composition import compose, decompose

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


CHECKS = [Check("components take effect", take_effect)]

"""Projections: biases where the configuration requests them, and the layers that write to the residual stream."""

import torch
from torch import Tensor, nn

from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import CheckTarget, at_drawn_sizes

BIAS_ADVICE = (
    "Construct every projection with `bias=config.bias` and add it in forward(), or remove `supports_attention_bias = True`."
)
RESIDUAL_ADVICE = (
    "Name the linear layers that are summed to the output of the variant, or declare `residual_projections = ()` if "
    "there are none."
)


def biased(target: CheckTarget) -> str:
    """With ``AttentionConfig.bias`` there are further parameters: they change the output, and zeros do not."""
    if not target.variant.supports_attention_bias:
        raise NotDeclared("`supports_attention_bias` is False")
    added: set[str] = set()
    for role in target.roles:
        plain, layer = target.build(role), target.build(role, bias=True)
        x, context = target.inputs(role)
        own, shared = dict(layer.named_parameters()), dict(plain.named_parameters())
        added = own.keys() - shared.keys()
        case = f"role {role}, batch {len(x)}, length {x.shape[1]}"
        if not added:
            raise Failure(f"{case}: with bias=True the variant has no further parameters", BIAS_ADVICE)
        layer.load_state_dict(plain.state_dict(), strict=False)
        with torch.no_grad():
            y = plain(x, context)
            changed = max_abs_diff(layer(x, context), y)
            for name in added:
                nn.init.zeros_(own[name])
            gap = max_abs_diff(layer(x, context), y)
        if not changed > target.tolerance:
            raise Failure(f"{case}: {', '.join(sorted(added))}: no effect on the output", BIAS_ADVICE)
        require_small(gap, target.tolerance, f"{case}: biases of zero change the output", BIAS_ADVICE)
    return f"with biases: {', '.join(sorted(name.removeprefix('attention.') for name in added))}"


def residual(target: CheckTarget) -> str:
    """The output is linear in the residual projections: with half of their weights, it is half as large."""
    names = target.variant.residual_projections
    if not names:
        raise NotDeclared("`residual_projections` is not declared" if names is None else "`residual_projections` is empty")
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        x, context = target.inputs(role)
        case = f"role {role}, batch {len(x)}, length {x.shape[1]}"
        with torch.no_grad():
            y = layer(x, context)
            for parameter in _parameters(layer.attention, names):
                parameter.mul_(0.5)
            gap = max_abs_diff(2 * layer(x, context), y)
        case += f": with half of the weights of {', '.join(names)}, the output is not half as large, but off"
        worst = max(worst, require_small(gap, target.tolerance, case, RESIDUAL_ADVICE))
    return f"the output is linear in {', '.join(names)}: error {format_number(worst)}"


def _parameters(attention: nn.Module, names: tuple[str, ...]) -> list[Tensor]:
    """Return the parameters of the named linear layers."""
    layers = {name: getattr(attention, name, None) for name in names}
    for name, layer in layers.items():
        if not isinstance(layer, nn.Linear):
            raise Failure(f"residual_projections: expected names of linear layers, got {name!r}", RESIDUAL_ADVICE)
    return [parameter for layer in layers.values() if layer is not None for parameter in layer.parameters()]


CHECKS = [Check("attention bias", at_drawn_sizes(biased)), Check("residual projections", at_drawn_sizes(residual))]

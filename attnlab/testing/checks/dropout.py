"""Dropout of attention weights: in training only, in the share that the configuration states, and preserving the mean.

Training mode: without dropout it computes what evaluation mode computes, and it changes nothing in the module.
"""

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor

from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff
from attnlab.testing.checks.target import AttentionLayer, CheckTarget, at_drawn_sizes, seed_generators, trained_parameters

MODE_ADVICE = (
    "With dropout 0, forward() must compute the same function in both modes and change no buffer: look for self.training, a "
    "batch norm or other running statistics, and noise that is added in training."
)
SAMPLES = 4096
FEW = 16  # rows of two calls that are compared
P = 0.3  # away from 0.5, so that dropping with the probability of keeping is noticed
LOW_P = 0.01
OTHER_INPUTS = 8  # of a query with a single key, the weight of which may be 0 without dropout
MAX_OUTCOMES = 512  # different outputs of ``SAMPLES`` samples that can be taken to be all that there are
DEVIATIONS = 6  # standard errors
ADVICE = (
    "Drop attention weights with probability self.dropout, only in training mode, and scale the others by 1 / (1 - p), as "
    "self.attend does; or declare `has_attention_dropout = False` if there are no weights to drop."
)


def mean(target: CheckTarget) -> str:
    """Dropout acts in training mode alone, differs between calls, and preserves the mean of outputs linear in the weights."""
    if not target.variant.has_attention_dropout:
        raise NotDeclared("`has_attention_dropout` is False")
    linear = [role for role in target.roles if _is_linear(target, role)]
    deviations = [
        _deviation(replace(target, backend=name), role, role in linear) for name in target.backends for role in linear
    ]
    for role in (role for role in target.roles if role not in linear):
        for name in target.backends:
            _deviation(replace(target, backend=name), role, False)
    if not linear:
        return f"{', '.join(target.backends)}: in training only; the output is not linear in the weights"
    roles = f"{', '.join(target.backends)}; {', '.join(linear)}"
    return f"{roles}: the mean of {SAMPLES} samples is within {max(deviations):.1f} standard errors"


def _deviation(target: CheckTarget, role: str, linear: bool) -> float:
    """Return how many standard errors the mean under dropout deviates from the output without dropout.

    Args:
        linear: require that the mean does not deviate.
    """
    case = f"{role}, {target.backend}, batch 1, length 5"
    x, context = target.inputs(role, 1, 5, s=5)
    exact, layer = target.build(role), target.build(role, dropout=P)
    layer.load_state_dict(exact.state_dict())
    with torch.no_grad():
        y = exact(x, context)
        if not (layer(x, context) - y).abs().max().item() <= target.tolerance:
            raise Failure(f"{case}: dropout {P} acts in evaluation mode", ADVICE)
    samples = _samples(layer, x, context)
    with torch.no_grad():
        first, second = (
            layer(x.expand(FEW, -1, -1), None if context is None else context.expand(FEW, -1, -1)) for _ in range(2)
        )
    error = samples.std(0) / SAMPLES**0.5
    if not error.max().item() > target.tolerance:
        raise Failure(f"{case}, {SAMPLES} samples: dropout {P} drops nothing in training mode", ADVICE)
    if torch.equal(first, second):
        advice = (
            "Draw other weights to drop in each call, from torch's generator: keep no mask, and seed no generator of its own."
        )
        raise Failure(f"{case}: two calls in training mode drop the same weights", advice)
    deviation = ((samples.mean(0) - y[0].double()).abs() / (error + 1e-9)).max().item()
    if linear and not deviation < DEVIATIONS:
        measured = f"the mean of {SAMPLES} samples deviates from the output without dropout by {deviation:.0f} standard errors"
        raise Failure(f"{case}: {measured}", ADVICE)
    return deviation


def share(target: CheckTarget) -> str:
    """Each weight is dropped with the configured probability.

    A query that sees a single key has one weight in each head, or a few. The output then takes few values, and their
    frequencies are the products of the probabilities of dropping and keeping.
    """
    if not target.variant.has_attention_dropout:
        raise NotDeclared("`has_attention_dropout` is False")
    if target.variant.constant_first_output:
        raise NotDeclared("`constant_first_output` is True: the output of a query with a single key tells nothing")
    shares: list[float] = []
    for role in target.roles:
        heads = _fewest_heads(target, role)
        for backend in target.backends:
            layer = target.build(role, heads=heads, dropout=P, backend=backend)
            for seed in range(1, 1 + OTHER_INPUTS):
                samples = _samples(layer, *target.inputs(role, 1, 1, s=1, seed=seed))[:, 0]
                if len(outcomes := _outcomes(samples)) > 1:
                    break
            case = f"{role}, {backend}, {heads} head{'s' * (heads > 1)}, a query with a single key, {SAMPLES} samples"
            if heads == 1:
                _require_whole(samples, case)
            if len(outcomes) == 1:
                raise Failure(f"{case}: dropout {P} drops nothing in training mode", ADVICE)
            shares += _shares(outcomes, case)
            _require_kept(target, role, heads, backend, seed)
    if not shares:
        return "not determined: the output takes too many values with a single key"
    dropped = f"{100 * min(shares):.1f} to {100 * max(shares):.1f} % of the weights"
    return f"{', '.join(target.roles)}: {dropped} (expected {100 * P:.0f} %)"


def _shares(outcomes: dict[float, int], case: str) -> list[float]:
    """Return the share of dropped weights that the frequencies of the outputs show; raise ``Failure`` if it is wrong.

    The output that occurs least often is the one with all n weights dropped, of probability P^n. All 2^n outputs are different,
    unless a norm after dropout makes some of them equal.
    """
    counts = sorted(outcomes.values())
    if len(counts) > min(MAX_OUTCOMES, 64):
        return []
    fewest = math.ceil(math.log2(len(counts)))
    numbers = range(fewest, len(counts))
    best = min(numbers, key=lambda n: abs(counts[0] / SAMPLES - P**n))
    expected = sorted(P ** (best - k) * (1 - P) ** k for k in range(best + 1) for _ in range(math.comb(best, k)))
    if len(counts) < len(expected):
        expected = expected[:1]
    for count, probability in zip(counts, expected, strict=False):
        error = math.sqrt(probability * (1 - probability) / SAMPLES)
        if not abs(count / SAMPLES - probability) <= DEVIATIONS * error:
            dropped = (counts[0] / SAMPLES) ** (1 / best)
            raise Failure(f"{case}: {100 * dropped:.0f} % of the weights are dropped, expected {100 * P:.0f} %", ADVICE)
    return [(counts[0] / SAMPLES) ** (1 / best)]


def _require_whole(samples: Tensor, case: str) -> None:
    """Raise ``Failure`` when single coordinates of an output (samples, dim) of one head are dropped, and not weights."""
    zeros = samples == 0
    some = zeros.any(1) & ~zeros.all(1)
    if not zeros.all(0).any() and some.double().mean().item() > 0.5:
        share = 100 * zeros.double().mean().item()
        raise Failure(f"{case}: {share:.0f} % of the numbers of the output are dropped, each by itself", ADVICE)


def _require_kept(target: CheckTarget, role: str, heads: int, backend: str, seed: int) -> None:
    """Raise ``Failure`` unless a low probability of dropping leaves most outputs nearly as they are."""
    x, context = target.inputs(role, 1, 1, s=1, seed=seed)
    layer = target.build(role, heads=heads, dropout=LOW_P, backend=backend)
    with torch.no_grad():
        y = layer(x, context)[0, 0].double()
    near = (_samples(layer, x, context)[:, 0] - y).norm(dim=1) <= 0.1 * y.norm()
    if not near.double().mean().item() > 0.5:
        case = f"{role}, {backend}, a query with a single key, dropout {LOW_P}"
        raise Failure(
            f"{case}: {100 * near.double().mean().item():.0f} % of the outputs are nearly those without dropout", ADVICE
        )


def _is_linear(target: CheckTarget, role: str) -> bool:
    """Return whether the output is linear in the attention weights, judged by the outputs of a query that sees two keys.

    If each of the weights adds a part to the output, the outputs with and without these parts lie symmetrically. A norm
    after dropout, as in differential attention, breaks that symmetry.
    """
    x, context = target.inputs(role, 1, 1 if role == "cross" else 2, s=2)
    layer = target.build(role, heads=_fewest_heads(target, role), dropout=0.5)
    values = sorted(_outcomes(_samples(layer, x, context)[:, -1]))
    if len(values) > MAX_OUTCOMES:
        return True
    middle = (values[0] + values[-1]) / 2
    return all(
        abs(low + high - 2 * middle) <= 1e-6 * (values[-1] - values[0])
        for low, high in zip(values, reversed(values), strict=True)
    )


def _fewest_heads(target: CheckTarget, role: str) -> int:
    """Return 1 if the variant and its position scheme support one head, else the heads of the target."""
    if not target.variant.has_heads or target.variant_unsupported(role=role, heads=1):
        return target.heads
    if target.scheme.unsupported(target.position_config(role, heads=1)):
        return target.heads
    try:
        target.build(role, heads=1)
    except Exception:  # which the check "one head" reports
        return target.heads
    return 1


def _samples(layer: AttentionLayer, x: Tensor, context: Tensor | None) -> Tensor:
    """Return outputs in training mode, (``SAMPLES``, t, dim), in float64: each row of the batch drops other weights."""
    context = None if context is None else context.expand(SAMPLES, -1, -1)
    seed_generators(2, x.device)
    with torch.no_grad():
        return layer.train()(x.expand(SAMPLES, -1, -1), context).double()


def _outcomes(samples: Tensor) -> dict[float, int]:
    """Return the different rows of samples (n, dim), as their products with a fixed vector, with their numbers."""
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(samples.shape[1], dtype=torch.float64, generator=generator).to(samples.device)
    values = (samples @ direction).sort().values
    size = max((values[-1] - values[0]).item(), 1e-3 * values.abs().max().item())
    jumps = torch.cat([values.new_ones(1, dtype=torch.bool), values.diff() > 1e-6 * size])
    starts = jumps.nonzero().flatten().tolist()
    return {values[i].item(): j - i for i, j in zip(starts, [*starts[1:], len(values)], strict=True)}


def equal(target: CheckTarget) -> str:
    """With dropout 0, outputs and gradients in training mode equal those in evaluation mode, and buffers do not change."""
    worst = 0.0
    for role in target.roles:
        layer = target.build(role)
        before = copy.deepcopy(layer.state_dict())
        for name, inputs in target.calls(role):
            expected, got = (_results(target, layer.train(training), *inputs) for training in (False, True))
            for what, value in got.items():
                gap = max_abs_diff(value, expected[what])
                if not gap <= target.tolerance:
                    case = f"{role}, batch {len(inputs[0])}, length {inputs[0].shape[1]}{name}"
                    raise Failure(
                        f"{case}: {what} differs between training and evaluation by {format_number(gap)}", MODE_ADVICE
                    )
                worst = max(worst, gap)
        for name, value in layer.state_dict().items():
            if not torch.equal(value, before[name]):
                raise Failure(f"{role}: a forward pass in training mode changes {name.removeprefix('attention.')}", MODE_ADVICE)
    return f"outputs and gradients in both modes differ by {format_number(worst)}"


def _results(
    target: CheckTarget, layer: AttentionLayer, x: Tensor, context: Tensor | None, mask: Tensor | None
) -> dict[str, Tensor]:
    """Return the output and the gradients with respect to x and every parameter, by name."""
    x = x.clone().requires_grad_()
    leaves = {
        "the gradient of x": x,
        **{f"the gradient of {name}": p for name, p in trained_parameters(layer.attention).items()},
    }
    seed_generators(0, target.device)
    y = layer(x, context, mask)
    weights = target.noise(*y.shape[:2], seed=9)
    gradients = torch.autograd.grad((y * weights).sum(), list(leaves.values()), allow_unused=True, materialize_grads=True)
    return {"the output": y.detach(), **dict(zip(leaves, gradients, strict=True))}


CHECKS = [
    Check("dropout", mean),
    Check("dropout share", share),
    Check("training mode", at_drawn_sizes(equal)),
]

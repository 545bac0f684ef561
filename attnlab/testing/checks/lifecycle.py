"""Module lifecycle: saving, copying, pickling, compiling, repeated calls and seeding."""

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnlab.nn import attention
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff
from attnlab.testing.checks.target import CheckTarget, seed_generators

MANY_CALLS = 10**6
STATELESS = (
    "forward() computes its output from its arguments alone, and changes neither them nor the module: no counters, running "
    "averages, stored results or operations in place, and no random numbers but dropout with `training=self.training`."
)


def _output(target: CheckTarget, layer: Callable[..., Tensor], role: str) -> Tensor:
    x, context = target.inputs(role, seed=1)
    with torch.no_grad():
        return layer(x, context)


def state_dict(target: CheckTarget) -> str:
    """A new instance that loads the state_dict gives the same output."""
    role = target.roles[0]
    saved, loaded = target.build(role, seed=0), target.build(role, seed=1)
    loaded.load_state_dict(saved.state_dict())
    gap = max_abs_diff(_output(target, saved, role), _output(target, loaded, role))
    if gap > 0:
        raise Failure(
            f"{role}: the output of a new instance with the same state_dict differs by {format_number(gap)}",
            "Make weights nn.Parameters, and register other tensors that affect the output as buffers.",
        )
    return f"{len(saved.state_dict())} tensors; after loading, outputs differ by {format_number(gap)}"


def deepcopy(target: CheckTarget) -> str:
    """A deep copy, made after a backward pass, gives the same output and shares no parameters."""
    role = target.roles[0]
    layer = target.build(role)
    x, context = target.inputs(role)
    layer(x.requires_grad_(), context).sum().backward()
    try:
        clone = copy.deepcopy(layer)
    except Exception as error:  # any exception of any attribute means that the module cannot be copied
        raise Failure(f"{role}, after a backward pass: {type(error).__name__}: {str(error)[:120]}", _KEEP_NOTHING) from error
    before = _output(target, layer, role)
    gap = max_abs_diff(before, _output(target, clone, role))
    with torch.no_grad():
        for parameter in clone.parameters():
            parameter.mul_(2).add_(1)
    changed = max_abs_diff(before, _output(target, layer, role))
    if gap > 0 or changed > 0:
        raise Failure(
            f"{role}: a deep copy differs by {format_number(gap)}, and moves its original by {format_number(changed)}",
            _KEEP_NOTHING,
        )
    return f"after a backward pass, outputs differ by {format_number(gap)}"


_KEEP_NOTHING = "Do not store results of a forward pass (attention weights, caches) in the module, or .detach() them."


def pickled(target: CheckTarget) -> str:
    """An instance restored from a pickle gives the same output."""
    role = target.roles[0]
    layer = target.build(role)
    try:
        data = pickle.dumps(layer)
        clone = pickle.loads(data)
    except Exception as error:  # any exception of any attribute means that the module cannot be pickled
        raise Failure(
            f"{role}: {type(error).__name__}: {str(error)[:120]}",
            "Replace attributes that are lambdas, closures or open files by module-level functions or nn.Modules.",
        ) from error
    gap = max_abs_diff(_output(target, layer, role), _output(target, clone, role))
    if gap > 0:
        raise Failure(
            f"{role}: the output after unpickling differs by {format_number(gap)}", "Look for state that __getstate__ omits."
        )
    return f"{len(data)} bytes; after unpickling, outputs differ by {format_number(gap)}"


def compiled(target: CheckTarget) -> str:
    """``torch.compile`` captures the variant in one graph that gives the same output.

    Checked with the target's backend and, if that is ``reference``, also with the one that ``auto`` selects for compiled runs.
    """
    if not target.variant.supports_compile:
        raise NotDeclared("`supports_compile` is False")
    if target.backend == "xformers":
        raise NotDeclared("`supports_compile` covers torch's own kernels only")
    if reason := attention.unsupported(target.backend, device=target.device, compile=True):
        raise NotDeclared(reason)
    auto = attention.resolve_backend(target.device, hook=target.scheme.hook, backends=target.variant.backends, compiled=True)
    backends = dict.fromkeys([target.backend, auto] if target.backend == "reference" else [target.backend])
    gap = max(_compile_gap(target, name) for name in backends)
    return f"{', '.join(backends)}: one graph, outputs differ by {format_number(gap)}"


def _compile_gap(target: CheckTarget, backend: str) -> float:
    role = target.roles[0]
    layer = target.build(role, backend=backend)
    torch.compiler.reset()
    try:
        compiled_layer = torch.compile(layer, fullgraph=True, backend="eager", dynamic=False)
        gap = max_abs_diff(_output(target, layer, role), _output(target, compiled_layer, role))
    except Exception as error:  # dynamo raises exceptions of many types; each means that it did not capture one graph
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise Failure(
            f"{role}, {backend}, length {target.sizes.length}: the graph breaks: {reason[:150]}",
            "Avoid .item(), .numpy(), print() and branches on tensor values in forward(), or set `supports_compile = False`.",
        ) from error
    finally:
        torch.compiler.reset()
    if not gap <= target.tolerance:
        case = f"{role}, {backend}, length {target.sizes.length}: the compiled output differs by {format_number(gap)}"
        raise Failure(case, "forward() must not behave differently while it is traced.")
    return gap


def stateless(target: CheckTarget) -> str:
    """Earlier calls, of the same shape and of others, do not change the output, and a call does not change its arguments."""
    for role in target.roles:
        for training in (False, True):
            layer = target.build(role).train(training)
            case = f"{role}, {'training' if training else 'evaluation'} mode"
            before = _output(target, target.build(role).train(training), role)
            for inputs in (target.inputs(role, seed=9), target.inputs(role, 2, 5, s=7, seed=9)):
                _require_unchanged(layer, *inputs, case)
                gap = max_abs_diff(before, _output(target, layer, role))
                if gap > 0:
                    raise Failure(
                        f"{case}: a call with another input before it changes the output by {format_number(gap)}", STATELESS
                    )
            _require_no_countdown(target, layer, role, before)
    return "earlier calls do not change the output"


def _require_unchanged(layer: nn.Module, x: Tensor, context: Tensor | None, case: str) -> None:
    """Call the layer, and raise ``Failure`` when that changes one of its arguments."""
    mask = torch.ones((x if context is None else context).shape[:2], dtype=torch.bool, device=x.device)
    mask[0, 1:][-1:] = False
    arguments = {"x": x, "context": context, "mask": mask}
    before = {name: z.clone() for name, z in arguments.items() if z is not None}
    with torch.no_grad():
        layer(**arguments)
    for name, z in before.items():
        if not torch.equal(arguments[name], z):
            raise Failure(f"{case}: forward() changes `{name}` in place", STATELESS)


def _require_no_countdown(target: CheckTarget, layer: nn.Module, role: str, before: Tensor) -> None:
    """Raise ``Failure`` when a number that each call changes affects the output once it is large, as after many calls."""
    kept = [_numbers(layer)]
    for _ in range(2):
        _output(target, layer, role)
        kept.append(_numbers(layer))
    counters = [key for key, value in kept[2].items() if value != kept[1].get(key, value)]
    for module, name in counters:
        setattr(module, name, kept[2][module, name] + MANY_CALLS)
    gap = max_abs_diff(before, _output(target, layer, role)) if counters else 0.0
    if gap > 0:
        names = ", ".join(name for _, name in counters)
        raise Failure(
            f"{role}: a larger {names}, which each call changes, changes the output by {format_number(gap)}", STATELESS
        )


def _numbers(layer: nn.Module) -> dict[tuple[nn.Module, str], float]:
    """Return the attributes of all modules that are numbers."""
    return {
        (module, name): value
        for module in layer.modules()
        for name, value in vars(module).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def seeded(target: CheckTarget) -> str:
    """The same seed initializes the same weights and drops the same attention weights."""
    role = target.roles[0]
    outputs = []
    for _ in range(2):
        layer = target.build(role, dropout=0.3).train()
        seed_generators(5, target.device)
        outputs.append(_output(target, layer, role))
    gap = max_abs_diff(*outputs)
    if gap > 0:
        raise Failure(
            f"{role}: built and run twice with the same seed, outputs differ by {format_number(gap)}",
            "Use only torch's random generator, not random, numpy or the time.",
        )
    return f"built and run twice with the same seed, outputs differ by {format_number(gap)}"


CHECKS = [
    Check("state_dict", state_dict),
    Check("deepcopy", deepcopy),
    Check("pickle", pickled),
    Check("compile", compiled),
    Check("no hidden state", stateless),
    Check("seed", seeded),
]

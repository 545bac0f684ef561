"""Module lifecycle: saving, copying, pickling, compiling, repeated calls and seeding."""

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnlab.nn import attention
from attnlab.testing.checks.result import Check, Failure, NotDeclared, format_number, max_abs_diff, require_small
from attnlab.testing.checks.target import CheckTarget, seed_generators

MANY_CALLS = 10**6
STATE_ADVICE = "Make weights nn.Parameters, and register other tensors that affect the output as buffers."
KEEP_ADVICE = "Do not store results of a forward pass (attention weights, caches) in the module, or .detach() them."
PICKLE_ADVICE = "Replace attributes that are lambdas, closures or open files by module-level functions or nn.Modules."
STATELESS = (
    "forward() computes its output from its arguments alone, and changes neither them nor the module: no counters, running "
    "averages, stored results or operations in place, and no random numbers but dropout with `training=self.training`."
)


def _output(target: CheckTarget, layer: Callable[..., Tensor], role: str) -> Tensor:
    x, context = target.inputs(role, seed=1)
    with torch.no_grad():
        return layer(x, context)


def copies(target: CheckTarget) -> str:
    """A new instance with the same state_dict, a deep copy after a backward pass and a pickle give the same output."""
    role = target.roles[0]
    layer = target.build(role)
    x, context = target.inputs(role)
    before = _output(target, layer, role)
    layer(x.requires_grad_(), context).sum().backward()
    loaded = target.build(role, seed=1)
    loaded.load_state_dict(layer.state_dict())
    for name, make, advice in (
        ("a deep copy after a backward pass", lambda: copy.deepcopy(layer), KEEP_ADVICE),
        ("a new instance with the same state_dict", lambda: loaded, STATE_ADVICE),
        ("an instance restored from a pickle", lambda: pickle.loads(pickle.dumps(layer)), PICKLE_ADVICE),
    ):
        try:
            other = make()
        except Exception as error:  # any exception of any attribute means that the module cannot be copied
            raise Failure(f"{role}, {name}: {type(error).__name__}: {str(error)[:120]}", advice) from error
        require_small(max_abs_diff(before, _output(target, other, role)), 0.0, f"{role}: the output of {name} differs", advice)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(2).add_(1)
        gap = max_abs_diff(before, _output(target, layer, role))
        require_small(gap, 0.0, f"{role}: a change of {name} changes the output of its original", advice)
    return f"{len(layer.state_dict())} tensors; loaded, copied and pickled instances give the same output"


def compiled(target: CheckTarget) -> str:
    """``torch.compile`` captures the variant in one graph that gives the same output.

    Checked with the target's backend and, if that is ``reference``, also with the one that ``auto`` selects for compiled runs.
    """
    if not target.variant.supports_compile:
        raise NotDeclared("`supports_compile` is False")
    if target.backend in ("xformers", "blocked"):
        raise NotDeclared("`supports_compile` covers torch's own kernels only")
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
    case = f"{role}, {backend}, length {target.sizes.length}: the compiled output differs"
    return require_small(gap, target.tolerance, case, "forward() must not behave differently while it is traced.")


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
                require_small(gap, 0.0, f"{case}: a call with another input before it changes the output", STATELESS)
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
    names = ", ".join(name for _, name in counters)
    require_small(gap, 0.0, f"{role}: a larger {names}, which each call changes, changes the output", STATELESS)


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
    case = f"{role}: built and run twice with the same seed, outputs differ"
    require_small(gap, 0.0, case, "Use only torch's random generator, not random, numpy or the time.")
    return "built and run twice with the same seed: the same outputs"


CHECKS = [
    Check("copies", copies),
    Check("compile", compiled),
    Check("no hidden state", stateless),
    Check("seed", seeded),
]

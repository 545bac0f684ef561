"""Life of a module: saved, copied, pickled, compiled, called again, built again."""

import copy
import pickle
from collections.abc import Callable

import torch
from torch import Tensor

from attnlab.nn import attention
from attnlab.testing.checks.target import Check, CheckTarget, Failure, NotDeclared, T, distance, number


def _output(subject: CheckTarget, cell: Callable[..., Tensor], role: str, *, seed: int = 1) -> Tensor:
    x, context = subject.inputs(role, seed=seed)
    with torch.no_grad():
        return cell(x, context)


def state_dict(subject: CheckTarget) -> str:
    """A fresh instance that loads the state_dict gives the same outputs."""
    role = subject.roles[0]
    one, other = subject.build(role, seed=0), subject.build(role, seed=1)
    other.load_state_dict(one.state_dict())
    gap = distance(_output(subject, one, role), _output(subject, other, role))
    if gap > 0:
        raise Failure(
            f"{role}: a fresh instance with the same state_dict differs by {number(gap)}",
            "Weights must be nn.Parameters, and other tensors that decide outputs registered buffers.",
        )
    return f"{len(one.state_dict())} tensors, loaded they differ by {number(gap)}"


def deepcopy(subject: CheckTarget) -> str:
    """A copy, also of one that has been trained on, gives the same and shares nothing."""
    role = subject.roles[0]
    cell = subject.build(role)
    x, context = subject.inputs(role)
    cell(x.requires_grad_(), context).sum().backward()
    try:
        twin = copy.deepcopy(cell)
    except Exception as error:  # whatever a member raises: that it cannot be copied is the finding
        raise Failure(f"{role}, after a backward pass: {type(error).__name__}: {str(error)[:120]}", _KEEP) from error
    before = _output(subject, cell, role)
    gap = distance(before, _output(subject, twin, role))
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(2).add_(1)
    moved = distance(before, _output(subject, cell, role))
    if gap > 0 or moved > 0:
        raise Failure(f"{role}: a deep copy differs by {number(gap)}, and moves its original by {number(moved)}", _KEEP)
    return f"after a backward pass, differs by {number(gap)}"


_KEEP = "Keep no results of a forward pass in the module (attention maps, caches): return them, or .detach() what you keep."


def pickled(subject: CheckTarget) -> str:
    """Through pickle and back it gives the same."""
    role = subject.roles[0]
    cell = subject.build(role)
    try:
        data = pickle.dumps(cell)
        twin = pickle.loads(data)
    except Exception as error:  # whatever a member raises: that it cannot be pickled is the finding
        raise Failure(
            f"{role}: {type(error).__name__}: {str(error)[:120]}",
            "Replace lambdas, closures and open files among its attributes by functions of the module or nn.Modules.",
        ) from error
    gap = distance(_output(subject, cell, role), _output(subject, twin, role))
    if gap > 0:
        raise Failure(f"{role}: unpickled it differs by {number(gap)}", "Look at __getstate__: what does it leave out?")
    return f"{len(data)} bytes, unpickled it differs by {number(gap)}"


def compiled(subject: CheckTarget) -> str:
    """``torch.compile`` takes it whole, and changes no output: with the backend asked for, and with that of a compiled run."""
    if not subject.variant.compiles:
        raise NotDeclared("it does not claim to compile")
    if subject.backend == "xformers":
        raise NotDeclared("claimed for torch's own kernels alone")
    if reason := attention.unsupported(subject.backend, device=subject.device, compile=True):
        raise NotDeclared(reason)
    backends = subject.variant.backends
    auto = attention.resolve_backend(subject.device, hook=subject.scheme.hook, backends=backends, compiled=True)
    names = dict.fromkeys([subject.backend, auto] if subject.backend == "reference" else [subject.backend])
    gap = max(_compiled(subject, name) for name in names)
    return f"{', '.join(names)}: one graph, differs by {number(gap)}"


def _compiled(subject: CheckTarget, backend: str) -> float:
    role = subject.roles[0]
    cell = subject.build(role, backend=backend)
    torch.compiler.reset()
    try:
        found = torch.compile(cell, fullgraph=True, backend="eager", dynamic=False)
        gap = distance(_output(subject, cell, role), _output(subject, found, role))
    except Exception as error:  # dynamo raises many kinds, and each means that it was not taken whole
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise Failure(
            f"{role}, {backend}, length {T}: the graph breaks: {reason[:150]}",
            "Avoid .item(), .numpy(), print and branches on values in forward(), or declare `compiles = False`.",
        ) from error
    finally:
        torch.compiler.reset()
    if not gap <= subject.tolerance:
        case = f"{role}, {backend}, length {T}: compiled it differs by {number(gap)}"
        raise Failure(case, "Branches must not ask whether they are being traced.")
    return gap


def stateless(subject: CheckTarget) -> str:
    """What was computed before, at other lengths too, changes nothing."""
    for role in subject.roles:
        for training in (False, True):
            cell = subject.build(role).train(training)
            before = _output(subject, cell, role)
            x, context = subject.inputs(role, 2, 5, s=7, seed=9)
            with torch.no_grad():
                cell(x, context)
            gap = distance(before, _output(subject, cell, role))
            if gap > 0:
                mode = "training" if training else "evaluation"
                raise Failure(
                    f"{role}, {mode} mode: the same input after another one gives another output, by {number(gap)}",
                    "forward() must not change the module: no counters, running averages or caches.",
                )
    return "the same input after another one: the same output"


def seeded(subject: CheckTarget) -> str:
    """The same seed makes the same weights and drops the same attention weights."""
    role = subject.roles[0]
    outputs = []
    for _ in range(2):
        cell = subject.build(role, dropout=0.3).train()
        torch.manual_seed(5)
        outputs.append(_output(subject, cell, role))
    gap = distance(*outputs)
    if gap > 0:
        raise Failure(
            f"{role}: built and run twice from one seed, outputs differ by {number(gap)}",
            "Draw from torch's generator alone, not from random, numpy or the clock.",
        )
    return f"built and run twice from one seed: differs by {number(gap)}"


CHECKS = [
    Check("state_dict", state_dict),
    Check("deepcopy", deepcopy),
    Check("pickle", pickled),
    Check("compile", compiled),
    Check("no hidden state", stateless),
    Check("seed", seeded),
]

"""Adapter of the reference functions of flash-linear-attention, its files ``fla/ops/NAME/naive.py``.

    fla:linear_attn, fla:retention, fla:gla, fla:simple_gla, fla:delta_rule, fla:gated_delta_rule, fla:kda

They are recurrences in plain PyTorch. The adapter adds the projections: queries, keys and values by a linear layer each, log
decays by logsigmoid and write strengths (``beta``) by sigmoid of another, and the output projection. Keys of padding are zeros
and its log decays are 0, so that it leaves the state as it is. The layers of ``fla.layers`` have Triton kernels, which need a
GPU; the files of the reference functions are loaded by themselves, without importing the package.
"""

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnlab.errors import UserError, nearest
from attnlab.extras.adapters.base import Adapted, public
from attnlab.variants import AttentionConfig, Variant

PACKAGE = "fla"


@dataclass(frozen=True)
class Recurrence:
    """A reference function of the library.

    Attributes:
        function: its name in ``naive.py``.
        gates: its arguments after q, k and v; True for one number a feature, (b, t, h, d), False for one a head, (b, t, h).
        heads_first: True when it takes (b, h, t, d) instead of (b, t, h, d).
        unit_length: True for a delta rule, which needs queries and keys of length 1.
    """

    function: str
    gates: dict[str, bool]
    heads_first: bool = False
    unit_length: bool = False


RECURRENCES = {
    "linear_attn": Recurrence("naive_recurrent_linear_attn", {}),
    "retention": Recurrence("naive_retention", {}, heads_first=True),
    "gla": Recurrence("naive_recurrent_gla", {"gk": True}),
    "simple_gla": Recurrence("naive_recurrent_simple_gla", {"g": False}),
    "delta_rule": Recurrence("delta_rule_recurrence", {"beta": False}, heads_first=True, unit_length=True),
    "gated_delta_rule": Recurrence("naive_recurrent_gated_delta_rule", {"beta": False, "g": False}, unit_length=True),
    "kda": Recurrence("naive_recurrent_kda", {"g": True, "beta": False}, unit_length=True),
}


def fla_recurrence(name: str, options: dict[str, Any]) -> type[Variant]:
    """Return a reference function between projections as a variant.

    Args:
        name: key of ``RECURRENCES``.
        options: ``function``, another function of the same file with the same arguments, such as the chunked form; the other
            options are keyword arguments of the function.

    Raises:
        UserError: the name is unknown, the library is not installed, or the function or its option does not exist.
    """
    ref = f"fla:{name}"
    if name not in RECURRENCES:
        raise UserError(f"no adapter for this function{nearest(name, RECURRENCES)}: expected {', '.join(RECURRENCES)}", ref)
    recurrence = RECURRENCES[name]
    function = _load(name, str(options.pop("function", recurrence.function)))
    taken = inspect.signature(function).parameters
    for option in options:
        if option not in taken:
            raise UserError(f"{function.__name__} has no argument {option!r}{nearest(option, taken)}", ref)

    class Recurrent(Adapted):
        roles = frozenset({"causal"})
        default_position = "none"
        has_attention_dropout = False
        checked_dtype = torch.float32
        permutation_equivariant = False

        def __init__(self, config: AttentionConfig) -> None:
            super().__init__(config)
            dim, h = config.dim, config.heads
            self.project = nn.ModuleDict({part: nn.Linear(dim, dim, bias=False) for part in "qkv"})
            widths = {gate: dim if by_feature else h for gate, by_feature in recurrence.gates.items()}
            self.gates = nn.ModuleDict({gate: nn.Linear(dim, width) for gate, width in widths.items()})
            self.out = nn.Linear(dim, dim, bias=False)

        def forward(self, x: Tensor, *, context: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
            q, k, v = (layer(x).unflatten(-1, (self.heads, -1)) for layer in self.project.values())  # (b, t, h, d)
            if recurrence.unit_length:
                q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            gates = {gate: self._gate(gate, x) for gate in recurrence.gates}
            if mask is not None:
                k = k * mask[:, :, None, None]
                gates = {gate: z * mask.view(*mask.shape, *[1] * (z.dim() - 2)) for gate, z in gates.items()}
            arguments = {"q": q, "k": k, "v": v, **gates}
            if recurrence.heads_first:
                arguments = {argument: z.transpose(1, 2) for argument, z in arguments.items()}
            y = function(**arguments, **options)
            y = y[0] if isinstance(y, tuple) else y
            return self.out((y.transpose(1, 2) if recurrence.heads_first else y).flatten(2).to(x.dtype))

        def _gate(self, gate: str, x: Tensor) -> Tensor:
            """Return a write strength or a log decay: (b, t, h), or (b, t, h, d) for one number a feature."""
            z = self.gates[gate](x)
            z = z.sigmoid() if gate == "beta" else F.logsigmoid(z)
            return z.unflatten(-1, (self.heads, -1)) if recurrence.gates[gate] else z

    return public(Recurrent, f"fla_{name}")


def _load(name: str, function: str) -> Callable[..., Any]:
    """Return a function of ``fla/ops/NAME/naive.py``, which is loaded by itself: its package would import Triton."""
    ref = f"fla:{name}"
    package = importlib.util.find_spec(PACKAGE)
    if package is None or not package.submodule_search_locations:
        raise UserError("flash-linear-attention is not installed: pip install --no-deps flash-linear-attention fla-core", ref)
    paths = [Path(folder) / "ops" / name / "naive.py" for folder in package.submodule_search_locations]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(f"the installed flash-linear-attention has no file ops/{name}/naive.py", ref)
    spec = importlib.util.spec_from_file_location(f"attnlab_fla_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise UserError(f"{path.name} of {name} cannot be imported: {error}: pip install {error.name}", ref) from error
    known = [key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__]
    if function not in known:
        raise UserError(f"no function {function!r}{nearest(function, known)}: expected {', '.join(known)}", ref)
    return getattr(module, function)

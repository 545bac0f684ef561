"""Components: changes to one place of softmax attention, which combine with each other.

Softmax attention has these places, in the order of computation:

    input                x                           the input, of every position
    projections          q, k, v = W_Q x, W_K x, W_V x
    queries_keys         q, k                        of every head, before the position scheme acts on them
    scale                s_ij = scale q_i . k_j
    values               v
    score                s_ij + bias_ij              the bias of the position scheme
    visible              M_i                         the keys that query i may attend to
    weights              w_i = softmax(s_ij, j in M_i)
    head_outputs         y_i = sum_j w_ij v_j        of every head
    output_projection    W_O Concat(y)

A component is a module with a method for the place that it changes, for example:

    @register_component("soften")
    class Soften(Component):
        def __init__(self, config: ComponentConfig, *, value: float = 1.0) -> None:
            super().__init__(config)
            self.value = value

        def score(self, s, b, h, i, j):
            return s / self.value

    variant: {name: dense, with: [{name: soften, value: 2.0}]}

Components of one place act in the order in which a study lists them. You should test a component with ``attnlab check
FILE.py:Soften``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from attnlab.errors import nearest
from attnlab.nn.cache import Cache
from attnlab.nn.functions import ScoreFunction, WeightFunction
from attnlab.nn.mask import MaskFunction

N = TypeVar("N")
PLACES = (
    "input",
    "projections",
    "queries_keys",
    "scale",
    "values",
    "score",
    "visible",
    "weights",
    "head_outputs",
    "output_projection",
)
ATTEND_PLACES = frozenset(
    {"queries_keys", "scale", "values", "score", "visible", "weights", "head_outputs"}
)  # of Variant.attend
REPLACED = ("projections", "weights", "output_projection")  # places that hold one computation, which a component replaces
ROLES = ("causal", "bidirectional", "cross")


@dataclass(frozen=True)
class Setting:
    """How a cell uses a variant or a component, from which ``unsupported`` decides.

    Attributes:
        role: one of ``ROLES``.
        hook: the hook of the position scheme: ``none``, ``embed``, ``rotate`` or ``bias``.
        memory: whether keys and values include the memory of earlier segments (``model.mem_len``).
        backend: one of ``attnlab.nn.attention.BACKENDS``; ``auto`` is already resolved.
        dim: model width.
        heads: number of heads.
        options: every option of the constructor with its value, defaults included.
        head_dim: width of one head, for components.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        precision: ``fp32``, ``bf16`` or ``fp16``.
        attention_dropout: probability of dropping an attention weight in training.
        attention_bias: whether the projections have biases; ``out``: the residual projections alone.
        initialization: ``default`` or ``gpt2``.
    """

    role: str
    hook: str
    memory: bool
    backend: str
    dim: int
    heads: int
    options: Mapping[str, Any] = field(default_factory=dict)
    head_dim: int = 0
    device: str = "cpu"
    precision: str = "fp32"
    attention_dropout: float = 0.0
    attention_bias: bool | str = False
    initialization: str = "default"


@dataclass(frozen=True)
class ComponentConfig:
    """Settings that a component is constructed with.

    Attributes:
        dim: model width.
        heads: number of heads of the queries.
        head_dim: width of one head's queries, keys and values.
        role: ``causal``, ``bidirectional`` or ``cross``.
        length: the longest sequence in training, memory included.
        bias: True for biases in all projections (``model.attention_bias``).
        vocabulary: number of token ids; 0 when the layer is not part of a model.
    """

    dim: int
    heads: int
    head_dim: int
    role: str
    length: int
    bias: bool = False
    vocabulary: int = 0


class Component(nn.Module):
    """Base class of components. A subclass implements the methods of the places that it changes.

    Attributes:
        roles: the supported roles, among ``causal``, ``bidirectional`` and ``cross``.
        supports_memory: False for a component that only works when keys and queries have the same positions.
        supports_cache: False when the effect of the component on a new position depends on inputs that no cache holds.
        supports_compile: False for a component at which ``torch.compile`` breaks the graph.
        permutation_equivariant: False when its effect depends on positions; it then replaces a position scheme.
        window: w, for a component with a ``visible`` of exactly ``|i - j| < w``; None for others. Backends then skip other
            logits when they can.
        reads_tokens: True for a component that reads ``tokens``. The model then sets it before each call of the blocks.
        tokens: (b, s), the token of each new input; -1 at a class token and at a token that ``model.word_dropout`` blanks.
        constant_first_output: True when the first output of a causal role is the same for every input
            (``attnlab.variants.Variant``).
        paper: the citation, for example ``"Henry et al. 2020"``.

    Examples:
        >>> import torch
        >>> class Doubled(Component):
        ...     def values(self, v):
        ...         return 2 * v
        >>> Doubled.places()
        ('values',)
    """

    roles: ClassVar[frozenset[str]] = frozenset(ROLES)
    supports_memory: ClassVar[bool] = True
    supports_cache: ClassVar[bool] = True
    supports_compile: ClassVar[bool] = True
    permutation_equivariant: ClassVar[bool] = True
    reads_tokens: ClassVar[bool] = False
    constant_first_output: ClassVar[bool] = False
    window: int | None = None
    paper: ClassVar[str] = ""

    def __init__(self, config: ComponentConfig) -> None:
        super().__init__()
        self.config = config
        self.cache: Cache | None = None  # set while a decoder generates
        self.tokens: Tensor | None = None

    @classmethod
    def places(cls) -> tuple[str, ...]:
        """Return the places that this component changes: it implements a method for each of them."""
        methods = {
            "values": ("values", "value_function"),
            "score": ("score", "score_function"),
            "visible": ("visible", "visible_function"),
        }
        return tuple(
            place
            for place in PLACES
            if any(getattr(cls, name) is not getattr(Component, name) for name in methods.get(place, (place,)))
        )

    @classmethod
    def unsupported(cls, setting: Setting) -> str | None:
        """Return the reason why this component does not support a setting, or None. The plan calls it for every cell.

        An override should end with ``return super().unsupported(setting)``.
        """
        if setting.role not in cls.roles:
            return f"does not support the role {setting.role} (supports {', '.join(sorted(cls.roles))})"
        if setting.memory and not cls.supports_memory:
            return "does not support memory (model.mem_len)"
        return None

    def new_cache(self) -> Cache | None:
        """Return an empty cache for decoding, for a component that reads inputs of earlier positions."""
        return None

    def connect(self, first: "Component") -> None:
        """Receive the same component of the first block of the stack. The model calls this after its construction."""

    def input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Change the input.

        Args:
            x: (b, s, dim), memory included; in the role ``cross``, only the input of the queries.
            mask: (b, s), boolean, False at padding; None: no padding, or the role ``cross``.
        """
        raise NotImplementedError

    def projections(self) -> nn.Module:
        """Return the module that projects x (b, t, dim) and context (b, s, dim) or None to q, k and v of every head.

        The module returns q (b, h, t, d), and k and v (b, g, s, d), where g divides h.
        """
        raise NotImplementedError

    def queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Change q (b, h, t, d) and k (b, g, s, d), before the position scheme acts on them."""
        raise NotImplementedError

    def scale(self) -> Tensor:
        """Return a factor of the products q . k, broadcastable to (h, 1, 1), in addition to the scale of the variant."""
        raise NotImplementedError

    def values(self, v: Tensor) -> Tensor:
        """Change v (b, g, s, d)."""
        raise NotImplementedError

    def value_function(self, context: Tensor) -> Callable[[Tensor], Tensor]:
        """Return ``values``. Override it when what the component adds depends on the input of the values.

        Args:
            context: (b, s, dim), the input of the values; while a decoder generates, only at the new positions.
        """
        return self.values

    def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Change logits, with the signature of ``score_mod`` in PyTorch's FlexAttention.

        Args:
            s: the logits, (b, h, t, s) or a part of them.
            b: the indices of their rows in the batch. This and the following arguments broadcast with ``s``.
            h: the indices of their heads.
            i: the positions of their queries among the keys.
            j: the positions of their keys.

        Returns:
            The changed logits, in the shape of ``s``.
        """
        raise NotImplementedError

    def score_function(self, context: Tensor, mask: Tensor | None) -> ScoreFunction:
        """Return ``score``. Override it when what the component adds depends on the input of the keys.

        Args:
            context: (b, s, dim), the input of the keys; while a decoder generates, only at the new positions.
            mask: (b, s), boolean, False at padding; it may also cover earlier positions. None: no padding.
        """
        return self.score

    def visible(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return True where query i may attend to key j, with the signature of ``mask_mod`` in PyTorch's FlexAttention."""
        raise NotImplementedError

    def visible_function(self, q: Tensor, k: Tensor, mask: Tensor | None) -> MaskFunction:
        """Return ``visible``. Override it when the component chooses the keys of a query by their content.

        Args:
            q: (b, h, t, d), after the position scheme.
            k: (b, h, s, d), after it, including keys of a cache or memory.
            mask: (b, s), boolean, False at padding; None: no padding.
        """
        return self.visible

    def weights(self, logits: Tensor, visible: Tensor) -> Tensor:
        """Return the weights (b, h, t, s) of the values, instead of the softmax of the logits.

        Args:
            logits: (b, h, t, s); the lowest finite number where a key is hidden.
            visible: boolean, broadcastable to (b, h, t, s), False when a key is hidden.
        """
        raise NotImplementedError

    def head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        """Change the results of the heads.

        Args:
            y: (b, h, t, d).
            x: (b, t, dim), the input of the queries.
            v: (b, h, s, d), the values.
        """
        raise NotImplementedError

    def output_projection(self) -> nn.Module:
        """Return the module that maps the concatenated heads (b, t, h d) to the output (b, t, dim)."""
        raise NotImplementedError


def token_readers(module: nn.Module) -> list[Component]:
    """Return the components in a module that read tokens."""
    return [component for component in module.modules() if isinstance(component, Component) and component.reads_tokens]


class Components(nn.ModuleDict):
    """The components of one attention layer, by name, in the order in which they act."""

    def at(self, place: str) -> list[Component]:
        """Return the components that change a place."""
        components: list[Component] = list(self.values())  # type: ignore[arg-type] modules of another class are not added
        return [component for component in components if place in component.places()]

    def apply_input(self, x: Tensor, context: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Change x (b, t, dim), and context (b, s, dim) if it ends with x; mask (b, s) may also cover earlier positions."""
        for component in self.at("input"):
            if component.config.role == "cross":
                x = component.input(x, None)
                continue
            inputs = x if context is None else context
            s = inputs.shape[1]
            inputs = component.input(inputs, None if mask is None else mask[:, mask.shape[1] - s :])
            x, context = inputs[:, s - x.shape[1] :], None if context is None else inputs
        return x, context

    def apply_queries_keys(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Change q (b, h, t, d) and k (b, g, s, d), and multiply q with the factors of the scale."""
        for component in self.at("queries_keys"):
            q, k = component.queries_keys(q, k)
        for component in self.at("scale"):
            q = q * component.scale().to(q.dtype)
        return q, k

    def apply_values(self, v: Tensor, context: Tensor) -> Tensor:
        """Change v (b, g, s, d); context (b, s, dim) is the input of the values."""
        for component in self.at("values"):
            v = component.value_function(context)(v)
        return v

    def score_functions(self, context: Tensor, mask: Tensor | None) -> list[ScoreFunction]:
        """Return the functions of the logits; context (b, s, dim) is the input of the keys."""
        return [component.score_function(context, mask) for component in self.at("score")]

    def mask_functions(self, q: Tensor, k: Tensor, mask: Tensor | None) -> tuple[MaskFunction, ...]:
        """Return the functions that hide keys from q (b, h, t, d) among k (b, h, s, d), windows aside; mask (b, s)."""
        components = [component for component in self.at("visible") if component.window is None]
        return tuple(component.visible_function(q, k, mask) for component in components)

    def smallest_window(self, window: int | None = None) -> int | None:
        """Return the smallest of ``window`` and the windows of all components; None without any."""
        windows = [w for w in (window, *(component.window for component in self.at("visible"))) if w is not None]
        return min(windows) if windows else None

    def weight_function(self) -> WeightFunction | None:
        """Return the function that replaces the softmax, or None."""
        return next((component.weights for component in self.at("weights")), None)

    def apply_head_outputs(self, y: Tensor, *, x: Tensor, v: Tensor) -> Tensor:
        """Change the results y (b, h, t, d) of the heads; x (b, t, dim) and v (b, h, s, d) as in ``Component``."""
        for component in self.at("head_outputs"):
            y = component.head_outputs(y, x=x, v=v)
        return y


def missing_places(component: type[Component], places: frozenset[str]) -> list[str]:
    """Return the places that a component changes and a variant with ``places`` does not have."""
    return [place for place in component.places() if place not in places | {"input"}]


def without_place(component: type[Component]) -> str | None:
    """Return the reason why a class is no component, or None: it implements the method of no place."""
    if component.places():
        return None
    own = [name for name in vars(component) if not name.startswith("_") and not hasattr(Component, name)]
    misspelt = next((f"; {name}{guess}" for name in own if (guess := nearest(name, PLACES))), "")
    return f"changes no place: expected one of the methods {', '.join(PLACES)}{misspelt}"


def exclusive_pair(components: Sequence[tuple[N, type[Component]]]) -> tuple[N, N, str] | None:
    """Return the first two of some named components that replace the same place, and the place, or None."""
    for place in REPLACED:
        replacing = [name for name, component in components if place in component.places()]
        if len(replacing) > 1:
            return replacing[0], replacing[1], place
    return None

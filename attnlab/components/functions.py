"""Functions as components: ``score_mod`` and ``mask_mod`` of PyTorch's FlexAttention, without a class.

A function is one of three kinds:

- ``(score, b, h, q_idx, kv_idx)`` changes a logit.
- ``(b, h, q_idx, kv_idx)`` returns True where a query may attend to a key.
- A function of options that returns one of these two, for example the functions of Attention Gym. Its annotation of the result,
  ``-> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]`` for a function of the logit, says which.

``q_idx`` is the position of the query among the keys: with a memory or a cache, it does not start from 0. All arguments are
tensors that broadcast with each other. In the role ``cross``, positions of queries and of keys have no common origin; a
function that compares them declares the others by an attribute: ``my_mask.roles = {"causal", "bidirectional"}``. In a study:

    variant: {name: dense, with: [{name: my.py:soft_cap}, {name: "attn_gym.mods:generate_tanh_softcap", soft_cap: 50}]}
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, get_args, get_type_hints

from torch import Tensor

from attnlab.components.base import ROLES, Component, ComponentConfig
from attnlab.errors import UserError
from attnlab.registry import source

KINDS = {5: "score", 4: "visible"}  # number of arguments -> the method of a component


class _Roles:
    """The roles that a function declares, also after it was registered; by default all.

    Raises:
        UserError: the function declares something else than a set of roles.
    """

    def __get__(self, component: object, cls: Any) -> frozenset[str]:
        function: Any = getattr(cls, "function", None)
        roles = getattr(function, "roles", ROLES)
        if isinstance(roles, str) or not set(roles) <= set(ROLES):
            message = f"{cls.__name__}.roles: expected a set of the roles {', '.join(ROLES)}, got {roles!r}"
            raise UserError(message, source(function))
        return frozenset(roles)


class FunctionComponent(Component):
    """Base class of components that are made of a function.

    Attributes:
        function: the function, as the user wrote it.
    """

    permutation_equivariant = False  # nothing is known about the function
    roles: ClassVar[Any] = _Roles()
    function: Callable[..., Any]

    def __init__(self, config: ComponentConfig, **options: Any) -> None:
        super().__init__(config)
        self.options = options
        self._mod = self._function()

    def _function(self) -> Callable[..., Tensor]:
        """Return the function of the logit or the indices."""
        function = type(self).function
        return function(**self.options) if _kind_of_result(function) else function

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by the function: its class has no name to import, and functions within functions cannot be."""
        state = {name: value for name, value in self.__dict__.items() if name != "_mod"}
        return _empty, (type(self).function,), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._mod = self._function()


class _Score(FunctionComponent):
    def score(self, s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self._mod(s, b, h, i, j)


class _Visible(FunctionComponent):
    def visible(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self._mod(b, h, i, j)


@cache  # the same class for each use of a function
def function_component(function: Callable[..., Any]) -> type[Component]:
    """Return the component class of a function.

    Args:
        function: ``(score, b, h, q_idx, kv_idx)``, ``(b, h, q_idx, kv_idx)``, or a function of options that returns one of
            these. The component takes the options of the function.

    Raises:
        UserError: the function is of none of these kinds.

    Examples:
        >>> from attnlab.components import ComponentConfig
        >>> def soft_cap(score, b, h, q_idx, kv_idx):
        ...     return 20 * (score / 20).tanh()
        >>> function_component(soft_cap).places()
        ('score',)
    """
    parameters = inspect.signature(function).parameters.values()
    of_result = _kind_of_result(function)
    kind = of_result or KINDS.get(len([p for p in parameters if p.kind is not p.KEYWORD_ONLY]))
    if kind is None:
        raise UserError(
            "expected a function (score, b, h, q_idx, kv_idx), a function (b, h, q_idx, kv_idx), or one of options whose "
            "result is annotated as such a function (-> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], with a fifth "
            f"Tensor for the score), got {function.__name__}{inspect.signature(function)}",
            source(function),
        )
    options = [p.replace(kind=p.KEYWORD_ONLY) for p in parameters] if of_result else []
    config = inspect.Parameter("config", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    cls: Any = type(
        function.__name__,
        (_Score if kind == "score" else _Visible,),
        {
            "function": staticmethod(function),
            "paper": "",
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__signature__": inspect.Signature([config, *options]),
            "__wrapped__": function,  # its source, for lists and messages
        },
    )
    return cls


def _kind_of_result(function: Callable[..., Any]) -> str | None:
    """Return the method of a component that the result of a function has the arguments of; None for other results."""
    try:
        result = get_type_hints(function).get("return")
    except Exception:  # names that only a type checker imports
        return None
    arguments = get_args(result)
    return KINDS.get(len(arguments[0])) if arguments and isinstance(arguments[0], list) else None


def _empty(function: Callable[..., Any]) -> Component:
    cls = function_component(function)
    return cls.__new__(cls)

"""Rules on resolved configurations: the checks of every part, in order, and the first reason why one cannot run.

The rules on the components of a variant are on the places that they change, each other, the backend and the model.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attnlab._util.packages import missing
from attnlab._util.raise_site import describe_error
from attnlab.components import Component, Components
from attnlab.components.base import PLACES, exclusive_pair, missing_places, without_place
from attnlab.config.grid import Cell
from attnlab.config.run import RunConfig
from attnlab.config.types import LAYERS, Named
from attnlab.errors import UserError, nearest, one_line
from attnlab.models.base import model_class
from attnlab.models.encoder_decoder import EncoderDecoder
from attnlab.models.parts import Part, component_classes, parts, position_config
from attnlab.nn import attention
from attnlab.nn.attention import BACKENDS, FUNCTION_BACKENDS
from attnlab.nn.attention import unsupported as unsupported_backend
from attnlab.registry import with_defaults
from attnlab.tasks import Task
from attnlab.training import device, distributed, optim
from attnlab.variants import Setting
from attnlab.variants.base import signature_mistake

NamedComponent: TypeAlias = tuple[Named, type[Component]]

Rule: TypeAlias = Callable[[RunConfig, Task], str | None]


def supported_backends(config: RunConfig, part: Part, *, device: str) -> tuple[str, ...]:
    """Return the backends that the variant of a part supports, and each of its components; ``flex`` where it can run."""
    components, backends = component_classes(part.variant), part.variant_class.backends
    supported = [backend for backend in backends if not any(_needs_functions(c, backend) for _, c in components)]
    if "flex" in supported:
        head_dim = part.variant_class.head_dim(config.model.dim, part.heads(config))
        if unsupported_backend("flex", device=device, head_dim=head_dim, dropout=config.model.attention_dropout):
            supported.remove("flex")
    return tuple(supported)


def resolve_backend(cell: Cell, config: RunConfig, parts: Sequence[Part], *, device: str) -> str:
    """Return the backend of all parts of a model.

    Raises:
        UserError: there is no such backend.
    """
    name = config.backend
    if name not in (*BACKENDS, "auto"):
        known = (*BACKENDS, "auto")
        message = f"unknown backend {name!r}{nearest(name, known)}: expected one of {', '.join(known)}"
        raise UserError(message, cell.where("backend"))
    if name != "auto":
        return name
    parts = [part for part in parts if part.chooses_backend] or parts
    hooks = {part.position_class.hook for part in parts}
    supported = [supported_backends(config, part, device=device) or part.variant_class.backends for part in parts]
    common = tuple(backend for backend in supported[0] if all(backend in backends for backends in supported))
    hook = "bias" if "bias" in hooks else parts[0].position_class.hook
    return attention.resolve_backend(device, hook=hook, backends=common or supported[0], compiled=config.train.compile)


def without_cache(part: Part) -> list[str]:
    """Return the labels of the variant and the components of a part with which decoding cannot use a cache."""
    variant = [] if part.variant_class.supports_cache else [part.variant.label]
    return variant + [named.label for named, cls in component_classes(part.variant) if not cls.supports_cache]


def _places(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require that the component changes a place, that the variant supports it there, and a name for its parameters."""
    named, cls = component
    supported = part.variant_class.places | {"input"}
    if reason := without_place(cls):
        return reason
    if "." in named.short_name or hasattr(Components({}), named.short_name):
        return f"expected another name: the parameters of a variant cannot be called {named.short_name!r}"
    if missing := missing_places(cls, part.variant_class.places):
        listed = ", ".join(place for place in PLACES if place in supported)
        name = Named(name=part.variant.name, options=part.variant.options).label
        return f"changes {' and '.join(missing)}, where {name} supports no component (supports {listed})"
    return None


def _declared(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require what the component declares: its roles, memory, compilation, and its options."""
    named, cls = component
    return cls.unsupported(_setting(config, part, with_defaults(cls, named.options)))


def _setting(config: RunConfig, part: Part, options: Mapping[str, Any]) -> Setting:
    """Return how a part uses its variant, or a component of it, with these options."""
    model, heads = config.model, part.heads(config)
    return Setting(
        role=part.role,
        hook=part.position_class.hook,
        memory=model.mem_len > 0,
        backend=part.backend(config),
        dim=model.dim,
        heads=heads,
        options=options,
        head_dim=part.variant_class.head_dim(model.dim, heads),
        device=config.machine.device,
        precision=config.train.precision,
        attention_dropout=model.attention_dropout,
        attention_bias=model.attention_bias,
        initialization=model.initialization,
    )


def _component_backend(config: RunConfig, part: Part, component: NamedComponent) -> str | None:
    """Require a backend that computes functions of logits or weights, if the component has one."""
    named, cls = component
    if _needs_functions(cls, part.backend(config)):
        place = next(place for place in cls.places() if part.backend(config) not in FUNCTION_BACKENDS.get(place, BACKENDS))
        return (
            f"changes {place}, which requires the backend {' or '.join(FUNCTION_BACKENDS[place])}, got {part.backend(config)}"
        )
    return None


def _needs_functions(component: type[Component], backend: str) -> bool:
    """Return True when a component changes a place that ``backend`` does not compute by functions."""
    return any(backend not in FUNCTION_BACKENDS.get(place, BACKENDS) for place in component.places())


def _exclusive(components: list[NamedComponent]) -> str | None:
    """Require at most one component at each place that holds one computation."""
    pair = exclusive_pair(components)
    if pair is None:
        return None
    first, second, place = pair
    return f"{first.label} and {second.label} both replace {place}, which has one computation: keep one of them"


def unsupported(config: RunConfig, task: Task) -> str | None:
    """Return the first reason why a configuration cannot run on this machine, or None.

    Args:
        config: resolved: ``backend``, ``machine.device`` and ``train.precision`` are not ``auto``.
        task: of ``config``; its data need not be prepared.
    """
    try:
        return next((reason for rule in RULES if (reason := rule(config, task)) is not None), None)
    except UserError:
        raise
    except Exception as error:  # the rules call methods of the user's classes, which may raise anything
        classes = [cls for part in parts(config, task) for _, cls in part.classes]
        return one_line(describe_error(error, *classes, type(task)))


def _layers(config: RunConfig, task: Task) -> str | None:
    """Require a block for each entry of ``model.layers``, and the same positions added to the input in all of them."""
    layers, depth = config.model.layers, config.model.depth
    if layers is None:
        return None
    if len(layers.pattern) > depth:
        return f"{LAYERS}: expected at most {depth} entries, the depth of the model (model.depth), got {len(layers.pattern)}"
    entries = parts(config, task)
    embedded = next((part for part in entries if part.position_class.hook == "embed"), None)
    for part in entries:
        if embedded is not None and part.position != embedded.position:
            reason = f"{embedded.position.label} positions of {embedded.section} are added to the input, which all blocks read"
            return f"{part.section}: expected the same position scheme, because {reason}, got {part.position.label}"
    return None


def _loops(config: RunConfig, task: Task) -> str | None:
    """Require a model whose blocks can be run several times: one stack, without a memory of each run or streams that grow."""
    if config.model.loops == 1:
        return None
    kind = model_class(config, task)
    if issubclass(kind, EncoderDecoder):
        return "model.loops: expected 1 in an encoder-decoder"
    if config.model.mem_len or config.model.residual == "attention_residuals":
        return "model.loops: expected 1 with model.mem_len or residual: attention_residuals"
    return None


def _block(config: RunConfig, task: Task) -> str | None:
    """Require that the blocks of the model support its norms and residual connections."""
    model = model_class(config, task)
    blocks = [model.block, *([model.decoder_block] if issubclass(model, EncoderDecoder) else [])]
    return next((reason for block in blocks if (reason := block.unsupported(config.model)) is not None), None)


def _packages(config: RunConfig, task: Task) -> str | None:
    """Require the packages of the task."""
    reason = missing(*task.packages)
    return reason and f"task {config.task.label} {reason}"


def _parts(config: RunConfig, task: Task) -> str | None:
    """Require of each part that its variant, components, position scheme and backend support their use."""
    rules = (_variant, _components, _position, _backend)
    reasons = ((part, rule(config, task, part)) for part in parts(config, task) for rule in rules)
    return next((f"{part.section}: {reason}" if part.section else reason for part, reason in reasons if reason), None)


def _variant(config: RunConfig, task: Task, part: Part) -> str | None:
    """Require that the variant supports its role, the hook of the position scheme, the backend and the model."""
    variant = part.variant_class
    reason = signature_mistake(variant) or variant.unsupported(
        _setting(config, part, with_defaults(variant, part.variant.options))
    )
    if reason and part.entry is not None and part.position_class.hook not in (*variant.hooks, "none"):
        reason += f"; an entry can have its own: {{name: {part.variant.name}, position: none}}"
    return reason and f"{part.variant.label}: {reason}"


def _components(config: RunConfig, task: Task, part: Part) -> str | None:
    """Require that the components of the variant support the part, its backend and each other."""
    components = component_classes(part.variant)
    rules = (_places, _declared, _component_backend)
    reasons = ((named, rule(config, part, (named, cls))) for named, cls in components for rule in rules)
    return next((f"{named.label}: {reason}" for named, reason in reasons if reason), None) or _exclusive(components)


def _position(config: RunConfig, task: Task, part: Part) -> str | None:
    """Require that the position scheme supports the role, the width of a head and its use by the variant."""
    if part.role == "cross" and part.position_class.hook == "embed":
        return f"{part.position.name}: positions that are added to the input belong to the encoder and the decoder"
    options = with_defaults(part.position_class, part.position.options)
    reason = part.position_class.unsupported(position_config(config, task, part), options=options)
    return reason and f"{part.position.name}: {reason}"


def _backend(config: RunConfig, task: Task, part: Part) -> str | None:
    """Require that the backend supports the width of a head, the precision and the device."""
    return attention.unsupported(
        part.backend(config),
        device=config.machine.device,
        head_dim=part.variant_class.head_dim(config.model.dim, part.heads(config)),
        precision=config.train.precision,
        dropout=config.model.attention_dropout,
    )


def _memory(config: RunConfig, task: Task) -> str | None:
    """Require a language model, and consecutive segments in its evaluation, for memory."""
    if not config.model.mem_len:
        return None
    if config.evaluate.protocol == "sliding":
        return "evaluate.protocol: sliding windows overlap, so memory (model.mem_len) cannot be carried between them"
    if task.kind in ("encoder_decoder", "masked_language_model"):
        return f"memory (model.mem_len) requires a language model, got {task.kind}"
    return None


def _tied_embeddings(config: RunConfig, task: Task) -> str | None:
    """Require a model that predicts tokens for tied embeddings: only its output layer has the shape of its embedding."""
    if config.model.tie_embeddings and task.kind == "classifier":
        return "model.tie_embeddings requires a model that predicts tokens, got a classifier"
    return None


def _frozen(config: RunConfig, task: Task) -> str | None:
    """Require as many blocks as are frozen."""
    frozen, depth = config.train.frozen, config.model.depth
    if isinstance(frozen, int) and frozen > depth:
        return f"train.frozen: expected at most {depth} blocks, the depth of the model, got {frozen}"
    return None


RULES: tuple[Rule, ...] = (
    _packages,
    lambda config, task: device.unsupported(config.machine.device, compile=config.train.compile),
    _layers,
    _loops,
    _block,
    _parts,
    lambda config, task: task.unsupported(config),
    lambda config, task: distributed.unsupported(config) if config.machine.processes_per_run > 1 else None,
    _memory,
    _tied_embeddings,
    _frozen,
    lambda config, task: optim.unsupported(config.train),
)

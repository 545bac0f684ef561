"""Rules on resolved configurations: the checks of every part, in order, and the first reason why one cannot run."""

from collections.abc import Callable
from typing import TypeAlias

from attnlab._util.raise_site import describe_error
from attnlab.config.run import RunConfig
from attnlab.errors import UserError, one_line
from attnlab.models.backbone import position_config
from attnlab.nn import attention
from attnlab.positions import Position
from attnlab.registry import with_defaults
from attnlab.tasks import Task
from attnlab.training import device, distributed
from attnlab.variants import Variant
from attnlab.variants.base import signature_mistake

Rule: TypeAlias = Callable[[RunConfig, Task, type[Variant], type[Position]], str | None]


def unsupported(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Return the first reason why a configuration cannot run on this machine, or None.

    Args:
        config: resolved: ``backend``, ``machine.device`` and ``train.precision`` are not ``auto``.
        task: of ``config``; its data need not be prepared.
        variant: the class that ``config.variant`` names.
        position: the class that ``config.position`` names.
    """
    try:
        reasons = (rule(config, task, variant, position) for rule in RULES)
        return next((reason for reason in reasons if reason is not None), None)
    except UserError:
        raise
    except Exception as error:  # the rules call methods of the user's classes, which may raise anything
        return one_line(describe_error(error, variant, position, type(task)))


def _machine(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require that the machine has the device and, if the run is compiled, a compiler for it."""
    return device.unsupported(config.machine.device, compile=config.train.compile)


def _variant(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require that the variant supports its role, the hook of the position scheme, the backend and the model."""
    reason = signature_mistake(variant) or variant.unsupported(
        role=task.role,
        hook=position.hook,
        memory=config.model.mem_len > 0,
        backend=config.backend,
        dim=config.model.dim,
        heads=config.model.heads,
        device=config.machine.device,
        precision=config.train.precision,
        attention_dropout=config.model.attention_dropout,
        attention_bias=config.model.attention_bias,
        initialization=config.model.initialization,
        compile=config.train.compile,
        options=with_defaults(variant, config.variant.options),
    )
    return reason and f"{config.variant.label}: {reason}"


def _position(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require that the position scheme supports the role, the width of a head and its use by the variant."""
    assert config.position is not None  # resolved
    options = with_defaults(position, config.position.options)
    reason = position.unsupported(position_config(config, task), options=options)
    return reason and f"{config.position.name}: {reason}"


def _backend(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require that the backend supports the width of a head, the precision and the device."""
    return attention.unsupported(
        config.backend,
        device=config.machine.device,
        head_dim=variant.head_dim(config.model.dim, config.model.heads),
        precision=config.train.precision,
        compile=config.train.compile,
    )


def _task(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require that the task supports the model and the protocols of training and evaluation."""
    return task.unsupported(config)


def _processes(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require a device for each process of the run, and a batch that can be divided among the processes."""
    return distributed.unsupported(config)


def _sliding_memory(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require consecutive segments in the evaluation of a model with memory."""
    if config.model.mem_len and config.evaluate.protocol == "sliding":
        return "evaluate.protocol: sliding windows overlap, so memory (model.mem_len) cannot be carried between them"
    return None


def _tied_embeddings(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require a language model for tied embeddings: only its output layer has the shape of its embedding."""
    if config.model.tie_embeddings and task.kind != "language_model":
        return "model.tie_embeddings requires a language model, got a classifier"
    return None


def _frozen(config: RunConfig, task: Task, variant: type[Variant], position: type[Position]) -> str | None:
    """Require as many blocks as are frozen."""
    frozen, depth = config.train.frozen, config.model.depth
    if isinstance(frozen, int) and frozen > depth:
        return f"train.frozen: expected at most {depth} blocks, the depth of the model, got {frozen}"
    return None


RULES: tuple[Rule, ...] = (
    _machine,
    _variant,
    _position,
    _backend,
    _task,
    _processes,
    _sliding_memory,
    _tied_embeddings,
    _frozen,
)

"""Check the variants of a study against the contract, each at the study's shapes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from attnlab._util.code_digest import state_folder
from attnlab._version import __version__
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.parts import Part, block_parts, parts, position_config
from attnlab.nn import attention
from attnlab.positions import Position
from attnlab.registry import TASKS
from attnlab.testing.checks import CHECKS, Check, CheckTarget, Failure
from attnlab.testing.checks.sizes import MAX_LOGITS, Sizes
from attnlab.testing.composition import ComponentSpec, compose
from attnlab.testing.contract import CheckResult, CheckResults, run_checks, select_checks

# The checks before a study runs: those of mistakes that a table of results does not show.
QUICK = ("shapes", "causality by value", "full visibility", "padding", "batch independence", "memory", "masked memory")
QUICK_ALSO = ("training mode", "precisions and modes", "dropout", "dropout share")
PASSED = "checked-variants.txt"  # in the user's state folder: a digest in each line of what passed the quick check
MAX_LENGTH = 1024  # of longer sequences of a study, so many positions are checked


@dataclass(frozen=True)
class StudyTarget:
    """A variant of a study with its components, position scheme and shapes.

    Attributes:
        label: describes it, as in ``dense, position rotary, causal, 4 heads, width 128, length 256``.
        target: what is checked.
        own_code: True when the variant, a component or the position scheme is not attnlab's.
        digest: of the label, the version and the user's code.
    """

    label: str
    target: CheckTarget
    own_code: bool
    digest: str


def study_targets(configs: Iterable[RunConfig], *, device: str = "cpu", seed: int = 0) -> list[StudyTarget]:
    """Return each different combination of variant, position scheme, role and shapes of a study once.

    Args:
        configs: resolved configurations of the cells that are not refused.
        device: where the checks run.
        seed: of the borders that are checked in long sequences.
    """
    targets: dict[str, StudyTarget] = {}
    for config in configs:
        task = TASKS.get(config.task.name)(**config.task.options)
        for part in parts(config, task):
            found = _study_target(config, task, part, device, seed)
            targets.setdefault(found.label, found)
    return list(targets.values())


def _study_target(config: RunConfig, task: Any, part: Part, device: str, seed: int) -> StudyTarget:
    model, heads = config.model, part.heads(config)
    variant = part.variant_class
    if part.variant.components:
        specs = [ComponentSpec.of({"name": c.name, **c.options}) for c in part.variant.components]
        variant = compose(variant, specs)
    backend = part.backend(config)
    if backend not in variant.backends or attention.unsupported(backend, device=device):
        backend = variant.backends[0]
    length = min(task.length, MAX_LENGTH)
    layers = tuple(block.layer for block in block_parts(config, task, part.name) if block.entry == part.entry)
    sizes = _sizes(length, model.mem_len, heads)
    target = CheckTarget(
        variant,
        part.variant.options,
        _bound(part.position_class, part.position.options),
        backend,
        device,
        scheme_name=part.position.name,
        seed=seed,
        study_sizes=sizes,
        study_length=position_config(config, task, part).length,
        requested_heads=heads,
        requested_dim=model.dim,
        study_layers=layers,
        longest=task.length,
        precisions=(config.train.precision,),
    ).with_supported_shape((part.role,))
    shapes = f"{part.role}, {heads} head{'s' * (heads > 1)}, width {model.dim}, length {length}"
    shapes += f", memory {model.mem_len}" if model.mem_len else ""
    label = f"{part.variant.label}, position {part.position.label}, {shapes}, backend {backend}"
    own_code = any(not cls.__module__.startswith("attnlab.") for _, cls in part.classes)
    code = "\n".join([__version__, label, *sorted([*config.sources.values(), *config.packages.values()])])
    return StudyTarget(label, target, own_code, hashlib.sha256(code.encode()).hexdigest())


def _sizes(length: int, memory: int, heads: int) -> Sizes:
    """Return the sizes of a study, with a batch of at most four sequences."""
    part = max(1, length // 4)
    memory = min(memory, MAX_LENGTH) or part
    total = memory + length + 2 * part
    batch = max(2, min(4, MAX_LOGITS // (heads * length * total)))
    return Sizes(batch, length, length, memory, part, part, "the shapes of the study")


def _bound(scheme: type[Position], options: Mapping[str, Any]) -> type[Position]:
    """Return the position scheme with its options as defaults, as a class of this module, where pickle looks for it."""
    if not options:
        return scheme

    class Bound(scheme):  # type: ignore[misc, valid-type]
        def __init__(self, config: Any) -> None:
            super().__init__(config, **options)

    Bound.__name__ = Bound.__qualname__ = f"{scheme.__name__} {dict(options)}"
    setattr(sys.modules[__name__], Bound.__name__, Bound)
    return Bound


def check_study(
    targets: Iterable[StudyTarget],
    *,
    only: Collection[str] | None = None,
    start: Callable[[str], None] | None = None,
) -> Iterator[tuple[StudyTarget, CheckResults]]:
    """Check each target at small sizes, with its heads and width, and at the shapes of the study.

    Args:
        targets: as ``study_targets`` returns them.
        only: names of checks (keys of ``CHECKS``). None: all.
        start: called with a description of each check before it runs.

    Yields:
        Each target, with the results of its checks.
    """
    for study_target in targets:
        target = study_target.target
        refused = [CheckResult(f"role {role}", "refused", text) for role, text in target.unsupported_roles.items()]
        checks = [_as_last_block(check) for check in select_checks(CHECKS, only)] if target.roles else []
        yield (
            study_target,
            run_checks(checks, target, classes=(target.variant, target.scheme), refusals=refused, start=start),
        )


def _as_last_block(check: Check[CheckTarget]) -> Check[CheckTarget]:
    """Return a check that runs as the first block and as the last one, if it runs at no sizes of the study, which do so."""
    if hasattr(check.run, "__wrapped__"):  # by ``at_drawn_sizes``
        return check

    def run(target: CheckTarget) -> str:
        detail, last = check.run(target), max(target.study_layers, default=0)
        if last != target.layer:
            try:
                check.run(replace(target, layer=last))
            except Failure as failure:
                raise Failure(f"{failure.case} (in block {last})", failure.advice) from failure
        return detail

    return check._replace(run=run)


def require_correct_variants(configs: Iterable[RunConfig], *, start: Callable[[str], None] | None = None) -> int:
    """Check the user's variants, components and position schemes of a study quickly, at the study's shapes alone.

    The ones of attnlab are covered by its tests. What has passed is not checked again until its code or its shapes change.

    Args:
        configs: resolved configurations of the cells that are not refused.
        start: called with a description of each check before it runs.

    Returns:
        How many were checked.

    Raises:
        UserError: a check failed.
    """
    own = [target for target in study_targets(configs) if target.own_code and not _has_passed(target.digest)]
    for study_target in own:
        target = study_target.target
        if target.study_sizes is not None:
            target = replace(target, sizes=target.study_sizes, layer=max(target.study_layers), longest=0)
        checks = select_checks(CHECKS, [*QUICK, *QUICK_ALSO]) if target.roles else []
        for result in run_checks(checks, target, classes=(target.variant, target.scheme), start=start):
            if result.status == "failed":
                name = study_target.label.partition(",")[0]
                raise UserError(
                    f"{name} fails the check {result.check!r}: {result.detail}. {result.advice} "
                    "attnlab check --study runs every check; --no-check starts the study as it is",
                    study_target.label,
                )
        _remember(study_target.digest)
    return len(own)


def _has_passed(digest: str) -> bool:
    """Return whether a configuration with this digest of code and shapes has passed, so that resuming a study is quick."""
    with suppress(OSError, ValueError):
        return digest in (state_folder() / PASSED).read_text(encoding="utf-8").split()
    return False


def _remember(digest: str) -> None:
    """Record that a configuration has passed. If the folder cannot be written, it is checked again next time."""
    with suppress(OSError):
        state_folder().mkdir(parents=True, exist_ok=True)
        with (state_folder() / PASSED).open("a", encoding="utf-8") as file:
            file.write(f"{digest}\n")

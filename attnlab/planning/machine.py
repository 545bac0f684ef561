"""Resolve each ``auto`` of the machine in the plan: ``machine.matmul_precision``, ``machine.reuse_memory`` and
``train.precision``, and with the former two the backend of long sequences. Also note configurations in which bf16 is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnlab.config.axes import text
from attnlab.config.grid import CellConfig
from attnlab.config.run import RunConfig
from attnlab.nn import processor
from attnlab.planning.resolve import ResolvedCell, Resolver
from attnlab.planning.traces import BuildError
from attnlab.training.costs import micro_batch, one_step
from attnlab.training.device import resolve_device

MIN_SPEEDUP = 1.2  # of bf16 products where steps are not measured; smaller ratios may be noise
# Of bf16 products below which steps are not measured: those of a processor without bf16 are up to 150 times slower. Small
# products say no more than that: with AMX, they are 1.2 to 2.4 times as fast in bf16, and those of a step 3.5 to 7 times.
CAN_PAY = 0.5
NO_SLOWER = 0.97  # smallest speedup of measured steps that is no slowdown
SURE = 0.98  # the share of resampled measurements in which a field must pay
RESAMPLES = 100
MAX_DIFFERENCE = 1e-5  # of gradients: another order of sums changes them by 1e-6 or less, products in bf16 by 1e-3
MAX_BF16_DIFFERENCE = 0.1  # of gradients in bf16 from those in fp32: 0.002 in the quickstart; a broken kernel changes them by 1
MAX_FLOPS = 1e10  # of a measured step: a fraction of a second
# Attention by `blocked` took at most the time of `sdpa` up to 512 positions, and less at any length where weights are dropped
# (Zen 5, fp32 and bf16, 4 to 8 heads of width 16 to 64); from 1,024 on, `sdpa` was up to 1.7 times as fast.
LONG = 1024

PRECISION, MATMUL, MEMORY, BACKEND = "train.precision", "machine.matmul_precision", "machine.reuse_memory", "backend"
DEFAULTS: dict[str, Any] = {MATMUL: "highest", MEMORY: False, PRECISION: "fp32", BACKEND: "blocked"}
LEVERS = (MATMUL, PRECISION, MEMORY)  # in the order in which they are chosen
FASTER = {MATMUL: "medium", PRECISION: "bf16", MEMORY: True, BACKEND: "sdpa"}  # the values that may be faster on a CPU
# Of training steps in one of the measured cells. Products within MAX_DIFFERENCE do not change a result, so a small gain
# suffices. bf16 changes results, and may slow narrow models: on Zen 4, steps of the quickstart's cells were 1.2 to 1.6 times as
# fast, but 0.9 to 1.1 times as fast with width 16. Kept buffers gain more in a run than in these steps: on Zen 5, runs of the
# quickstart were 1.27 times as fast where its steps were 1.04 to 1.16 times as fast.
MIN_STEP_SPEEDUP = {MATMUL: 1.05, PRECISION: 1.1, MEMORY: 1.05, BACKEND: 1.1}
ON_CUDA = {MATMUL: "other values compute products in TF32, with 10 bits", MEMORY: "it concerns memory of the CPU"}

Resolve = Callable[[CellConfig], ResolvedCell]


@dataclass(frozen=True)
class AutoSetting:
    """The value of a field that a study leaves to the plan, and the reason for it."""

    value: Any
    reason: str


AutoMachine = Mapping[str, Mapping[str, AutoSetting]]  # type of device -> path of a field -> its value


@dataclass(frozen=True)
class StepTime:
    """A measured training step of one cell.

    Attributes:
        changed: the paths of the fields that have their value in ``FASTER``, in the order of that table; the others have their
            default.
        seconds: of a step, of one thread.
        difference: of the loss and the gradients from the defaults' loss and gradients, relative to their norms; the larger
            one.
        rounds: seconds in each round of the measurement, in which all steps of a cell take turns; empty: not known.
    """

    changed: tuple[str, ...]
    seconds: float
    difference: float
    rounds: tuple[float, ...] = ()


# Returns, for each configuration, a step with each set of changed fields among the given paths; None if that fails.
MeasureSteps = Callable[[Sequence[RunConfig], Sequence[str]], "Sequence[Sequence[StepTime]] | None"]


def auto_paths(configs: Iterable[RunConfig]) -> list[str]:
    """Return the paths of the fields that are ``auto`` in a configuration, but for ``backend``, which mostly is."""
    configs = list(configs)
    return [path for path in LEVERS if any(config.value(path) == "auto" for config in configs)]


def resolve_machine(
    cells: Sequence[CellConfig],
    resolver: Resolver,
    *,
    recorded: Callable[[], AutoMachine] = dict,
    measure: MeasureSteps | None = None,
) -> tuple[list[CellConfig], dict[str, dict[str, AutoSetting]], list[str]]:
    """Return the cells with each ``auto`` of the machine resolved, the decisions, and a note on each.

    Cells on one type of device get the same values, so that they can be compared: the values of the study's recorded runs, so
    that a resumed study continues them; otherwise the values that were measured to be faster, in every cell that has ``auto``.
    The backend is chosen for cells with long sequences that leave it and a field of ``machine`` open.

    Args:
        cells: all cells of a study.
        resolver: resolves a cell without ``auto``.
        recorded: returns the decisions that the study recorded; called only if a cell has ``auto``.
        measure: measures training steps; without it, the fields of ``machine`` keep their defaults, and precision depends on
            the time of matrix products alone.

    Raises:
        UserError: as ``resolver`` does.
    """
    resolved, notes = {id(cell): cell for cell in cells}, []
    earlier = recorded() if auto_paths(cell.config for cell in cells) else {}
    # What was decided stays, also for fields that an assignment sets in this plan alone.
    decisions = {kind: dict(settings) for kind, settings in earlier.items()}
    for kind in ("cpu", "cuda"):
        open_cells = [cell for cell in cells if auto_paths([cell.config]) and _kind(cell.config) == kind]
        paths = auto_paths(cell.config for cell in open_cells)
        known = {path: setting for path, setting in earlier.get(kind, {}).items() if path in paths}
        settings = dict(known)
        levers = [path for path in paths if path not in known]
        if PRECISION in levers:
            of_precision = [_with_settings(cell, settings) for cell in open_cells if cell.config.train.precision == "auto"]
            precision = _precision(kind, of_precision, resolver, least=MIN_SPEEDUP if measure is None else CAN_PAY)
            if kind == "cuda" or measure is None or precision.value == DEFAULTS[PRECISION]:
                settings[PRECISION] = precision
                levers.remove(PRECISION)
        if levers:
            with_settings = [_with_settings(cell, settings) for cell in open_cells]
            settings |= _levers(kind, with_settings, levers, resolver, measure)
        resolved |= {id(cell): _with_settings(cell, settings) for cell in open_cells}
        # Only a study without recorded runs may change its backend, and only one that leaves a field of `machine` open.
        backend = earlier.get(kind, {}).get(BACKEND)
        is_open = not known and any(path in levers for path in (MATMUL, MEMORY))
        if backend is not None or (kind == "cpu" and is_open and measure is not None):
            long = [id(cell) for cell in open_cells if _has_faster_backend(resolved[id(cell)], resolver)]
            if long and backend is None:
                backend = _levers(kind, [resolved[cell] for cell in long], [BACKEND], resolver, measure)[BACKEND]
            if long and backend is not None:
                settings[BACKEND] = backend
                resolved |= {cell: _with_settings(resolved[cell], {BACKEND: backend}) for cell in long}
        if settings:
            decisions[kind] = decisions.get(kind, {}) | settings
        for path, setting in sorted(settings.items(), key=lambda of_path: [*LEVERS, BACKEND].index(of_path[0])):
            is_recorded = path in earlier.get(kind, {})
            reason = f"the recorded runs of this study have it; to change it, set {path}" if is_recorded else setting.reason
            notes.append(f"{path}: auto is {text(setting.value)} on {kind}: {reason}")
    return list(resolved.values()), decisions, notes


# ---------------------------------------------------------------- by the time of training steps


def _levers(
    kind: str, cells: Sequence[CellConfig], paths: Sequence[str], resolver: Resolver, measure: MeasureSteps | None
) -> dict[str, AutoSetting]:
    """Return the values of fields for the cells that have ``auto`` in one of them."""
    cells = [cell for cell in cells if any(cell.config.value(path) == "auto" for path in paths)]
    if kind == "cuda":
        return {path: AutoSetting(DEFAULTS[path], ON_CUDA[path]) for path in paths}
    if measure is None:
        return _defaults(paths, "not measured")
    smallest_and_largest = _extremes(cells, resolver)
    if not smallest_and_largest:
        return _defaults(paths, "no cell can run")
    configs = [config for _, config in smallest_and_largest]
    times = measure(configs, paths)
    if times is None:
        return _defaults(paths, "training steps could not be measured")
    steps = {name: of_cell for (name, _), of_cell in zip(smallest_and_largest, times, strict=True)}
    return choose_levers(paths, steps, in_half=all(config.train.precision in processor.DTYPES for config in configs))


def choose_levers(
    paths: Sequence[str], times: Mapping[str, Sequence[StepTime]], *, in_half: bool = False
) -> dict[str, AutoSetting]:
    """Return the values of fields that pay, one after the other.

    A field leaves its default if loss and gradients stay the same, with the rounding of its precision, and training steps are
    at least ``MIN_STEP_SPEEDUP`` times as fast in one of the measured cells and no slower in the others (``NO_SLOWER``), in
    nearly all resamples of the rounds.

    Args:
        paths: the fields.
        times: name of a cell -> its step with each set of changed fields.
        in_half: whether the steps of all cells are in bf16 or fp16, in which backends round differently.
    """
    chosen: dict[str, AutoSetting] = {}
    steps = {name: {step.changed: step for step in of_cell} for name, of_cell in times.items()}
    changed: tuple[str, ...] = ()
    for path in paths:
        faster, candidate = f"{path.rpartition('.')[2]}: {text(FASTER[path])}", (*changed, path)
        pairs = [(of_cell[changed], of_cell[candidate]) for of_cell in steps.values()]
        differences = [step.difference for _, step in pairs]
        most = MAX_BF16_DIFFERENCE if PRECISION in candidate or (in_half and path == BACKEND) else MAX_DIFFERENCE
        if not all(difference <= most for difference in differences):  # NaN is not
            chosen[path] = AutoSetting(DEFAULTS[path], f"{faster} changes the gradients by {max(differences):.1g}")
            continue
        speedups = [before.seconds / after.seconds for before, after in pairs]
        names, ratios = " and ".join(map(repr, steps)), " and ".join(_shown(speedup, path) for speedup in speedups)
        reason = f"training steps of {names} are {ratios} times as fast with {faster}"
        share = _share(pairs, path)
        if share >= SURE:
            chosen[path] = AutoSetting(
                FASTER[path], f"{reason}, as measured, and the gradients differ by {max(differences):.1g}"
            )
            changed = candidate
        else:
            chosen[path] = AutoSetting(DEFAULTS[path], f"{reason}, {_because(speedups, path)}")
    return chosen


def is_clear(paths: Sequence[str], times: Mapping[str, Sequence[StepTime]]) -> bool:
    """Return whether nearly all resamples of the rounds agree on each field, so that another measurement would choose the same.

    Args:
        paths, times: as for ``choose_levers``. Differences of gradients, which do not vary, do not matter.
    """
    changed: tuple[str, ...] = ()
    for path in paths:
        steps = [{step.changed: step for step in of_cell} for of_cell in times.values()]
        share = _share([(of_cell[changed], of_cell[(*changed, path)]) for of_cell in steps], path)
        if 1 - SURE < share < SURE:
            return False
        changed = (*changed, path) if share >= SURE else changed
    return True


def _share(pairs: Sequence[tuple[StepTime, StepTime]], path: str) -> float:
    """Return the share of resamples of the rounds in which a field pays: 0 or 1 if the rounds are not known.

    Args:
        pairs: for each cell, the steps without and with the field.
    """
    if not all(before.rounds and len(before.rounds) == len(after.rounds) for before, after in pairs):
        return float(_pays([before.seconds / after.seconds for before, after in pairs], path))
    rng, pay = np.random.default_rng(0), 0
    ratios = [np.array(before.rounds) / np.array(after.rounds) for before, after in pairs]  # load slows both steps of a round
    for _ in range(RESAMPLES):
        rows = rng.integers(len(ratios[0]), size=len(ratios[0]))  # the cells take their steps at the same time
        pay += _pays([float(np.median(of_cell[rows])) for of_cell in ratios], path)
    return pay / RESAMPLES


def _pays(speedups: Sequence[float], path: str) -> bool:
    return max(speedups) >= MIN_STEP_SPEEDUP[path] and min(speedups) >= NO_SLOWER


def _shown(speedup: float, path: str) -> str:
    """Return a speedup with two decimals, rounded down if it would otherwise seem to reach a limit below which it is."""
    rounded = float(f"{speedup:.2f}")
    is_below = any(speedup < limit <= rounded for limit in (MIN_STEP_SPEEDUP[path], NO_SLOWER))
    return f"{rounded - 0.01 * is_below:.2f}"


def _because(speedups: Sequence[float], path: str) -> str:
    """Return why a field keeps its default."""
    if min(speedups) < NO_SLOWER:
        return "slower" if len(speedups) == 1 or max(speedups) < 1 else "slower in one of them"
    if max(speedups) < MIN_STEP_SPEEDUP[path]:
        return f"less than {MIN_STEP_SPEEDUP[path]:g}"
    limit = MIN_STEP_SPEEDUP[path] if max(speedups) / MIN_STEP_SPEEDUP[path] < min(speedups) / NO_SLOWER else NO_SLOWER
    return f"too close to {limit:g} to be sure"


def _defaults(paths: Sequence[str], reason: str) -> dict[str, AutoSetting]:
    return {path: AutoSetting(DEFAULTS[path], reason) for path in paths}


def _has_faster_backend(cell: CellConfig, resolver: Resolver) -> bool:
    """Return True for a cell with long sequences if its ``backend: auto`` is ``blocked`` and could be ``sdpa``."""
    if cell.config.backend != "auto" or cell.config.model.attention_dropout:
        return False
    resolved = resolver(cell)
    if resolved.refusal is not None or resolved.config.backend != DEFAULTS[BACKEND] or resolved.task.length < LONG:
        return False
    return resolver(replace(cell, settings=cell.config.model_copy(update={BACKEND: FASTER[BACKEND]}))).refusal is None


def _extremes(cells: Sequence[CellConfig], resolver: Resolver) -> list[tuple[str, RunConfig]]:
    """Return name and configuration of the cells with the fewest and the most FLOPs a step, of those that can run.

    Each ``auto`` that is left has its default there. A step has one micro-batch, of fewer rows if they take long, and one
    thread: several wait for each other, which hides differences on a busy machine.
    """
    sizes: list[tuple[float, str, RunConfig]] = []
    for cell in cells:
        resolved = resolver(_with_settings(cell, _defaults(LEVERS, "")))
        if resolved.refusal is None:
            try:
                flops = resolver.traces.figures(resolved.config, resolved.task)["flops_per_token"]
            except BuildError:  # the plan refuses it
                continue
            flops_of_row = 3 * flops * resolved.task.length
            rows = max(1, min(micro_batch(resolved.config), round(MAX_FLOPS / flops_of_row)))
            changes = {
                "train.batch_size": rows,
                "train.gradient_accumulation": 1,
                "machine.processes_per_run": 1,
                "machine.threads": 1,
            }
            size = flops_of_row * resolved.config.train.batch_size
            sizes.append((size, cell.name, one_step(resolved.config).replace(changes)))
    sizes.sort(key=lambda size: size[0])
    return [(name, config) for _, name, config in ([sizes[0], sizes[-1]] if len(sizes) > 1 else sizes)]


# ---------------------------------------------------------------- precision, by the time of matrix products


def _precision(kind: str, cells: Sequence[CellConfig], resolve: Resolve, *, least: float) -> AutoSetting:
    """Return the precision of cells with ``auto``: bf16 if all support it and, on a CPU, if its products are fast enough.

    Of a field of ``machine`` that is still ``auto``, it counts the faster products in fp32.

    Args:
        least: the speedup of bf16 products.
    """
    speedup = _speedup(cell.config for cell in cells) if kind == "cpu" else None
    if speedup is not None and speedup < least:
        return AutoSetting("fp32", _compared(speedup))
    lacking = next(_without_bf16(cells, resolve), None)
    if lacking is not None:
        return AutoSetting("fp32", lacking)
    return AutoSetting("bf16", "every cell can run in it" if speedup is None else _compared(speedup))


def _without_bf16(cells: Iterable[CellConfig], resolve: Resolve) -> Iterator[str]:
    """Yield a sentence for each cell that runs in fp32 but not in bf16."""
    for cell in cells:
        cell = _with_settings(cell, _defaults([MATMUL, MEMORY], ""))
        bf16, fp32 = (_with_settings(cell, {PRECISION: AutoSetting(value, "")}) for value in ("bf16", "fp32"))
        reason = resolve(bf16).refusal
        if reason is not None and resolve(fp32).refusal is None:
            yield f"{cell.name!r} cannot run in bf16 ({reason})"


def slow_half_notes(configs: Iterable[RunConfig]) -> Iterator[str]:
    """Yield a note when configurations use bf16 or fp16 on a CPU on which it is slower than fp32.

    Args:
        configs: resolved.
    """
    on_cpu = [config for config in configs if _kind(config) == "cpu"]
    for precision in processor.DTYPES:
        slow = [config for config in on_cpu if config.train.precision == precision]
        speedup = _speedup(slow, precision) if slow else MIN_SPEEDUP
        if speedup * MIN_SPEEDUP < 1:
            yield f"{_compared(speedup, precision)}: use train.precision: fp32 or auto"


def _speedup(configs: Iterable[RunConfig], precision: str = "bf16") -> float:
    """Return the speedup of products in half precision over fp32, for the ``matmul_precision`` with the smallest one."""
    settings = {config.machine.matmul_precision for config in configs}
    if "auto" in settings:
        settings = settings - {"auto"} | {DEFAULTS[MATMUL], FASTER[MATMUL]}
    return min(processor.half_speedup(setting, precision) for setting in settings)


def _compared(speedup: float, precision: str = "bf16") -> str:
    slower = speedup * MIN_SPEEDUP < 1
    # Two digits, because the measurement takes milliseconds.
    times = f"{float(f'{1 / speedup if slower else speedup:.2g}'):g} times"
    return f"{precision} products are {times} {'slower than' if slower else 'as fast as'} fp32 products on this processor"


# ---------------------------------------------------------------- fields of a cell


def _kind(config: RunConfig) -> str:
    return resolve_device(config.machine.device).partition(":")[0]


def _with_settings(cell: CellConfig, settings: Mapping[str, AutoSetting]) -> CellConfig:
    """Return a cell with each ``auto`` replaced by these values."""
    config = cell.config
    for path, setting in settings.items():
        section, _, name = path.rpartition(".")
        if config.value(path) == "auto":
            changes = {name: setting.value}
            config = config.model_copy(
                update={section: getattr(config, section).model_copy(update=changes)} if section else changes
            )
    return replace(cell, settings=config)

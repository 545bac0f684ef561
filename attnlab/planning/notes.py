"""The notes of a plan: what changes the meaning of its verdicts.

Each rule is one function, which yields the notes that it has on a draft; ``RULES`` lists them in the order in which the notes
are shown. A rule finds cells without a baseline or a control, equal cells, tests, data or trainings that differ, and numbers
that do not mean what they seem to. What is small, short or unusual is no matter of a rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attnlab._util.text import count
from attnlab.config.axes import field_settings, level_settings, split_stage
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import describe_changes, identity_of_test
from attnlab.config.grid import Cell
from attnlab.config.question import TaskQuestion
from attnlab.config.run import ModelConfig, RunConfig, TrainConfig
from attnlab.config.study import StudyConfig
from attnlab.config.types import Named, text
from attnlab.errors import UserError
from attnlab.models.parts import Part, build_attention, build_components, parts
from attnlab.planning.command_files import uncounted_files
from attnlab.planning.costs import evaluation_schedule
from attnlab.planning.effects import dead_axes, ineffective_fields
from attnlab.planning.planned import Plan
from attnlab.planning.stages import test_text_notes
from attnlab.planning.tasks import range_notes, share_notes
from attnlab.registry import ANALYSES
from attnlab.training.optim import warmup_steps

SHOWN = 3  # names in a note
ROWS_CHECKED = 64  # rows of a pattern that are compared with those of dense attention
EQUAL_COSTS = 0.02  # relative difference of the training FLOPs up to which unequal steps are a match of costs

# Fields of ``train`` that decide speed, memory or what is recorded, and not what is learned.
COSTS = {"gradient_accumulation", "activation_checkpointing", "precision", "compile"}
RECORDED = {"eval_every", "checkpoint_every", "log_every"}
TRAINING = [f"train.{name}" for name in TrainConfig.model_fields if name not in COSTS | RECORDED]
TRAINING += [f"model.{name}" for name in ModelConfig.model_fields if name.endswith("dropout") or name == "initialization"]
BUDGET = {"train.steps", "train.epochs", "train.batch_size"}
USUAL_DIRECTIONS = {  # words in the name of a metric -> direction
    ("accuracy", "precision", "recall", "f1", "auc", "bleu", "rouge", "exact_match"): "max",
    ("loss", "perplexity", "bits_per", "nats_per", "error", "mse", "rmse", "mae"): "min",
}
# The built-in analyses that have notes, each with its section of the study.
ANALYSIS_SECTIONS = {"trend": "over", "factorial": "factors", "stages": "stages"}


@dataclass(frozen=True)
class Draft:
    """A plan before it has notes.

    Attributes:
        plan: its cells have no doubles.
        cells: all cells of the study, without their costs.
        wanted: names of the cells that ``only`` selects, doubles included.
    """

    plan: Plan
    cells: Sequence[Cell]
    wanted: Sequence[str] = ()

    @property
    def study(self) -> StudyConfig:
        return self.plan.study

    @property
    def runnable(self) -> list[Cell]:
        """The cells of the plan that are not refused."""
        names = {cell.name for cell in self.plan.cells}
        return [cell for cell in self.cells if cell.name in names and cell.refusal is None]

    @property
    def pairs(self) -> Iterator[tuple[Cell, Cell]]:
        """Each cell with each of its baselines, both of which can run."""
        for number in range(len(self.study.baselines)):
            for cell in self.plan.cells:
                base = self.plan.baseline_of(cell, number)
                if base is not None and base is not cell and cell.refusal is None and base.refusal is None:
                    yield cell, base


Rule = Callable[[Draft], Iterable[str]]


def notes_of(draft: Draft) -> list[str]:
    """Return the notes of all rules."""
    study = draft.study
    rules = RULES_OF_PROGRAMS if study.command is not None else RULES
    applied = [rule for rule, part in rules if not part or getattr(study, part)]
    return list(dict.fromkeys(note for rule in applied for note in rule(draft)))


def margins(draft: Draft) -> Iterator[str]:
    """Yield a note on each margin, threshold or ``train.stop_at`` that does not fit the range of its metric.

    Raises:
        UserError: a number outside of a range that is known.
    """
    plan, margin = draft.plan, draft.plan.margin
    if isinstance(margin, dict):
        yield from range_notes(draft.study, draft.cells, plan.tasks, plan.estimand, plan.further)
    elif draft.study.command is None:
        questions = {"": TaskQuestion(plan.metric, plan.direction, margin)}
        yield from range_notes(draft.study, draft.cells, questions, plan.estimand, plan.further)
    else:
        yield from plan.estimator.margin_notes(margin)
        yield from share_notes(plan.metric, margin) if plan.estimator.in_unit else ()


def equal_cells(draft: Draft) -> Iterator[str]:
    """Yield a note on each axis that changes nothing, and on each other cell that is a double."""
    if not (plan := draft.plan).doubles:  # which an axis that changes nothing makes
        return
    cells = {cell.name: cell for cell in draft.cells}
    dead = dead_axes(draft.study, draft.cells)
    for axis in dead:
        reasons = {ineffective_fields(cell.config, cell.task).get(axis) for cell in draft.cells}
        why = (reasons.pop() if len(reasons) == 1 else None) or "its values resolve to the same configuration"
        yield f"the axis {axis!r} changes nothing: {why}; each of its cells is run once"
    for name in draft.wanted:
        if name in plan.doubles:
            chosen, first = cells[name].chosen, cells[plan.doubles[name]].chosen
            if any(chosen[axis] != first[axis] for axis in chosen if axis not in dead):
                yield f"{name!r} is the same configuration as {plan.doubles[name]!r}: it is run once, as that"


def analyses(draft: Draft) -> Iterator[str]:
    """Yield the notes of the analyses that a study has.

    Raises:
        UserError: The study names an analysis that does not exist, or cannot be analyzed in this way.
    """
    study = draft.study
    for name, section in ANALYSIS_SECTIONS.items():
        if getattr(study, section):
            yield from ANALYSES.get(name)().notes(draft.plan)
    for i, ref in enumerate(study.analyses):
        place = study.where("analyses", i)
        if ANALYSES.is_builtin(ref):
            raise UserError(f"expected an analysis that you wrote, got {ref!r}: built-in analyses are automatic", place)
        try:
            cls = ANALYSES.get(ref, relative_to=study.folder)
        except UserError as error:
            raise UserError(str(error), place) from error
        if not ANALYSES.has_base(cls):
            raise UserError(f"expected a subclass of attnlab.report.Analysis, got {ref!r}, which is none", place)
        yield from cls().notes(draft.plan)


def matches(draft: Draft) -> Iterator[str]:
    """Yield how each matched cell got its size."""
    return (f"{cell.name!r} is matched: {cell.matched}" for cell in draft.plan.cells if cell.matched)


def baselines(draft: Draft) -> Iterator[str]:
    """Yield a note on each cell without a baseline that can run."""
    for number, baseline in enumerate(draft.study.baselines):
        for cell in draft.plan.cells:
            base = draft.plan.baseline_of(cell, number)
            if base is None:
                exists = any(other.axes == {**cell.axes, **baseline} for other in draft.cells)
                why = "is not among the cells chosen" if exists else "is not in the grid"
                yield f"{cell.name!r} has no baseline: its cell with {_axes(baseline)} {why}"
            elif base.refusal is not None and cell.refusal is None:
                yield f"{cell.name!r} has no baseline: {base.name!r} is refused"


def controls(draft: Draft) -> Iterator[str]:
    """Yield a note on each cell whose control is not in the grid, or refused."""
    control = draft.study.control
    assert control is not None
    refused = {cell.name for cell in draft.cells if cell.refusal is not None}
    for cell in draft.plan.cells:
        axes = {**cell.axes, **control}
        name = next((other.name for other in draft.cells if other.axes == axes), None)
        if name is None:
            yield f"{cell.name!r} has no control: its cell with {_axes(control)} is not in the grid"
        elif name in refused and axes != cell.axes:
            yield f"{cell.name!r} has no control: its cell with {_axes(control)} is refused"


def tests(draft: Draft) -> Iterator[str]:
    """Yield a note on each cell that has another test than its baseline."""
    for cell, base in draft.pairs:
        if change := describe_changes(*(json.loads(identity_of_test(of.settings)) for of in (cell, base))):
            yield f"{cell.name!r} is not compared with {base.name!r}: not the same test ({change})"


def lengths(draft: Draft) -> Iterator[str]:
    """Yield a note on the values of ``evaluate.lengths`` at which a cell's trained model cannot be evaluated."""
    from attnlab.training.evaluate import unsupported_length

    for cell in draft.runnable:
        reasons: dict[str, list[int]] = {}
        for length in cell.config.evaluate.lengths:
            if (reason := unsupported_length(cell.config, cell.task, length)) is not None:
                reasons.setdefault(reason, []).append(length)
        for reason, numbers in reasons.items():
            yield f"{cell.name!r} is not tested at length {', '.join(map(str, numbers))}: {reason}"


def trainings(draft: Draft) -> Iterator[str]:
    """Yield a note on the cells that are trained in another way than their baseline."""
    names: dict[str, list[str]] = {}
    for cell, base in draft.pairs:
        for rule in (_other_training, _other_start, _fewer_rates):
            if note := rule(draft, cell, base):
                names.setdefault(note, []).append(cell.name)
    yield from (f"{listed(concerned)}: {note}" for note, concerned in names.items())


def _other_training(draft: Draft, cell: Cell, base: Cell) -> str:
    study = draft.study
    if study.control and study.control.items() <= cell.axes.items():
        changed = _changes(cell, base, TRAINING)
        shows = "being worse then does not show that the study sees differences; train both alike"
        return f"the control is trained in another way than {base.name!r} ({changed}): {shows}" if changed else ""
    axes = [axis for axis in cell.axes if axis != study.over_axis and cell.axes[axis] != base.axes[axis]]
    own, other = ({s.path: s for axis in axes for s in level_settings(study, axis, of.axes[axis])} for of in (cell, base))
    private = [path for path in {**own, **other} if split_stage(path)[1] in TRAINING]
    # A stage keeps the options that the level of its baseline writes out, unless its own level sets others.
    subjects = [path for path in {**own, **other} if path not in private and (path in own or not split_stage(path)[0])]
    if any(_value(cell, path) != _value(base, path) for path in subjects) and (changed := _changes(cell, base, private)):
        alike = "which may explain a difference; train both alike, or make it an axis"
        return f"trained differently from {base.name!r} ({changed}), {alike}"
    return ""


def _other_start(draft: Draft, cell: Cell, base: Cell) -> str:
    """Return a note on a cell that starts from a stage where its baseline does not, or the reverse."""
    if bool(cell.stages) == bool(base.stages):
        return ""
    costs, base_costs = cell.chain_flops, base.chain_flops
    more = f": training costs {costs / base_costs:.2g} times as many FLOPs, stages included" if costs and base_costs else ""
    if cell.config.init is not None:
        return f"training starts from the stage {cell.config.init.stage!r}, and {base.name!r} from scratch{more}"
    return f"training starts from scratch, and {base.name!r} from a stage{more}"


def _fewer_rates(draft: Draft, cell: Cell, base: Cell) -> str:
    """Return a note on two optimizers of which the one of the baseline, or AdamW, is tried at fewer learning rates."""
    if isinstance(cell.settings, CommandConfig):
        return ""
    optimizers = [of.config.train.optimizer for of in (cell, base)]
    configs = [of.config for of in draft.plan.cells if of.refusal is None]
    rates = [len({c.train.lr for c in configs if c.train.optimizer == optimizer}) for optimizer in optimizers]
    (fewer, few), (more, many) = sorted(zip(rates, optimizers, strict=True), key=lambda tried: tried[0])
    if fewer == more or (few != optimizers[1] and few.name != "adamw"):
        return ""
    tried = f"{few.label} is tried at {count(fewer, 'learning rate')} and {many.label} at {more}"
    return f"compared with {base.name!r}, although {tried}: try as many with both, for example with sweep: {{train.lr: [...]}}"


def factors(draft: Draft) -> Iterator[str]:
    """Yield a note on each factor that changes the training together with something else."""
    study = draft.study
    for axis in study.factors:
        for i in range(len(study.grid[axis]) if isinstance(study.grid[axis], dict) else 0):
            paths = [setting.path for setting in field_settings(study, axis, i)]
            training = [path for path in paths if split_stage(path)[1] in TRAINING]
            if 0 < len(training) < len(paths):
                yield f"the effect of {axis!r} may be due to {', '.join(training)}, which it sets, too: make it another factor"


def warmups(draft: Draft) -> Iterator[str]:
    """Yield a note on runs that end before their warm-up does; with ``over``, a trend may then be due to the learning rate."""
    over, short, names = draft.study.over_axis, dict[Any, str](), dict[str, list[str]]()
    for cell in draft.runnable:
        with suppress(Exception):  # any exception: the task may be the user's own, and the plan reports its errors elsewhere
            steps = evaluation_schedule(cell.config, cell.task).steps
            warmup = warmup_steps(cell.config.train, steps)
            if over in cell.axes and steps < warmup:
                short[cell.axes[over]] = f"{steps / warmup:.2g}"
            elif warmup >= steps > 1:
                reached = f"{steps / warmup:.2g} of train.lr"
                note = f"the warm-up of {warmup:,} steps does not end within the run of {steps:,}, which reaches {reached}"
                names.setdefault(note, []).append(cell.name)
    if short:
        yield (
            f"over.{over}: train.warmup is longer than the runs at {', '.join(map(str, short))}, which reach "
            f"{', '.join(short.values())} of train.lr: a trend may be due to the rate; write train.warmup as a fraction"
        )
    yield from (f"train.warmup: {listed(concerned)}: {note}" for note, concerned in names.items())


def patterns(draft: Draft) -> Iterator[str]:
    """Yield a note on each pattern of attention that hides nothing at the length of the rows."""
    names: dict[str, list[str]] = {}
    for cell in draft.runnable:
        with suppress(Exception):  # any exception: classes may be the user's own, and the plan reports their errors elsewhere
            longest = max((cell.task.length, *cell.config.evaluate.lengths)) + cell.config.model.mem_len
            for part in parts(cell.config, cell.task):
                for name in _without_effect(cell.config, cell.task, part, longest) if part.role != "cross" else ():
                    names.setdefault(f"{name} hides nothing in rows of {longest:,} {cell.task.unit}s", []).append(cell.name)
    yield from (f"{listed(dict.fromkeys(concerned))}: {note}" for note, concerned in names.items())


def _without_effect(config: RunConfig, task: Any, part: Part, longest: int) -> Iterator[str]:
    import torch

    with torch.device("meta"):
        modules: dict[str, Any] = dict(build_components(config, task, part).items())
        if hasattr(part.variant_class, "visible") or hasattr(part.variant_class, "most_keys"):
            modules[part.variant.short_name] = build_attention(config, task, part)
    for name, module in modules.items():
        widths = [getattr(module, attribute, None) for attribute in ("window", "most_keys")]
        if any(isinstance(width, int) and width >= longest for width in widths):
            yield name
        elif visible := getattr(module, "visible", None):
            heads = part.heads(config)
            queries = range(longest - 1, -1, -max(1, longest // ROWS_CHECKED))
            keys = {i: range(i + 1 if module.causal else longest) for i in queries}
            dense = [head for head in range(heads) if all(visible(head, i, j) for i in queries for j in keys[i])]
            if dense:
                yield f"{name} in {len(dense)} of {heads} heads"


def budgets(draft: Draft) -> Iterator[str]:
    """Yield a note on fields of a search with which the confirmed runs of two cells differ in data read or in steps."""
    assert draft.study.search is not None
    lengths = [path for path in ("train.steps", "train.epochs", "train.batch_size") if path in draft.study.search.space]
    if lengths:
        yield (
            f"search.space: {' and '.join(lengths)}: cells can be confirmed with unequal budgets, and a difference of them "
            "may be due to the budget"
        )


def stops(draft: Draft) -> Iterator[str]:
    """Yield a note on each ``train.stop_at`` that limits the scores by which cells are compared."""
    limits: dict[tuple[str, float], None] = {}
    for cell in (cells := draft.runnable):
        config, task = cell.config, cell.task
        if config.train.stop_at is not None and "train.stop_at" not in ineffective_fields(config, task):
            limits[task.metric, config.train.stop_at] = None
    for limit in limits:
        if note := draft.plan.estimator.stop_note(*limit, compared=len(cells) > 1):
            yield note


def directions(draft: Draft) -> Iterator[str]:
    """Yield a note on each metric whose name suggests the other direction."""
    plan = draft.plan
    goals = {question.metric: question.direction for question in plan.tasks.values()} or {plan.metric: plan.direction}
    for metric, direction in goals.items():
        usual = [way for words, way in USUAL_DIRECTIONS.items() if any(f"_{word}" in f"_{metric.lower()}" for word in words)]
        if usual and usual[0] != direction:
            better = "higher" if usual[0] == "max" else "lower"
            yield f"{metric} is compared with direction {direction}, although {better} values of it are usually better"


def stage_texts(draft: Draft) -> Iterable[str]:
    """Yield a note on each stage that trains on text of the test."""
    return test_text_notes(draft.runnable)


def inputs(draft: Draft) -> Iterator[str]:
    """Yield a note on files that a command names and that do not count, for example because git ignores them."""
    commands = [cell.settings for cell in draft.plan.cells if isinstance(cell.settings, CommandConfig)]
    if commands and (names := uncounted_files(draft.study, commands, commands[0].listing)):
        shown = ", ".join(names[:SHOWN])
        yield f"git ignores {shown}: no run is repeated after a change there; list what the program reads under 'files'"


def data(draft: Draft) -> Iterator[str]:
    """Yield what the tasks say about their data."""
    return (f"data: {note}" for note in dict.fromkeys(note for cell in draft.plan.cells for note in cell.data_notes))


RULES: tuple[tuple[Rule, str], ...] = (  # with the section of a study without which a rule has no notes
    *((margins, ""), (equal_cells, ""), (analyses, ""), (matches, ""), (baselines, "baseline"), (tests, "baseline")),
    *((controls, "control"), (trainings, "baseline"), (factors, "factors"), (budgets, "search"), (stops, "")),
    *((warmups, ""), (patterns, ""), (lengths, ""), (stage_texts, "stages"), (directions, ""), (data, "")),
)
RULES_OF_PROGRAMS: tuple[tuple[Rule, str], ...] = (
    *((inputs, ""), (baselines, "baseline"), (controls, "control"), (directions, ""), (analyses, ""), (margins, "")),
)


def listed(names: Iterable[str]) -> str:
    """Return names of cells as in "'a', 'b', 'c' and 4 more cells"."""
    first = [*map(repr, names)]
    shown = ", ".join(first[:SHOWN])
    return shown if len(first) <= SHOWN else f"{shown} and {count(len(first) - SHOWN, 'more cell')}"


def _axes(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in axes.items())


def _changes(cell: Cell, base: Cell, paths: Sequence[str]) -> str:
    """Return the paths in which two cells differ as in "train.lr 0.003, not 0.001"; not steps that match the costs."""
    changes = []
    for path in paths if isinstance(cell.settings, RunConfig) else ():
        own, other = _value(cell, path), _value(base, path)
        if own != other and not (split_stage(path)[1] in BUDGET and _costs_match(cell, base, split_stage(path)[0])):
            changes.append(f"{path} {_shown(own)}, not {_shown(other)}")
    return "; ".join(changes)


def _costs_match(cell: Cell, base: Cell, stage: str) -> bool:
    """Return True when the trainings of two cells, or of a stage of both, cost nearly the same FLOPs."""
    parts = [_stage(of, stage) for of in (cell, base)]
    costs, base_costs = (part.train_flops if part else None for part in parts)
    return costs is not None and base_costs is not None and abs(costs - base_costs) <= EQUAL_COSTS * base_costs


def _stage(cell: Cell, name: str) -> Cell | None:
    """Return a stage of a cell, which is the cell itself for the name ""; None when it has none of this name."""
    return next((of for of in cell.stages if of.name.partition(":")[0] == name), None) if name else cell


def _value(cell: Cell, path: str) -> Any:
    """Return the value of a field of a cell or of one of its stages; of an option, all options; None without that stage."""
    stage, inner = split_stage(path)
    part = _stage(cell, stage)
    value = part and part.config
    for name in inner.split("."):
        value = getattr(value, name, value)
    return value


def _shown(value: Any) -> str:
    return value.label if isinstance(value, Named) else text(list(value) if isinstance(value, tuple) else value)

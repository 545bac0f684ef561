"""Train the studies of a profile: every variant at the first level of each diagnostic, then the survivors at the next one.

Each diagnostic is an ordinary study, which is run again with one level more for the variants that solved the last one.
Where not all seeds solve a level, a second study trains the first seed at a quarter and at four times the learning rate,
and the first study all seeds at a rate with which it solves the level. The runs of all profiles in one runs folder belong
to the same studies, so that a variant is trained once. ``ABILITIES`` has the diagnostics, with their levels and the length
of training.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.axes import canonical, labels, text
from attnlab.config.grid import cell_name
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.extras.profile.results import LR, OTHER_RATES, AbilityResult, Level, LevelResult, Outcome, best_rate, level_result
from attnlab.planning.plan import plan
from attnlab.registry import TASKS, VARIANTS, check_options
from attnlab.stats.compare import CellSummary, summarize_cells
from attnlab.study.execution.concurrency import Workers
from attnlab.study.execution.job import TRAIN
from attnlab.study.plan import check_own_variants
from attnlab.study.run import run
from attnlab.tasks import SPLITS
from attnlab.tasks.diagnostics.base import Diagnostic, level_label
from attnlab.tracking.runs import load_runs
from attnlab.tracking.tags import to_yaml

if TYPE_CHECKING:
    from attnlab.planning.plan import Cell, Plan
    from attnlab.study.execution.progress import ProgressDisplay

STOP_AT = 0.995  # accuracy on valid
THRESHOLD = 0.9  # of a diagnostic that is not judged by a solve rate elsewhere
BASELINES = ("dense", "lstm", "delta", "linear")
RATES_SUFFIX = "-rates"  # of the study of a diagnostic with the first seed at other learning rates
MODEL = {"dim": 64, "depth": 2, "heads": 4}
TRAIN_FIELDS = {"batch_size": 32, "lr": LR, "warmup": 0.1, "eval_every": 50}
EVALUATE = {"valid_limit": 200, "test_limit": 1000}
REASON = "a level is trained if most seeds solve the level before it, and at another learning rate if the first seed solves it"
FIRST_SEED = "only levels that not all seeds solve are trained at other learning rates"
HEADER = """\
# Written by `attnlab profile`, with the levels that each variant has reached. `attnlab run` trains the same runs, and
# `attnlab report` compares the variants at each level.
"""
Entry = dict[str, Any]  # a variant as in a study, with its position scheme
Trial = tuple[int, float]  # index of a level, learning rate
Trials = Sequence[Sequence[Trial]]  # of each variant
TrainTrials = Callable[[Trials], Sequence[Mapping[Trial, LevelResult]]]


@dataclass(frozen=True)
class Ability:
    """A diagnostic with levels of increasing difficulty.

    Attributes:
        task: A name, ``file.py:Class`` or ``package.module:Class``.
        levels: The options of each level.
        steps: Maximum number of training steps of a run, which may end when it has solved its level.
    """

    task: str
    levels: tuple[Mapping[str, Any], ...]
    steps: int = Diagnostic.steps

    @property
    def cls(self) -> Any:
        """The class of the task."""
        return TASKS.get(self.task)

    @property
    def name(self) -> str:
        """The name of the task; for a path, the name of the class."""
        return self.task.rpartition(":")[2]

    @property
    def threshold(self) -> float:
        """The score that solves the task."""
        return THRESHOLD if self.cls.threshold is None else float(self.cls.threshold)

    @property
    def stop_at(self) -> float | None:
        """The score on ``valid`` at which a run stops, because it has solved its level; None: it never stops early."""
        return max(STOP_AT, self.threshold) if self.cls.metric == "accuracy" else None

    @property
    def about(self) -> str:
        """The first line of the documentation of the task."""
        return (inspect.getdoc(self.cls) or "").partition("\n")[0].replace("``", "`")

    @property
    def level_names(self) -> list[str]:
        """The names of the levels in a study, for example ``pairs-8-length-64``."""
        return ["-".join(f"{option}-{value}" for option, value in level.items()) or "default" for level in self.levels]


# Sizes at which a run takes seconds in one thread, smaller than the levels of the tasks themselves.
ABILITIES = (
    Ability(
        "mqar", ({"pairs": 2, "length": 8, "keys": 8}, {"pairs": 4, "length": 16, "keys": 16}, {"pairs": 8, "length": 32}), 700
    ),
    Ability("induction", ({"length": 16}, {"length": 32}, {"length": 64}), 300),
    Ability("selective_copy", ({"tokens": 4, "length": 16}, {"tokens": 4, "length": 32}, {"tokens": 8, "length": 32}), 500),
    Ability("copy", ({"length": 8}, {"length": 16}, {"length": 32}), 400),
    Ability("compression", ({"tokens": 4}, {"tokens": 8}, {"tokens": 16}), 400),
    Ability("memorisation", tuple({"keys": keys, "length": 16} for keys in (64, 256, 1024)), 400),
    Ability("parity", ({"length": 12}, {"length": 24}, {"length": 48}), 400),
    Ability("group", tuple({"group": "s3", "length": length} for length in (4, 8, 16)), 400),
    Ability("addition", ({"length": 8}, {"length": 11}, {"length": 14}), 1_200),
    Ability("flip_flop", ({"length": 16}, {"length": 32}, {"length": 64, "ignore": 0.9}), 300),
    Ability("sparse_flip_flop", ({"length": 64, "test_ignore": 0.9}, {"length": 128, "test_ignore": 0.95}), 300),
)
QUICK = ("mqar", "parity")
QUICK_LEVELS = 2


def select_abilities(tasks: Sequence[str] | None = None, *, quick: bool = False) -> list[Ability]:
    """Return the abilities of a profile.

    Args:
        tasks: The diagnostics; None: the profile's diagnostics. One that is not among them has the levels that it declares.
        quick: Instead of ``tasks``: two diagnostics, at their first two levels.

    Raises:
        UserError: both arguments, a task that does not exist, or one that is no diagnostic with levels.
    """
    known = {ability.task: ability for ability in ABILITIES}
    if quick:
        if tasks is not None:
            raise UserError(f"expected either a quick profile or tasks, got both: {', '.join(tasks)}", "tasks")
        return [replace(known[task], levels=known[task].levels[:QUICK_LEVELS]) for task in QUICK]
    return [known.get(task) or _own_levels(task) for task in dict.fromkeys(known if tasks is None else tasks)]


def _own_levels(task: str) -> Ability:
    cls = TASKS.get(task)
    if not issubclass(cls, Diagnostic) or not cls.levels:
        names = ", ".join(ability.task for ability in ABILITIES)
        raise UserError(f"expected diagnostics with levels, such as {names}, got {task!r}", "tasks")
    for level in cls.levels:
        _require_rows(cls, level, task=task)
    return Ability(task, cls.levels, cls.steps)


def _require_rows(cls: type[Diagnostic], level: Mapping[str, Any], *, task: str) -> None:
    """Raise ``UserError`` for a level that cannot be trained, before the levels before it are."""
    try:
        check_options(cls, dict(level), what=cls.__name__)
        built = cls(**level)
        for split in SPLITS:
            built.rows(split, 1)
    except UserError as error:
        raise UserError(f"{task}, level {level_label(level)}: {error.message}", "tasks") from error


def run_profile(
    entries: Sequence[Entry],
    abilities: Sequence[Ability],
    *,
    folder: Path,
    seeds: int = 3,
    imports: Sequence[str] = (),
    workers: Workers | None = None,
    root: str | Path | None = None,
    storage: str | None = None,
    check: bool = True,
    display: ProgressDisplay | None = None,
    train: str = TRAIN,
) -> list[AbilityResult]:
    """Train what is left of a profile, and return the results of each diagnostic.

    Args:
        entries: The variants, each different from the others.
        abilities: The diagnostics.
        folder: Where the studies are written, one file for each diagnostic.
        seeds: Number of seeds of each level, at least 3.
        imports: Files that register classes.
        workers, root, storage, display, train: As for ``attnlab.run``.
        check: Check variants of the user's quickly before they are trained.

    Raises:
        UserError: a variant that no diagnostic supports or that fails its check, or as ``attnlab.run``.
    """
    require_seeds(seeds)
    options = {"seeds": seeds, "imports": imports, "folder": folder}
    first = [_plan(ability, entries, [[(0, LR)]] * len(entries), **options) for ability in abilities]
    _require_supported(entries, first)
    if check:
        check_own_variants(_longest(abilities, first))
    run_options = {"workers": workers, "root": root, "storage": storage, "display": display, "train": train}
    results = []
    for ability in abilities:
        train_seeds = partial(_train, ability, entries, options=options, run_options=run_options)
        screen = partial(_train, ability, entries, options=options | {"seeds": 1}, run_options=run_options)
        by_entry = climb(len(ability.levels), len(entries), train_seeds, screen)
        results.append(_ability_result(ability, dict(zip(entry_labels(entries), by_entry, strict=True)), folder, root))
    return results


def climb(levels: int, variants: int, train: TrainTrials, screen: TrainTrials) -> list[tuple[LevelResult, ...]]:
    """Train each variant at the first level, and at the next one as long as most seeds solve the level.

    Where not all seeds solve a level, the first seed is trained at the other learning rates as well, and all seeds at a rate
    with which it solves the level.

    Args:
        levels: Number of levels.
        variants: Number of variants.
        train: Trains all seeds of the trials of each variant, and returns their results.
        screen: The same with the first seed.

    Returns:
        For each variant the results of its levels, each at the learning rate with which most seeds solve it.
    """
    climbs = [_Climb() for _ in range(variants)]
    screened: Sequence[Mapping[Trial, LevelResult]] = [{} for _ in climbs]
    while True:
        results = train([each.trials for each in climbs])
        if any([each.try_others(of) for each, of in zip(climbs, results, strict=True)]):
            screened = screen([each.others for each in climbs])
        every = [{**first, **of} for first, of in zip(screened, results, strict=True)]
        if not any([each.go_on(of, levels) for each, of in zip(climbs, every, strict=True)]):
            return [tuple(_at(level, of) for level in range(each.level + 1)) for each, of in zip(climbs, every, strict=True)]


@dataclass
class _Climb:
    """The trials of one variant.

    Attributes:
        trials: With all seeds.
        others: With the first seed, at the other learning rates.
    """

    trials: list[Trial] = field(default_factory=lambda: [(0, LR)])
    others: list[Trial] = field(default_factory=list)

    @property
    def level(self) -> int:
        """The last level."""
        return self.trials[-1][0]

    def try_others(self, results: Mapping[Trial, LevelResult]) -> bool:
        """Add the other learning rates at the last level if not all seeds solve it; return True when there are new ones."""
        new = [(self.level, rate) for rate in OTHER_RATES]
        if new[0] in self.others or _at(self.level, results).outcome in (Outcome.SOLVED, Outcome.NO_RESULT):
            return False
        self.others += new
        return True

    def go_on(self, results: Mapping[Trial, LevelResult], levels: int) -> bool:
        """Add the rates with which the first seed solves the last level, or else the next level; return False at the end."""
        new = [t for t in self.others if t[0] == self.level and t not in self.trials and results[t].solved]
        if not new and _at(self.level, {trial: results[trial] for trial in self.trials}).earns_next and self.level + 1 < levels:
            new = [(self.level + 1, LR)]
        self.trials += new
        return bool(new)


def _at(level: int, results: Mapping[Trial, LevelResult]) -> LevelResult:
    return best_rate([result for trial, result in results.items() if trial[0] == level])


def _train(
    ability: Ability,
    entries: Sequence[Entry],
    trials: Trials,
    *,
    options: Mapping[str, Any],
    run_options: Mapping[str, Any],
) -> list[dict[Trial, LevelResult]]:
    """Train the trials of each entry, and return their results."""
    kept = [i for i, of in enumerate(trials) if of]
    chosen = [entries[i] for i in kept]
    result = run(
        _plan(ability, chosen, [trials[i] for i in kept], **options),
        only={"variant": entry_labels(chosen)},  # the records of other profiles stay as they are
        reference_scores=False,
        check=False,
        **run_options,
    )
    spec = result.comparison()
    cells: Mapping[str, CellSummary] = {cell.name: cell for cell in summarize_cells(result.records(), spec)}
    axis = dict(zip(kept, labels(result.plan.study.axes["variant"], axis="variant"), strict=True))

    def at(variant: int, trial: Trial) -> LevelResult:
        name = cell_name({"variant": axis[variant], "level": _level_label(ability, trial)})
        return level_result(cells[spec.doubles.get(name, name)], trial[1])

    return [{trial: at(i, trial) for trial in of} for i, of in enumerate(trials)]


def _level_label(ability: Ability, trial: Trial) -> str:
    """Return the name of a level in a study, with its learning rate if it is another one."""
    level, rate = trial
    return ability.level_names[level] + ("" if rate == LR else f"-lr-{rate:g}")


def _plan(ability: Ability, entries: Sequence[Entry], trials: Trials, *, folder: Path, seeds: int, **options: Any) -> Plan:
    """Write the study of a diagnostic, or the study of its first seed, and return its plan."""
    path = folder / f"{ability.name}{'' if seeds > 1 else RATES_SUFFIX}.yaml"
    write_study(path, study_fields(ability, entries, trials, folder=folder, seeds=seeds, **options))
    return plan(path)


def _require_supported(entries: Sequence[Entry], plans: Sequence[Plan]) -> None:
    """Raise ``UserError`` when the plan refuses a variant in every diagnostic."""
    for i, label in enumerate(entry_labels(entries)):
        cells = [cell for study_plan in plans for cell in _cells_of(study_plan, entries, i)]
        if cells and all(cell.refusal for cell in cells):
            reasons = dict.fromkeys(str(cell.refusal) for cell in cells)
            raise UserError(f"cannot be profiled: {'; '.join(reasons)}", label)


def _cells_of(study_plan: Plan, entries: Sequence[Entry], index: int) -> list[Cell]:
    axis = labels(study_plan.study.axes["variant"], axis="variant")
    return [cell for cell in study_plan.cells if cell.axes["variant"] == axis[index]]


def _longest(abilities: Sequence[Ability], plans: Sequence[Plan]) -> Plan:
    """Return the plan with the longest rows; variants are checked at its shapes."""
    lengths = [ability.cls(**ability.levels[0]).length for ability in abilities]
    return plans[lengths.index(max(lengths))]


def _ability_result(
    ability: Ability, results: Mapping[str, tuple[LevelResult, ...]], folder: Path, root: str | Path | None
) -> AbilityResult:
    study_plan = plan(folder / f"{ability.name}.yaml")
    names = {cell.name for cell in study_plan.cells}
    runs = [row for row in load_runs(study_plan.study.study, root).to_dict("records") if row["cell"] in names]
    tasks = [ability.cls(**options) for options in ability.levels]
    return AbilityResult(
        task=ability.name,
        about=ability.about,
        paper=tasks[0].paper,
        metric=study_plan.metric,
        direction=study_plan.direction,
        threshold=ability.threshold,
        levels=tuple(
            Level(level_label(options), task.chance(), task.length, ability.steps)
            for options, task in zip(ability.levels, tasks, strict=True)
        ),
        results=results,
        devices=tuple(dict.fromkeys(row["device"] for row in runs)),
        versions=tuple(dict.fromkeys(row["versions"] for row in runs)),
    )


def variant_entry(variant: str | Mapping[str, Any], *, position: str | None = None) -> Entry:
    """Return a variant as a study names it, with the position scheme of its profile.

    Rotary positions take the place of the learned ones that are the default of most variants. A variant with another default,
    such as a recurrence without positions, keeps it.

    Args:
        variant: A name, ``file.py:Class``, or a mapping with the options and components of a variant.
        position: The position scheme; None: as described.
    """
    named = {"name": variant} if isinstance(variant, str) else dict(variant)
    cls: Any = VARIANTS.get(named["name"])
    if position is not None:
        named["position"] = position
    elif "position" not in named:
        can_rotate = cls.default_position == "learned" and "rotate" in cls.hooks
        named["position"] = "rotary" if can_rotate else cls.default_position
    return named


def entry_labels(entries: Sequence[Entry]) -> list[str]:
    """Return a label for each variant: without its position scheme, unless two labels would be equal."""
    short = [text({key: value for key, value in entry.items() if key != "position"}) for entry in entries]
    full = [str(label) for label in labels(entries, axis="variant")]
    return [full[i] if short.count(label) > 1 else label for i, label in enumerate(short)]


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries without those that are equal to an earlier one."""
    return list({canonical(entry): entry for entry in reversed(entries)}.values())[::-1]


def study_fields(
    ability: Ability, entries: Sequence[Entry], trials: Trials, *, seeds: int, imports: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Return the study of one diagnostic.

    Args:
        ability: The diagnostic.
        entries: The variants.
        trials: The levels and learning rates that each of them is trained at.
        seeds: Number of seeds; 1: the study of other learning rates.
        imports: Files that register classes.
        folder: The folder of the study file, to which paths are made relative.
    """
    stop = {} if ability.stop_at is None else {"stop_at": ability.stop_at}
    task = _relocated(ability.task, folder)
    first = [] if seeds == 1 else [(level, LR) for level in range(len(ability.levels))]
    every = sorted({*first, *(trial for of in trials for trial in of)})
    levels = {
        _level_label(ability, (level, rate)): {
            "task": {"name": task, **ability.levels[level]},
            "train.steps": ability.steps,
            **({} if rate == LR else {"train.lr": rate}),
        }
        for level, rate in every
    }
    variants = [_relocated(entry, folder) for entry in entries]
    axis = [str(label) for label in labels(variants, axis="variant")]
    left_out = [[_level_label(ability, trial) for trial in every if trial not in of] for of in trials]
    because = REASON if seeds > 1 else FIRST_SEED
    skip = [
        {"where": {"variant": label, "level": names}, "because": because}
        for label, names in zip(axis, left_out, strict=True)
        if names
    ]
    question = f"Up to which level of {ability.name} does each variant solve it?"
    if seeds == 1:
        question = f"At which other learning rates does the first seed of each variant solve {ability.name}?"
    return {
        "study": study_name(ability) + ("" if seeds > 1 else RATES_SUFFIX),
        "question": question,
        **({"imports": [_relocated(file, folder) for file in imports]} if imports else {}),
        "base": {"model": MODEL, "train": TRAIN_FIELDS | stop, "evaluate": EVALUATE, "machine": {"threads": 1}},
        "grid": {"variant": variants, "level": levels},
        **({"skip": skip} if skip else {}),
        "seeds": f"0-{seeds - 1}" if seeds > 1 else "0",
        "estimand": {"name": "solve_rate", "threshold": ability.threshold},
        "reference_scores": False,
    }


def study_name(ability: Ability) -> str:
    """Return the name of the study of a diagnostic, which the profiles of all variants share."""
    return f"profile-{ability.name}"


def write_study(path: Path, fields: Mapping[str, Any]) -> None:
    """Write a study file; an equal file is left as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = HEADER + to_yaml(dict(fields))
    if not path.is_file() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")


def _relocated(value: Any, folder: Path) -> Any:
    """Return a reference or an entry with paths of Python files relative to a folder instead of the working directory."""
    if isinstance(value, str):
        file, colon, name = value.rpartition(":")
        if not colon:
            file, name = value, ""
        return f"{os.path.relpath(Path(file).expanduser(), folder)}{colon}{name}" if file.endswith(".py") else value
    if isinstance(value, Mapping):
        return {key: _relocated(item, folder) if key in ("name", "position", WITH) else item for key, item in value.items()}
    return [_relocated(item, folder) for item in value] if isinstance(value, list) else value


def require_seeds(seeds: int) -> None:
    """Raise ``UserError`` for fewer than three seeds: one or two do not show whether seeds agree."""
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 3:
        raise UserError(f"expected at least 3 seeds, got {seeds!r}", "seeds")

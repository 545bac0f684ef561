"""Train a profile: every variant at the first level of each diagnostic, then those that solve it at the next one.

Each diagnostic is an ordinary study over variants and levels, of which the runs of one level are trained at a time. Where not
all seeds solve a level, the first seed is trained at a quarter and at four times the learning rate as well, and all seeds at a
rate with which it solves the level. The runs of all profiles in one runs folder belong to the same studies, so that a variant
is trained once. ``ABILITIES`` has the diagnostics, with their levels and the length of training.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.user_code import load_file
from attnlab.config.axes import labels
from attnlab.config.grid import cell_name
from attnlab.config.types import WITH, canonical, text
from attnlab.errors import UserError
from attnlab.extras.profile.page import write_profile
from attnlab.extras.profile.results import LR, OTHER_RATES, AbilityResult, Level, LevelResult, Profile, best_rate, level_result
from attnlab.planning.plan import plan
from attnlab.registry import TASKS, VARIANTS
from attnlab.report.page import task_folder
from attnlab.report.write import REPORTS
from attnlab.stats.records import is_present
from attnlab.study.comparison import compare_info, load_judged
from attnlab.study.execution.concurrency import Workers
from attnlab.study.plan import check_own_variants
from attnlab.study.run import run
from attnlab.tasks.diagnostics.base import Diagnostic, level_label
from attnlab.tracking.runs import load_runs

if TYPE_CHECKING:
    from attnlab.study.execution.progress import ProgressDisplay

FOLDER = REPORTS / "profile"
STOP_AT = 0.995  # accuracy on valid
THRESHOLD = 0.9  # of a diagnostic that is not judged by a solve rate elsewhere
BASELINES = ("dense", "lstm", "delta", "linear")
CONTRASTS = {  # a row after a variant: recurrences have a short convolution, softmax attention has none
    "dense": ({"name": "dense", WITH: ["short_conv"]}, {"name": "dense", WITH: ["token_shift"]}),
    "delta": ({"name": "delta", "short_conv": 0},),
}
MODEL = {"dim": 64, "depth": 2, "heads": 4}
TRAIN_FIELDS = {"batch_size": 32, "lr": LR, "warmup": 0.1, "eval_every": 50}
EVALUATE = {"valid_limit": 200, "test_limit": 1000}
METHODS = {
    "model": f"width {MODEL['dim']}, {MODEL['depth']} blocks, {MODEL['heads']} heads",
    "training": f"batches of {TRAIN_FIELDS['batch_size']} rows, learning rate {LR:g}; where not all seeds solve a level, also "
    f"{' and '.join(f'{rate:g}' for rate in OTHER_RATES)}; a run ends when its accuracy on valid, computed every "
    f"{TRAIN_FIELDS['eval_every']} steps, reaches {STOP_AT}",
}
Entry = dict[str, Any]  # a variant as in a study, with its position scheme


@dataclass(frozen=True)
class Ability:
    """A diagnostic with levels of increasing difficulty.

    Attributes:
        task: A name, ``file.py:Class`` or ``package.module:Class``.
        levels: The options of each level.
        steps: Maximum number of training steps of a run, which may end when it has solved its level.
        group: "recall", "copy" or "state".
    """

    task: str
    levels: tuple[Mapping[str, Any], ...]
    steps: int = Diagnostic.steps
    group: str = ""

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

    def level_name(self, level: int, lr: float = LR) -> str:
        """Return the name of a level in a study, for example ``pairs-8-length-64``."""
        name = "-".join(f"{option}-{value}" for option, value in self.levels[level].items()) or "default"
        return name + ("" if lr == LR else f"-lr-{lr:g}")


# Sizes at which a run takes seconds in one thread, smaller than the levels of the tasks themselves.
ABILITIES = (
    Ability(
        "mqar",
        ({"pairs": 2, "length": 8, "keys": 8}, {"pairs": 4, "length": 16, "keys": 16}, {"pairs": 8, "length": 32}),
        700,
        "recall",
    ),
    Ability("induction", ({"length": 16}, {"length": 32}, {"length": 64}), 300, "recall"),
    Ability("memorisation", tuple({"keys": keys, "length": 16} for keys in (64, 256, 1024)), 400, "recall"),
    Ability(
        "selective_copy", ({"tokens": 4, "length": 16}, {"tokens": 4, "length": 32}, {"tokens": 8, "length": 32}), 500, "copy"
    ),
    Ability("copy", ({"length": 8}, {"length": 16}, {"length": 32}), 400, "copy"),
    Ability("compression", ({"tokens": 4}, {"tokens": 8}, {"tokens": 16}), 400, "copy"),
    Ability("parity", ({"length": 12}, {"length": 24}, {"length": 48}), 400, "state"),
    Ability("group", tuple({"group": "s3", "length": length} for length in (4, 8, 16)), 400, "state"),
    Ability("addition", ({"length": 8}, {"length": 11}, {"length": 14}), 1_200, "state"),
    Ability("flip_flop", ({"length": 16}, {"length": 32}, {"length": 64, "ignore": 0.9}), 300, "state"),
    Ability("sparse_flip_flop", ({"length": 64, "test_ignore": 0.9}, {"length": 128, "test_ignore": 0.95}), 300, "state"),
)


def profile(
    variant: str | Mapping[str, Any] | None,
    *,
    components: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    position: str | None = None,
    tasks: Sequence[str] | None = None,
    seeds: int = 3,
    out: str | Path | None = None,
    imports: Sequence[str] = (),
    workers: Workers | None = None,
    root: str | Path | None = None,
    storage: str | None = None,
    check: bool = True,
    display: ProgressDisplay | None = None,
    command: str = "",
) -> Profile:
    """Train a variant on diagnostics of increasing difficulty, next to baselines, and write a page on what it can do.

    The first profile in a runs folder also trains the baselines ``dense``, ``lstm``, ``delta`` and ``linear``, which later
    profiles reuse. A level that not all seeds solve is also tried at a quarter and at four times the learning rate. Rerun it
    to resume.

    Args:
        variant: A name, ``file.py:Class``, ``package.module:Class``, or a mapping as in a study. Paths start from the working
            directory. None: every built-in variant, ``dense`` also with ``short_conv`` and ``token_shift``, and ``delta`` also
            without its convolution.
        components: Components of the variant, as in a study.
        options: Options of the variant.
        position: The position scheme of the variant; None: rotary positions where the variant supports them and has no default
            of its own, else its default.
        tasks: Names of diagnostics; None: the profile's diagnostics.
        seeds: Number of seeds of each level, at least 3.
        out: Folder of the page; default ``runs/reports/profile/NAME``.
        imports: Files that register classes.
        workers: Number of runs that train at the same time, each in one thread; default ``ATTNLAB_WORKERS``, else one for each
            processor.
        root: Folder of the runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        storage: ``postgresql://...``, a queue that several machines share; default ``ATTNLAB_STORAGE``.
        check: Run a quick check of a user's variant before it is trained.
        display: The progress display; default one on standard error.
        command: The command that makes the profile, for the page.

    Returns:
        The profile. ``profile.abilities[i].results[variant]`` has the scores of each level.

    Raises:
        UserError: A mistake in the arguments, a variant that cannot be profiled or that fails its check, or an error of
            ``attnlab.run``.
    """
    for file in imports:
        load_file(Path(file).expanduser())
    changes = dict(options or {}) | ({WITH: list(components)} if components else {})
    given = [variant] if variant else [entry for name in built_in_names() for entry in (name, *CONTRASTS.get(name, ()))]
    named = [{"name": entry} if isinstance(entry, str) else entry for entry in given]
    entries = [variant_entry({**entry, **changes}, position=position) for entry in named]
    label = entry_labels(entries)[0] if variant else ""
    name = task_folder(f"{label} {position}" if label and position else label)
    run_options = {"workers": workers, "root": root, "storage": storage, "display": display}
    shared = {"seeds": seeds, "imports": imports, "check": check, "command": command, **run_options}
    return profile_all(entries, select_abilities(tasks), name=name, folder=Path(out or FOLDER / name), **shared)


def profile_all(
    variants: Sequence[Entry],
    abilities: Sequence[Ability],
    *,
    folder: Path,
    name: str = "",
    seeds: int = 3,
    imports: Sequence[str] = (),
    check: bool = True,
    command: str = "",
    root: str | Path | None = None,
    **options: Any,
) -> Profile:
    """Train what is left of the profile of some variants next to the baselines, write its page into a folder, and return it.

    The other arguments are as for ``profile``.
    """
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 3:
        raise UserError(f"expected at least 3 seeds, got {seeds!r}", "seeds")
    entries = list({canonical(entry): entry for entry in [*variants, *map(variant_entry, BASELINES)]}.values())
    names, studies = entry_labels(entries), [_study(a, entries, seeds=seeds, imports=imports) for a in abilities]
    _require_supported(studies, abilities, check=check)
    results = [_climb(ability, names, study, root=root, **options) for ability, study in zip(abilities, studies, strict=True)]
    positions = {label: text(entry["position"]) for label, entry in zip(names, entries, strict=True)}
    methods = METHODS | {"seeds": f"{seeds} of each level"}
    for column in ("device", "versions"):
        found = (value for study in studies for value in load_runs(study["study"], root)[column].unique())
        methods[column] = "; ".join(dict.fromkeys(found))
    made = Profile(name, tuple(names[: len(variants)]), positions, tuple(results), seeds, methods, command)
    write_profile(folder, made)
    return made


def built_in_names() -> list[str]:
    """Return the names of the built-in variants that can be profiled."""
    names = (name for name in VARIANTS.names() if VARIANTS.is_builtin(name))
    return [name for name in names if "causal" in VARIANTS.get(name).roles]


def select_abilities(tasks: Sequence[str] | None = None) -> list[Ability]:
    """Return the abilities of a profile: those of the named diagnostics, by default of the profile's.

    A diagnostic that is not among them has the levels that it declares.

    Raises:
        UserError: no task, one that does not exist, or one that is no diagnostic with levels.
    """
    known = {ability.task: ability for ability in ABILITIES}
    if tasks is not None and not tasks:
        raise UserError("expected at least one diagnostic, got none", "tasks")
    return [known.get(task) or _own_levels(task) for task in dict.fromkeys(known if tasks is None else tasks)]


def _own_levels(task: str) -> Ability:
    cls = TASKS.get(task)
    if not issubclass(cls, Diagnostic) or not cls.levels:
        names = ", ".join(ability.task for ability in ABILITIES)
        raise UserError(f"expected diagnostics with levels, such as {names}, got {task!r}", "tasks")
    return Ability(task, cls.levels, cls.steps)


def _require_supported(studies: Sequence[dict[str, Any]], abilities: Sequence[Ability], *, check: bool) -> None:
    """Raise ``UserError`` for a variant that the plans refuse, or that fails its check at the longest rows."""
    plans = [plan(study, only={"level": ability.level_name(0)}) for study, ability in zip(studies, abilities, strict=True)]
    refusals: dict[str, list[str | None]] = {}
    for cell in (cell for study_plan in plans for cell in study_plan.cells):
        refusals.setdefault(str(cell.axes["variant"]), []).append(cell.refusal)
    for name, reasons in refusals.items():
        if all(reasons):
            raise UserError(f"cannot be profiled: {reasons[0]}", name)
    if check:
        lengths = [ability.cls(**ability.levels[0]).length for ability in abilities]
        check_own_variants(plans[lengths.index(max(lengths))])


def _climb(
    ability: Ability, names: Sequence[str], study: dict[str, Any], *, root: str | Path | None, **options: Any
) -> AbilityResult:
    """Train each variant at the first level, and at the next one as long as most seeds solve the level.

    The result of a level is that at the learning rate with which most seeds solve it.
    """
    axis = dict(zip(names, map(str, labels(study["grid"]["variant"], axis="variant")), strict=True))
    train_options = {"root": root, "reference_scores": False, "check": False, **options}

    def train(chosen: Sequence[str], level: int, rates: Sequence[float], seeds: str) -> dict[tuple[str, float], LevelResult]:
        if not chosen:
            return {}
        named = {rate: ability.level_name(level, rate) for rate in rates}
        only = {"variant": [axis[name] for name in chosen], "level": list(named.values())}
        run(study | {"seeds": seeds}, only=only, **train_options)
        compared = compare_info(*load_judged(study["study"], root))
        cells, doubles = {cell.name: cell for cell in compared.cells}, compared.spec.doubles
        steps: dict[str, dict[int, int]] = {name: {} for name in cells}
        for row in compared.records:
            if is_present(row.get("steps")):
                steps[row["cell"]][row["seed"]] = int(row["steps"])

        def at(name: str, rate: float) -> LevelResult:
            cell = cell_name({"variant": axis[name], "level": named[rate]})
            cell = doubles.get(cell, cell)
            return replace(level_result(cells[cell], rate), steps=steps[cell])

        return {(name, rate): at(name, rate) for name in chosen for rate in rates}

    reached: dict[str, list[LevelResult]] = {name: [] for name in names}
    climbing = list(names)
    for level in range(len(ability.levels)):
        found = train(climbing, level, [LR], study["seeds"])
        unsolved = [name for name in climbing if found[name, LR].judged and not found[name, LR].is_solved]
        found |= train(unsolved, level, OTHER_RATES, "0")
        for rate in OTHER_RATES:
            again = [name for name in unsolved if found[name, rate].solved]
            found |= train(again, level, [rate], study["seeds"])
        for name in climbing:
            reached[name].append(best_rate([result for (of, _), result in found.items() if of == name]))
        climbing = [name for name in climbing if reached[name][-1].earns_next]
    return _ability_result(ability, {name: tuple(results) for name, results in reached.items()})


def _ability_result(ability: Ability, results: Mapping[str, tuple[LevelResult, ...]]) -> AbilityResult:
    tasks = [ability.cls(**options) for options in ability.levels]
    levels = (
        Level(level_label(options), task.chance(), task.length, ability.steps)
        for options, task in zip(ability.levels, tasks, strict=True)
    )
    about = (inspect.getdoc(ability.cls) or "").partition("\n")[0].replace("``", "`")
    return AbilityResult(ability.name, ability.group, about, tasks[0].paper, ability.threshold, tuple(levels), results)


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


def _study(ability: Ability, entries: Sequence[Entry], *, seeds: int, imports: Sequence[str]) -> dict[str, Any]:
    """Return the study of one diagnostic, with every level at every learning rate."""
    stop = {} if ability.stop_at is None else {"stop_at": ability.stop_at}
    levels = {
        ability.level_name(level, rate): {
            "task": {"name": ability.task, **ability.levels[level]},
            "train.steps": ability.steps,
            "train.lr": rate,
        }
        for level in range(len(ability.levels))
        for rate in (LR, *OTHER_RATES)
    }
    return {
        "study": f"profile-{ability.name}",
        "question": f"Up to which level of {ability.name} does each variant solve it?",
        **({"imports": list(imports)} if imports else {}),
        "base": {"model": MODEL, "train": TRAIN_FIELDS | stop, "evaluate": EVALUATE, "machine": {"threads": 1}},
        "grid": {"variant": list(entries), "level": levels},
        "seeds": f"0-{seeds - 1}",
        "estimand": {"name": "solve_rate", "threshold": ability.threshold},
        "reference_scores": False,
    }

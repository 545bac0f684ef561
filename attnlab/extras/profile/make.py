"""Make profiles: train what is missing, and write a page for each variant."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab._util.user_code import load_file
from attnlab.config.axes import text
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.extras.profile.results import LR, OTHER_RATES, AbilityResult, Profile
from attnlab.extras.profile.run import (
    BASELINES,
    MODEL,
    RATES_SUFFIX,
    TRAIN_FIELDS,
    Ability,
    Entry,
    distinct,
    entry_labels,
    run_profile,
    select_abilities,
    variant_entry,
)
from attnlab.extras.profile.write import write_index, write_profile
from attnlab.registry import VARIANTS
from attnlab.report.page import task_folder
from attnlab.study.execution.concurrency import Workers

if TYPE_CHECKING:
    from attnlab.study.execution.progress import ProgressDisplay

FOLDER = Path("reports/profile")


@dataclass(frozen=True, kw_only=True)
class ProfileOptions:
    """What the profiles of one call share.

    Attributes:
        abilities: The diagnostics.
        seeds: Number of seeds of each level, at least 3.
        imports: Files that register classes.
        workers, root, storage: As for ``attnlab.run``.
        check: Check variants of the user's quickly before they are trained.
        command: The command that makes the profile, for the page.
        run: Further arguments of ``run_profile``.
    """

    abilities: Sequence[Ability]
    seeds: int = 3
    imports: Sequence[str] = ()
    workers: Workers | None = None
    root: str | Path | None = None
    storage: str | None = None
    check: bool = True
    command: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)


def profile(
    variant: str | Mapping[str, Any],
    *,
    components: Sequence[Any] = (),
    options: Mapping[str, Any] | None = None,
    position: str | None = None,
    tasks: Sequence[str] | None = None,
    quick: bool = False,
    seeds: int = 3,
    out: str | Path | None = None,
    imports: Sequence[str] = (),
    workers: Workers | None = None,
    root: str | Path | None = None,
    storage: str | None = None,
    check: bool = True,
    display: ProgressDisplay | None = None,
) -> Profile:
    """Train a variant on diagnostics of increasing difficulty, next to baselines, and write a page on what it can do.

    The first profile in a runs folder also trains the baselines ``dense``, ``lstm``, ``delta`` and ``linear``, which later
    profiles reuse. A level that not all seeds solve is also tried at a quarter and at four times the learning rate. Rerun it
    to resume.

    Args:
        variant: A name, ``file.py:Class``, ``package.module:Class``, or a mapping as in a study.
        components: Components of the variant, as in a study.
        options: Options of the variant.
        position: The position scheme of the variant; None: rotary positions where the variant supports them and has no default
            of its own, else its default.
        tasks: Names of diagnostics; None: the profile's diagnostics.
        quick: Two diagnostics at two levels, in a few minutes; cannot be combined with ``tasks``.
        seeds: Number of seeds of each level, at least 3.
        out: Folder of the page and of the studies; default ``reports/profile/NAME``.
        imports: Files that register classes.
        workers: Number of runs that train at the same time, each in one thread; default ``ATTNLAB_WORKERS``, else one for each
            processor.
        root: Folder of the runs; default ``ATTNLAB_RUNS``, else ``./runs``.
        storage: ``postgresql://...``, a queue that several machines share; default ``ATTNLAB_STORAGE``.
        check: Run a quick check of a user's variant before it is trained.
        display: The progress display; default one on standard error.

    Returns:
        The profile. ``profile.abilities[i].results[variant]`` has the scores of each level.

    Raises:
        UserError: A mistake in the arguments, a variant that cannot be profiled or that fails its check, or an error of
            ``attnlab.run``.
    """
    for file in imports:
        load_file(Path(file).expanduser())
    named = {"name": variant} if isinstance(variant, str) else dict(variant)
    named |= dict(options or {})
    named |= {WITH: list(components)} if components else {}
    entry = variant_entry(named, position=position)
    label, own_position = entry_labels([entry])[0], position or named.get("position")
    name = task_folder(f"{label} {text(own_position)}" if own_position else label)
    command = _command(named, position=own_position, tasks=tasks, quick=quick, seeds=seeds, imports=imports)
    shared = ProfileOptions(
        abilities=select_abilities(tasks, quick=quick),
        seeds=seeds,
        imports=imports,
        workers=workers,
        root=root,
        storage=storage,
        check=check,
        command=command,
        run={"display": display},
    )
    folder = Path(out) if out is not None else FOLDER / name
    return write_profiles([entry], shared, folder=folder, pages={0: folder})[0]


def write_profiles(
    variants: Sequence[Entry], options: ProfileOptions, *, folder: Path, pages: Mapping[int, Path]
) -> list[Profile]:
    """Train what is missing of the profiles of some variants, and write a page for each.

    Args:
        variants: Each with its position scheme.
        options: What they share.
        folder: The folder of the studies.
        pages: Index of a variant -> folder of its page.
    """
    if not options.abilities:
        raise UserError("expected at least one diagnostic, got none", "tasks")
    entries = distinct([*variants, *map(variant_entry, BASELINES)])
    results = run_profile(
        entries,
        options.abilities,
        folder=folder,
        seeds=options.seeds,
        imports=options.imports,
        workers=options.workers,
        root=options.root,
        storage=options.storage,
        check=options.check,
        **options.run,
    )
    profiles = []
    for i, page in pages.items():
        made = _profile_of(entries.index(variants[i]), entries, results, options, folder=folder, page=page)
        write_profile(page, made)
        profiles.append(made)
    return profiles


def profile_built_in(options: ProfileOptions, *, folder: Path) -> list[Profile]:
    """Train what is missing of the profiles of all built-in variants, and write a page for each and one on all of them.

    Args:
        options: What the profiles share.
        folder: The folder of the studies and of the page on all variants; the pages of the variants are below it.
    """
    names = [name for name in VARIANTS.names() if VARIANTS.is_builtin(name) and "causal" in VARIANTS.get(name).roles]
    entries = [variant_entry(name) for name in names]
    profiles = write_profiles(entries, options, folder=folder, pages={i: folder / name for i, name in enumerate(names)})
    write_index(folder)
    return profiles


def _profile_of(
    index: int,
    entries: Sequence[Entry],
    results: Sequence[AbilityResult],
    options: ProfileOptions,
    *,
    folder: Path,
    page: Path,
) -> Profile:
    """Return the profile of one of the trained variants, next to the baselines."""
    shown = list(dict.fromkeys([index, *(entries.index(variant_entry(name)) for name in BASELINES)]))
    every = entry_labels(entries)
    positions = {every[i]: text(entries[i]["position"]) for i in shown}
    abilities = [replace(result, results={name: result.results[name] for name in positions}) for result in results]
    return Profile(
        name=page.name,
        variant=every[index],
        positions=positions,
        abilities=tuple(abilities),
        seeds=options.seeds,
        model=f"width {MODEL['dim']}, {MODEL['depth']} blocks, {MODEL['heads']} heads",
        train=_describe_training(options.abilities),
        command=options.command,
        studies={file.stem: os.path.relpath(file, page) for file in _study_files(folder, options.abilities)},
    )


def _study_files(folder: Path, abilities: Sequence[Ability]) -> list[Path]:
    """Return the studies of some diagnostics; one of which every level was solved has no study of other learning rates."""
    files = [folder / f"{ability.name}{suffix}.yaml" for ability in abilities for suffix in ("", RATES_SUFFIX)]
    return [file for file in files if file.is_file()]


def _describe_training(abilities: Sequence[Ability]) -> str:
    """Return the training that all runs share, and the scores at which they end early."""
    others = " and ".join(f"{rate:g}" for rate in OTHER_RATES)
    training = (
        f"batches of {TRAIN_FIELDS['batch_size']} rows, learning rate {LR:g}; where not all seeds solve a level, also {others}"
    )
    scores = " or ".join(f"{score:g}" for score in sorted({a.stop_at for a in abilities if a.stop_at is not None}))
    end = f"a run ends when its accuracy on valid, computed every {TRAIN_FIELDS['eval_every']} steps, reaches {scores}"
    return f"{training}; {end}" if scores else training


def _command(named: Mapping[str, Any], *, imports: Sequence[str], **options: Any) -> str:
    """Return the command that makes a profile."""
    words = ["attnlab", "profile", str(named["name"])]
    for component in named.get(WITH, []):
        words += ["--with", component if isinstance(component, str) else json.dumps(component)]
    for name, value in named.items():
        if name not in ("name", "position", WITH):
            words += ["--options", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
    words += ["--position", text(options["position"])] if options["position"] else []
    words += ["--quick"] if options["quick"] else []
    words += ["--tasks", ",".join(options["tasks"])] if options["tasks"] else []
    words += ["--seeds", str(options["seeds"])] if options["seeds"] != 3 else []
    for file in imports:
        words += ["--imports", str(file)]
    return shlex.join(words)

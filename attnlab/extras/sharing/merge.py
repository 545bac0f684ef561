"""Merging bundles of one study into one study, with verdicts from all their seeds.

Bundles are merged only if they asked the same question of the same cells: the metric, the baseline and the margin are equal,
and so is the configuration of each cell except for its seed, with its data, the code of its classes and attnlab's version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from attnlab._util.redact import command_line
from attnlab._util.run_state import RunState
from attnlab.config.comparability import comparable_fields, describe_changes
from attnlab.errors import UserError
from attnlab.extras.sharing.bundle import Bundle, read_bundle
from attnlab.stats.selection import asked
from attnlab.study.comparison import recorded_comparisons
from attnlab.study.looks import LOOK_PREFIXES, joined_looks, look_tags, looks_in
from attnlab.study.run import study_lock
from attnlab.tracking.client import runs_folder
from attnlab.tracking.experiment import Call, call_tags, read_calls
from attnlab.tracking.record import CALL, TEXT, StudyRecord, to_tags
from attnlab.tracking.transfer import StoredRun, StoredStudy, write_study_record

OF_MACHINES = {"threads", "machine.threads", "train.precision"}  # which `auto` and null choose by machine
FEWEST_DIGITS = 16  # of a bundle's digest
SEARCHED = ("search", "confirm")  # phases of the runs of a searched study


@dataclass(frozen=True)
class Merged:
    """What a merge wrote.

    Attributes:
        study: its name.
        bundles: those that were merged.
        runs: number of its runs that are reported.
        seeds: seeds of its reported runs, in order.
        repeated: names of runs that several bundles completed; the first bundle's were taken.
    """

    study: str
    bundles: Sequence[Bundle]
    runs: int
    seeds: Sequence[int]
    repeated: Sequence[str]


def merge(
    paths: Sequence[str | Path], *, sha256: Sequence[str] = (), mixed_machines: bool = False, root: str | Path | None = None
) -> Merged:
    """Write the runs of bundles of one study to a folder of runs that has no such study.

    A run that several bundles have is taken from the first one in which it completed. The looks of all bundles count.

    Args:
        paths: of the bundles, at least one.
        sha256: the digest of each bundle as its author published it, or the first digits; none: they are not compared.
        mixed_machines: join bundles that differ in the threads or the precision that each machine chose. A seed must then be in
            one bundle, so that the cells that are compared with each other were trained alike.
        root: the runs folder; default `ATTNLAB_RUNS`, else `runs`.

    Raises:
        UserError: a bundle is damaged or has another digest, the bundles do not agree (the message has the first difference),
            or the folder has a study of this name.
    """
    bundles = [read_bundle(path) for path in paths]
    _require_digests(bundles, sha256)
    require_agreement(bundles, mixed_machines=mixed_machines)
    runs, repeated = _union(bundles)
    first = bundles[0].record
    record = StoredStudy(first.name, _tags(bundles, ["--mixed-machines"] if mixed_machines else []), runs)
    folder = runs_folder(root)
    with study_lock(folder, first.name):
        write_study_record(record, folder)
        models = {name: content for bundle in reversed(bundles) for name, content in bundle.models.items()}
        for name, content in models.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    current = [run for run in runs if run.is_current]
    return Merged(first.name, bundles, len(current), sorted({run.record.seed for run in current}), repeated)


def _require_digests(bundles: Sequence[Bundle], sha256: Sequence[str]) -> None:
    if sha256 and len(sha256) != len(bundles):
        raise UserError(f"expected one digest for each of {len(bundles)} bundles, got {len(sha256)}", "sha256")
    for bundle, digest in zip(bundles, sha256, strict=False):
        if len(digest) < FEWEST_DIGITS:
            raise UserError(f"expected at least {FEWEST_DIGITS} digits of a digest, got {digest!r}", "sha256")
        if not bundle.digest.startswith(digest.lower()):
            raise UserError(f"expected the digest {digest}, got {bundle.digest[: len(digest)]}", str(bundle.path))


def require_agreement(bundles: Sequence[Bundle], *, mixed_machines: bool = False) -> None:
    """Raise `UserError` with the first difference between bundles that keeps their runs from being compared."""
    first, *others = bundles
    for bundle in others:
        if bundle.record.name != first.record.name:
            names = f"got {first.record.name!r} ({first.path}) and {bundle.record.name!r}"
            raise UserError(f"expected bundles of one study, {names}", str(bundle.path))
        if changes := _changes(_question(bundle), _question(first), mixed_machines):
            raise UserError(f"asks another question than {first.path}: {changes}", str(bundle.path))
    known: dict[str, tuple[Bundle, Mapping[str, Any]]] = {}
    seeds: dict[int, Bundle] = {}
    for bundle in bundles:
        if others and any(run.record.phase in SEARCHED for run in bundle.record.runs):
            raise UserError(
                "expected a study without `search`: each search has chosen hyperparameters of its own", str(bundle.path)
            )
        for run in filter(_is_compared, bundle.record.runs):
            name = " ".join([run.record.cell, *_values(run)])
            earlier, fields = known.setdefault(name, (bundle, _comparable(run)))
            if changes := _changes(_comparable(run), fields, mixed_machines):
                raise UserError(f"{run.record.cell!r} is not the cell of {earlier.path}: {changes}", str(bundle.path))
            if mixed_machines and (other := seeds.setdefault(run.record.seed, bundle)) is not bundle:
                raise UserError(
                    f"expected each seed in one bundle, got {run.record.seed} in {other.path} too", str(bundle.path)
                )
        _require_equal_grids(first, bundle)


def _changes(fields: Mapping[str, Any], other: Mapping[str, Any], mixed_machines: bool) -> str:
    """Return the differences, with a hint when machines alone make them; "" when there are none that count."""
    if describe_changes(*({name: one[name] for name in one.keys() - OF_MACHINES} for one in (fields, other))):
        return describe_changes(fields, other)
    changes = "" if mixed_machines else describe_changes(fields, other)
    return f"{changes} (chosen by the machine; --mixed-machines joins them)" if changes else ""


def _is_compared(run: StoredRun) -> bool:
    return run.is_current and run.record.state != RunState.REFUSED


def _require_equal_grids(first: Bundle, bundle: Bundle) -> None:
    """Raise `UserError` when a swept cell was trained at other values in one bundle than in the other."""
    grids, others = _grids(bundle.record.runs), _grids(first.record.runs)
    for cell in grids.keys() & others.keys():
        if grids[cell] != others[cell]:
            values = f"{', '.join(sorted(grids[cell]))} instead of {', '.join(sorted(others[cell]))} in {first.path}"
            raise UserError(f"{cell!r} was swept over {values}", str(bundle.path))


def _grids(runs: Iterable[StoredRun]) -> dict[str, set[str]]:
    grids: dict[str, set[str]] = {}
    for run in filter(_is_compared, runs):
        if run.record.phase == "sweep":
            grids.setdefault(run.record.cell, set()).add(" ".join(_values(run)))
    return grids


def _values(run: StoredRun) -> list[str]:
    """Return the values that a sweep set, as in `train.lr=0.001`."""
    return [f"{path}={value}" for path, value in run.record.params.items()]


def _question(bundle: Bundle) -> dict[str, Any]:
    """Return the latest question of a bundle's study, with the number of threads of its runs."""
    study = StudyRecord.of_tags(bundle.record.tags)
    return {**asked(recorded_comparisons(study)[-1]), "threads": study.threads}


def _comparable(run: StoredRun) -> dict[str, Any]:
    """Return what must be equal in the runs of one cell."""
    return comparable_fields(run.record.config, run.record.version)


def _union(bundles: Sequence[Bundle]) -> tuple[list[StoredRun], list[str]]:
    """Return the runs of all bundles, those with one key from one bundle, and the names of runs that several completed."""
    active = [[run for run in bundle.record.runs if not run.deleted] for bundle in bundles]
    finished = [{run.key: run for run in of_bundle if run.status == "FINISHED"} for of_bundle in active]
    owners = {run.key: number for number, of_bundle in reversed([*enumerate(active)]) for run in of_bundle}
    owners |= {key: number for number, of_bundle in reversed([*enumerate(finished)]) for key in of_bundle}
    runs = [run for number, of_bundle in enumerate(active) for run in of_bundle if owners[run.key] == number]
    runs += {(run.key, run.start): run for bundle in bundles for run in bundle.record.runs if run.deleted}.values()
    several = {run.key: run.name for n, of_bundle in enumerate(finished) for run in of_bundle.values() if owners[run.key] != n}
    return sorted(runs, key=lambda run: run.start), sorted(several.values())


def _tags(bundles: Sequence[Bundle], options: Sequence[str]) -> dict[str, str]:
    """Return the tags of the merged study: the first bundle's, the plans, changes and looks of all, and this call."""
    every = [bundle.record.tags for bundle in bundles]
    studies = [StudyRecord.of_tags(tags) for tags in every]
    changed = max((study.comparisons for study in studies), key=len)  # by one of the bundles, after there were results
    comparisons = [*changed[:-1], studies[0].comparisons[-1]]
    last = (read_calls(every[0]) or [Call("", f"{bundles[0].record.name}.yaml", "")])[-1]
    digests = ",".join(bundle.digest[:FEWEST_DIGITS] for bundle in bundles)
    command = command_line(["attnlab", "merge", *(bundle.path.name for bundle in bundles), "--sha256", digests, *options])
    kept = {key: value for key, value in every[0].items() if not key.startswith((CALL, TEXT, *LOOK_PREFIXES))}
    call = Call(command, last.file, last.text)
    looks, planned = reduce(joined_looks, map(looks_in, every)), dict[str, set[int]]()
    for name, seeds in (cell for study in studies for cell in study.planned.items()):
        planned.setdefault(name, set()).update(seeds)
    plan = {name: sorted(seeds) for name, seeds in planned.items()}
    return kept | to_tags(StudyRecord, comparisons=comparisons, planned=plan) | look_tags(looks) | call_tags(call, number=0)

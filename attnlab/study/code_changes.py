"""Notes on recorded runs that a change of the user's code invalidates."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError
from attnlab.tracking.client import search_runs
from attnlab.tracking.runs import recorded_experiment

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan


def code_change_notes(plan: Plan, root: str | Path | None = None) -> list[str]:
    """Return a note for each file of the user's that has changed since runs of the plan were recorded.

    Without code of the user's in the plan, no record is read.

    Args:
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.
    """
    code = {cell.name: _digests(json.loads(cell.settings.to_json())) for cell in plan.cells if cell.refusal is None}
    if not any(code.values()):
        return []
    try:
        recorded = recorded_experiment(plan.study.study, root)
        records = [] if recorded is None else search_runs(recorded[0], recorded[1].experiment_id)
    except UserError as error:
        return [f"runs that a change of code invalidates are not known: {error.message}"]
    records = [record for record in records if record.info.status == "FINISHED"]
    recorded_keys = {record.data.tags["attnlab.fingerprint"] for record in records}
    planned_keys = {(run.cell.name, run.seed, json.dumps(run.params)): run.key for run in plan.runs}  # none with a search
    changed: Counter[str] = Counter()
    added: Counter[str] = Counter()
    for tags in (record.data.tags for record in records if record.data.tags.get("attnlab.current") != "no"):
        cell, seed = tags["attnlab.cell"], int(tags["attnlab.seed"])
        is_planned = plan.searched or (cell in code and seed in plan.seeds)
        key = planned_keys.get((cell, seed, tags.get("attnlab.params", "{}")))
        if cell in code and is_planned and key not in recorded_keys:
            before = _digests(json.loads(tags["attnlab.config"]))
            changed.update(name for name, digest in code[cell].items() if before.get(name, digest) != digest)
            added.update(code[cell].keys() - before.keys())
    notes = {f"{name} (or a file that it imports) has changed since": count for name, count in sorted(changed.items())}
    notes |= {f"{name} counts now, and did not when": count for name, count in sorted(added.items())}
    return [
        f"{words} {count} run{'' if count == 1 else 's'} of this study "
        f"{'was' if count == 1 else 'were'} recorded: {'it' if count == 1 else 'they'} will be trained again"
        for words, count in notes.items()
    ]


def _digests(config: dict[str, Any]) -> dict[str, str]:
    """Return the digests of the user's code, or of the files of a program, by name, from a configuration as JSON."""
    sources = {Path(path).name: digest for path, digest in config.get("sources", {}).items()}
    return sources | config.get("packages", {}) | config.get("files", {})

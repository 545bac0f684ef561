"""The studies of a profile: one for each diagnostic; its cells are the levels that each variant has reached."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.config.axes import canonical, labels, text
from attnlab.config.types import WITH
from attnlab.errors import UserError
from attnlab.extras.profile.abilities import Ability
from attnlab.registry import VARIANTS
from attnlab.tracking.tags import to_yaml

BASELINES = ("dense", "lstm", "delta", "linear")
MODEL = {"dim": 64, "depth": 2, "heads": 4}
TRAIN = {"batch_size": 32, "lr": 3e-3, "warmup": 0.1, "eval_every": 50}
EVALUATE = {"valid_limit": 200, "test_limit": 1000}
REASON = "a variant is trained at a level only if most of its seeds solve the level before it"
HEADER = """\
# Written by `attnlab profile`, with the levels that each variant has reached. `attnlab run` trains the same runs, and
# `attnlab report` compares the variants at each level.
"""
Entry = dict[str, Any]  # a variant as in a study, with its position scheme


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
    ability: Ability, entries: Sequence[Entry], reached: Sequence[int], *, seeds: int, imports: Sequence[str], folder: Path
) -> dict[str, Any]:
    """Return the study of one diagnostic.

    Args:
        ability: The diagnostic.
        entries: The variants.
        reached: The number of levels that each of them is trained at.
        seeds: Number of seeds.
        imports: Files that register classes.
        folder: The folder of the study file, to which paths are made relative.
    """
    names = ability.level_names
    train = TRAIN | ({} if ability.stop_at is None else {"stop_at": ability.stop_at})
    task = _relocated(ability.task, folder)
    levels = {
        name: {"task": {"name": task, **options}, "train.steps": ability.steps}
        for name, options in zip(names, ability.levels, strict=True)
    }
    variants = [_relocated(entry, folder) for entry in entries]
    axis = [str(label) for label in labels(variants, axis="variant")]
    skip = [
        {"where": {"variant": label, "level": names[n:]}, "because": REASON}
        for label, n in zip(axis, reached, strict=True)
        if n < len(names)
    ]
    return {
        "study": study_name(ability),
        "question": f"Up to which level of {ability.name} does each variant solve it?",
        **({"imports": [_relocated(file, folder) for file in imports]} if imports else {}),
        "base": {"model": MODEL, "train": train, "evaluate": EVALUATE, "machine": {"threads": 1}},
        "grid": {"variant": variants, "level": levels},
        **({"skip": skip} if skip else {}),
        "seeds": f"0-{seeds - 1}",
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

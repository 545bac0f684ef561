"""The methods of a study, read back from its runs: how it was run, and how to reproduce it.

The calls that ran a study give the commands that make its report again.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.config.axes import SECTIONS
from attnlab.config.types import text as axis_text
from attnlab.report.notes import describe_command, is_of_program
from attnlab.study.comparison import MAX_COMMANDS, StudyInfo
from attnlab.tracking.experiment import Call

SINGLE_FIELDS = ("task", "data", "variant", "position", "backend")
ENVIRONMENT = ("data_sizes", "device", "versions", "commit")

COMMIT = re.compile(r"[0-9a-f]{7,64}(\+dirty)?")


def introduction(yaml: str) -> list[str]:
    """Return the paragraphs of the comment that opens a study's YAML file, which usually states its purpose."""
    lines: list[str] = []
    for line in yaml.splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").rstrip()
        if not text.startswith("yaml-language-server"):
            lines += ["", text] if text.startswith("- ") else [text]  # a list item is its own paragraph
    joined = "\n".join(lines).strip().split("\n\n")
    paragraphs = [" ".join(paragraph.split()) for paragraph in joined if paragraph.strip()]
    if paragraphs and (name := re.match(r"\S+\.ya?ml: ", paragraphs[0])):  # the file's name is not part of the purpose
        rest = paragraphs[0][name.end() :]
        paragraphs[0] = f"{rest[:1].upper()}{rest[1:]}"
    return paragraphs


def describe_methods(
    records: Sequence[Mapping[str, Any]],
    *,
    axes: Sequence[str],
    trials: Sequence[Mapping[str, Any]] = (),
    stages: Sequence[Mapping[str, Any]] = (),
) -> list[tuple[str, str]]:
    """Return (name, text) rows on what all runs share, and on fields that differ without being an axis.

    Args:
        records: The compared runs.
        axes: Names of the grid's axes, which are left out.
        trials, stages: The trials of a search and the runs that others start from, for their time.
    """
    names = list(dict.fromkeys(name for record in records for name in record))
    rows = [(name, values_text(records, name)) for name in SINGLE_FIELDS if name in names and name not in axes]
    for section in SECTIONS:
        fields = [name for name in names if name.startswith(f"{section}.") and name not in axes]
        parts = [f"{name.partition('.')[2]} {text}" for name in fields if (text := values_text(records, name))]
        rows.append((section, ", ".join(parts)))
    of_program = is_of_program(records)
    rows += describe_command(records, axes=axes) if of_program else []
    rows.append(("seeds", ", ".join(map(str, sorted({int(record["seed"]) for record in records})))))
    rows += [(name, values_text(records, name, separator="; ")) for name in ENVIRONMENT if name in names]
    started = [record["started"] for record in records if record.get("started") is not None]
    if started:
        rows.append(("started", f"{min(started):%Y-%m-%d %H:%M} to {max(started):%Y-%m-%d %H:%M} UTC"))
    minutes = total_seconds(records, "seconds") / 60
    before = f"; plus {total_seconds(stages, 'seconds') / 60:.1f} minutes of stages" if stages else ""
    search = f"; plus {total_seconds(trials, 'seconds') / 60:.1f} minutes of search" if trials else ""
    evaluation = "" if of_program else ", including evaluation"
    rows.append(("time", f"{minutes:.1f} minutes over all runs{evaluation}{search}{before}"))
    return [(name, text) for name, text in rows if text]


def total_seconds(records: Sequence[Mapping[str, Any]], name: str) -> float:
    """Return the sum of a column over the runs that have it."""
    return sum(float(record[name]) for record in records if record.get(name) and record[name] == record[name])


def values_text(records: Sequence[Mapping[str, Any]], name: str, *, separator: str = " or ") -> str:
    """Return every value of a field; "" if it has none (as the unused one of steps and epochs)."""
    values = [record.get(name) for record in records]
    texts = dict.fromkeys(_text(value) for value in values if value is not None and value == value)
    return separator.join(text for text in texts if text)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return axis_text(value) if "name" in value else _section_text(value)
    return (json.dumps(value) if value else "") if isinstance(value, list) else str(value)


def _section_text(section: Mapping[str, Any]) -> str:
    """Return the values of a section within another one, as in "(variant no_wo, position sinusoidal)"; "" if it has none."""
    values = ", ".join(f"{name} {_text(value)}" for name, value in section.items() if value is not None)
    return f"({values})" if values else ""


@dataclass(frozen=True)
class Reproduction:
    """The commands that make a report again.

    Attributes:
        commands: Shell commands; the last one writes the report.
        file: Name of the study file that they read.
        text: Its content, as the last call read it.
    """

    commands: Sequence[str]
    file: str
    text: str


def reproduction(info: StudyInfo, records: Sequence[Mapping[str, Any]]) -> Reproduction:
    """Return the commands that make the report again, as MLflow holds them.

    Args:
        info: The comparison of the study, and the calls that ran it.
        records: The compared runs.
    """
    study = info.spec.study
    last = info.calls[-1] if info.calls else Call("", f"{study}.yaml", info.yaml)
    commands = dict.fromkeys(_portable(call) for call in info.calls) or dict.fromkeys(info.command.splitlines())
    commits = (str(record.get("commit") or "") for record in reversed(records))
    commit = next((commit for commit in commits if COMMIT.fullmatch(commit)), "")
    checkout = [f"git checkout {commit.removesuffix('+dirty')}"] if commit else []
    changed = "   # with uncommitted changes" if commit.endswith("+dirty") else ""
    lines = [*(f"{line}{changed}" for line in checkout), *list(commands)[-MAX_COMMANDS:], f"attnlab report {study}"]
    return Reproduction(lines, last.file, last.text.strip())


def _portable(call: Call) -> str:
    """Return the command of a call without absolute paths and shared queues."""
    words = shlex.split(re.sub(r"\s--storage(=|\s+)('[^']*'|\S+)", "", call.command))
    return shlex.join(call.file if word.startswith("/") and word.endswith(f"/{call.file}") else word for word in words)

"""Commands that make a report again, from the calls that ran its study."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from attnlab.report.command import is_of_program
from attnlab.tracking.calls import TRAINING_VERBS, Call

if TYPE_CHECKING:
    from attnlab.report.methods import StudyInfo

SCRIPT = "reproduce.sh"
END = "END_OF_STUDY_FILE"
ADAPTIVE = "--until-conclusive"
MERGE = "attnlab merge "
COMMIT = re.compile(r"[0-9a-f]{7,64}(\+dirty)?")


@dataclass(frozen=True)
class Reproduction:
    """The commands that make a report again.

    Attributes:
        commands: Shell commands, the last one writes the report.
        files: Title and content of each study file that they read, in order.
        script: The same commands as a shell script that also writes the study files.
    """

    commands: Sequence[str]
    files: Sequence[tuple[str, str]]
    script: str


def reproduction(info: StudyInfo, records: Sequence[Mapping[str, Any]]) -> Reproduction:
    """Return the commands that make the report again.

    Args:
        info: The comparison of the study, and the calls that ran it.
        records: The compared runs.
    """
    study = info.spec.study
    unrecorded = [Call(line, f"{study}.yaml", info.yaml.strip() + "\n") for line in info.command.splitlines() or [""]]
    calls = [_portable(call, study) for call in needed_calls(info, records) or unrecorded]
    commits = (str(record.get("commit") or "") for record in reversed(records))
    commit = next((commit for commit in commits if COMMIT.fullmatch(commit)), "")
    checkout = [f"git checkout {commit.removesuffix('+dirty')}"] if commit else []
    changed = "   # with uncommitted changes" if commit.endswith("+dirty") else ""
    report = f"attnlab report {study}"
    texts = list(dict.fromkeys(text for _, _, text in calls))
    several = len(texts) > 1
    commands = [f"{line}{changed}" for line in checkout]
    place = "a folder with the files of its program" if is_of_program(records) else "an empty folder or a checkout"
    script = [
        "#!/bin/sh",
        f"# Makes the report of the study {study} again. Run it in {place}.",
        *checkout,
    ]
    written = ""
    for file, command, text in calls:
        commands.append(f"{command}   # with study file {texts.index(text) + 1}" if several else command)
        if text.strip() and text != written and file in shlex.split(command, comments=True):
            script += _here_document(file, text)
            written = text
        script.append(command)
    files = {
        text: f"{file}, study file {texts.index(text) + 1}" if several else file for file, _, text in calls if text.strip()
    }
    return Reproduction(
        [*commands, report], [(title, text.strip()) for text, title in files.items()], "\n".join([*script, report, ""])
    )


def needed_calls(info: StudyInfo, records: Sequence[Mapping[str, Any]]) -> list[Call]:
    """Return the calls that the report depends on: the last one, and earlier ones only if it depends on them.

    It does if the last call ran a part of the study, if finished runs are left out, if the comparison was changed after there
    were results, if the last call did not add the seeds by which verdicts were decided, or if seeds were added after a look.
    """
    if not info.calls:
        return []
    *_, last = info.calls
    looks = info.spec.looks
    announced = looks is not None and looks.announced
    adaptive = announced and not _adds_seeds(last)
    if not (last.partial or info.selection.left_out or info.changes or adaptive or (looks and looks.further)):
        return [last]
    started = [
        record["started"].timestamp() for record in [*records, *info.selection.left_out] if record.get("started") is not None
    ]
    first = min(started, default=0.0)
    before = [i for i, call in enumerate(info.calls) if call.time / 1_000 <= first]
    calls = list(info.calls[max(before, default=0) :])
    # Without such a call, seeds were added by one in Python. The bundles of a merge have the calls that added theirs.
    if looks and announced and not any(_adds_seeds(call) or call.command.startswith(MERGE) for call in calls):
        adaptive_call = replace(calls[0], command=f"{calls[0].command} {ADAPTIVE} --max-seeds {looks.last}")
        return [adaptive_call, *(calls[1:] if looks.further else [])]
    return calls


def _adds_seeds(call: Call) -> bool:
    """Return True when a call adds seeds until verdicts are conclusive, by itself or as its study file says."""
    if ADAPTIVE in call.command or re.search(r"--set '?(seeds=auto|max_seeds=\d)", call.command):
        return True
    stated = re.search(r"^(seeds: *['\"]?auto|max_seeds: *\d)", call.text, re.MULTILINE)
    return stated is not None and "--seeds" not in call.command


def _portable(call: Call, study: str) -> tuple[str, str, str]:
    """Return the path of a call's study file, its command and its text, without absolute paths and shared queues.

    The record may be a stranger's: the command is one that writes runs, and its file has a name without a folder.
    """
    words, file = [], call.file
    try:
        arguments = iter(shlex.split(call.command))
    except ValueError:  # a quotation without an end
        arguments = iter(())
    for word in arguments:
        path = PurePath(word)
        if word == "--storage":
            next(arguments, None)
        elif path.name == call.file:
            file = call.file if path.is_absolute() or any(part.startswith(".") for part in path.parts) else str(path)
            words.append(file)
        elif not word.startswith("--storage="):
            words.append(word)
    writes_runs = words[:1] == ["attnlab"] and words[1:2] and words[1] in (*TRAINING_VERBS, "merge")
    is_name = call.file == PurePath(call.file).name and not call.file.startswith(".") and "\0" not in call.command
    if not (writes_runs and is_name and file):
        return f"{study}.yaml", f"attnlab run {study}.yaml", call.text
    return file, shlex.join(words), call.text


def _here_document(file: str, text: str) -> list[str]:
    """Return the shell lines that write a file."""
    folder = PurePath(file).parent
    lines = [] if str(folder) == "." else [f"mkdir -p {shlex.quote(str(folder))}"]
    end = END
    while end in text:
        end += "_"
    return [*lines, f"cat > {shlex.quote(file)} <<'{end}'", text.rstrip("\n"), end]

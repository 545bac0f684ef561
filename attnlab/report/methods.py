"""How a study was measured and how to repeat it, read back from its runs."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.search import SearchConfig
from attnlab.errors import UserError
from attnlab.stats.compare import Question
from attnlab.stats.sequential import Looks
from attnlab.tracking.artifacts import ReferenceScore, read_reference_scores

if TYPE_CHECKING:
    import pandas

    from attnlab.config.study import StudyConfig

SECTIONS = ("model", "train", "evaluate", "machine")
SINGLE = ("task", "data", "variant", "position", "backend")
ORIGIN = ("device", "versions", "commit")
SPENT = {"train": "steps", "evaluation": "evaluation", "logging": "logging", "checkpoint": "checkpoints", "startup": "start"}
MOST_COMMANDS = 6  # a study may have been gone on with many times


@dataclass(frozen=True)
class Source:
    """What a study asks, the YAML it was written in, the command that ran it, its cells in the grid's order, its search.

    `command` has a line for each time that it was gone on with. `skipped` are the cells that the study left out, with
    its reasons; `reference_scores` the trivial ones that stand beside it; `earlier` what it asked before, when it had results
    already.
    """

    question: Question
    yaml: str = ""
    command: str = ""
    order: tuple[str, ...] = ()
    search: SearchConfig | None = None
    reference_scores: tuple[ReferenceScore, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    earlier: tuple[str, ...] = ()

    def place(self, cell: str) -> int:
        """Where a cell stands in the grid; what the grid does not know comes last."""
        return self.order.index(cell) if cell in self.order else len(self.order)


def source(runs: pandas.DataFrame, *, root: str | Path | None = None) -> Source:
    """Read the study's YAML and command back from the newest of its runs.

    Args:
        runs: as `load_runs` returns them, not empty.
    """
    from attnlab.config.reader import read_study
    from attnlab.tracking.client import connect, runs_folder, search_runs
    from attnlab.tracking.runs import questions

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    client = connect(runs_folder(root))
    newest = runs.iloc[-1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(client.download_artifacts(str(newest["run_id"]), "study.yaml", folder))
        text, study = path.read_text(encoding="utf-8"), read_study(path)
    axes = tuple(study.grid) or ("variant",)
    *earlier, now = questions(study.study, root) or [_asked(study, newest)]
    question = Question(study.study, axes, **{**now, "baseline": now["baseline"] or {}}, looks=_looks(study.study, root))
    record = client.get_run(str(newest["run_id"]))
    tags, beside = record.data.tags, tuple(read_reference_scores(client, record.info.experiment_id))
    how = tags.get("attnlab.search")  # as it was run: the YAML does not know what the command line said over it
    search = SearchConfig.model_validate_json(how) if how else None
    order, skipped = _cells(study)
    every = search_runs(client, record.info.experiment_id)
    typed = dict.fromkeys(each.data.tags.get("attnlab.command", "").replace("cli.py ", "attnlab ", 1) for each in every)
    command = "\n".join([each for each in typed if each.startswith("attnlab ")][:MOST_COMMANDS])
    return Source(question, text, command, order, search, beside, skipped, tuple(_changed(each, now) for each in earlier))


def _looks(study: str, root: str | Path | None) -> Looks | None:
    from attnlab.tracking.runs import looks

    found = looks(study, root)
    return found and Looks(*found)


def _cells(study: StudyConfig) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The names of the study's cells, and what it leaves out with the reasons."""
    from attnlab.config.grid import expand

    try:
        cells, skipped = expand(study)
    except UserError:  # the YAML alone is no valid study: the command line filled something in
        return (), ()
    return tuple(cell.name for cell in cells), tuple((cell.name, cell.because) for cell in skipped)


def _asked(study: StudyConfig, run: Mapping[Any, Any]) -> dict[str, Any]:
    """The question of a study that was run before questions were recorded: of its YAML, the direction of its task's class."""
    from attnlab.registry import TASKS, load_file

    name, _, _ = str(run["task"]).partition(" ")
    for path in run["sources"] if isinstance(run.get("sources"), Mapping) else ():
        load_file(Path(path))
    task: Any = TASKS.get(name)
    asked = {"metric": study.metric or task.metric, "direction": task.direction}
    return {**asked, "baseline": study.baseline, "margin": study.margin}


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """ "margin 0.01 (now 0.02), baseline variant dense (now variant basic)"."""
    return ", ".join(f"{name} {_said(before[name])} (now {_said(now[name])})" for name in now if before[name] != now[name])


def _said(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{axis} {_text(of)}" for axis, of in value.items())
    return "none" if value is None else _text(value)


def lead(yaml: str) -> list[str]:
    """The comment that opens the study's YAML, as paragraphs: it usually says what the study is for."""
    words: list[str] = []
    for line in yaml.splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("# ").rstrip()
        if not text.startswith("yaml-language-server"):
            words += ["", text] if text.startswith("- ") else [text]  # an item of a list is a paragraph of its own
    paragraphs = "\n".join(words).strip().split("\n\n")
    found = [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]
    if found and (name := re.match(r"\S+\.ya?ml: ", found[0])):  # the file's name is no part of what it asks
        rest = found[0][name.end() :]
        found[0] = f"{rest[:1].upper()}{rest[1:]}"
    return found


def protocol(
    records: Sequence[Mapping[str, Any]], *, axes: Sequence[str], trials: Sequence[Mapping[str, Any]] = ()
) -> list[tuple[str, str]]:
    """What all runs share, section by section, and what differed without being an axis; of a search's trials their time."""
    names = list(dict.fromkeys(name for record in records for name in record))
    found = [(name, _values(records, name)) for name in SINGLE if name in names and name not in axes]
    for section in SECTIONS:
        fields = [n for n in names if n.startswith(f"{section}.") and n not in axes]
        parts = [f"{n.partition('.')[2]} {text}" for n in fields if (text := _values(records, n))]
        found.append((section, ", ".join(parts)))
    seeds = sorted({int(record["seed"]) for record in records})
    found.append(("seeds", ", ".join(map(str, seeds))))
    found += [(name, _values(records, name, separator="; ")) for name in ORIGIN if name in names]
    started = [record["started"] for record in records if record.get("started") is not None]
    if started:
        found.append(("started", f"{min(started):%Y-%m-%d %H:%M} to {max(started):%Y-%m-%d %H:%M} UTC"))
    minutes = _seconds(records, "seconds") / 60
    before = f"; and {_seconds(trials, 'seconds') / 60:.1f} minutes of search before them" if trials else ""
    found.append(("time", f"{minutes:.1f} minutes over all runs, evaluation included{_shares(records)}{before}"))
    return [(name, text) for name, text in found if text]


def _seconds(records: Sequence[Mapping[str, Any]], name: str) -> float:
    """The sum of a figure over the runs that have it."""
    return sum(float(r[name]) for r in records if r.get(name) and r[name] == r[name])


def _shares(records: Sequence[Mapping[str, Any]]) -> str:
    """Where the runs' own time went; "" where they do not tell."""
    spent = {part: _seconds(records, f"{part}_seconds") for part in SPENT}
    if not spent["startup"]:
        return ""
    parts = [f"{SPENT[part]} {seconds / sum(spent.values()):.1%}" for part, seconds in spent.items()]
    data = _seconds(records, "data_seconds") / sum(spent.values())
    return f": {', '.join(parts)} (drawing batches {data:.1%}, within the steps)"


def _values(records: Sequence[Mapping[str, Any]], name: str, *, separator: str = " or ") -> str:
    """Every value that a field took; "" where it took none (the other of steps and epochs)."""
    given = [record.get(name) for record in records]
    shown = dict.fromkeys(_text(value) for value in given if value is not None and value == value and value != "")
    return separator.join(shown)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value) if isinstance(value, (list, dict)) else str(value)


def commands(source: Source, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to type to get these numbers again."""
    commit = next((str(r["commit"]) for r in reversed(records) if r.get("commit")), "")
    found = []
    if commit:
        changed = "   # with changes that were not committed" if commit.endswith("+dirty") else ""
        found.append(f"git checkout {commit.removesuffix('+dirty')}{changed}")
    run = source.command or f"attnlab run {source.question.study}.yaml"
    return [*found, run, f"attnlab report {source.question.study}"]

"""The methods of a study, read back from its runs: what it compares, how it was run, and how to reproduce it.

The calls that ran a study give the commands that make its report again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.config.axes import SECTIONS
from attnlab.config.factors import factorial_design
from attnlab.config.search import SearchConfig
from attnlab.config.types import text as axis_text
from attnlab.errors import UserError
from attnlab.report.notes import describe_command, is_of_program
from attnlab.stats.cells import ComparisonSpec
from attnlab.stats.compare import summarize_cells
from attnlab.stats.compared import Compared, compare_cells
from attnlab.stats.items import UncertaintyParts, judge_items
from attnlab.stats.question import question_of
from attnlab.stats.records import RunRow, exclude_trials
from attnlab.stats.selection import Selection
from attnlab.stats.sweep import swept_path
from attnlab.tracking.artifacts import ReferenceScore, read_reference_scores
from attnlab.tracking.experiment import Call, read_calls, recorded_study
from attnlab.tracking.record import RunRecord

if TYPE_CHECKING:
    import pandas

    from attnlab.config.study import StudyConfig

SINGLE_FIELDS = ("task", "data", "variant", "position", "backend")
ENVIRONMENT = ("data_sizes", "device", "versions", "commit")
MAX_COMMANDS = 6  # a study may have been resumed many times

COMMIT = re.compile(r"[0-9a-f]{7,64}(\+dirty)?")


@dataclass(frozen=True)
class StudyInfo:
    """The comparison of a study, and the way it was run.

    Attributes:
        spec: The comparison that the study makes.
        yaml: The YAML file that it was written in.
        command: The command that ran it, with a line for each different command that resumed it.
        order: Names of its cells, in the grid's order.
        search: Its search, if it has one.
        reference_scores: Scores of methods without a network on the same data.
        skipped: (name, reason) of the cells that the study leaves out.
        calls: The calls that ran it, as recorded.
        selection: The choice of its records.
        uncertainty: The uncertainty of each difference, split into seeds and test items.
        question: The question that the study answers, if it states one.
        task: The task that the page is about, for a study of several tasks, each of which has a page.
        analyses: Names of the analyses that the study asks for besides attnlab's own.
    """

    spec: ComparisonSpec
    yaml: str = ""
    command: str = ""
    order: tuple[str, ...] = ()
    search: SearchConfig | None = None
    reference_scores: tuple[ReferenceScore, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    calls: tuple[Call, ...] = ()
    selection: Selection = Selection()
    uncertainty: tuple[UncertaintyParts, ...] = ()
    question: str = ""
    task: str = ""
    analyses: tuple[str, ...] = ()

    def position(self, cell: str) -> int:
        """Return a cell's position in the grid; cells that are not in the grid come last."""
        return self.order.index(cell) if cell in self.order else len(self.order)


def load_study_info(runs: pandas.DataFrame, *, root: str | Path | None = None) -> StudyInfo:
    """Read the comparison, the YAML file and the commands of a study from MLflow.

    Args:
        runs: As `attnlab.load_runs` returns them, not empty.
        root: Folder of the runs.
    """
    from attnlab.study.looks import look_history
    from attnlab.study.plan import load_selection
    from attnlab.tracking.client import connect, runs_folder, search_runs
    from attnlab.tracking.runs import doubles, questions

    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    client = connect(runs_folder(root))
    record = RunRecord.of(client.get_run(str(runs.iloc[-1]["run_id"])))  # the newest
    experiment = client.get_experiment(record.experiment_id)
    calls = read_calls(experiment.tags)
    study, text = recorded_study(experiment.name, calls)
    axes = tuple(study.grid) or ("variant",)
    if not (asked := questions(study.study, root)):  # a record says what it compares: nothing is imported to find it out
        raise UserError(f"the record of the study {study.study!r} has no question: run the study again", experiment.name)
    now = asked[-1]
    records = [{str(name): value for name, value in run.items()} for run in runs.to_dict("records")]
    spec = question_of(ComparisonSpec(study.study, axes, now["metric"], now["direction"]), now)
    spec = replace(spec, sweep=swept_path(records) or study.swept_path or "", factorial=factorial_design(study))
    spec = replace(spec, doubles=doubles(study.study, root), question=study.question or "")
    spec = look_history(spec.study, root).apply(spec.with_margin(now["margin"]))
    scores = tuple(read_reference_scores(client, record.experiment_id))
    # The search as it was run: the command line may have overridden the YAML file.
    search = SearchConfig.model_validate_json(json.dumps(record.search)) if record.search else None
    order, skipped = _cells(study)
    commands = dict.fromkeys(run.command for run in search_runs(client, record.experiment_id))
    command = "\n".join([line for line in commands if line.startswith("attnlab ")][:MAX_COMMANDS])
    selection = load_selection(spec, records, root)
    info = StudyInfo(spec, text, command, order, search, scores, skipped, tuple(calls), selection)
    return replace(info, question=study.question or "", analyses=tuple(study.analyses))


def load_judged(study: str, root: str | Path | None = None) -> tuple[StudyInfo, pandas.DataFrame]:
    """Read a study and its runs, record the look at its verdicts, and correct them for all looks.

    Raises:
        UserError: The study does not exist.
        NoRunsError: It has no runs.
    """
    from attnlab.study.looks import record_look
    from attnlab.tracking.runs import NoRunsError, load_runs

    runs = load_runs(study, root)
    if runs.empty:
        raise NoRunsError(study)
    info = load_study_info(runs, root=root)
    if not info.spec.is_judged:
        return info, runs
    cells = summarize_cells(exclude_trials(runs.to_dict("records")), info.spec)
    return replace(info, spec=record_look(info.spec, cells, root).apply(info.spec)), runs


def compare_info(info: StudyInfo, runs: pandas.DataFrame) -> Compared:
    """Return the compared cells of a study as it is recorded; takes the arguments of `attnlab.report.page.make_page`."""
    records: list[RunRow] = [{str(name): value for name, value in run.items()} for run in runs.to_dict("records")]
    options = {"search": info.search, "selection": info.selection, "analyses": info.analyses}
    compared = compare_cells(records, info.spec, order=info.order, **options)
    return replace(compared, cells=judge_items(compared.cells, info.uncertainty, metric=info.spec.metric))


def _cells(study: StudyConfig) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Return the names of the study's cells, and (name, reason) of those that it leaves out."""
    from attnlab.config.grid import expand

    try:
        cells, skipped = expand(study)
    except UserError:  # the YAML file alone is not a valid study: the command line completed it
        return (), ()
    return tuple(cell.name for cell in cells), tuple((cell.name, cell.because) for cell in skipped)


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

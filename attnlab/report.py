"""A study's report: a page that reads offline and on a phone, the same as Markdown, plots and CSV files.

Everything comes from MLflow (through `track`): nothing is trained, nothing is typed by hand. `compare` and
`stats` make the table, `figures` the plots.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.errors import UserError
from attnlab.reporting.baselines import baseline_notes, beside, with_baselines
from attnlab.reporting.compare import BASELINE, COSTS, Question, Row, cell_of, fixed, plus_minus, rows, significant
from attnlab.reporting.figures import Figure, cell_colors, draw
from attnlab.reporting.protocol import Source, commands, lead, protocol, source
from attnlab.reporting.search import NOT_CONFIRMED, Searched, method, reported, search_table, searched, unconfirmed
from attnlab.reporting.tables import Column, Line, Table, markdown

if TYPE_CHECKING:
    import pandas

RUN_COSTS = ("tokens_per_s", "saved_mib", "train_seconds")


def report(study: str, root: str | Path | None = None, out: str | Path | None = None) -> Path:
    """Write the report of a study's runs and return its folder.

    Args:
        study: the study's name, as in its YAML.
        root: the folder of runs; default `ATTNLAB_RUNS`, else `runs`.
        out: where to write; default `reports/STUDY`.

    Raises:
        UserError: there is no such study, or it has no runs.
    """
    from attnlab import track

    runs = track.load_runs(study, root)
    if runs.empty:
        raise UserError(f"the study {study!r} has no runs yet")
    folder = Path(out or Path("reports") / study)
    write(folder, source=source(runs, root=root), runs=runs, curves=track.load_curves(study, root))
    return folder


def write(folder: Path, *, source: Source, runs: pandas.DataFrame, curves: pandas.DataFrame) -> None:
    """Write `index.html`, `README.md`, the plots and the CSV files into `folder`.

    Args:
        source: what the study asks and where its runs come from.
        runs: as `track.load_runs` returns them, those of a search included.
        curves: as `track.load_curves` returns them.
    """
    records = [{str(k): v for k, v in record.items()} for record in runs.to_dict("records")]
    records.sort(key=lambda record: (source.place(cell_of(record, source.question)), record["seed"]))
    found = searched(records, source.question, source.search) if source.search else []
    table = rows([*reported(records), *unconfirmed(records, source.question, found)], source.question)
    table.sort(key=lambda row: source.place(row.name))
    records = reported(records)
    colors = cell_colors(table)
    figures = draw(table, records, curves, question=source.question)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.svg"):
        stale.unlink()
    for figure in figures:
        (folder / figure.file).write_text(figure.svg, encoding="utf-8")
    page = _page(source, table, records, figures, colors, found)
    for template, name in (("report.html.j2", "index.html"), ("report.md.j2", "README.md")):
        (folder / name).write_text(_render(template, page), encoding="utf-8")
    runs.drop(columns=["folder", "sources", "params"], errors="ignore").to_csv(folder / "runs.csv", index=False)
    _write_cells(folder / "cells.csv", table, source.question)


def _page(
    source: Source,
    table: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    plots: Sequence[Figure],
    colors: Mapping[str, str],
    found: Sequence[Searched],
) -> dict[str, Any]:
    from attnlab import __version__

    trivial = beside(source.baselines, records, metric=source.question.metric)
    return {
        "question": source.question,
        "lead": lead(source.yaml),
        "opening": _opening(table, source.question),
        "table": with_baselines(cell_table(table, source.question, colors=colors), trivial),
        "notes": [*notes(table, source.question), *baseline_notes(trivial)],
        "plots": plots,
        "search": _search(found, source),
        "troubles": [row for row in table if set(row.states) != {"completed"}],
        "protocol": protocol(records, axes=source.question.axes),
        "commands": commands(source, records),
        "yaml": source.yaml.strip(),
        "yaml_name": f"{source.question.study}.yaml",
        "runs": _run_table(records, source.question),
        "version": __version__,
    }


def _search(found: Sequence[Searched], source: Source) -> dict[str, Any] | None:
    """The section on the search, where there was one."""
    if source.search is None or not found:
        return None
    return {
        "method": method(source.search, source.question),
        "table": search_table(found, source.question, source.search),
        "warnings": [f"{each.cell}: {edge}." for each in found for edge in each.edges],
    }


def _render(template: str, page: Mapping[str, Any]) -> str:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent / "reporting")
    escape = template.endswith(".html.j2")
    environment = jinja2.Environment(loader=loader, autoescape=escape, trim_blocks=True, lstrip_blocks=True)
    return environment.get_template(template).render(page, markdown=markdown)


def _opening(table: Sequence[Row], question: Question) -> str:
    counted = sum(count for row in table for state, count in row.states.items() if state not in ("refused", NOT_CONFIRMED))
    better = "lower is better" if question.direction == "min" else "higher is better"
    text = f"{len(table)} cells, {counted} runs. The metric is {question.metric} on the test split: {better}."
    names = dict.fromkeys(row.baseline for row in table if row.baseline)
    if len(names) == 1:
        text += f" The others are compared with {next(iter(names))}."
    elif names:
        where = ", ".join(f"{axis} {value}" for axis, value in question.baseline.items())
        text += f" Each cell is compared with the one that has {where} and is otherwise the same."
    return text


def cell_table(table: Sequence[Row], question: Question, *, colors: Mapping[str, str] | None = None) -> Table:
    """The main table: a line a cell. Columns that no cell fills are left out."""
    costs = [cost for cost in COSTS if any(cost in row.costs for row in table)]
    compared = any(row.baseline for row in table)
    columns = [Column("cell", words=True), Column(question.metric), Column("seeds")]
    columns += [Column("difference"), Column("verdict", words=True)] if compared else []
    columns += [Column(COSTS[cost]) for cost in costs] + [Column("state", words=True)]
    lines = []
    for row in table:
        cells = [row.name, plus_minus(row.value) or row.outcome, str(len(row.values) or "")]
        if compared:
            gap = row.difference and row.difference.interval
            cells += [plus_minus(gap, sign=True), row.verdict]
        cells += [significant(row.costs[cost].mean) if cost in row.costs else "" for cost in costs]
        kind = "missing" if row.value is None else "baseline" if row.verdict == BASELINE else ""
        lines.append(Line([*cells, row.outcome], (colors or {}).get(row.name, ""), kind))
    return Table(columns, lines)


def notes(table: Sequence[Row], question: Question) -> list[str]:
    """What a reader must know to read the table's figures, and nothing about figures that are not there."""
    found = []
    counts = {row.value.n for row in table if row.value is not None}
    if counts - {1}:
        found.append("± is half of the 95 % t-interval over seeds.")
    if 2 in counts:
        found.append("From two seeds that interval is 12.7 standard errors to either side: run more of them.")
    if 1 in counts:
        found.append("One seed: no interval. How much another seed would change the figure is not known.")
    if any(row.difference for row in table):
        found.append(
            "Differences are taken seed by seed: with one seed, two cells see the same batches and shared "
            "modules start from the same values. Verdicts are at 5 %, corrected by Holm over all comparisons "
            "of the table, for each kind of verdict. “Not settled” means that these seeds cannot tell, not that "
            "the cells are equal. The t-tests are for differences that scatter about evenly to both sides: where one "
            "or two seeds lie far to one side of the others, verdicts are surer of themselves than they should be."
        )
        if question.margin is not None:
            found.append(
                f"Equivalent: two one-sided tests place the difference within ±{question.margin:g} of zero."
            )
        if question.looks is not None:
            found.append(question.looks.words)
    found.append(
        "tokens/s counts training steps alone, after the first interval; saved MiB is what a step keeps for "
        "its backward pass, the same on every device. Speeds compare only on an otherwise idle machine."
    )
    return found


def _run_table(records: Sequence[Mapping[str, Any]], question: Question) -> Table:
    metrics = [question.metric, *(cost for cost in RUN_COSTS if any(_given(r.get(cost)) for r in records))]
    columns = [Column("run", words=True), *(Column(COSTS.get(name, name)) for name in metrics)]
    columns += [Column("state", words=True), Column("device", words=True), Column("MLflow run", words=True)]
    lines = []
    for record in records:
        figures = [_figure(n, record.get(n), question) for n in metrics]
        state = str(record["state"])
        words = [state, str(record.get("device") or ""), str(record["run_id"])]
        kind = "" if state == "completed" else "missing"
        lines.append(Line([str(record["name"]), *figures, *words], kind=kind))
    return Table(columns, lines)


def _figure(name: str, value: Any, question: Question) -> str:
    if not _given(value):
        return ""
    return fixed(float(value)) if name == question.metric else significant(float(value))


def _given(value: Any) -> bool:
    return value is not None and value == value


def _write_cells(path: Path, table: Sequence[Row], question: Question) -> None:
    heads = ["cell", *question.axes, "n", question.metric, "sd", "low", "high", "baseline"]
    heads += ["difference", "difference_low", "difference_high", "p", "p_holm", "p_equivalent_holm", "effect"]
    heads += ["verdict", *COSTS, "outcome"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(heads)
        for row in table:
            v, d = row.value, row.difference
            value = [v.n, v.mean, v.sd, v.low, v.high] if v else [0, None, None, None, None]
            gap = [d.interval.mean, d.interval.low, d.interval.high] if d else [None] * 3
            gap += [d.p, d.p_holm, d.p_equivalent_holm, d.effect] if d else [None] * 4
            costs = [row.costs[cost].mean if cost in row.costs else None for cost in COSTS]
            axes = [row.axes[axis] for axis in question.axes]
            writer.writerow([row.name, *axes, *value, row.baseline, *gap, row.verdict, *costs, row.outcome])

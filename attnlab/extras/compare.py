"""`attnlab compare`: a verdict on scores that another program has written, one file for each cell."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab._util.run_state import RunState
from attnlab._util.text import count
from attnlab.cli._arguments import Parser
from attnlab.cli._json import add_verdict_arguments, exit_code, study_answer
from attnlab.cli._printing import print_table, print_text
from attnlab.cli._results import print_verdict
from attnlab.errors import UserError, nearest

HELP = "compare scores that another program has written: attnlab compare baseline.csv other.csv --metric acc --direction max"
DESCRIPTION = (
    "Compare two or more files of scores with the same statistics as the cells of a study. Rows are paired by the seed or the "
    "test item, as in the files of samples of the Language Model Evaluation Harness; each pair counts as a seed. A file is CSV "
    "with a heading, .tsv, or .jsonl with an object in each line. Nothing is recorded, so further looks are not corrected for."
)
KEYS = ("seed", "doc_id", "item", "id")
RESERVED = ("cell", "file", "seed", "state", "reason", "test", "task", "data", "length", "phase", "params")  # of a run
LARGEST = 1e70  # as of the metric of a program
Row = Mapping[str, Any]


def add_arguments(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="files of scores, the baseline first")
    parser.add_argument("--metric", required=True, metavar="NAME", help="the column or key of the scores")
    parser.add_argument("--direction", required=True, choices=("max", "min"), help="max: higher is better")
    parser.add_argument("--by", metavar="NAME[,NAME]", help=f"what pairs rows (default: the first of {', '.join(KEYS)} in all)")
    parser.add_argument("--margin", type=float, metavar="M", help="the largest difference that counts as equivalent")
    add_verdict_arguments(parser)


def main(arguments: Namespace) -> int:
    from attnlab.report.conclusion import conclusions, verdict_rows
    from attnlab.report.wording import format_metric
    from attnlab.stats.cells import ComparisonSpec
    from attnlab.stats.compared import compare_cells

    files, metric = [Path(file) for file in arguments.files], arguments.metric
    if len(set(files)) < max(2, len(files)):
        raise UserError(f"expected two or more different files, got {', '.join(map(str, files))}")
    if arguments.margin is not None and not 0 < arguments.margin < LARGEST:
        raise UserError(f"expected a margin above 0, got {arguments.margin}", "--margin")
    if metric in RESERVED:
        raise UserError(f"expected another name than {metric!r}, which is a field of a run: rename the column", "--metric")
    names = [file.stem for file in files]
    names = names if len(set(names)) == len(files) else [str(file) for file in files]
    tables = {file: list(_rows(file)) for file in files}
    by = arguments.by.split(",") if arguments.by else common_key([row for rows in tables.values() for _, row in rows])
    scores = {name: read_scores(file, tables[file], metric, by) for name, file in zip(names, files, strict=True)}
    number = {key: i for i, key in enumerate(dict.fromkeys(key for of_file in scores.values() for key in of_file))}
    for name, of_file in scores.items():
        if len(of_file.keys() & scores[names[0]].keys()) < 2:
            ends = " and ".join(f"{next(iter(scores[one]), 'none')!r} in {one}" for one in (names[0], name))
            raise UserError(f"expected two or more rows with the same {', '.join(by)} in both files; the first is {ends}")
    records = [  # a row that a file lacks is a lost seed
        {"cell": name, "file": name, "seed": i, "state": RunState.COMPLETED, metric: of_file[key]}
        if key in of_file
        else {"cell": name, "file": name, "seed": i, "state": RunState.FAILED, "reason": "a row without a score"}
        for name, of_file in scores.items()
        for key, i in number.items()
    ]
    goal = {"metric": metric, "direction": arguments.direction, "margin": arguments.margin}
    compared = compare_cells(records, ComparisonSpec("compare", ("file",), **goal, baselines=({"file": names[0]},)))
    headings = ("cell", "value", "difference", "low", "high", "verdict", "note")
    rows = [[row[name] for name in headings] for row in verdict_rows(compared)]
    print_table(
        headings, [[format_metric(v) if isinstance(v, float) else v or "" for v in row] for row in rows], wrap=("note",)
    )
    notes = [f"rows are paired by {', '.join(by)}; each pair counts as a seed"]
    notes += [f"{name} has {len(of)} of {count(len(number), 'row')}" for name, of in scores.items() if len(of) < len(number)]
    for note in notes:
        print_text(f"note: {note}")
    print_verdict(texts := conclusions(compared))
    arguments.answer = {**study_answer(compared, texts), "notes": notes}
    return exit_code(arguments, compared)


def common_key(rows: Sequence[Row]) -> list[str]:
    """Return the first of `KEYS` that all rows have, which pairs them."""
    key = next((key for key in KEYS if all(key in row for row in rows)), None)
    if key is None or not rows:
        raise UserError(f"expected rows that all have one of {', '.join(KEYS)}: --by names what pairs the rows of these files")
    return [key]


def read_scores(path: Path, rows: Sequence[tuple[int, Row]], metric: str, by: Sequence[str]) -> dict[str, float]:
    """Return the scores of the rows of a file by what pairs them, in the file's order.

    Raises:
        UserError: a row lacks one of them, has no finite score, or pairs with the same rows as an earlier one.
    """
    scores: dict[str, float] = {}
    for line, row in rows:
        for name in (metric, *by):
            if name not in row:
                listed = ", ".join(map(str, row))
                raise UserError(f"expected {name!r}{nearest(name, list(row))}, got {listed}", f"{path}:{line}")
            if row[name] in (None, ""):
                raise UserError(f"expected a value of {name!r}, got none", f"{path}:{line}")
        key, value = ", ".join(str(row[name]) for name in by), _number(row[metric])
        if value is None:
            raise UserError(f"expected a finite number as {metric!r}, got {row[metric]!r}", f"{path}:{line}")
        if key in scores:
            message = f"expected each {', '.join(by)} once, got {key} again: average its rows, or pair them by more (--by A,B)"
            raise UserError(message, f"{path}:{line}")
        scores[key] = value
    return scores


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield the number of each line that has a row, and the row."""
    kind = path.suffix.lower()
    with path.open(encoding="utf-8-sig", newline="") as file:
        line = 0
        try:
            if kind in (".jsonl", ".ndjson"):
                for line, text in enumerate(file, 1):
                    row = json.loads(text) if text.strip() else {}
                    if not isinstance(row, dict):
                        raise UserError(f"expected a JSON object, got {type(row).__name__}", f"{path}:{line}")
                    if row:
                        yield line, row
                return
            reader = csv.DictReader(file, delimiter="\t" if kind == ".tsv" else ",", skipinitialspace=True)
            if len(set(reader.fieldnames or ())) < len(reader.fieldnames or ()):
                raise UserError(f"expected different headings, got {', '.join(reader.fieldnames or ())}", f"{path}:1")
            for row in reader:
                line = reader.line_num
                if None in row:
                    raise UserError(f"expected {len(reader.fieldnames or ())} values, got more", f"{path}:{line}")
                yield line, row
        except (ValueError, csv.Error) as error:
            what = "a JSON object" if kind in (".jsonl", ".ndjson") else "a table in UTF-8"
            raise UserError(f"expected {what}: {error}", f"{path}:{line or 1}") from error


def _number(value: Any) -> float | None:
    """Return a finite number, also of true and false, or None."""
    if isinstance(value, str):
        value = {"true": "1", "false": "0"}.get(value.lower(), value.replace("_", "x"))
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < LARGEST else None

"""`attnlab compare`: a verdict on scores that another program has written, one file for each cell."""

from __future__ import annotations

import csv
import json
from argparse import Namespace
from collections.abc import Iterator, Mapping
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
    "Compare two or more files of scores with the same statistics as the cells of a study. Rows are paired by the "
    "seed or the test item, as in the files of samples of the Language Model Evaluation Harness. A file is CSV with a "
    "heading, .tsv, or .jsonl with an object in each line. Nothing is recorded, so further looks are not corrected for."
)
KEYS = ("seed", "doc_id", "item", "id")


def add_arguments(parser: Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="files of scores, the baseline first")
    parser.add_argument("--metric", required=True, metavar="NAME", help="the column or key of the scores")
    parser.add_argument("--direction", required=True, choices=("max", "min"), help="max: higher is better")
    parser.add_argument(
        "--by", metavar="NAME[,NAME]", help=f"the column or key that pairs rows (default: the first of {', '.join(KEYS)})"
    )
    parser.add_argument("--margin", type=float, metavar="M", help="the largest difference that counts as equivalent")
    add_verdict_arguments(parser)


def main(arguments: Namespace) -> int:
    from attnlab.report.conclusion import conclusions, verdict_rows
    from attnlab.report.wording import format_metric
    from attnlab.stats.cells import ComparisonSpec
    from attnlab.stats.compared import compare_cells

    files = [Path(file) for file in arguments.files]
    if len(set(files)) < max(2, len(files)):
        raise UserError(f"expected two or more different files, got {', '.join(map(str, files))}")
    names = [file.stem for file in files]
    names = names if len(set(names)) == len(files) else [str(file) for file in files]
    if arguments.margin is not None and not arguments.margin > 0:
        raise UserError(f"expected a margin above 0, got {arguments.margin}", "--margin")
    scores = {name: read_scores(file, arguments.metric, arguments.by) for name, file in zip(names, files, strict=True)}
    shared = set.intersection(*(set(of_file) for of_file in scores.values()))
    if len(shared) < 2:
        raise UserError(f"expected at least two rows in all files with the same {arguments.by or 'key'}, got {len(shared)}")
    number = {key: i for i, key in enumerate(key for key in scores[names[0]] if key in shared)}
    records = [
        {"cell": name, "file": name, "seed": number[key], "state": RunState.COMPLETED, arguments.metric: value}
        for name, of_file in scores.items()
        for key, value in of_file.items()
        if key in shared
    ]
    goal = {"metric": arguments.metric, "direction": arguments.direction, "margin": arguments.margin}
    compared = compare_cells(records, ComparisonSpec("compare", ("file",), **goal, baselines=({"file": names[0]},)))
    headings = ("cell", "value", "difference", "low", "high", "verdict", "note")
    rows = [[row[name] for name in headings] for row in verdict_rows(compared)]
    print_table(
        headings, [[format_metric(v) if isinstance(v, float) else v or "" for v in row] for row in rows], wrap=("note",)
    )
    print_text(f"{count(len(shared), 'pair')} of rows, each of which counts as a seed; differences are from {names[0]}")
    for name, of_file in scores.items():
        if left := len(of_file) - len(shared):
            print_text(f"note: {count(left, 'row')} of {name} left out, because another file has no such row")
    print_verdict(texts := conclusions(compared))
    arguments.answer = study_answer(compared, texts)
    return exit_code(arguments, compared)


def read_scores(path: Path, metric: str, by: str | None = None) -> dict[str, float]:
    """Return the scores of a file by the key that pairs them, in the file's order.

    Args:
        path: CSV with a heading; with the suffix .tsv separated by tabs, with .jsonl an object in each line.
        metric: the column or key of the scores.
        by: the column or key that pairs rows, or several, separated by commas; default: the first of `KEYS`.

    Raises:
        UserError: the file cannot be read, or a row lacks one of them, has no finite score, or has the key of an earlier row.
    """
    scores: dict[str, float] = {}
    for line, row in _rows(path):
        keys = by.split(",") if by else [next((name for name in KEYS if name in row), KEYS[0])]
        for name in (metric, *keys):
            if row.get(name) is None:
                raise UserError(
                    f"expected {name!r}{nearest(name, list(row))}, got {', '.join(map(str, row))}", f"{path}:{line}"
                )
        key, value = ", ".join(str(row[name]) for name in keys), _number(row[metric])
        if value is None:
            raise UserError(f"expected a finite number as {metric!r}, got {row[metric]!r}", f"{path}:{line}")
        if key in scores:
            raise UserError(f"expected each {', '.join(keys)} once, got {key} again (--by A,B pairs by both)", f"{path}:{line}")
        scores[key] = value
    return scores


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the number of each line that has a row, and the row."""
    with path.open(encoding="utf-8", newline="") as file:
        try:
            if path.suffix == ".jsonl":
                for line, text in enumerate(file, 1):
                    row = json.loads(text)
                    if not isinstance(row, dict):
                        raise UserError(f"expected a JSON object, got {type(row).__name__}", f"{path}:{line}")
                    yield line, row
            else:
                reader = csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
                yield from ((reader.line_num, row) for row in reader)
        except (ValueError, csv.Error) as error:
            raise UserError(f"expected {path.suffix.lstrip('.') or 'CSV'} in UTF-8: {error}", str(path)) from error


def _number(value: Any) -> float | None:
    """Return a finite number, also of true and false, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None

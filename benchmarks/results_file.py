"""A CSV file that is written as a benchmark measures, so that an interrupted benchmark continues when it is run again."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class ResultsFile:
    """Rows of a CSV file, each written as soon as it is measured.

    The configuration that the rows were measured with is in a JSON file next to it. Rows of another configuration are
    discarded.

    Args:
        path: the CSV file.
        configuration: everything the results depend on, as plain JSON values.
        fresh: discard existing rows.

    Attributes:
        rows: all rows, as text.
    """

    def __init__(self, path: Path, configuration: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = path
        self.rows: list[dict[str, str]] = []
        stored = path.with_suffix(".json")
        if (
            not fresh
            and path.is_file()
            and stored.is_file()
            and json.loads(stored.read_text(encoding="utf-8")) == dict(configuration)
        ):
            with path.open(newline="", encoding="utf-8") as file:
                self.rows = list(csv.DictReader(file))
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        stored.write_text(json.dumps(dict(configuration), indent=1) + "\n", encoding="utf-8")

    def append(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows and flush them to disk with a single write."""
        is_new = not self.path.is_file()
        with self.path.open("a", newline="", encoding="utf-8") as file:
            file.write(_csv(rows, header=is_new))
        self.rows += [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]

    def keep(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Keep only these rows, which are some of the present ones, in this order."""
        if list(rows) == self.rows:
            return
        self.rows = [dict(row) for row in rows]
        self.path.unlink(missing_ok=True)
        if rows:
            self.path.write_text(_csv(rows, header=True), newline="", encoding="utf-8")


def _csv(rows: Sequence[Mapping[str, object]], *, header: bool) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

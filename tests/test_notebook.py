"""The notebook `examples/tour.ipynb` runs, and the results that it shows are tables."""

import re
from pathlib import Path

import pytest

from attnlab._util.text import html_table
from tests.support.paths import ROOT

NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def test_the_notebook_runs_and_shows_tables_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    for name in ("ATTNLAB_RUNS", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(NOTEBOOK, as_version=4)
    for cell in book.cells:
        cell.source = cell.source.replace('"steps": 60', '"steps": 3').replace("20_000", "500")
    nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output["data"] for cell in book.cells for output in cell.get("outputs", ()) if "data" in output]
    plan, result = (data["text/html"] for data in shown if "<caption>" in data.get("text/html", ""))
    assert re.findall(r"<td>(\w+)</td><td>[\d,]+</td>", plan) == ["dense", "no_wo", "none"]
    assert (
        re.findall(r"<td>(\w+)</td><td>\d\.\d{4}</td>", result) == ["dense", "no_wo", "none"] and "in bits per byte" in result
    )
    verdicts = next(data["text/html"] for data in shown if "simultaneous_low" in data.get("text/html", ""))
    assert re.findall(r"<td>(better|worse|equivalent|inconclusive|baseline)", verdicts)[:1] == ["baseline"]
    assert sum("image/png" in data for data in shown) == 2
    assert (tmp_path / "runs" / "reports" / "tour" / "index.html").is_file()


def test_a_table_shows_markup_as_text_and_leaves_empty_columns_out() -> None:
    table = html_table(["cell", "why", "n"], [["a<b", "", "1"], ["c", "", ""]], caption="x & y")
    assert table == (
        "<table><caption>x &amp; y</caption><tr><th>cell</th><th>n</th></tr>"
        "<tr><td>a&lt;b</td><td>1</td></tr><tr><td>c</td><td></td></tr></table>"
    )

"""Tests of the tables and figures of a report for a paper."""

import shutil
import string
import subprocess
from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.extras.paper import convert, escape, write_paper
from attnlab.report.stored import FILE
from attnlab.report.write import write
from tests.support.synthetic import INFO, made_up

pytest.importorskip("typst")
HOSTILE = "a\x1b[2J\x9b1m\u202eb\nc"
DOCUMENT = r"""\documentclass{article}\usepackage[T1]{fontenc}\usepackage{booktabs,adjustbox,graphicx}
\begin{document}\input{tables}\input{figures}\end{document}"""


def test_a_paper_is_made_from_a_stored_report_without_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    runs, curves = made_up()
    folder = tmp_path / "runs" / "reports" / "made-up"
    page = write(folder, info=INFO, runs=runs, curves=curves)
    assert main.main(["report", "made-up"]) == 2
    assert main.main(["report", "made-up", "--paper", "--label", "no_wo rotary", "no Wo"]) == 0
    assert "runs/reports/made-up/paper" in capsys.readouterr().out
    tables, figures = ((folder / "paper" / name).read_text() for name in ("tables.tex", "figures.tex"))
    assert escape(page.differences[0].title) in figures and "corrected by Holm" in tables and "docs/" not in tables
    assert all(escape(cell) in tables for cell in page.table.rows[0].cells[:3])
    assert "no Wo &" in tables and "no\\_wo rotary" not in tables
    for plot in page.figures:
        name = plot.file.removesuffix(".svg")
        assert f"{{{name}.pdf}}" in figures
        assert (folder / "paper" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert (folder / "paper" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    (folder / FILE).write_text('{"version": "0.0.1"}')
    with pytest.raises(UserError, match=r"0\.0\.1"):
        write_paper(folder)


def test_a_figure_has_the_same_bytes_each_time() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg" width="420" height="40"><text x="9" y="20">± a</text></svg>'
    first = convert(svg)
    assert first == convert(svg)


@pytest.mark.parametrize("text", [*string.punctuation, HOSTILE, "±≤≥×→“”"])
def test_text_is_escaped(text: str) -> None:
    assert not set(escape(text)) & {"\x1b", "\x9b", "\u202e", "±", "≤"}
    for character in "&%$#_":
        assert escape(text).count(character) == escape(text).count(f"\\{character}") or text in "±≤≥×→“”"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_tables_and_figures_compile(tmp_path: Path) -> None:
    runs, curves = made_up()
    write(tmp_path, info=INFO, runs=runs, curves=curves)
    (paper,) = write_paper(tmp_path)
    (paper / "paper.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    subprocess.run(command, cwd=paper, check=True, capture_output=True)
    assert (paper / "paper.pdf").read_bytes().startswith(b"%PDF")

"""Tests of the LaTeX of a study: its escaping, the numbers, marks and bold type of its tables, its figures and references."""

import re
import shutil
import string
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest

from attnlab.cli import main
from attnlab.config.comparability import PROGRAM
from attnlab.errors import UserError
from attnlab.extras.paper.figures import pages_of, write_pdf
from attnlab.extras.paper.prose import bibliography, citations, known_entries
from attnlab.extras.paper.tables import compute_columns, verdict_columns
from attnlab.extras.paper.tabular import (
    CONDITIONS,
    FRAGILE,
    LOST,
    MARKS,
    MISSING,
    NUMBER,
    PaperColumn,
    best_cells,
    breakable,
    escape,
    legend,
    mark,
    tabular,
)
from attnlab.extras.paper.write import write_paper, write_papers
from attnlab.registry import COMPONENTS, POSITIONS, VARIANTS
from attnlab.report.methods import StudyInfo
from attnlab.report.page import Page, make_page
from attnlab.report.plots import svg
from attnlab.report.stored import FILE
from attnlab.report.write import write
from attnlab.stats.compare import CellSummary, comparisons, summarize_cells
from attnlab.stats.verdict import Verdict, VerdictKind
from tests.report.test_estimand import SPEC as RATE_SPEC
from tests.report.test_estimand import runs as rate_runs
from tests.report.test_factorial import INFO as FACTORIAL
from tests.report.test_factorial import NO_CURVES
from tests.report.test_factorial import runs as factorial_runs
from tests.support.levels import made_up_levels
from tests.support.specs import comparison_spec
from tests.support.synthetic import INFO, SPEC, made_up

SPECIAL = r"\{}$&#%_~^"  # have a meaning in LaTeX
HOSTILE = r"50 %_of #1 & $x$ ^~\cmd{a} <b> | -- ?` 中"
PACKAGES = ("siunitx.sty", "adjustbox.sty", "booktabs.sty", "longtable.sty", "amssymb.sty", "mathptmx.sty", "hyperref.sty")


def cells() -> list[CellSummary]:
    return summarize_cells(made_up()[0].to_dict("records"), SPEC)  # type: ignore[arg-type]


def page() -> Page:
    return make_page(INFO, **dict(zip(("runs", "curves"), made_up(), strict=True)))


def hostile() -> tuple[StudyInfo, pandas.DataFrame, pandas.DataFrame]:
    """Return the made-up study with names of which every character needs care."""
    runs, curves = made_up()
    renamed = runs.assign(
        cell=runs["cell"].str.replace("no_wo", HOSTILE, regex=False),
        variant=runs["variant"].str.replace("no_wo", HOSTILE, regex=False),
        device=HOSTILE,
        reason=runs["reason"].where(runs["reason"] == "", HOSTILE),
    )
    return replace(INFO, spec=replace(SPEC, study="a_study & more"), changes=(f"margin {HOSTILE}",)), renamed, curves


def programs() -> tuple[StudyInfo, pandas.DataFrame, pandas.DataFrame]:
    """Return the made-up study as one of a command line, which prints its metric and a curve."""
    runs, curves = made_up()
    runs = runs[[name for name in runs if not name.startswith(("model.", "train.", "machine."))]]
    runs = runs.drop(columns=["task", "data", "backend", "flops_per_token"])
    runs = runs.assign(test=PROGRAM, command="python train.py --lr {lr}", **{"values.lr": 0.1})
    return INFO, runs, curves.assign(metric=curves["metric"].replace("train/loss", "curve/loss"))


def written(folder: Path, info: StudyInfo, runs: pandas.DataFrame, curves: pandas.DataFrame) -> Path:
    """Write a paper, and return its folder."""
    write_paper(folder, make_page(info, runs=runs, curves=curves))
    return folder


@pytest.mark.parametrize("text", [*string.printable.strip(), HOSTILE, "a--b", "''"])
def test_no_character_of_a_text_has_a_meaning_in_latex(text: str) -> None:
    commands = re.sub(r"\\[A-Za-z]+\{\}|\\[{}$&#%_]|\$-\$|\{\}", "", escape(text))
    assert not set(commands) & set(SPECIAL), escape(text)
    assert not re.search(r"--|''", escape(text)) and escape(text).isascii()
    assert breakable(text).replace(r"\allowbreak{}", "") == escape(text)


def column(columns: list[PaperColumn], heading: str) -> list[str]:
    return list(next(c.cells for c in columns if c.heading == heading))


def parsed(cell: str) -> tuple[float, float | None] | None:
    """Return the number and the half width that siunitx prints for a cell; None where there is no number."""
    if (match := NUMBER.fullmatch(cell)) is None:
        return None
    whole, part, error = match["whole"], match["part"] or "", match["error"]
    value = float(f"{match['sign'] or ''}{whole}.{part or 0}")
    return value, None if error is None else int(error) / 10 ** len(part)


def test_the_numbers_of_the_table_are_those_of_the_cells() -> None:
    every = cells()
    columns, _ = verdict_columns(every, SPEC, {})
    values, differences, p_values = (column(columns, name) for name in ("bits per byte", "difference", "p (Holm)"))
    seeds, parameters = column(columns, "seeds"), column(columns, "parameters")
    for i, cell in enumerate(every):
        if cell.value is None:
            assert values[i] == "{refused}" and {seeds[i], differences[i], parameters[i]} == {MISSING}
            continue
        assert cell.value.half_width is not None
        assert parsed(values[i]) == (pytest.approx(cell.value.mean, abs=5e-5), pytest.approx(cell.value.half_width, abs=5e-5))
        assert int(seeds[i]) == len(cell.values) and float(parameters[i]) == cell.costs["parameters"].mean
        if cell.difference is None:
            assert cell.is_baseline and differences[i] == MISSING == p_values[i]
            continue
        number = parsed(differences[i])
        assert number and number[0] == pytest.approx(cell.difference.interval.mean, abs=5e-5)
        p = cell.difference.p_equivalent_holm if cell.difference.conclusion == "equivalent" else cell.difference.p_holm
        if p is None:
            assert cell.difference.no_test and p_values[i] == MISSING
            continue
        assert p_values[i] == "< 0.001" if p < 0.001 else float(p_values[i]) == pytest.approx(p, abs=5e-4)
    assert any(text == "{refused}" for text in values) and any("<" in text for text in p_values)


def test_a_small_half_width_is_not_rounded_to_zero() -> None:
    runs = made_up()[0].to_dict("records")
    for run in runs:
        run["bits_per_byte"] = 2 + 1e-6 * run["seed"] + (run["variant"] == "basic") if run["state"] == "completed" else None
    columns, _ = verdict_columns(summarize_cells(runs, SPEC), SPEC, {})  # type: ignore[arg-type]
    number = parsed(column(columns, "bits per byte")[0])
    assert number and number[1] is not None and number[1] > 0


def test_marks_are_those_of_the_verdicts_and_the_legend_explains_them() -> None:
    every = cells()
    columns, _ = verdict_columns(every, SPEC, {})
    marks = column(columns, "verdict")
    assert [text.partition(r"\text")[0] for text in marks] == [MARKS[c.verdict.kind] if c.verdict else "" for c in every]
    text = legend(cell.verdict for cell in every)
    assert all(shown.partition(r"\text")[0] in text for shown in marks)
    kinds = {cell.verdict.kind for cell in every if cell.verdict}
    assert VerdictKind.WORSE in kinds and VerdictKind.BETTER not in kinds and MARKS[VerdictKind.BETTER] not in text
    lost = next(shown for cell, shown in zip(every, marks, strict=True) if cell.verdict and cell.verdict.lost)
    assert rf"\textsuperscript{{{LOST}}}" in lost and CONDITIONS[LOST] in text
    assert FRAGILE in mark(Verdict(VerdictKind.BETTER, fragile=True)) and mark(Verdict(VerdictKind.BASELINE)) == ""


def compared(**values: tuple[float, ...]) -> list[CellSummary]:
    spec = comparison_spec("s", ("variant",), "loss", "min", {"variant": "base"}, moderate=False)
    runs: list[dict[str, Any]] = [
        {"cell": name, "variant": name, "seed": seed, "state": "completed", "reason": "", "loss": value}
        for name, of_name in values.items()
        for seed, value in enumerate(of_name)
    ]
    return summarize_cells(runs, spec)


BASE = (2.00, 2.10, 2.20, 2.05, 2.15)
BETTER, WORSE = (tuple(x + shift + 0.001 * i for i, x in enumerate(BASE)) for shift in (-0.5, 0.5))
NOISY = (1.0, 3.1, 1.2, 3.0, 1.0)


@pytest.mark.parametrize(
    ("values", "bold"),
    [
        ({"base": BASE, "a": BETTER, "b": WORSE}, {"a"}),
        ({"base": BASE, "a": BETTER, "b": BETTER}, {"a", "b"}),
        ({"base": BASE, "a": WORSE, "b": WORSE}, {"base"}),
        ({"base": BASE, "a": WORSE, "b": NOISY}, set()),
        ({"base": BASE}, set()),
    ],
)
def test_only_a_value_that_the_verdicts_support_is_bold(values: dict[str, tuple[float, ...]], bold: set[str]) -> None:
    every = compared(**values)
    assert best_cells(every, direction="min") == bold
    spec = comparison_spec("s", ("variant",), "loss", "min", {"variant": "base"})
    shown = column(verdict_columns(every, spec, {})[0], "loss")
    assert {cell.name for cell, text in zip(every, shown, strict=True) if r"\bfseries" in text} == bold


@pytest.mark.parametrize("conditions", [{"fragile": True}, {"lost": ((1, "diverged"),)}])
def test_a_verdict_with_reservations_puts_nothing_in_bold(conditions: dict[str, Any]) -> None:
    every = compared(base=BASE, a=BETTER)
    doubtful = [replace(c, verdict=replace(c.verdict, **conditions)) if c.name == "a" and c.verdict else c for c in every]
    assert best_cells(every, direction="min") == {"a"} and best_cells(doubtful, direction="min") == set()


def test_columns_are_as_wide_as_their_numbers() -> None:
    text = tabular([PaperColumn("x", ["-0.25(13)", "12.5000", MISSING]), PaperColumn("y", ["--"] * 3, is_number=False)])
    assert "S[table-format=+2.4(2)]l" in text


def test_exact_intervals_stand_in_brackets() -> None:
    columns, _ = verdict_columns(summarize_cells(rate_runs(), RATE_SPEC), RATE_SPEC, {})
    assert all("(" not in text for text in column(columns, "recall ≥ 0.9"))
    assert any("$-$" in text for text in column(columns, "interval"))
    ends = [re.fullmatch(r"\[([\d.]+), ([\d.]+)\]", text) for text in column(columns, "95 % interval")]
    assert all(match and float(match[1]) <= float(match[2]) for match in ends)


def test_tables_and_plots_of_an_analysis_with_captions_are_those_of_the_paper(tmp_path: Path) -> None:
    folder = written(tmp_path / "effects", FACTORIAL, factorial_runs(), NO_CURVES)
    table, figures, methods = ((folder / f"{name}.tex").read_text() for name in ("table", "figures", "methods"))
    assert table.count("{tabular}") == 2 and "on minus off" in table and r"\cite{holm1979}" in methods
    assert "main-effects.pdf" in figures and "Cells" in (folder / "appendix.tex").read_text()
    runs, spec = made_up_levels({"no_wo": (0.3, 0.2, 0.1), "basic": (0.1, 0.1, 0.1)}, margin=0.02)
    folder = written(tmp_path / "trends", StudyInfo(spec), pandas.DataFrame(runs), NO_CURVES)
    table = (folder / "table.tex").read_text()
    assert table.count(r"\begin{tabular}") == 2 and "at 1,500 & at 4,500" in table and "shrinks" in table
    assert "trend.pdf" in (folder / "figures.tex").read_text()


def test_effects_after_lost_runs_are_stated_as_such(tmp_path: Path) -> None:
    folder = written(tmp_path, FACTORIAL, factorial_runs(lost=((1, 2),)), NO_CURVES)
    assert "Some runs have no result (1 diverged)" in (folder / "methods.tex").read_text()


def test_the_compute_of_a_cell_counts_all_of_its_runs() -> None:
    columns = compute_columns(page().cells, page().records, SPEC)
    runs, done = column(columns, "runs"), column(columns, "completed")
    assert (runs[0], done[0]) == ("3", "3") and ("3", "2") in zip(runs, done, strict=True)
    assert float(column(columns, "time")[0]) == pytest.approx(3 * 21.5 / 3600, abs=5e-4)


def test_the_same_study_gives_the_same_bytes(tmp_path: Path) -> None:
    first, again = (written(tmp_path / name, *hostile()) for name in ("first", "again"))
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in again.iterdir()) and {"forest.pdf", "learning-curves.pdf", "paper.tex"} <= set(
        names
    )
    for name in names:
        content = (first / name).read_bytes()
        assert content == (again / name).read_bytes(), name
        assert b"CreationDate" not in content and b"/Type3" not in content


def test_figures_have_the_width_of_one_or_two_columns_and_embedded_fonts(tmp_path: Path) -> None:
    folder = written(tmp_path, INFO, *made_up())
    for name, inches in (("forest", 3.25), ("learning-curves", 6.75)):
        content = (folder / f"{name}.pdf").read_bytes()
        (width,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+)", content)
        assert float(width) == pytest.approx(72 * inches) and b"/CIDFontType2" in content and b"/FontFile2" in content


def test_a_paper_states_its_test_seeds_correction_and_interval(tmp_path: Path) -> None:
    folder = written(tmp_path, INFO, *made_up())
    caption = (folder / "table.tex").read_text()
    number = max(c.difference.comparisons for c in comparisons(cells()) if c.difference)
    for fact in (
        "paired $t$-test",
        "2 to 3 seeds",
        f"Holm's method over {number} comparisons",
        r"95\,\% $t$-interval",
        r"$\pm$0.02",
    ):
        assert fact in caption, fact
    assert "basic has no queries to rotate" in (folder / "appendix.tex").read_text()


def test_the_methods_state_the_settings_that_the_plan_chose(tmp_path: Path) -> None:
    settings = (("machine.reuse_memory", "true on cpu: steps are 1.2 times as fast"),)
    folder = written(tmp_path, replace(INFO, auto=settings), *made_up())
    text = (folder / "methods.tex").read_text().replace("\\allowbreak{}", "")
    assert r"machine.reuse\_memory was left to the plan, which chose true on cpu: steps are 1.2 times as fast." in text


def test_the_caption_names_the_exact_test_and_cells_that_are_not_compared(tmp_path: Path) -> None:
    runs = [run | {"test": f'{{"task": "{"a" if run["variant"] == "gru" else "b"}"}}'} for run in rate_runs()]
    caption = (written(tmp_path, StudyInfo(RATE_SPEC), pandas.DataFrame(runs), NO_CURVES) / "table.tex").read_text()
    assert "exact test of Barnard and Chan" in caption and "$t$-test" not in caption
    assert re.search(r"Not compared: gru: not the same test", caption)


def test_figures_of_an_earlier_paper_are_removed_and_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.pdf").touch()
    written(tmp_path, FACTORIAL, factorial_runs(), NO_CURVES)
    assert (tmp_path / "interactions.pdf").exists()
    written(tmp_path, INFO, *made_up())
    assert {path.name for path in tmp_path.glob("*.pdf")} == {"forest.pdf", "learning-curves.pdf", "mine.pdf"}


def test_a_figure_of_the_paper_has_every_shape_of_the_plot(tmp_path: Path) -> None:
    plot = page().differences[0].svg
    shapes = [shape for shape in svg.parse(plot).iter() if re.search(r"\}(line|polyline|polygon|circle|rect|text)$", shape.tag)]
    shown = [shape.text for shape in shapes if shape.tag.endswith("}text")]
    write_pdf(tmp_path / "plot.pdf", [plot])
    artists = drawn(plot)
    assert [text for text in shown if text] == [a.get_text() for a in artists if hasattr(a, "get_text")]
    assert len(artists) == len(shapes) - 1 and [a.get_zorder() for a in artists] == sorted(a.get_zorder() for a in artists)


def drawn(plot: str) -> list[Any]:
    """Return the artists of a plot, in the order of drawing."""
    from matplotlib.figure import Figure

    from attnlab.extras.paper.figures import _draw

    axes = Figure().add_axes((0, 0, 1, 1))
    before = set(axes.get_children())
    _draw(axes, svg.parse(plot))
    return [artist for artist in axes.get_children() if artist not in before]


def test_plots_that_share_a_figure_are_split_over_pages() -> None:
    plot = '<svg height="420"/>'  # 3.25 inches
    assert list(map(len, pages_of([plot] * 7))) == [4, 3] and pages_of(['<svg height="2000"/>']) == [[]]


def test_a_study_of_programs_shows_its_command_and_names_no_test_split(tmp_path: Path) -> None:
    info, runs, curves = programs()
    folder = written(tmp_path, info, runs, curves)
    texts = {path.name: path.read_text() for path in folder.glob("*.tex")}
    assert (
        "python train.py" in texts["appendix.tex"].replace(r"\allowbreak{}", "")
        and "as the program prints it" in texts["table.tex"]
    )
    assert not any("test split" in text for text in texts.values())
    assert "vaswani2017" not in texts["methods.tex"] + (folder / "refs.bib").read_text()


def test_a_study_of_one_seed_claims_no_test_and_no_interval(tmp_path: Path) -> None:
    folder = written(tmp_path, INFO, *made_up(seeds=1))
    texts = " ".join((folder / name).read_text() for name in ("table.tex", "figures.tex", "methods.tex"))
    assert "no test" in texts and "$t$-interval" not in texts and "Holm" not in texts and "holm1979" not in texts


@pytest.mark.parametrize("registry", [VARIANTS, COMPONENTS, POSITIONS], ids=lambda registry: registry.kind)
def test_every_built_in_class_with_a_paper_has_its_entry(registry: Any) -> None:
    for name in (name for name in registry.names() if registry.is_builtin(name)):
        cls = registry.get(name)
        assert bool(cls.paper) == bool(cls.references), name
        assert set(cls.references) <= set(known_entries()), name
        year = re.search(r"\d{4}", cls.paper if "arXiv" not in cls.paper else "")
        years = " ".join(known_entries()[key].rpartition("year = ")[2] for key in cls.references)
        assert year is None or year[0] in years, name


def test_the_papers_of_variants_components_and_position_schemes_are_cited(monkeypatch: pytest.MonkeyPatch) -> None:
    own = "@misc{mine2026,\n  title = {Mine},\n}"
    monkeypatch.setattr(VARIANTS.get("linear"), "references", (own,))
    record = {
        "variant": "dense with qk_norm, gate per=head",
        "position": "rotary fraction=0.5",
        "model.encoder": {"variant": None, "position": None},
        "model.layers": "[gru x2, linear]",
    }
    cited = citations([record, {"variant": "Mine power=2", "position": "none"}])
    assert [(c.name, c.known) for c in cited if not c.known] == [("Mine", False)]
    text = bibliography(cited, ["holm1979"])
    for key in ("vaswani2017", "henry2020", "qiu2025", "su2021", "cho2014", "mine2026", "holm1979"):
        assert len(re.findall(rf"^@\w+\{{{key},$", text, flags=re.MULTILINE)) == 1, key
    assert "katharopoulos2020" not in text and text.count("@") == 7


def test_a_paper_is_made_from_a_stored_report_without_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    runs, curves = made_up()
    write(tmp_path / "runs" / "reports" / "made-up", info=INFO, runs=runs, curves=curves)
    assert main.main(["report", "made-up"]) == 2
    assert main.main(["report", "made-up", "--paper"]) == 0
    printed = capsys.readouterr().out
    assert "runs/reports/made-up/paper/paper.tex" in printed and "plots of the page that are not in the paper" in printed
    folder = tmp_path / "runs" / "reports" / "made-up"
    for name in ("table.tex", "figures.tex", "methods.tex", "appendix.tex", "refs.bib", "forest.pdf", "learning-curves.pdf"):
        assert (folder / "paper" / name).stat().st_size > 100, name
    (folder / FILE).write_text('{"version": "0.0.1"}')
    with pytest.raises(UserError, match=r"0\.0\.1"):
        write_papers(folder)


def latex() -> str:
    """Return the reason why no document can be compiled; "" if one can."""
    if not all(map(shutil.which, ("pdflatex", "kpsewhich"))):
        return "pdflatex is not installed"
    found = subprocess.run(["kpsewhich", *PACKAGES], capture_output=True, text=True).stdout.split()
    missing = [name for name in PACKAGES if not any(path.endswith(f"/{name}") for path in found)]
    return f"LaTeX lacks {', '.join(missing)}" if missing else ""


STUDIES = {
    "names of all characters": hostile,
    "factors and lost runs": lambda: (FACTORIAL, factorial_runs(lost=((1, 2),)), NO_CURVES),
    "solve rates": lambda: (StudyInfo(RATE_SPEC), pandas.DataFrame(rate_runs()), NO_CURVES),
    "programs": programs,
    "one seed": lambda: (INFO, *made_up(seeds=1)),
}


@pytest.mark.skipif(bool(latex()), reason=latex())
@pytest.mark.parametrize("name", STUDIES)
def test_the_document_compiles(name: str, tmp_path: Path) -> None:
    folder = written(tmp_path, *STUDIES[name]())
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0 and (folder / "paper.pdf").is_file(), done.stdout[-2000:]
    assert "Missing character" not in done.stdout

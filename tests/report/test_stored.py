"""Tests that a page can be rendered again from its stored tables, and that committed pages are those of the code."""

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pandas
import pytest

from attnlab._util.user_code import USER_MODULE, load_file
from attnlab._version import __version__
from attnlab.errors import UserError
from attnlab.extras.rerender import main, rerender
from attnlab.report import write
from attnlab.report.page import RENDERED
from attnlab.report.stored import FILE, load, stored_version
from attnlab.stats.selection import Selection
from attnlab.stats.sequential import Looks
from attnlab.study.comparison import StudyInfo
from attnlab.tracking.artifacts import AttentionMap, ReferenceScore
from attnlab.tracking.experiment import Call
from docgen.links import LINK
from tests.support.pages import changed_files
from tests.support.paths import ROOT
from tests.support.specs import changed
from tests.support.synthetic import INFO, SEARCH, made_up, made_up_search

VALIDITY = ROOT / "examples" / "my_analysis" / "validity.py"  # an analysis of a committed report
load_file(VALIDITY)


COMMITTED = sorted(path.parent for path in (ROOT / "reports").glob("**/cells.csv"))
SCORE = ReferenceScore("gzip", "pydocs", "0123456789abcdef", None, "bits_per_byte", 2.5, 0.1, "text by gzip -9")
MAPS = [
    AttentionMap(
        numpy.eye(6, dtype="float16").reshape(1, 1, 6, 6), tuple("inputs"), run="dense learned s0", cell="dense learned"
    ),
    AttentionMap(reason="no softmax", run="basic learned s0", cell="basic learned"),
]


def _odd_runs() -> pandas.DataFrame:
    runs, _ = made_up()
    runs.loc[0, "bits_per_byte"] = float("inf")
    return runs.assign(test='{"task": "pydocs"}', **{"bits_per_byte_at/32": 2.25, "length": 16})


STUDIES = {
    "grid": (replace(INFO, reference_scores=(SCORE,)), *made_up(), []),
    "search": (replace(INFO, spec=replace(INFO.spec, search=SEARCH)), *made_up_search(), []),
    "maps": (
        replace(INFO, spec=changed(INFO.spec, looks=Looks(2, 5)), selection=Selection(changed="margin 1")),
        *made_up(),
        MAPS,
    ),
    "lengths": (INFO, _odd_runs(), made_up()[1], []),
    "left out": (
        replace(
            INFO,
            calls=(Call("attnlab run x.yaml", "x.yaml", "study: x\n"),),
            selection=Selection(left_out=(("dense", (9,)),)),
        ),
        *made_up(),
        [],
    ),
}


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_is_rendered_again_from_its_stored_tables(name: str, tmp_path: Path) -> None:
    info, runs, curves, maps = STUDIES[name]
    first, again = tmp_path / "first", tmp_path / "again"
    write.write(first, info=info, runs=runs, curves=curves, maps=maps)
    write.write(again, **load(first))
    assert changed_files(first, again) == [] and stored_version(first) == __version__
    assert (first / "cells.csv").read_text() == (again / "cells.csv").read_text()
    assert (first / FILE).read_text() == (again / FILE).read_text()
    assert len(list(first.glob("*.svg"))) > 3 and "/nowhere" not in (first / FILE).read_text()


@pytest.mark.parametrize("name", STUDIES)
def test_a_page_does_not_depend_on_the_last_bit_of_a_number(name: str, tmp_path: Path) -> None:
    """Processors differ in it, and it decides ties: of two scores with four decimals, one gets a five as its sixth."""
    info, runs, curves, maps = STUDIES[name]
    scores = [column for column in runs.select_dtypes("float") if "." not in column and "per_byte" in column]
    for folder, step in (("first", -math.inf), ("again", math.inf)):
        moved = runs.copy()
        for column in scores:
            ties = [round(value, 4) + 5e-6 * (i % 2) for i, value in enumerate(runs[column])]
            moved[column] = [math.nextafter(value, step) if math.isfinite(value) else value for value in ties]
        write.write(tmp_path / folder, info=info, runs=moved, curves=curves, maps=maps)
    assert scores and changed_files(tmp_path / "first", tmp_path / "again") == ["runs.csv"]


def test_a_page_that_differs_from_its_tables_is_seen(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    for folder in (first, again):
        write.write(folder, info=INFO, **dict(zip(("runs", "curves"), made_up(), strict=True)))
    (first / "README.md").write_text((first / "README.md").read_text().replace("2.31", "2.30"))
    (first / "old.svg").write_text("<svg/>")
    assert changed_files(first, again) == ["README.md", "old.svg"]


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda path: str(path.relative_to(ROOT / "reports")))
def test_a_committed_page_is_that_of_its_tables_or_names_its_version(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_file(VALIDITY)
    for name, module in [*sys.modules.items()]:  # a copy that another test imported: of two files, neither is meant
        file = Path(getattr(module, "__file__", None) or "")
        if name.startswith(USER_MODULE) and file.name == VALIDITY.name and file != VALIDITY:
            monkeypatch.delitem(sys.modules, name)
    version = stored_version(folder)
    if version == __version__:
        write.write(tmp_path, **load(folder))
        assert [name for name in changed_files(folder, tmp_path) if name not in RENDERED] == []
        assert all((tmp_path / name).is_file() for name in RENDERED)
        return
    top = (folder / "README.md").read_text(encoding="utf-8")[:500]
    assert f"Made by attnlab {version}" in top, f"{folder / 'README.md'} does not name its version at its top"


@pytest.mark.parametrize("page", sorted((ROOT / "reports").glob("**/*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_committed_page_links_to_files_of_the_repository(page: Path) -> None:
    links = {match[1] for match in LINK.finditer(page.read_text(encoding="utf-8"))}
    assert [link for link in links if not (page.parent / link).exists() or Path(link).name in RENDERED] == []


@pytest.mark.parametrize("name", RENDERED)
def test_what_is_rendered_is_not_committed(name: str) -> None:
    assert f"reports/**/{name}" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    (excluded,) = re.findall(r"^recursive-exclude reports (.*)", (ROOT / "MANIFEST.in").read_text(encoding="utf-8"), re.M)
    assert name in excluded.split()


def test_what_a_person_runs_leaves_the_checkout_clean() -> None:
    assert write.REPORTS.parts[0] + "/" in (ROOT / ".gitignore").read_text(encoding="utf-8").split()


def test_a_report_is_rendered_again_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write.write(tmp_path, info=INFO, runs=made_up()[0], curves=made_up()[1])
    page = (tmp_path / "README.md").read_text()
    (tmp_path / "README.md").write_text("changed")
    assert main([str(tmp_path)]) == 0 and (tmp_path / "README.md").read_text() == page
    assert main([str(tmp_path / "no report")]) == 2
    monkeypatch.setattr("attnlab.extras.rerender.__version__", "99.0")
    with pytest.raises(UserError, match=f"99.0, got one of attnlab {__version__}") as refused:
        rerender(tmp_path)
    assert refused.value.where == str(tmp_path)


def test_there_are_committed_pages() -> None:
    assert len(COMMITTED) >= 5


def test_a_study_info_survives_storage(tmp_path: Path) -> None:
    info = replace(INFO, spec=replace(INFO.spec, search=SEARCH, skipped=(("a", "b"),), doubles={"x": "y"}))
    write.write(tmp_path, info=info, runs=made_up()[0], curves=made_up()[1])
    loaded = load(tmp_path)["info"]
    assert isinstance(loaded, StudyInfo) and loaded == info


def test_fields_that_all_runs_share_are_stored_once(tmp_path: Path) -> None:
    info, (runs, curves) = INFO, made_up()
    runs = runs.assign(same=1, mixed=[1, True, *[1.0] * (len(runs) - 2)])
    write.write(tmp_path, info=info, runs=runs, curves=curves, maps=[])
    stored = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    assert stored["runs"]["same"] == {"values": [1]} and len(stored["runs"]["run_id"]) == len(runs)
    assert [type(value) for value in load(tmp_path)["runs"]["mixed"][:3]] == [int, bool, float]


def test_a_page_names_the_version_that_trained_its_runs(tmp_path: Path) -> None:
    runs, curves = made_up()
    for versions, top in (
        (f"attnlab {__version__}, torch 2", f"attnlab {__version__}."),
        ("attnlab 0.1, torch 2", "of attnlab 0.1."),
    ):
        write.write(tmp_path, info=INFO, runs=runs.assign(versions=versions), curves=curves)
        assert top in (tmp_path / "README.md").read_text(encoding="utf-8").splitlines()[2]

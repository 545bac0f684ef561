"""Verdicts in Python are those of the terminal and of the page, from a result and from records, and each is a look."""

import html
import json
import math
from functools import partial
from pathlib import Path

import pandas
import pytest
import yaml

import attnlab
from attnlab import Result
from attnlab.cli import main
from attnlab.errors import UserError
from attnlab.report.result import load_compared
from attnlab.stats.compared import Compared
from attnlab.study import comparison
from attnlab.study.execution.progress import ProgressDisplay
from tests.study.test_study import study

approx = partial(pytest.approx, rel=1e-5)  # tables have six digits
QUIET = ProgressDisplay(quiet=True)
NUMBERS = [
    "value",
    "difference",
    "low",
    "high",
    "simultaneous_low",
    "simultaneous_high",
    "new_items_low",
    "new_items_high",
    "p",
]
COLUMNS = ["cell", "baseline", *NUMBERS, "verdict", "fragile", "items", "corrected", "note", "seeds"]
GRID = {"variant": ["dense", "no_wo", "narrow"], "position": ["learned"]}


def go(root: Path, train: str = "settling", **changes: object) -> Result:
    made = {"grid": GRID, "baseline": {"variant": "dense"}, "margin": 0.2, "seeds": [0, 1, 2, 3], **changes}
    train = f"tests.support.study_fakes:{train}"
    return attnlab.run(study(**made), root=root, display=QUIET, train=train, reference_scores=False)


def looks(compared: Compared) -> int:
    assert compared.spec.looks is not None
    return compared.spec.looks.count


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verdicts") / "runs"


@pytest.fixture(scope="module")
def result(root: Path) -> Result:
    return go(root)


def test_a_result_has_the_verdicts_that_its_records_and_its_page_have(result: Result, root: Path, tmp_path: Path) -> None:
    frame = result.verdicts
    assert list(frame.columns) == COLUMNS
    pandas.testing.assert_frame_equal(frame, attnlab.verdicts("small", root))
    page = pandas.read_csv(attnlab.write_report("small", root, tmp_path / "page") / "cells.csv").set_index("cell")
    for row in frame.to_dict("records"):
        own = page.loc[row["cell"]]
        assert own["verdict"] in (f"{row['verdict']} {row['note']}".strip(), f"{row['verdict']}, {row['note']}") and row[
            "value"
        ] == approx(own["bits_per_byte"])
        shown = {name: own[f"difference_{name}"] for name in ("low", "high")} | {"difference": own["difference"]}
        shown |= {name: own[name] for name in ("simultaneous_low", "simultaneous_high")}
        assert {name: row[name] for name in shown} == approx(shown, nan_ok=True)
    by_cell = frame.set_index("cell")
    assert list(by_cell["baseline"]) == ["", "dense learned", "dense learned"] and set(by_cell["seeds"]) == {4}
    assert by_cell.loc["no_wo learned", "p"] == approx(page.loc["no_wo learned", "p_holm"])
    assert by_cell.loc["narrow learned", "p"] == approx(page.loc["narrow learned", "p_equivalent_holm"])
    assert by_cell.loc["narrow learned", "verdict"] == "equivalent"
    assert set(frame["verdict"]) <= {"better", "worse", "equivalent", "inconclusive", ""} and set(frame["corrected"]) == {1}
    assert frame["fragile"].dtype == bool and by_cell.loc["dense learned", "note"] == "baseline"


def test_text_page_and_verb_have_the_same_conclusion(
    result: Result, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(root))
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"study": "small"}))
    printed = []
    for name in ("small", str(path)):
        assert main.main(["verdict", name]) == 0
        printed.append(capsys.readouterr().out)
    conclusion = printed[0].removeprefix("verdict: ").strip()
    assert printed[0] == printed[1] and "no_wo learned +1.00" in conclusion and "\n" not in conclusion
    text = repr(result)
    assert conclusion in " ".join(text.split()) and conclusion in html.unescape(result._repr_html_())
    assert max(map(len, text.splitlines())) <= 80 and text.startswith("small: 12 completed")
    readme = (attnlab.write_report(path, root, tmp_path / "page") / "README.md").read_text()
    assert conclusion in readme.replace("*", "")


def test_verdicts_are_a_look_that_later_ones_are_corrected_for(tmp_path: Path) -> None:
    first, second = go(tmp_path, seeds=[0, 1, 2]), go(tmp_path, seeds=[0, 1, 2, 3])
    assert looks(second.compared) == 1, "nobody has looked at the first result"
    third = go(tmp_path, seeds=[0, 1, 2, 3, 4])
    assert looks(third.compared) == looks(load_compared("small", tmp_path)) == 2
    assert max(first.verdicts["seeds"]) == 5, "it is read back from the record"


def test_without_a_result_there_are_columns_and_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = go(tmp_path, "failing", retries=0, seeds=[0])
    for frame in (failed.verdicts, attnlab.verdicts("small", tmp_path)):
        assert frame.empty and list(frame.columns) == COLUMNS
    assert "No run has completed" in repr(failed) and "3 failed" in repr(failed)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path))
    assert main.main(["verdict", "small"]) == 0
    assert "No run has completed" in capsys.readouterr().out
    monkeypatch.setattr(comparison, "search_runs", lambda *_, **options: [])
    assert list(attnlab.verdicts("small", tmp_path).columns) == COLUMNS
    assert main.main(["verdict", "small"]) == 2
    assert "the study 'small' has no runs yet" in capsys.readouterr().err


def test_an_unknown_study_is_one_line_with_the_nearest_name(result: Result, root: Path, tmp_path: Path) -> None:
    for call in (attnlab.verdicts, attnlab.write_report, attnlab.load_runs):
        with pytest.raises(UserError, match="'smal' .did you mean 'small'.*") as raised:
            call("smal", root)
        assert "\n" not in str(raised.value)


def test_runs_without_the_configuration_keep_results_and_axes(result: Result, root: Path) -> None:
    whole, small = attnlab.load_runs("small", root), attnlab.load_runs("small", root, config=False)
    left_out = set(whole) - set(small)
    assert {"model.dim", "train.lr", "backend", "task", "evaluate.protocol"} <= left_out and len(left_out) > 50
    assert {"cell", "seed", "state", "variant", "position", "bits_per_byte", "length", "test", "device"} <= set(small)
    pandas.testing.assert_frame_equal(whole.loc[:, list(small)], small)


def test_an_axis_of_the_configuration_stays(tmp_path: Path) -> None:
    go(tmp_path, grid={"variant": ["dense"], "train.lr": [1e-3, 1e-4]}, baseline={"train.lr": 1e-3}, seeds=[0])
    frame = attnlab.load_runs("small", tmp_path, config=False)
    assert set(frame["train.lr"]) == {1e-3, 1e-4} and "train.steps" not in frame


def test_a_cell_without_a_result_has_its_state(tmp_path: Path) -> None:
    grid = {"variant": ["dense", "no_wo", "wide"], "position": ["learned"]}
    result = go(tmp_path, "settling_or_diverging", grid=grid, seeds=[0, 1, 2, 3])
    frame = result.verdicts.set_index("cell")
    assert (
        frame.loc["wide learned", "note"]
        and not frame.loc["wide learned", "verdict"]
        and math.isnan(frame.loc["wide learned", "value"])
    )
    assert frame.loc["no_wo learned", "seeds"] == 3 and "wide learned s0: diverged" in repr(result)
    json.dumps(result.verdicts.to_dict("records"))

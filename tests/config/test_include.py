"""Tests of `include`: a base file is merged under a study, and mistakes name the file in which they are."""

from pathlib import Path

import pytest

from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.errors import UserError
from attnlab.tracking.tags import study_text
from tests.support.studies import GOOD, misread, write

BASE = """\
base:
  task: {name: pydocs, length: 64}
  model: {dim: 32, depth: 1, heads: 2}
  train: {steps: 20, lr: 3e-4}
grid:
  variant: [dense, no_wo]
  model.norm: [pre, post]
seeds: [0, 1]
"""
TOP = """\
# Why?
study: top
include: shared/base.yaml
base:
  model: {dim: 48}
  train: {epochs: 2}
  task: {name: imdb}
grid:
  variant: [dense]
margin: 0.5
"""


def folder(tmp_path: Path, **texts: str) -> Path:
    write(tmp_path, BASE, name="shared/base.yaml")
    for name, text in texts.items():
        write(tmp_path, text, name=f"{name.replace('__', '/')}.yaml")
    return write(tmp_path, TOP)


def test_a_base_file_is_merged_under_the_study(tmp_path: Path) -> None:
    study = read_study(folder(tmp_path))
    assert study.base["model"] == {"dim": 48, "depth": 1, "heads": 2}, "sections are merged"
    assert study.base["train"] == {"lr": 3e-4, "epochs": 2}, "epochs replaces steps"
    assert study.base["task"] == {"name": "imdb"}, "another name has other options"
    assert study.grid == {"variant": ["dense"], "model.norm": ["pre", "post"]}, "lists are replaced"
    assert (study.seeds, study.margin) == ([0, 1], 0.5)
    assert study.where("base", "model", "dim").endswith("/s.yaml:5:16")
    assert study.where("base", "model", "depth").endswith("/shared/base.yaml:3:27")
    assert study.where("seeds", 1).endswith("/shared/base.yaml:8:12")


def test_a_base_file_may_include_another_one(tmp_path: Path) -> None:
    path = folder(tmp_path, shared__deep="retries: 4\nmargin: 0.1\n")
    (tmp_path / "shared" / "base.yaml").write_text(f"include: deep.yaml\n{BASE}")
    study = read_study(path)
    assert (study.retries, study.margin) == (4, 0.5)


def test_a_claim_takes_nothing_from_the_claim_of_its_base_file(tmp_path: Path) -> None:
    stated = "claim: {{sentence: {0}, source: x, cell: {{variant: no_wo}}, direction: better{1}}}\n"
    path = folder(tmp_path, shared__deep="baseline: {variant: dense}\n" + stated.format("One.", ", size: 0.1, known: true"))
    (tmp_path / "shared" / "base.yaml").write_text(f"include: deep.yaml\n{BASE}")
    path.write_text(TOP.replace("[dense]", "[dense, no_wo]") + stated.format("Two.", ""))
    claim = read_study(path).claim
    assert claim is not None and (claim.sentence, claim.size, claim.known) == ("Two.", None, False)


def test_a_dictionary_may_include_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    study = {"study": "d", "include": "shared/base.yaml", "margin": 0.5}
    assert [cell.name for cell in expand(read_study(study))[0]][0] == "dense norm=pre"
    with pytest.raises(UserError) as caught:
        expand(read_study({**study, "base": {"model": {"dim": "x"}}}))
    assert caught.value.where == "base.model.dim"


def test_the_record_of_a_study_needs_no_other_file(tmp_path: Path) -> None:
    from attnlab.planning.plan import plan

    planned = plan(folder(tmp_path), sets={"task": {"name": "pydocs", "length": 16}, "train.steps": 3})
    text = study_text(planned)
    assert text.startswith("# Why?\n") and "include" not in text
    alone = write(tmp_path / "elsewhere", text)
    assert read_study(alone).model_dump() == read_study(tmp_path / "s.yaml").model_dump()


@pytest.mark.parametrize(
    ("texts", "old", "new", "expected"),
    [
        ({}, "shared/base.yaml", "shared/bse.yaml", "s.yaml:3:10: include: expected a study to include, but the file does not"),
        ({}, "shared/base.yaml", "shared", "s.yaml:3:10: include: cannot read a study to include"),
        ({}, "shared/base.yaml", "[shared/base.yaml]", "s.yaml:3:10: include: expected the path of a file, got a list of 1"),
        ({}, "shared/base.yaml", "~nobody-here/b.yaml", "s.yaml:3:10: include: Could not determine home directory"),
        ({}, "shared/base.yaml", "/dev/zero", "/dev/zero:1:1: expected a study to include, got a file of more than"),
        ({}, "shared/base.yaml", "''", "s.yaml:3:10: include: expected the path of a file, got ''"),
        ({}, "shared/base.yaml", "s.yaml", "s.yaml:3:10: include: s.yaml includes itself"),
        (
            {"a": "include: s.yaml\n"},
            "shared/base.yaml",
            "a.yaml",
            "a.yaml:1:10: include: s.yaml includes itself, through",
        ),
        ({"a": "- 1\n"}, "shared/base.yaml", "a.yaml", "a.yaml:1:1: expected a study to include (a mapping of keys)"),
        ({"a": "base: {model: {dim: x}}\n"}, "shared/base.yaml", "a.yaml", "s.yaml:5:16"),
        (
            {"a": f"{BASE}retrys: 3\n"},
            "shared/base.yaml",
            "a.yaml",
            "a.yaml:9:1: unknown key 'retrys' (did you mean",
        ),
        ({"a": BASE.replace("depth: 1", "depth: no")}, "shared/base.yaml", "a.yaml", "a.yaml:3:27: model.depth: expected"),
        ({"a": BASE.replace("steps", "stps")}, "shared/base.yaml", "a.yaml", "a.yaml:4:11: unknown key 'stps' in train"),
        (
            {"a": BASE.replace("[0, 1]", "[0, 0]")},
            "shared/base.yaml",
            "a.yaml",
            "a.yaml:8:12: seeds[1]: expected each seed once",
        ),
    ],
)
def test_a_mistake_names_its_file(texts: dict[str, str], old: str, new: str, expected: str, tmp_path: Path) -> None:
    path = folder(tmp_path, **texts)
    path.write_text(TOP.replace(old, new))
    if expected == "s.yaml:5:16":  # the study's own value wins: the mistake below it has no effect
        assert read_study(path).base["model"] == {"dim": 48}
        return
    assert misread(path).startswith(expected)


def test_include_is_not_assigned(tmp_path: Path) -> None:
    message = misread(write(tmp_path, GOOD), sets={"include": "x.yaml"})
    assert message.startswith("include=x.yaml: ")

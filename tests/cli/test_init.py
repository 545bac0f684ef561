"""`attnlab init` writes folders that work, with a README whose commands run."""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from attnlab.cli.init import EXAMPLES
from attnlab.cli.main import build_parser, main
from attnlab.config.reader import read_study
from attnlab.tracking.runs import load_runs
from tests.support.paths import ROOT

SMALL = ["--set=train.steps=2", "--set=train.batch_size=3", "--set=evaluate.test_limit=50", "--no-check", "--no-report"]
ELSEWHERE = (["check", "cosine.py:Cosine"], ["ui", "my-lab"])  # tests/testing/test_contract.py checks it; it serves forever


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNLAB_RUNS", raising=False)
    assert main(["init", "my_lab"]) == 0
    monkeypatch.chdir("my_lab")
    return Path.cwd()


def commands(readme: str) -> list[list[str]]:
    """Return the words of each command of a README, without `attnlab`."""
    return [shlex.split(line) for line in re.findall(r"^    attnlab (.+)$", readme, flags=re.MULTILINE)]


def test_every_command_of_the_readme_works(lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = commands((lab / "README.md").read_text(encoding="utf-8"))
    assert [words[0] for words in written] == ["run", "plan", "check", "check", "schema", "run", "ui"]
    for words in written:
        words, target = _redirected(words)
        build_parser().parse_args(words)
        if words in ELSEWHERE:
            continue
        capsys.readouterr()
        more = ["--seeds=0-1", "--only=variant=cosine"] if "--seeds" in words else ["--seeds=0"]
        small = [*SMALL, *more] if words[0] == "run" else []
        assert main([*words, *small]) == 0, words
        if target:
            assert (lab / target).read_text(encoding="utf-8") == capsys.readouterr().out
    runs = load_runs("my-lab", lab / "runs")
    assert set(runs["state"]) == {"completed"} and len(runs) == 4
    seeds = {variant: sorted(of_one["seed"]) for variant, of_one in runs.groupby("variant")}
    assert seeds == {"dense": [0], "cosine length=15": [0, 1], "none": [0]}


def _redirected(words: Sequence[str]) -> tuple[list[str], str]:
    """Split the words of `attnlab schema > FILE` into those of attnlab and the file; "" where there is none."""
    words = list(words)
    return (words[: words.index(">")], words[-1]) if ">" in words else (words, "")


def test_the_readme_names_every_file_of_the_folder(lab: Path) -> None:
    named = set(re.findall(r"^\| `(.+?)`", (lab / "README.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named | {"README.md"} == {path.name for path in lab.iterdir()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_copied_without_links_and_its_schema_knows_its_classes(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / name
    assert main(["init", str(folder), "--example", name]) == 0
    assert not [path for path in folder.iterdir() if path.is_symlink()]
    (path,) = folder.glob("*.yaml")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=study.schema.json\n")
    assert (folder / "study.schema.json").is_file() and read_study(path).study
    command = re.search(r"attnlab run (\S+)", text)
    assert command is None or command[1] == path.name
    names = json.loads((folder / "study.schema.json").read_text())["$defs"]["variant"]["properties"]["name"]["anyOf"][0]["enum"]
    assert ("cosine" in names) == ("cosine.py" in {file.name for file in folder.iterdir()})


def test_every_example_is_offered_that_needs_no_file_of_the_repository() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*/*.yaml")}
    assert {path.parent.name for path in texts} - set(EXAMPLES) == {
        path.parent.name for path, text in texts.items() if "../" in text
    }


@pytest.mark.parametrize("kind", ["file", "folder with a file"])
def test_files_are_not_overwritten(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "lab"
    file = target if kind == "file" else target / "study.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    assert main(["init", str(target)]) == 2
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert file.read_text() == "mine" and len(list(tmp_path.rglob("*"))) <= 2


def test_without_a_study_the_missing_default_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run"]) == 2
    assert "study.yaml: expected a study, but the file does not exist" in capsys.readouterr().err

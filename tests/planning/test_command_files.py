"""The files that count for a study of a program: `files:`, else what git lists, else what the names of files say."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli.main import main
from attnlab.config.command import CommandConfig
from attnlab.errors import UserError
from attnlab.planning.command_files import MOST, changed_file, new_files
from attnlab.planning.plan import plan
from tests.support.paths import ROOT

CODE = "x = 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "study"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ATTNLAB_RUNS", raising=False)
    return folder


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def in_git(folder: Path, *ignored: str) -> None:
    subprocess.run(["git", "init", "-q", str(folder)], check=True, capture_output=True)
    write(folder, {".gitignore": "".join(f"{name}\n" for name in ignored)})


def study_file(folder: Path, command: str = "python train.py {how}", **changes: Any) -> Path:
    study = {"study": "s", "command": f"{command} {{seed}}", "grid": {"how": ["a", "b"]}, "seeds": [0], **changes}
    lines = {**study, "metric": {"name": "score", "direction": "max"}}
    write(folder, {"study.yaml": "".join(f"{key}: {json.dumps(value)}\n" for key, value in lines.items())})
    return folder / "study.yaml"


def settings(folder: Path, command: str = "python train.py {how}", **changes: Any) -> CommandConfig:
    config = plan(study_file(folder, command, **changes)).cells[0].settings
    assert isinstance(config, CommandConfig)
    return config


def counted(folder: Path, command: str = "python train.py {how}", **changes: Any) -> set[str]:
    return set(settings(folder, command, **changes).listing)


FILES = {
    "train.py": "from models.gate import score\n",
    "models/gate.py": CODE,
    "conf/a.yaml": "a: 1\n",
    "conf.toml": "a = 1\n",
    "sizes.json": "{}",
    "data/rows.csv": "1\n",
    "csrc/k.cu": "",
    ".hidden.py": CODE,
    ".venv/lib/a.py": CODE,
    "env/pyvenv.cfg": "",
    "env/lib/b.py": CODE,
    "other.yaml": "study: other\ngrid: {a: [1, 2]}\n",
    "runs/work/config.json": "{}",
    "runs/reports/s/report.json": "{}",
    "store/mlflow.db": "",
    "store/work/result.json": "{}",
}
WITHOUT_GIT = {"train.py", "models/gate.py", "conf/a.yaml", "conf.toml", "sizes.json"}


def test_without_git_the_suffix_decides(folder: Path) -> None:
    assert counted(write(folder, FILES)) == WITHOUT_GIT


def test_git_decides_what_counts(folder: Path) -> None:
    in_git(write(folder, FILES), "sizes.json", "out/", "env")
    assert counted(folder) == WITHOUT_GIT - {"sizes.json"} | {"data/rows.csv", "csrc/k.cu"}
    write(folder, {"out/log.json": "1"})
    subprocess.run(["git", "-C", str(folder), "add", "train.py"], check=True)
    (folder / "train.py").unlink()
    assert counted(folder) == {"models/gate.py", "conf/a.yaml", "conf.toml", "data/rows.csv", "csrc/k.cu"}


def test_a_study_below_the_top_of_a_checkout_counts_its_own_folder(folder: Path) -> None:
    write(folder, {"top.py": CODE, "sub/train.py": CODE})
    in_git(folder)
    assert counted(folder / "sub") == {"train.py"}
    assert counted(folder / "sub", files=["../top.py", "*.py"]) == {"train.py", "../top.py"}


def test_files_of_the_study_replace_both(folder: Path) -> None:
    write(folder, FILES)
    assert counted(folder, files=["*.py", "data"]) == {"train.py", "data/rows.csv"}
    assert counted(folder, files=["**/*.py"]) == {"train.py", "models/gate.py", "env/lib/b.py"}
    assert counted(folder, files=["**/*.yaml"]) == {"conf/a.yaml"}, "and no study"
    assert counted(folder, files=[".hidden.py", "other.yaml"]) == {".hidden.py", "other.yaml"}, "what is named counts"
    assert counted(folder, files=[]) == set()


@pytest.mark.parametrize("name", sorted(WITHOUT_GIT | {"data/rows.csv"}))
def test_each_change_of_a_file_makes_another_run(name: str, folder: Path) -> None:
    files = ["train.py", "models", "conf", "conf.toml", "sizes.json", "data"]
    before = settings(write(folder, FILES), files=files).fingerprint()
    write(folder, {name: f"{FILES[name]}y = 2\n"})
    assert settings(folder, files=files).fingerprint() != before
    write(folder, {name: FILES[name]})
    assert settings(folder, files=files).fingerprint() == before


def test_comments_studies_and_the_folder_change_no_run(folder: Path) -> None:
    planned = settings(write(folder, FILES))
    before = planned.fingerprint()
    write(folder, {"models/gate.py": f"# a comment\n{CODE}", "other.yaml": "study: other\ngrid: {a: [3]}\n"})
    assert not changed_file(planned)
    assert settings(folder, seeds=[0, 1], margin=0.1).fingerprint() == before
    write(folder.parent / "moved", FILES)
    assert settings(folder.parent / "moved").fingerprint() == before


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("--data export.csv", "export.csv"),
        ("--data=export.csv", "export.csv"),
        ("--init checkpoint.pt", "checkpoint.pt"),
        ("--data corpus", "corpus"),
        ("../lib/train.sh", "../lib/train.sh"),
    ],
)
def test_a_file_that_the_command_names_counts_or_the_study_says_what_does(option: str, name: str, folder: Path) -> None:
    write(folder, {"train.py": CODE, name if name != "corpus" else "corpus/part1.txt": "0.05\n"})
    with pytest.raises(UserError, match=name) as caught:
        settings(folder, f"python train.py {option} {{how}}")
    assert "files: [" in caught.value.message and caught.value.where.endswith("study.yaml:2:10")
    before = settings(folder, f"python train.py {option} {{how}}", files=["*.py", name])
    write(folder, {name if name != "corpus" else "corpus/part1.txt": "-0.05\n"})
    assert settings(folder, f"python train.py {option} {{how}}", files=["*.py", name]).fingerprint() != before.fingerprint()
    assert changed_file(before).startswith(name)
    assert counted(folder, f"python train.py {option} {{how}}", files=["*.py"]) == {"train.py"}, "it may be an output"


@pytest.mark.parametrize("words", ["--device /dev/null", "--to runs/a", "--out new.txt", "--root .", "/usr/bin/env", "--n=1"])
def test_other_words_name_no_input(words: str, folder: Path) -> None:
    write(folder, {"train.py": CODE, "runs/a/x.txt": ""})
    assert counted(folder, f"python train.py {words} {{how}}") == {"train.py"}


def test_what_git_ignores_is_no_input(folder: Path) -> None:
    write(folder, {"train.py": CODE, "out.txt": "1"})
    in_git(folder, "*.txt")
    assert counted(folder, "python train.py --out out.txt {how}") == {"train.py"}
    notes = plan(study_file(folder, "python train.py --data out.txt {how}")).notes
    assert len(notes) == 1 and notes[0].startswith("git ignores out.txt") and "'files'" in notes[0]
    assert not plan(study_file(folder, "python train.py --data out.txt {how}", files=["train.py"])).notes


def test_a_run_records_few_of_many_files(folder: Path) -> None:
    write(folder, {"train.py": CODE, "z.json": "{}", **{f"lib/m{i:03d}.py": CODE for i in range(300)}})
    config = settings(folder, "python train.py z.json {how}")
    assert len(config.listing) == 302 and len(config.files) == MOST + 1
    assert {"train.py", "z.json", "262 more files"} <= config.files.keys(), "first those that the command names"
    assert "listing" not in config.to_json() and len(config.to_json()) < 4_000
    write(folder, {"lib/m299.py": "x = 2\n"})
    after = settings(folder, "python train.py z.json {how}")
    assert {name for name in after.files if after.files[name] != config.files[name]} == {"262 more files"}
    assert after.fingerprint() != config.fingerprint() and changed_file(config) == "lib/m299.py"


def test_files_that_appear_are_named(folder: Path) -> None:
    planned = plan(study_file(write(folder, {"train.py": CODE})))
    write(folder, {"metrics.json": "{}", "notes.txt": ""})
    assert new_files(planned.study, planned.cells[0].settings.listing) == ["metrics.json"]  # type: ignore[union-attr]


def test_the_examples_count_their_own_files_alone() -> None:
    for name in ("command_nanogpt", "command_sklearn"):
        planned = plan(next((ROOT / "examples" / name).glob("*.yaml")))
        files = {file for cell in planned.cells for file in cell.settings.files}  # type: ignore[union-attr]
        assert files == {"train.py", "study.schema.json"}


def test_the_plan_lists_the_files_that_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modules = {f"lib/m{i:02d}.py": CODE for i in range(12)}
    study_file(write(folder, {"train.py": CODE, **modules}))
    main(["plan", "study.yaml"])
    short = capsys.readouterr().out
    assert "(13)" in short and "lib/m00.py" in short and "lib/m11.py" not in short and "--all" in short
    main(["plan", "study.yaml", "--all"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in modules)

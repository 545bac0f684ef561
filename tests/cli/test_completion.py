"""Tests of the completion scripts: what bash suggests for the beginnings of words, and the syntax of both scripts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from attnlab.cli import main
from attnlab.cli.main import SHELLS

ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_attnlab; echo "${COMPREPLY[*]}"'


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Path:
    """Return the file of a shell's script, by default that of bash."""
    with pytest.raises(SystemExit) as ended:
        main.main(["--print-completion", getattr(request, "param", "bash")])
    assert ended.value.code == 0
    path = tmp_path / "completion"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (["che"], {"check"}),
        (["report", "--qu"], {"--question"}),
        (["list", "pos"], {"positions"}),
        (["check", "strided"], {"strided_sparse"}),
        (["run", "stu"], {"study.yaml"}),
        (["report", "s", "--out", "fol"], {"folder"}),
    ],
)
def test_bash_completes_verbs_flags_choices_variants_files_and_folders(
    words: list[str], suggested: set[str], script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.yaml").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.txt").touch()
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(["bash", "-c", ASK, "ask", script, "attnlab", *words], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == suggested


@pytest.mark.parametrize("script", SHELLS, indirect=True)
def test_a_shell_reads_its_script(script: Path, request: pytest.FixtureRequest) -> None:
    shell = request.node.callspec.params["script"]
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n", script]).returncode == 0


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--print-completion", "csh"]) == 2
    assert "--print-completion" in capsys.readouterr().err

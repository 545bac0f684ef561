"""A cell that needs a package of an extra is refused with the command that installs it; the other cells run."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

import attnlab
from attnlab._util import packages
from attnlab.cli.main import main
from attnlab.errors import UserError
from attnlab.testing import check_task


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the required packages are installed."""
    for module in packages.OPTIONAL:
        for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
            monkeypatch.setitem(sys.modules, name, None)
    hidden = {package for package, _, _ in packages.OPTIONAL.values()}

    def version(name: str, original: Any = packages.version) -> str:
        if name in hidden:
            raise PackageNotFoundError(name)
        return original(name)

    monkeypatch.setattr(packages, "version", version)


def planned(*tasks: Any, **base: Any) -> list[Any]:
    study = {"study": "light", "base": {"model": {"dim": 16, "depth": 1, "heads": 2}, "train": {"steps": 2}, **base}}
    return attnlab.plan({**study, "grid": {"variant": ["dense"], "task": list(tasks)}}).cells


def test_cells_of_other_tasks_are_planned() -> None:
    subwords = {"name": "pydocs", "length": 32, "tokens": "bpe", "vocabulary": 300}
    plain, refused = planned({"name": "pydocs", "length": 32}, subwords)
    assert plain.refusal is None and plain.parameters
    assert "tokenizers" in refused.refusal and "pip install 'attnlab[text]'" in refused.refusal


@pytest.mark.parametrize("task", ["imdb", "masked_text", "multi30k"])
def test_a_task_of_text_names_its_extra(task: str) -> None:
    (cell,) = planned(task)
    assert "pip install 'attnlab[text]'" in cell.refusal


def test_a_backend_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    (cell,) = planned({"name": "pydocs", "length": 32}, backend="xformers", machine={"device": "cuda"})
    assert "pip install 'attnlab[xformers]'" in cell.refusal


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["report", "light", "--paper"], "paper"),
        (["ui"], "ui"),
        (["ui", "--search"], "dashboard"),
        (["export", "light", "--to", "wandb"], "export"),
        (["check", "imdb"], "text"),
    ],
)
def test_a_command_names_its_extra(
    words: list[str], extra: str, folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ATTNLAB_RUNS", str(folders))
    assert main(words) == 2
    error = capsys.readouterr().err
    assert f"pip install 'attnlab[{extra}]'" in error and "Traceback" not in error


def test_everything_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "tasks"]) == 0
    assert "multi30k" in capsys.readouterr().out


def test_a_check_names_the_extra_of_its_task() -> None:
    with pytest.raises(UserError, match="attnlab\\[text\\]"):
        check_task("pydocs", options={"length": 24, "tokens": "bpe", "vocabulary": 300}, only=["targets"])

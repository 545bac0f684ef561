"""The shell of a page, and a study that is recorded once for all pages."""

from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest

from attnlab.cli.main import main
from tests.documentation.shell import QUICK, Shell
from tests.documentation.worlds import SMALL


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small study, `projection.yaml`, and its runs."""
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "projection.yaml").write_text(SMALL, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ATTNLAB_RUNS", str(folder / "runs"))
        assert main(["run", "projection.yaml", *QUICK]) == 0
    return folder


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    yield Shell(tmp_path, monkeypatch, capsys)
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type] a page may set it for the whole process

"""Test of the reports that sentences are compared with, in a checkout where the quickstart was run."""

import subprocess
from pathlib import Path

from tests.support.paths import committed_reports


def test_running_the_quickstart_does_not_change_the_committed_numbers(tmp_path: Path) -> None:
    page, other = tmp_path / "reports/quickstart/cells.csv", tmp_path / "reports/aa/cells.csv"
    for path in (page, other):
        path.parent.mkdir(parents=True)
        path.write_text("committed")
    assert committed_reports(tmp_path) == tmp_path / "reports", "not a checkout: the files as they are"
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True)
    assert committed_reports(tmp_path) == tmp_path / "reports"
    page.write_text("of this machine")
    other.write_text("edited")
    for _ in range(2):  # the second time, the copy is there
        folder = committed_reports(tmp_path)
        assert (folder / "quickstart/cells.csv").read_text() == "committed" and (
            folder / "aa/cells.csv"
        ).read_text() == "edited"

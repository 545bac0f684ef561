"""Paths of the repository and of its committed reports."""

import shutil
import subprocess
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def committed_reports(root: Path) -> Path:
    """Return the folder of the committed reports of a checkout.

    ``make quickstart`` writes ``reports/quickstart`` again, with the speed of this machine, and on another processor with
    other losses. Sentences are about the committed page: when the folder differs from it, links to all other reports stand
    beside a copy of what the commit has.
    """

    def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)

    reports = root / "reports"
    commit = _git("rev-parse", "--verify", "--quiet", "HEAD").stdout.decode().strip() if shutil.which("git") else ""
    if not commit or _git("diff", "--quiet", "HEAD", "--", "reports/quickstart").returncode == 0:
        return reports  # not a checkout, or unchanged
    folder = root / ".pytest_cache" / f"reports-{commit[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=folder.parent))
        with tarfile.open(fileobj=BytesIO(_git("archive", "HEAD", "reports/quickstart").stdout)) as archive:
            archive.extractall(made, filter="data")
        for other in reports.iterdir():
            if other.name != "quickstart":
                (made / "reports" / other.name).symlink_to(other)
        try:
            made.rename(folder)
        except OSError:  # another process was first
            shutil.rmtree(made)
    return folder / "reports"


REPORTS = committed_reports(ROOT)

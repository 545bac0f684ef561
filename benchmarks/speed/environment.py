"""The environments that cases run in, with attnlab and the peers on the same torch.

Two are needed, because no release of transformers has both the current GPT-2 and Transformer-XL. On a machine without a
network, ``--here`` uses this interpreter and leaves out peers that cannot be imported.
"""

import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.speed.case import Case

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A virtual environment in the checkout, and the requirements that are installed into it in addition to attnlab."""

    folder: str
    requirements: str

    def python(self) -> Path:
        """Return the interpreter; create the environment if it is missing or its requirements have changed."""
        place = ROOT / self.folder
        python, stamp = place / "bin" / "python", place / ".installed"
        sources = [ROOT / name for name in (self.requirements, "constraints.txt", "pyproject.toml")]
        if not stamp.is_file() or stamp.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            print(f"setting up {self.folder}: a few minutes, once", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "-c", "constraints.txt", "-r", self.requirements, "-e", ".[text]"], check=True, cwd=ROOT)
            stamp.touch()
        return python


NEEDS = {  # peer -> module that it imports besides torch
    "x-transformers": "x_transformers",
    "x-transformers, attn_flash": "x_transformers",
    "transformers GPT-2": "transformers",
    "original": "transformers.models.deprecated.transfo_xl",
}


def split(cases: Sequence[Case]) -> tuple[list[Case], dict[str, str]]:
    """Return the cases whose comparisons can run in this interpreter, and for each missing peer the reason."""
    missing = absent({case.name for case in cases})
    parts = {case.part for case in cases if case.name in missing}
    return [case for case in cases if case.part not in parts], missing


def absent(peers: Collection[str]) -> dict[str, str]:
    """Return the reason for each peer that this interpreter cannot import."""
    reasons = {}
    for name in sorted(NEEDS.keys() & set(peers)):
        try:
            import_module(NEEDS[name])
        except ImportError as error:
            reasons[name] = str(error)
    return reasons


PEERS = Environment(".venv-peers", "benchmarks/peers.txt")
PEERS_XL = Environment(".venv-peers-xl", "benchmarks/peers-xl.txt")

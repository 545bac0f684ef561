"""The environments that cases run in: attnlab and the peers beside each other, on one torch.

There are two because no release of transformers has both today's GPT-2 and Transformer-XL.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Environment:
    """A folder of the checkout, and the requirements that are installed into it beside attnlab."""

    folder: str
    requirements: str

    def python(self) -> Path:
        """Its interpreter; the environment is made anew where it is missing, or its requirements changed since."""
        place = ROOT / self.folder
        python, stamp = place / "bin" / "python", place / ".installed"
        sources = [ROOT / name for name in (self.requirements, "constraints.txt", "pyproject.toml")]
        if not stamp.is_file() or stamp.stat().st_mtime < max(path.stat().st_mtime for path in sources):
            print(f"setting up {self.folder}: a few minutes, once", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "-c", "constraints.txt", "-r", self.requirements, "-e", "."], check=True, cwd=ROOT)
            stamp.touch()
        return python


PEERS = Environment(".venv-peers", "benchmarks/peers.txt")
PEERS_XL = Environment(".venv-peers-xl", "benchmarks/peers-xl.txt")

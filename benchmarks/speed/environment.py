"""The environments that cases run in: attnlab and the peers beside each other, on one torch.

There are two because no release of transformers has both today's GPT-2 and Transformer-XL. A machine without a network goes
without them: ``--here`` takes this interpreter, and leaves out what cannot be imported.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from benchmarks.speed.case import Case

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


NEEDS = {  # what a peer imports, which torch does not bring
    "x-transformers": "x_transformers",
    "x-transformers, attn_flash": "x_transformers",
    "transformers GPT-2": "transformers",
    "original": "transformers.models.deprecated.transfo_xl",
}


def split(cases: Sequence[Case]) -> tuple[list[Case], dict[str, str]]:
    """The cases of comparisons that this interpreter can make, and why not the others: peer -> reason."""
    absent: dict[str, str] = {}
    for name in {case.name for case in cases if case.name in NEEDS}:
        try:
            import_module(NEEDS[name])
        except ImportError as error:
            absent[name] = str(error)
    parts = {case.part for case in cases if case.name in absent}
    return [case for case in cases if case.part not in parts], dict(sorted(absent.items()))


PEERS = Environment(".venv-peers", "benchmarks/peers.txt")
PEERS_XL = Environment(".venv-peers-xl", "benchmarks/peers-xl.txt")

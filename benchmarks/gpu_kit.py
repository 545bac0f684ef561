"""Build ``gpu-kit/``: the packages and data that a machine with PyTorch and a GPU lacks when no package registry is at hand.

    make gpu-kit

Take the checkout with this folder to the machine, and run there the command that is printed. The packages are installed
into a folder and compressed as one archive, which is two thirds of the size of their wheels.
"""

import lzma
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from attnlab.tasks import datasets
from attnlab.tasks.archives import ENWIK8

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "benchmarks" / "gpu-kit.txt"
KIT = ROOT / "gpu-kit"
LIMIT = 45_000_000  # bytes
PYTHON = "3.12"
PRESET: Any = 9 | lzma.PRESET_EXTREME  # typeshed knows no bits of presets
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
MARKERS = {
    "extra": "",
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": f"{PYTHON}.0",
    "python_version": PYTHON,
    "sys_platform": "linux",
}

# The machine has these, and whatever they require.
PRESENT = """
annotated-doc anyio certifi click cloudpickle einops jinja2 markupsafe matplotlib numpy packaging pandas pillow protobuf psutil
pyarrow pyyaml requests rich sacrebleu safetensors scikit-learn scipy sympy tokenizers torch tqdm typing-extensions urllib3 zipp
"""
# Packages of the kit require these, but runs that are stored in SQLite do not import them.
UNUSED = "gitpython google-auth pycparser python-dotenv uvicorn"


def pins() -> dict[str, str]:
    """Return the packages of the kit and their versions."""
    lines = [line for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def missing(requirements: Iterable[str], versions: dict[str, str]) -> list[str]:
    """Return the requirements that neither the machine nor packages of these versions fulfil."""
    expected, unmet = {*PRESENT.split(), *UNUSED.split()}, []
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate(MARKERS)) or name in expected:
            continue
        if name not in versions or not requirement.specifier.contains(versions[name], prereleases=True):
            unmet.append(str(requirement))
    return unmet


def missing_for(packages: Iterable[Distribution], versions: dict[str, str]) -> list[str]:
    """Return the requirements of installed packages that are ``missing``, as ``"package: requirement"``."""
    return [f"{package.name}: {unmet}" for package in packages for unmet in missing(package.requires or [], versions)]


def install(requirements: Sequence[str], site: Path) -> None:
    """Install packages for the machine's Python and platform into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile"]
    platform = [f"--platform={name}" for name in PLATFORMS]
    target = ["--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp", *platform, f"--target={site}"]
    subprocess.run([*pip, *target, *requirements], check=True)


def pack(site: Path, archive: Path) -> None:
    """Write the files of a folder into an archive, which depends on their names, modes and contents only."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    part = archive.with_name(f"{archive.name}.part")
    with tarfile.open(part, "w:xz", preset=PRESET) as file:
        for path in sorted(site.rglob("*")):
            file.add(path, path.relative_to(site), recursive=False, filter=plain)
    part.replace(archive)


def add_packages(kit: Path) -> int:
    """Write ``site.tar.xz`` and return its size in bytes."""
    versions, archive = pins(), kit / "site.tar.xz"
    with TemporaryDirectory() as site:
        install([f"{name}=={version}" for name, version in versions.items()], Path(site))
        if unmet := missing_for(distributions(path=[site]), versions):
            raise SystemExit(f"{REQUIREMENTS.name} lacks requirements of its packages: {'; '.join(unmet)}")
        pack(Path(site), archive)
    return archive.stat().st_size


def add_enwik8(kit: Path, most: int) -> str | None:
    """Write ``enwik8.xz`` unless it exists, if the data set is in the folder of archives; return why the kit has none, or None.

    Args:
        most: bytes that the file may have.
    """
    path = kit / "enwik8.xz"
    if not path.is_file():
        if not ENWIK8.place(datasets.folder()).is_file():
            return "it is not in the folder of archives (ATTNLAB_DATA); `attnlab data fetch enwik8` downloads it"
        part = path.with_suffix(".part")
        part.write_bytes(lzma.compress(datasets.load(ENWIK8), preset=PRESET))
        part.replace(path)
    size = path.stat().st_size
    if size > most:
        path.unlink()
        return f"compressed, it has {size / 1e6:.1f} MB; the limit leaves {most / 1e6:.1f} MB"
    return None


def command(*, data: bool) -> str:
    """Return the command to run in the checkout on the machine."""
    unpack = "python3 -m tarfile --filter data -e gpu-kit/site.tar.xz /tmp/site"
    variables = "PYTHONPATH=/tmp/site:$PWD" + (" ATTNLAB_DATA=$PWD/gpu-kit" if data else "")
    return f"{unpack} && {variables} python3 -m benchmarks.gpu_check"


def main() -> None:
    KIT.mkdir(exist_ok=True)
    print("Packages:", ", ".join(f"{name} {version}" for name, version in pins().items()))
    print("Compressing: about a minute, and three more with enwik8", flush=True)
    size = add_packages(KIT)
    if size > LIMIT:
        raise SystemExit(f"the packages have {size / 1e6:.1f} MB, compressed; expected at most {LIMIT / 1e6:.0f} MB")
    without = add_enwik8(KIT, LIMIT - size)
    for path in sorted(KIT.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1e6:.1f} MB")
    if without:
        print(f"without enwik8: {without}")
    print(f"Take this checkout to the machine, with Python {PYTHON} and PyTorch, and run there:")
    print(f"    {command(data=without is None)}")


if __name__ == "__main__":
    main()

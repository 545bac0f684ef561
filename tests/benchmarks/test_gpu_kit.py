"""The kit for a machine with a GPU has what the machine lacks: a new dependency has to be added to it."""

import lzma
import tarfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from attnlab.tasks import datasets
from benchmarks import gpu_kit
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = gpu_kit.pins()


def test_the_kit_has_every_dependency_that_the_machine_lacks() -> None:
    extras = PROJECT["optional-dependencies"]
    assert not gpu_kit.missing([*PROJECT["dependencies"], *extras["text"], *extras["xformers"]], PINS)
    assert not PINS.keys() & {*gpu_kit.PRESENT.split(), *gpu_kit.UNUSED.split()}


def test_the_kit_has_what_its_packages_require() -> None:
    installed = []
    for name, version in PINS.items():
        try:
            package = distribution(name)
        except PackageNotFoundError:  # a peer of the benchmarks
            continue
        if package.version == version:  # other versions may have other requirements
            installed.append(package)
    assert not gpu_kit.missing_for(installed, PINS)


@pytest.fixture
def kit(folders: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of the kit, with packages that each consist of one file."""

    def install(requirements: list[str], site: Path) -> None:
        for requirement in requirements:
            name, _, version = requirement.partition("==")
            info = site / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")

    monkeypatch.setattr(gpu_kit, "install", install)
    monkeypatch.setattr(gpu_kit, "ROOT", folders)
    monkeypatch.setattr(gpu_kit, "KIT", folders / "gpu-kit")
    monkeypatch.setattr(gpu_kit, "PRESET", 0)
    return folders / "gpu-kit"


def place_enwik8(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folders / "data").mkdir()
    (folders / "data" / "enwik8.zip").write_bytes(b"")
    monkeypatch.setattr(datasets, "load", lambda source: bytes(1000))


def test_the_kit_is_written_and_its_command_printed(
    kit: Path, folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place_enwik8(folders, monkeypatch)
    gpu_kit.main()
    with tarfile.open(kit / "site.tar.xz") as archive:
        assert sum(name.endswith("METADATA") for name in archive.getnames()) == len(PINS)
    assert lzma.decompress((kit / "enwik8.xz").read_bytes()) == bytes(1000)
    assert sorted(path.name for path in kit.iterdir()) == ["enwik8.xz", "site.tar.xz"]
    assert gpu_kit.command(data=True) in capsys.readouterr().out

    packages = (kit / "site.tar.xz").read_bytes()
    monkeypatch.setattr(datasets, "load", lambda source: pytest.fail("enwik8 is compressed already"))
    gpu_kit.main()
    assert (kit / "site.tar.xz").read_bytes() == packages  # the same files are the same archive

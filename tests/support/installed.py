"""Packages that look installed, for tests of entry points."""

import tomllib
from pathlib import Path

import pytest


def install_example(example: Path, site: Path, monkeypatch: pytest.MonkeyPatch, *, group: str) -> None:
    """Put the module of an example, without its registrations, and what pip would write of it on the path.

    Args:
        example: its folder, with a ``pyproject.toml`` and one Python file.
        site: an empty folder.
        group: the group of its entry points.
    """
    project = tomllib.loads((example / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"][group].items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    (module,) = example.glob("*.py")
    code = [line for line in module.read_text(encoding="utf-8").splitlines() if not line.startswith("@register")]
    (site / module.name).write_text("\n".join(code), encoding="utf-8")
    monkeypatch.syspath_prepend(site)

"""Tests of docs/tutorials.md and of the table of systems: every file and setting that they name exists."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import attnlab
from attnlab.config.grid import expand
from attnlab.config.reader import read_study
from attnlab.config.run import RunConfig
from attnlab.config.stages import stage_of
from attnlab.config.study import StudyConfig
from attnlab.registry import TASKS
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "tutorials.md"
TEXT = PAGE.read_text(encoding="utf-8")
BASE = {"task": {"name": "pydocs", "length": 32}, "variant": "dense", "train": {"steps": 2, "batch_size": 4}}
NAMED = ("task", "variant", "position")


def links(text: str) -> list[str]:
    """Return the targets of relative links, without their anchors."""
    targets = (target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text))
    return [target for target in targets if target and "://" not in target]


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield section, setting and studies of each row of the page."""
    for line in TEXT.splitlines():
        if line.startswith("|") and not line.startswith(("| section", "|--")):
            section, setting, studies = line.strip("|").split("|")
            yield section.strip(), setting.strip(), studies.strip()


def setting_of(text: str) -> dict[str, Any]:
    """Return dotted path -> value of a setting such as `model.heads: 8`; empty if it is not one."""
    fields = yaml.safe_load(text.strip("`")) if text.startswith("`") and text.endswith("`") else None
    return fields if isinstance(fields, dict) else {}


def task_of(setting: str) -> str:
    """Return the name in "the task `csv`", a setting that needs files; else ""."""
    name = re.fullmatch(r"the task `(\w+)`", setting)
    return name[1] if name else ""


SETTINGS = {section: setting_of(setting) for section, setting, _ in rows() if setting_of(setting)}


def has_value(config: RunConfig, path: str, value: Any) -> bool:
    """Return True if a configuration has this value; a name may have further options."""
    present: Any = config
    for name in path.split("."):
        present = present.options.get(name) if present is config.task else getattr(present, name)
    if path.rpartition(".")[2] in NAMED:
        options = dict(value) if isinstance(value, dict) else {"name": value}
        name, components = options.pop("name"), options.pop("with", [])
        if present is None or present.name != name or not options.items() <= present.options.items():
            return False
        written = present.model_dump().get("with", [])
        return all(component in written for component in components)
    return present == value


def configurations(study: Path) -> Iterator[RunConfig]:
    """Yield the configuration of each cell of a study, and of the stage that it starts from."""
    for cell in expand(read_study(study))[0]:
        stage = stage_of(cell)
        yield from (cell.config, *([stage.config] if stage else []))


@pytest.mark.parametrize("path", [PAGE, ROOT / "docs" / "systems.md", ROOT / "README.md"], ids=lambda path: path.name)
def test_every_linked_file_exists(path: Path) -> None:
    targets = links(path.read_text(encoding="utf-8"))
    assert len(targets) > 5 and [target for target in targets if not (path.parent / target).exists()] == []


def test_the_page_has_every_study_of_the_table_of_systems() -> None:
    systems = (ROOT / "docs" / "systems.md").read_text(encoding="utf-8")
    table = systems.partition("| system |")[2].partition("\n\n")[0]
    studies = [target for target in links(table) if target.endswith(".yaml")]
    assert "tutorials.md" in links(systems) and len(studies) > 5
    assert set(studies) <= set(links(TEXT))


def test_every_row_has_a_setting_that_is_read() -> None:
    for section, setting, _ in rows():
        assert section in SETTINGS or links(setting) or task_of(setting) in TASKS.names(), f"{section}: {setting}"
        if links(setting):
            assert set(re.findall(r"`(\w+)`", setting)) <= StudyConfig.model_fields.keys() | RunConfig.model_fields.keys()


@pytest.mark.parametrize("section", SETTINGS)
def test_every_setting_can_be_planned(section: str) -> None:
    planned = attnlab.plan({"study": "s", "base": BASE}, sets=SETTINGS[section])
    assert [cell.refusal for cell in planned.cells] == [None]


def test_every_linked_study_uses_the_setting() -> None:
    known: dict[Path, list[RunConfig]] = {}
    for section, setting, studies in rows():
        task = task_of(setting)
        fields = {"task": task} if task else SETTINGS.get(section, {})
        for target in links(studies):
            path = (PAGE.parent / target).resolve()
            configs = known[path] = known.get(path) or list(configurations(path))
            assert any(all(has_value(config, *field) for field in fields.items()) for config in configs), (
                f"{section}: no cell of {path.name} has {fields}"
            )

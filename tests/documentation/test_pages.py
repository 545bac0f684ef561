"""Everything on a page of the documentation is executed, in its order and at a small size."""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import attnlab
from attnlab.cli.main import VERBS
from tests.documentation.exceptions import EXCEPTED
from tests.documentation.markdown import Code, read_code
from tests.documentation.shell import Shell
from tests.documentation.worlds import WORLDS
from tests.support.paths import ROOT

PAGES = [path.relative_to(ROOT).as_posix() for path in (*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md")]
EXAMPLES = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "examples").iterdir()) if path.is_dir()]
TEXTS = ("docs/diagnostics.md", "CONTRIBUTING.md", "GLOSSARY.md")  # that some examples read


def code_of_page(page: str) -> list[Code]:
    return list(read_code((ROOT / page).read_text(encoding="utf-8")))


def code_of_file(path: Path) -> Iterator[Code]:
    """Yield the code of a README, of the documentation of a module, or of the comment at the top of a study."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from read_code(text)
    elif path.suffix == ".py":
        code = read_code(f"{ast.get_docstring(ast.parse(text)) or ''}\n")
        yield from (Code("inline", line) for block in code for line in block.text.splitlines())  # others are equations
    elif path.suffix == ".yaml":
        yield from (Code("inline", command) for command in re.findall(r"^# (?:Run|Then).*?: (.+)$", text, flags=re.MULTILINE))


@pytest.mark.parametrize("page", [page for page in PAGES if code_of_page(page)])
def test_the_code_of_a_page_is_executed_in_its_order(page: str, shell: Shell, request: pytest.FixtureRequest) -> None:
    if page in WORLDS:
        WORLDS[page](shell, request)
    for code in code_of_page(page):
        shell.execute_code(code)
    shell.expect_nothing_unused()


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_commands_of_an_example_are_executed(example: str, shell: Shell, request: pytest.FixtureRequest) -> None:
    """Each where it says: in the folder of the example, or in that of the repository if it names the example's."""
    for name in TEXTS:
        (shell.folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, shell.folder / name)
    shutil.copytree(ROOT / example, shell.folder / example)
    if example in WORLDS:
        WORLDS[example](shell, request)
    for path in sorted(path for path in (ROOT / example).iterdir() if path.is_file()):
        for command in (command for code in code_of_file(path) for command in code.commands()):
            shell.patch.chdir(shell.folder if "examples/" in command else shell.folder / example)
            shell.execute(command)
    shell.expect_nothing_unused()


def test_every_exception_is_a_command_of_a_page() -> None:
    assert {command for page in PAGES for code in code_of_page(page) for command in code.commands()} >= EXCEPTED


def test_every_world_has_a_page() -> None:
    assert WORLDS.keys() <= {*PAGES, *EXAMPLES}


@pytest.mark.parametrize("page", PAGES)
def test_every_verb_of_a_page_is_one_of_attnlab(page: str) -> None:
    """Names of verbs in a sentence, such as `attnlab plan`, are not executed."""
    verbs = {code.text.split()[1] for code in code_of_page(page) if re.match(r"attnlab\s+[a-z]", code.text)}
    assert verbs <= {*VERBS.names()}


def test_the_table_of_the_tutorial_has_the_cells_of_its_study(tmp_path: Path) -> None:
    code = code_of_page("docs/tutorial.md")
    for file in code:
        if file.title:
            (tmp_path / file.title).write_text(file.text, encoding="utf-8")
    (table,) = [block.text for block in code if block.text.startswith("cell   parameters")]
    for cell in attnlab.plan(tmp_path / "study.yaml").cells:
        (parameters,) = re.findall(rf"^{cell.name} +([\d,]+) ", table, flags=re.MULTILINE)
        assert int(parameters.replace(",", "")) == cell.parameters and cell.refusal is None

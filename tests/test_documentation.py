"""The pages of the documentation: every command exists, and the files and commands of the tutorial and other pages run."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import attnlab
from attnlab.cli._arguments import Parser
from attnlab.cli.main import VERBS, build_parser, main
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tracking.runs import load_runs
from tests.support.paths import ROOT

PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```(\w+)(?: title=\"(.+?)\")?\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
SMALL = ["--seeds=0", "--set=train.steps=2", "--set=train.warmup=0", "--set=train.batch_size=3"]
SMALL += [
    "--set=evaluate.valid_limit=500",
    "--set=evaluate.test_limit=500",
    "--no-check",
    "--no-report",
    "--no-reference-scores",
]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words after `attnlab` of each command in code, fenced or indented, without assignments and comments."""
    fenced = "".join(code for language, _, code in BLOCK.findall(text) if language == "bash")
    for line in [*fenced.splitlines(), *re.findall(r"^    (.+)$", text, flags=re.MULTILINE)]:
        if match := re.fullmatch(r"(?:[A-Z_]+=\S+ )*(?:python3? -m )?attnlab (.+)", line):
            yield shlex.split(match[1], comments=True)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_of_a_page_is_one_of_attnlab(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for words in commands(text):
        build_parser().parse_args(words[: words.index(">")] if ">" in words else words)
    for inline in re.findall(r"`attnlab ([^`]+)`", text):
        verb, *words = inline.split()
        assert verb in VERBS or verb in ("VERB", "--help")
        if verb in VERBS:
            parser = Parser()
            import_module(f"attnlab.cli.{verb.replace('-', '_')}").add_arguments(parser)
            assert all(word.partition("=")[0] in parser.format_help() for word in words if word.startswith("--")), inline


@pytest.mark.parametrize(
    "page", ["tutorial.md", "how-to/variant.md", "how-to/component.md", "how-to/window.md", "how-to/task.md"]
)
def test_the_files_and_commands_of_a_page_run_in_its_order(page: str, tmp_path: Path, monkeypatch, capsys) -> None:
    """A run has one seed and two small steps here, and its variants are checked by the command of the page alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    ran = []
    for language, title, code in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(code, encoding="utf-8")
        elif language == "bash":
            for words in commands(f"```bash\n{code}```"):
                assert main([*words, *(SMALL if words[0] == "run" else [])]) == 0, words
                ran.append(words[0])
        elif language == "python" and "load_runs" in code:
            exec(code, {})
    assert "run" in ran


def test_the_table_of_the_tutorial_has_the_cells_of_its_study(tmp_path: Path) -> None:
    blocks = {
        title: code for _, title, code in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")) if title
    }
    for name, code in blocks.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    plan = attnlab.plan(tmp_path / "study.yaml")
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    for cell in plan.cells:
        (line,) = re.findall(rf"^{cell.name} +([\d,]+) ", text, flags=re.MULTILINE)
        assert int(line.replace(",", "")) == cell.parameters and cell.refusal is None


def test_the_model_of_the_page_is_loaded_and_called(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    sets = {"train.steps": 2, "evaluate.test_limit": 500}
    only = {"variant": ["no_wo"]}
    attnlab.run(ROOT / "ablations" / "quickstart.yaml", sets=sets, only=only, display=ProgressDisplay(quiet=True))
    text = (ROOT / "docs" / "how-to" / "trained-model.md").read_text(encoding="utf-8")
    (code,) = [code for language, _, code in BLOCK.findall(text) if language == "python"]
    exec(code, {})
    assert capsys.readouterr().out.startswith("torch.Size([1, 13, 256])\ntorch.Size([2, 1, 4, 13, 13])\n")
    assert len(load_runs("quickstart")) == 2

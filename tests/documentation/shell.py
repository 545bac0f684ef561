"""Execution of the code of a page in this process, at a small size."""

import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

import attnlab
from attnlab.cli.main import main
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.variants import Variant
from tests.documentation.exceptions import EXCEPTED
from tests.documentation.markdown import ASSIGNMENT, Code
from tests.support.paths import ROOT
from tests.support.users_files import forget_users_files

FEW_STEPS = ["--set=train.steps=2", "--set=train.warmup=0", "--set=train.batch_size=3"]
FEW_BYTES = ["--set=evaluate.valid_limit=500", "--set=evaluate.test_limit=500"]
QUICK = ["--no-check", "--no-report", "--no-reference-scores"]


class Shell:
    """A folder, an environment and the programs that a page uses.

    Attributes:
        folder: The working folder at the start of the page.
        fill: Text of the page -> what stands in its place, such as `RUN` -> `projection/dense/0`.
        smaller: Command, or verb of others -> words that are added to make its work small.
        before: Command -> a function that is called before it.
        exit_codes: Command -> its exit code, where it is not 0.
        base: A study that fragments of studies are merged over.
        prints: What the Python code of the page prints, in part.
        commands: The commands of the page so far.
    """

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.patch, self._capsys = folder, patch, capsys
        self.fill: dict[str, str] = {}
        self.smaller = {
            "run": ["--seeds=0", *FEW_STEPS, *FEW_BYTES, *QUICK],
            "bench": ["--lengths=16", "--rounds=1", "--backend=reference"],
        }
        self.before: dict[str, Callable[[], None]] = {}
        self.exit_codes: dict[str, int] = {}
        self.base: dict[str, Any] = {
            "study": "fragment",
            "base": {"task": {"name": "pydocs", "length": 32}, "variant": "dense"},
        }
        self.prints: list[str] = []
        self.commands: list[str] = []
        self._printed = ""
        self._filled: set[str] = set()
        self._studies = 0
        self._programs: dict[str, Callable[[list[str]], int]] = {
            "attnlab": self._attnlab,
            "cd": self._cd,
            "eval": self._eval,
            "export": self._export,
            "make": self._make,
            "pip": self._pip,
            "pytest": self._pytest,
            "python": self._python,
            "python3": self._python,
        }
        patch.chdir(folder)
        self.use_runs("runs")

    def use_runs(self, name: str) -> None:
        """Store runs in a folder of this name next to the files of the page."""
        self.patch.setenv("ATTNLAB_RUNS", str(self.folder / name))

    def expect_nothing_unused(self) -> None:
        """Assert that the page still has everything that its world prepares for it."""
        assert self._filled == self.fill.keys()
        named = {*self.before, *self.exit_codes, *(name for name in self.smaller if " " in name)}
        assert named <= set(self.commands)
        assert [text for text in self.prints if text not in self._printed] == []

    def execute_code(self, code: Code) -> None:
        """Write a file, execute Python or commands, or plan a study."""
        if code.title:
            Path(code.title).write_text(code.text, encoding="utf-8")
        elif code.kind == "python":
            self._capsys.readouterr()
            exec(code.text, {"Variant": Variant})
            self._printed += self._capsys.readouterr().out
        elif code.kind == "yaml":
            self._plan(code.text)
        for command in code.commands():
            self.execute(command)

    def execute(self, command: str) -> None:
        """Execute a command as a process of its own would, and assert its exit code.

        A command of another program must be among the exceptions.
        """
        self.before.get(command, lambda: None)()
        self.commands.append(command)
        words = shlex.split(self._fill(command))
        target = words.pop() if ">" in words else ""
        words = words[: words.index(">")] if target else words
        with pytest.MonkeyPatch.context() as environment, forget_users_files():
            while ASSIGNMENT.fullmatch(words[0]):
                environment.setenv(*words.pop(0).split("=", 1))
            assert words[0] in self._programs or command in EXCEPTED, f"{command}: neither executed nor an exception"
            self._capsys.readouterr()
            exit_code = self._programs.get(words[0], lambda words: 0)(words[1:])
        printed = self._capsys.readouterr()
        assert exit_code == self.exit_codes.get(command, 0), f"{command}\n{printed.out}\n{printed.err}"
        if target:
            Path(target).write_text(printed.out, encoding="utf-8")

    def _fill(self, text: str) -> str:
        if not self.fill:
            return text
        longest_first = sorted(self.fill, key=len, reverse=True)
        found = re.compile(r"(?<!\w)(" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
        self._filled |= set(found.findall(text))
        return found.sub(lambda match: self.fill[match[0]], text)

    def _plan(self, text: str) -> None:
        """Plan a study, or a fragment of one merged over `base`. Options of several tasks are fragments of their own."""
        fields = yaml.safe_load(text)
        if len(parts := re.split(r"\n\n(?=#|task:)", text)) > 1 and fields.keys() == {"task"}:
            for part in parts:
                self._plan(part)
            return
        if fields.keys() <= RunConfig.model_fields.keys():
            text = "base:\n" + indent(text, "  ")
        if "study" not in fields:
            length = {} if "command" in self.base or re.search("steps|epochs", text) else {"train": {"steps": 10}}
            base = {**self.base, "base": {**self.base["base"], **length}}
            Path("base.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
            text = "include: base.yaml\n" + text.replace(", ...}", "}")  # the page leaves out other keys
        self._studies += 1
        file = Path(f"study-{self._studies}.yaml")
        file.write_text(text, encoding="utf-8")
        cells = attnlab.plan(file).cells
        assert cells and [cell.refusal for cell in cells] == [None] * len(cells)

    def _attnlab(self, words: list[str]) -> int:
        smaller = self.smaller.get(self.commands[-1], self.smaller.get(words[0], []))
        try:
            return main([*words, *smaller])
        except SystemExit as end:  # of `--help`
            return int(end.code or 0)

    def _cd(self, words: list[str]) -> int:
        self.patch.chdir(words[0])
        return 0

    def _eval(self, words: list[str]) -> int:
        (command,) = re.findall(r"^\$\((.+)\)$", words[0])
        program, *rest = shlex.split(command)
        return self._programs[program](rest)

    def _export(self, words: list[str]) -> int:
        self.patch.setenv(*words[0].split("=", 1))
        return 0

    def _make(self, words: list[str]) -> int:
        self._expect_exception()
        return subprocess.run(["make", "--dry-run", *words], cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60).returncode

    def _pip(self, words: list[str]) -> int:
        self._expect_exception()
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        name, extra = re.fullmatch(r"([\w.]+)(?:\[(\w+)\])?", words[1]).groups()  # type: ignore[union-attr]
        return 0 if name in (".", project["name"]) and (not extra or extra in project["optional-dependencies"]) else 1

    def _pytest(self, words: list[str]) -> int:
        self._expect_exception()
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *words]
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=300).returncode

    def _python(self, words: list[str]) -> int:
        if words[0] != "-m":
            self.patch.setattr(sys, "argv", words)
            runpy.run_path(words[0], run_name="__main__")
            return 0
        _, module, *rest = words
        if module in self._programs:
            return self._programs[module](rest)
        package = (ROOT / module.replace(".", "/")).is_dir()
        self.patch.setattr(sys, "argv", [module, *rest])
        try:
            return import_module(f"{module}.__main__" if package else module).main() or 0
        except UserError as error:
            print(error)
            return 1

    def _expect_exception(self) -> None:
        assert self.commands[-1] in EXCEPTED, (
            f"{self.commands[-1]}: add it to tests/documentation/exceptions.py, with the reason"
        )

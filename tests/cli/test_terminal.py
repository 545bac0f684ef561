"""Tests of the command line on a terminal, a file and a closed pipe: Ctrl-C, control characters, ends of lines."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.cli import main
from tests.cli.test_snapshots import STUDY
from tests.support.paths import ROOT
from tests.support.studies import COSINE
from tests.support.terminal import ESCAPE, plain_lines, run_in_terminal

STYLE = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")  # a color or a weight
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
DISPLAY = """\
import sys
from attnlab._util.run_state import RunState
from attnlab.cli._printing import show_progress
from attnlab.training.result import Result
from attnlab.study.execution.progress import ProgressDisplay

display = ProgressDisplay()
display.start_study("mine", runs=2, finished=0, workers=1, metrics=["loss"])
display.start_run("dense s0", total=9)
for step in (3, 6, 9):
    display.metrics("dense s0", step, {"train/loss": 2.0, "valid/loss": 1.5})
display._progress.refresh()
display.end_run("dense s0", Result(RunState.COMPLETED, {"loss": 1.5}))
display.close()
with show_progress() as progress:
    progress("resolving cells", 1, 2)
    progress("causality")
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a study of two cells."""
    study = STUDY | {"grid": {"variant": ["dense", "no_wo"]}, "reference_scores": False}
    (tmp_path / "tiny.yaml").write_text(json.dumps(study))
    (tmp_path / "display.py").write_text(DISPLAY)
    return tmp_path


def test_a_terminal_has_colours_and_a_moving_display(here: Path) -> None:
    code, output = run_in_terminal([sys.executable, "display.py"], columns=80, cwd=here)
    assert code == 0 and STYLE.search(output) and "\x1b[2K" in output
    assert output.rfind(SHOW_CURSOR) > output.rfind(HIDE_CURSOR), "the cursor is back"


def test_no_color_removes_every_style(here: Path) -> None:
    code, output = run_in_terminal([sys.executable, "display.py"], columns=80, cwd=here, environment={"NO_COLOR": "1"})
    assert code == 0 and "dense s0" in output and not STYLE.search(output)


def test_a_dumb_terminal_gets_plain_lines(here: Path) -> None:
    code, output = run_in_terminal([sys.executable, "display.py"], columns=80, cwd=here, environment={"TERM": "dumb"})
    assert code == 0 and "\x1b" not in output
    assert any(re.fullmatch(r"  dense s0: step 6/9  loss 2\.000  \d+:\d\d left", line) for line in plain_lines(output))


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE", "CLICOLOR_FORCE"])
def test_a_file_gets_plain_lines(here: Path, variable: str) -> None:
    program, environment = [sys.executable, "display.py"], os.environ | {variable: "1"}
    output = subprocess.run(program, cwd=here, env=environment, capture_output=True, text=True, check=True).stderr
    assert "\x1b" not in output and "[1/2] dense s0: completed, loss 1.5000" in output


@pytest.mark.parametrize(
    ("words", "after"),
    [(["plan", "tiny.yaml"], HIDE_CURSOR), (["run", "tiny.yaml", "--set", "train.steps=100000"], "loss ")],
)
def test_ctrl_c_is_one_line_and_exit_code_130(here: Path, words: list[str], after: str) -> None:
    code = f"from attnlab.cli import main; raise SystemExit(main.main({words!r}))"
    environment = {"ATTNLAB_RUNS": str(here / "runs")}
    exit_code, output = run_in_terminal(
        [sys.executable, "-c", code], columns=80, cwd=here, environment=environment, keys="\x03", after=after
    )
    messages = [line for line in plain_lines(output) if "attnlab: " in line]  # the terminal writes ^C before it
    assert exit_code in (130, -2), output  # -2: a shell shows it as 130, too
    assert len(messages) == 1 and "interrupted" in messages[0] and "Traceback" not in output
    assert output.rfind(SHOW_CURSOR) > output.rfind(HIDE_CURSOR), "the cursor is back"


@pytest.mark.parametrize("words", [["list"], ["plan", "tiny.yaml"], ["plan", "nothing.yaml"]])
def test_a_reader_that_stops_is_no_error(here: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-m", "attnlab", *words], cwd=here, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    if words[-1] == "nothing.yaml":
        assert done.returncode == 2 and done.stderr.count("\n") == 1
    else:
        assert (done.returncode, done.stderr) == (0, "")


SMALL = ["train.steps=2", "model.dim=12", "model.heads=2", "model.depth=1"]
VERBS = [
    ["plan", "tiny.yaml"],
    ["run", "tiny.yaml"],
    ["verdict", "quickstart"],
    ["runs", "quickstart"],
    ["check", "no_wo", "--only", "shapes"],
    ["check", "broken.py:Cosine", "--only", "causality by value"],
]
FURTHER_VERBS = [
    ["submit", "tiny.yaml", "--local", "--set", "study=job"],  # runs beside the others, of which two change quickstart
    ["init", "lab"],
    ["train", "variant=dense", "task=copy", *SMALL, "--no-report"],
    ["report", "quickstart"],
    ["runs"],
    ["attention-maps", "quickstart"],
    ["generate", "quickstart/dense/0", "--length", "3"],
    ["bundle", "quickstart"],
    ["export", "quickstart", "--to", "tensorboard"],
    ["tune", "tiny.yaml"],
    [
        "bench",
        "no_wo",
        "--lengths",
        "16",
        "--dim",
        "16",
        "--heads",
        "2",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--backend",
        "sdpa",
    ],
    ["profile", "no_wo", "--tasks", "nothing"],  # refused, as an example of an error
    ["claims", "list", "--studies", "claims", "--reports", str(ROOT / "reports" / "claims")],
    ["compare", "before.csv", "after.csv", "--metric", "loss", "--direction", "min"],
    ["ui", "nothing"],
    ["redo", "quickstart", "dense"],
    ["delete", "quickstart", "no_wo", "--yes"],
    ["list"],
    *(
        ["list", kind]
        for kind in ("variants", "components", "positions", "tasks", "models", "optimizers", "backends", "config")
    ),
    ["schema"],
    ["data"],
]
MERGE = ["ATTNLAB_RUNS=merged", "merge", "quickstart.zip"]
PROGRAM = """
import json, os, sys
from attnlab.cli import main
for words in json.loads(sys.argv[1]):
    print(f"\\x07{' '.join(words)}", flush=True)
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        os.environ[name] = value
    print(f"\\nexit {main.main(words)}", flush=True)
"""


def outputs(here: Path, commands: list[list[str]]) -> dict[str, str]:
    """Run commands on a terminal with 80 columns, in one process; return what each printed.

    A command may begin with variables of the environment, NAME=value, which the following ones have, too.
    """
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    code, output = run_in_terminal(command, columns=80, cwd=here, environment={"ATTNLAB_RUNS": str(here / "runs")})
    assert code == 0, output
    return {command: text for command, _, text in (part.partition("\r\n") for part in output.split("\x07")[1:])}


def lines_on_screen(text: str) -> list[str]:
    """Return the lines without the progress that was erased, and without escape sequences."""
    return [ESCAPE.sub("", line.rpartition("\x1b[2K")[2].rpartition("\r")[2]) for line in text.split("\r\n")]


def assert_printed_well(command: str, text: str) -> None:
    lines = lines_on_screen(text)
    assert not re.search(r"\\x1b|\[[0-9;]+m", "\n".join(lines)), f"{command}: a code is printed as text"
    unbroken = ("claims", "data", "list", "merge", "schema")  # long addresses, digests, sentences, JSON, paths
    if text.endswith("exit 0\r\n") and not command.startswith(unbroken):  # the one line of an error is not broken, either
        assert max(map(len, lines)) <= 80, command


def test_tables_on_a_terminal_are_colored_and_aligned(here: Path) -> None:
    broken = COSINE.replace('@register_variant("NAME")\n', "").replace("v, mask)", "v, mask).flip(-2)")
    (here / "broken.py").write_text(broken)
    plain = ["NO_COLOR=1", *VERBS[-1]]
    texts = outputs(here, [*VERBS, plain])
    for command, text in texts.items():
        assert_printed_well(command, text)
    assert "\x1b[33minconclusive" in texts["run tiny.yaml"]
    assert "\x1b[32mpassed\x1b[0m" in texts["check no_wo --only shapes"]
    failed = texts["check broken.py:Cosine --only causality by value"]
    heading, row = (next(line for line in lines_on_screen(failed) if name in line) for name in ("measured", "see below"))
    assert "\x1b[31mfailed\x1b[0m" in failed and row.index("failed") == heading.index("result")
    assert not STYLE.search(texts[" ".join(plain)])


@pytest.mark.slow
def test_every_verb_on_a_terminal(here: Path) -> None:
    assert {words[0] for words in [*VERBS, *FURTHER_VERBS, MERGE[1:]]} == set(main.VERBS.names())
    (here / "claims").mkdir()
    for name, loss in (("before", 2), ("after", 1)):
        (here / f"{name}.csv").write_text("seed,loss\n" + "".join(f"{seed},{loss + seed % 3 / 100}\n" for seed in range(5)))
    for name in ("K09.yaml", "S01.yaml"):
        shutil.copy(ROOT / "ablations" / "claims" / name, here / "claims")
    for command, text in outputs(here, [VERBS[1], *FURTHER_VERBS, MERGE]).items():
        assert_printed_well(command.removeprefix("ATTNLAB_RUNS=merged "), text)
        assert text.endswith("exit 0\r\n") or command.startswith(("profile", "ui")), command

"""Tests of the command line: exit codes, one-line error messages, and the output of the verbs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab._util.text import format_table
from attnlab.cli import main
from attnlab.cli._config_keys import config_keys
from attnlab.cli._printing import print_table
from attnlab.cli.list import HEADINGS
from attnlab.errors import UserError
from attnlab.tasks import datasets
from attnlab.tracking.tags import command
from tests.support import studies

STUDY = """\
# What does this test?
study: tiny
base:
  task: {name: pydocs, length: 17}
  model: {dim: 12, depth: 1, heads: 2}
  train: {steps: 3, batch_size: 3, eval_every: 2}
  evaluate: {valid_limit: 300, test_limit: 300}
  machine: {threads: 1, device: cpu}
grid:
  variant: [dense, no_wo, 'unbiased.py:Unbiased']
  position: [learned, alibi]
skip:
  - where: {variant: no_wo, position: alibi}
    because: it is elsewhere
seeds: [0, 1]
baseline: {variant: dense}
"""
UNBIASED = "from attnlab.variants.dense import Dense\n\n\nclass Unbiased(Dense):\n    hooks = frozenset({'embed'})\n"
Out = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary working directory with a study file."""
    (tmp_path / "tiny.yaml").write_text(STUDY)
    (tmp_path / "unbiased.py").write_text(UNBIASED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNLAB_RUNS", str(tmp_path / "runs"))
    return tmp_path


def test_plan_prints_cells_costs_and_reasons(here: Path, capsys: Out) -> None:
    assert main.main(["plan", "tiny.yaml", "--tflops", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "8 runs (2 seeds per cell)" in out and "time/run" in out
    assert "refused: Unbiased alibi: " in out and "skipped: no_wo alibi: it is elsewhere" in out
    assert not (here / "runs").exists(), "a plan writes no files"


def test_a_plan_of_which_nothing_can_run_ends_with_2(here: Path, capsys: Out) -> None:
    words = ["tiny.yaml", "--only", "variant=Unbiased", "--only", "position=alibi"]
    assert main.main(["plan", *words, "--tflops", "1"]) == 2
    captured = capsys.readouterr()
    assert "refused: Unbiased alibi: " in captured.out and "no cell of the study 'tiny' can run" in captured.err
    assert main.main(["run", *words]) == 2
    assert "no cell of the study 'tiny' can run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "4-0"], "seeds=4-0: expected a list"),
        (["--seeds", "0-1", "--set", "seeds=[3]"], "--seeds 0-1: expected the seeds once"),
    ],
)
def test_seeds_of_the_command_line(words: list[str], message: str, here: Path, capsys: Out) -> None:
    assert main.main(["plan", "tiny.yaml", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_states_no_time_without_a_rate(here: Path, capsys: Out) -> None:
    assert main.main(["plan", "tiny.yaml", "--only", "variant=dense"]) == 0
    assert "time" not in capsys.readouterr().out


def test_run_prints_a_table_writes_a_report_and_resumes(here: Path, capsys: Out) -> None:
    assert main.main(["run", "tiny.yaml"]) == 0
    out = capsys.readouterr().out
    lines = {line.partition("  ")[0]: line for line in out.splitlines()}
    assert "baseline" in lines["dense learned"] and "±" in lines["no_wo learned"]
    assert lines["Unbiased alibi"].endswith("refused")
    assert "report: runs/reports/tiny/index.html" in out and out.rstrip().endswith("attnlab ui tiny")
    page = (here / "runs" / "reports" / "tiny" / "README.md").read_text()
    assert "What does this test?" in page and "does not support a position scheme" in page
    assert main.main(["run", "tiny.yaml", "--no-report"]) == 0
    again = capsys.readouterr()
    assert "0 runs to do, 8 finished before" in again.err
    assert main.main(["plan", "tiny.yaml", "--tflops", "1", "--seeds", "1-2"]) == 0
    assert "Finished runs: 4 of 8" in capsys.readouterr().out
    (here / "renamed.yaml").write_text((here / "tiny.yaml").read_text().replace("study: tiny", "study: renamed"))
    assert main.main(["plan", "renamed.yaml", "--tflops", "1"]) == 0
    assert "another study's name: 8 of 8" in capsys.readouterr().out
    assert main.main(["runs", "tiny"]) == 0
    listed = capsys.readouterr().out.splitlines()
    run = next(line for line in listed if "dense learned s1" in line).split()[0]
    assert main.main(["generate", run, "--length", "11", "--prompt", "def "]) == 0
    sampled = capsys.readouterr().out
    assert "\ndef \n" in sampled and "--- sample: 11 bytes" in sampled


def test_seeds_are_added_until_verdicts_are_conclusive(here: Path, capsys: Out) -> None:
    chosen = ["--only", "variant=dense,no_wo", "--only", "position=learned"]
    assert main.main(["run", "tiny.yaml", "--seeds", "4,5", "--until-conclusive", "--max-seeds", "3", *chosen]) == 0
    assert "corrected for 2 looks" in capsys.readouterr().out
    page = (here / "runs" / "reports" / "tiny" / "README.md").read_text()
    assert "dense learned s6" in page and "no_wo learned s6" in page


def test_a_failed_run_makes_exit_code_1(here: Path, capsys: Out) -> None:
    (here / "broken.py").write_text(
        "from attnlab.variants.dense import Dense\n\n\nclass Broken(Dense):\n"
        "    def forward(self, x, *, context=None, mask=None):\n"
        "        if len(x) > 1:  # the plan computes one row\n            raise ZeroDivisionError('by the test')\n"
        "        return x\n"
    )
    study = STUDY.replace("no_wo, 'unbiased.py:Unbiased'", "'broken.py:Broken'").replace("[learned, alibi]", "[learned]")
    (here / "tiny.yaml").write_text(
        study.replace("variant: no_wo, position: alibi", "variant: dense").replace("seeds: [0, 1]", "seeds: [0]")
    )
    assert main.main(["run", "tiny.yaml", "--no-report", "--no-check"]) == 1
    lines = capsys.readouterr().out.splitlines()
    reason = next(i for i, line in enumerate(lines) if line.startswith("failed: Broken learned s0: ZeroDivisionError: by"))
    log = lines[reason + 1].removeprefix("  log: ")
    assert log.startswith("runs/work/") and "Traceback" in (here / log).read_text()


def test_a_run_that_diverged_has_its_reason_below_the_table(here: Path, capsys: Out) -> None:
    words = ["variant=dense", "position=none", "task={name: pydocs, length: 11}", "train.steps=20", "train.lr=1e30"]
    small = ["model.dim=12", "model.heads=2", "model.depth=1", "train.batch_size=2", "train.grad_clip=null"]
    assert main.main(["train", *words, *small, "--no-report", "--no-reference-scores"]) == 0
    assert "\ndiverged: dense none" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["run", "tiny.yaml", "--only", "variant=Unbiased", "--only", "position=alibi"],
        ["train", "variant=unbiased.py:Unbiased", "position=alibi", "task={name: pydocs, length: 17}"],
    ],
)
def test_a_study_whose_cells_are_all_refused_is_exit_code_2_with_the_reason(here: Path, capsys: Out, words: list[str]) -> None:
    assert main.main(words) == 2
    error = capsys.readouterr().err
    assert "Unbiased: " in error and error.count("\n") == 1
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan", "tny.yaml"], "did you mean 'tiny.yaml'"),
        (["plan", "tiny.yaml", "--set", "train.stpes=5"], "did you mean"),
        (["plan", "tiny.yaml", "--set", "train.steps"], "expected key=value"),
        (["run", "tiny.yaml", "--only", "variant"], "expected AXIS=VALUE"),
        (["run", "tiny.yaml", "--only", "variant=no_who"], "did you mean 'no_wo'"),
        (["run", "tiny.yaml", "--max-seeds", "5"], "--max-seeds requires --until-conclusive"),
        (["run", "tiny.yaml", "--futility", "0"], "--futility requires --until-conclusive"),
        (["run", "tiny.yaml", "--until-conclusive", "--max-seeds", "1"], "expected at least the 2 seeds"),
        (["train", "variant=no_who", "task=pydocs"], "variant=no_who: unknown variant"),
        (["report", "nothing"], "no runs in"),
        (["generate", "nothing"], "no runs in"),
        (["data", "verify", "enwik"], "enwik8"),
        (["submit", "tiny.yaml", "--max-seeds", "5"], "--max-seeds requires --until-conclusive"),
        (["frobnicate"], "frobnicate"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(here: Path, capsys: Out, words: list[str], expected: str) -> None:
    assert main.main(words) == 2
    out, error = capsys.readouterr()
    assert error.startswith("attnlab: ") and error.count("\n") == 1 and expected in error
    assert out == ""


def test_a_mistake_in_a_study_names_file_line_and_column(here: Path, capsys: Out) -> None:
    (here / "tiny.yaml").write_text(STUDY.replace("depth: 1", "deph: 1"))
    assert main.main(["run", "tiny.yaml"]) == 2
    assert capsys.readouterr().err.startswith("attnlab: tiny.yaml:5:")


def test_debug_shows_the_traceback(here: Path) -> None:
    with pytest.raises(UserError):
        main.main(["plan", "nothing.yaml", "--debug"])


def test_list_prints_every_registered_name_with_its_file(capsys: Out) -> None:
    assert main.main(["list"]) == 0
    names = capsys.readouterr().out
    kinds = (*HEADINGS, "backends")
    assert [main.main(["list", kind]) for kind in kinds] == [0] * len(kinds)
    out = capsys.readouterr().out
    rows = {line.split()[0] for line in out.splitlines() if line[:1].isalpha()} - {kind[:-1] for kind in kinds}
    assert rows <= set(re.findall(r"\w+", names))
    for name in ("transformer_xl", "strided_sparse", "sinusoidal", "enwik8", "xformers"):
        assert any(line.startswith(name) for line in out.splitlines())
    assert "dense.py:" in out and "Child et al. 2019" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line}
    assert "stride=16" in lines["strided_sparse"]
    assert "path," in lines["text"] and "length=256" in lines["text"] and "sampling=random" in lines["text"]


def test_list_config_describes_every_key_of_a_study() -> None:
    keys = {path: (default, description) for path, default, description in config_keys()}
    assert [path for path, (_, description) in keys.items() if not description] == []
    assert keys["base.train.lr"][0] == "0.0003" and "learning rate" in keys["base.train.lr"][1]
    assert keys["base.position"][1].startswith("a name, or {name: ...") and keys["base.task"][0] == "required"
    assert {"skip[].where", "search.space.PATH.low", "confirm.seeds", "run.timeout", "retries"} <= set(keys)
    assert not {"base", "base.seed", "base.data"} & set(keys)


def test_list_config_needs_no_torch() -> None:
    code = "import sys; from attnlab.cli.main import main; assert main(['list', 'config']) == 0 and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)


def test_a_plan_does_not_import_the_compiler_of_torch(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(studies.STUDY)
    code = "import sys; from attnlab.cli.main import main; code = main(['plan', 's.yaml'])"
    check = f"{code}; assert code == 0 and 'torch._dynamo' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True, capture_output=True, timeout=120)


def test_data_lists_and_verifies_data_sets(folders: Path, capsys: Out) -> None:
    assert main.main(["data"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " missing " in line]
    assert {"enwik8", "imdb"} < set(names) and len(names) == len(datasets.status())
    assert main.main(["data", "verify"]) == 2
    assert capsys.readouterr().err.count("attnlab: ") == len(names)


def test_the_recorded_command_is_the_one_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/somewhere/bin/attnlab", "/somewhere/attnlab/__main__.py"):  # attnlab, python -m attnlab
        monkeypatch.setattr("sys.argv", [program, "run", "a study.yaml"])
        assert command() == "attnlab run 'a study.yaml'"


def test_tables_align_and_keep_every_column() -> None:
    lines = [["dense learned", "2.3120 ± 0.0326", "worse"], ["no_wo", "+0.1", ""]]
    text = format_table(["cell", "value", "verdict"], lines)
    assert text.splitlines() == [
        "cell                     value  verdict",
        "-------------  ---------------  -------",
        "dense learned  2.3120 ± 0.0326  worse",
        "no_wo                     +0.1",
    ]
    narrow = format_table(["cell", "value", "verdict"], lines, width=32)
    assert max(len(line) for line in narrow.splitlines()) <= 32
    assert narrow.count("dense learned") == 2 and "worse" in narrow


def test_a_part_of_a_study_with_several_tasks_has_the_table_of_its_task(here: Path, capsys: Out) -> None:
    text = STUDY.partition("grid:")[0].replace("  task: {name: pydocs, length: 17}\n", "")
    tasks = "grid:\n  variant: [dense, no_wo]\n  task: [{name: copy, length: 8}, {name: parity, length: 8}]\n"
    (here / "tasks.yaml").write_text(f"{text}{tasks}seeds: [0]\nestimand: mean\n")
    assert main.main(["run", "tasks.yaml", "--only", "task=parity length=8", "--no-reference-scores"]) == 0
    out = capsys.readouterr().out
    assert "tiny, parity length=8" in out and "tiny, copy length=8" not in out
    assert "Planned and not run: " in out
    page = (here / "runs/reports/tiny/README.md").read_text()
    assert "so there is no result yet." in page and "yet. ." not in page


@pytest.mark.parametrize(("tty", "no_color", "styled"), [(True, "", True), (True, "1", False), (False, "", False)])
def test_verdicts_have_colors_on_a_terminal_only(
    tty: bool, no_color: str, styled: bool, monkeypatch: pytest.MonkeyPatch, capsys: Out
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    print_table(["cell", "verdict"], [["no_wo", "worse"], ["better", "inconclusive: 61 % worse"], ["worse", ""]])
    _, _, worse, inconclusive, name = capsys.readouterr().out.splitlines()
    assert ("\x1b[31mworse\x1b[0m" in worse, "\x1b[" in inconclusive) == (styled, styled)
    assert "\x1b" not in name, "the name of a cell is no verdict"


def test_a_run_keeps_its_configuration_as_json(here: Path, capsys: Out) -> None:
    """`generate` reads this file."""
    words = [
        "variant=narrow",
        "task={name: pydocs, length: 11}",
        "train.steps=1",
        "model.dim=12",
        "model.heads=2",
    ]
    limits = ["evaluate.valid_limit=100", "evaluate.test_limit=100", "model.depth=1"]
    assert main.main(["train", *words, *limits, "--no-report"]) == 0
    config = next((here / "runs" / "work").glob("*/config.json"))
    assert json.loads(config.read_text())["variant"] == {"name": "narrow"}


def test_list_components_prints_places_options_and_papers(capsys: Out) -> None:
    assert main.main(["list", "components"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert {"places", "options", "paper"} <= set(rows["component"].split())
    assert "per=element" in rows["gate"] and "head_outputs" in rows["gate"] and "gate.py:" in rows["gate"]


def test_list_variants_prints_the_places_of_components(capsys: Out) -> None:
    from attnlab.cli.list import _supported_places
    from attnlab.registry import VARIANTS

    assert main.main(["list", "variants"]) == 0
    headings, _, *rows = capsys.readouterr().out.splitlines()
    assert "components" in headings.split()
    defaults = {row.split()[0]: row[headings.index("default position") :].split()[0] for row in rows}
    assert (defaults["dense"], defaults["delta"], defaults["linear"]) == ("learned", "none", "learned")
    supported = [_supported_places(VARIANTS.get(name)) for name in ("dense", "no_wo", "lstm")]
    assert supported == ["all", "all but output_projection", "input"]

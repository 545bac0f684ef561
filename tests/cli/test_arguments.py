"""Tests of command-line arguments: verbs by name, options in any order, and mistakes that name the option."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from attnlab.cli import main, run
from attnlab.cli._arguments import Parser
from attnlab.errors import UserError
from attnlab.study.adaptive import MAX_SEEDS

VERBS = main.VERBS.names()
VERB = """\
HELP = "print a greeting"


def add_arguments(parser):
    parser.add_argument("--name", required=True)


def main(arguments):
    print(f"hello {arguments.name}")
    return 0
"""


def add_package(folder: Path, verb: str, code: str, patch: pytest.MonkeyPatch) -> None:
    """Install a package with a verb, found by its metadata as one that pip has installed."""
    metadata = folder / f"{verb}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {verb}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[attnlab.verbs]\n{verb} = {verb.replace('-', '_')}_verb\n")
    (folder / f"{verb.replace('-', '_')}_verb.py").write_text(code)
    patch.syspath_prepend(str(folder))


def test_a_verb_of_an_installed_package_is_one_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(tmp_path, "say-hello", VERB, monkeypatch)
    assert main.main(["say-hello", "--name", "world"]) == 0
    assert capsys.readouterr().out == "hello world\n"
    assert "print a greeting" in main.build_parser().format_help()


@pytest.mark.parametrize("code", ["import no_such_module", "HELP = 'no function'"])
def test_a_broken_verb_breaks_no_other(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add_package(tmp_path, "broken", code, monkeypatch)
    assert main.main(["broken"]) == 2
    error = capsys.readouterr().err
    assert "'broken'" in error and error.count("\n") == 1
    assert main.main(["list", "variants"]) == 0
    assert "broken" in main.build_parser().format_help()


def test_every_module_without_underscore_is_a_verb() -> None:
    folder = Path(str(main.__file__)).parent
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")} - {"main"}
    own = {verb.replace("-", "_") for verb in VERBS if main.VERBS.load(verb).__name__.startswith("attnlab.cli.")}
    assert own == modules


def test_a_call_imports_its_verb_only() -> None:
    code = "import sys; from attnlab.cli import main; main.main(['list', 'config']); print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "attnlab.cli.list" in modules and "attnlab.extras" not in modules and "attnlab.cli.plan" not in modules


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main([verb, "--help"])
    assert ended.value.code == 0 and f"usage: attnlab {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan --set train.steps=30 wo.yaml", {"set": ["train.steps=30"], "study": "wo.yaml"}),
        ("plan --set a=1 --set b=2 wo.yaml --tflops 2", {"set": ["a=1", "b=2"], "study": "wo.yaml", "tflops": 2.0}),
        ("run wo.yaml --set a=1 --only c=x,y --only d=z", {"set": ["a=1"], "only": ["c=x,y", "d=z"]}),
        ("plan --set=a=1 wo.yaml", {"set": ["a=1"], "study": "wo.yaml"}),
        ("plan --set a=1 -- wo.yaml", {"set": ["a=1"], "study": "wo.yaml"}),
        ("run --retry failed --retry timed_out runs/wo.yaml", {"retry": ["failed", "timed_out"], "study": "runs/wo.yaml"}),
        ("train --retry failed variant=no_wo", {"retry": ["failed"], "assignments": ["variant=no_wo"]}),
        ("check --options kernel=2 mamba.py:SSM", {"options": ["kernel=2"], "target": "mamba.py:SSM"}),
        ("bench --options a=1 --options b=2 dense wide", {"options": ["a=1", "b=2"], "variants": ["dense", "wide"]}),
        ("submit --slurm account=lab wo.yaml --slurm a=b=c", {"slurm": [("account", "lab"), ("a", "b=c")], "study": "wo.yaml"}),
        ("submit wo.yaml --timeout 90m", {"timeout": 90}),
        ("submit wo.yaml --timeout 2d", {"timeout": 2 * 24 * 60}),
        ("list --imports one.py --imports other.py variants", {"imports": ["one.py", "other.py"], "kind": "variants"}),
        ("runs --where b<2 wo", {"where": "b<2", "study": "wo"}),
        ("list --imports one.py", {"imports": ["one.py"], "kind": None}),
        ("plan wo.yaml", {"set": [], "only": []}),
    ],
)
def test_options_and_arguments_stand_in_any_order(words: str, expected: dict[str, Any]) -> None:
    arguments = vars(main.build_parser().parse_args(words.split()))
    assert {name: arguments[name] for name in expected} == expected


def test_a_list_starts_empty_each_time() -> None:
    for _ in range(2):
        assert main.build_parser().parse_args(["plan", "wo.yaml", "--set", "a=1"]).set == ["a=1"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan --set", ["--set", "attnlab plan --help"]),
        ("plan --set --tflops 2 wo.yaml", ["--set"]),
        ("plan wo.yaml --port 1", ["--port 1", "attnlab plan --help"]),
        ("plan wo.yaml --set a=1 b=2", ["b=2", "--set takes one value", "attnlab plan --help"]),
        ("plan --only a=1 b=2 wo.yaml", ["wo.yaml", "--only takes one value"]),
        ("submit wo.yaml --slurm account", ["--slurm", "KEY=VALUE", "'account'"]),
        ("submit wo.yaml --timeout soon", ["--timeout", "8h", "'soon'"]),
        ("ui --port 99999", ["--port", "1 to 65535", "'99999'"]),
        ("ui --port 0", ["--port", "1 to 65535", "'0'"]),
        ("run wo.yaml --workers 0", ["--workers", "at least 1", "'0'"]),
        ("bench dense --lengths 512,x", ["--lengths", "at least 1", "'x'"]),
        ("plan wo.yaml --tflops 0", ["--tflops", "above 0", "'0'"]),
        ("plan wo.yaml --tflops=-1", ["--tflops", "'-1'"]),
        ("plan wo.yaml --tflops inf", ["--tflops", "'inf'"]),
        ("plan wo.yaml --tflops fast", ["--tflops", "'fast'"]),
        ("generate run --temperature=-1", ["--temperature", "at least 0", "'-1'"]),
        ("frobnicate", ["frobnicate", "attention-maps", "attnlab --help"]),
        ("--nothing", ["attnlab --help"]),
    ],
)
def test_a_mistake_names_the_option_and_the_help(words: str, expected: list[str]) -> None:
    with pytest.raises(UserError) as raised:
        main.build_parser().parse_args(words.split())
    assert all(text in str(raised.value) for text in expected)


def test_the_help_gives_the_default_of_max_seeds() -> None:
    parser = Parser(prog="run")
    run.add_arguments(parser)
    assert f"(default {MAX_SEEDS})" in " ".join(parser.format_help().split())

"""The files that count for a command line: every way in which code is found, and no file that a run writes."""

import os
from pathlib import Path
from typing import Any

import pytest

from attnlab._util.imported_files import base_files
from attnlab.cli.main import main
from attnlab.config.command import CommandConfig
from attnlab.planning.command_files import command_files, counted_files, unfollowed_imports
from attnlab.planning.plan import plan
from tests.support.paths import ROOT

CODE = "x = 1\n"
IMPORT = "from lib.gate import score\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def keys(folder: Path, command: str, **changes: Any) -> list[str]:
    study = {"study": "s", "command": command, "grid": {"how": ["a", "b"]}, "seeds": [0], **changes}
    planned = plan({**study, "metric": {"name": "score", "direction": "max"}})
    return [cell.settings.fingerprint() for cell in planned.cells]


# name -> the command, the study's folder, and the files that count, of which each changes the fingerprint
FOUND: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "a namespace package": (
        "python train.py",
        {"train.py": IMPORT, "lib/gate.py": "from . import near\n", "lib/near.py": CODE, "lib/far.py": CODE},
        {"train.py", "lib/gate.py", "lib/near.py"},
    ),
    "a nested namespace package": (
        "python train.py",
        {"train.py": "import a.b.c\n", "a/b/c.py": "def f():\n    from a.d import x\n", "a/d.py": CODE},
        {"train.py", "a/b/c.py", "a/d.py"},
    ),
    "python -m": (
        "python -u -m pkg.train",
        {
            "pkg/__init__.py": CODE,
            "pkg/train.py": "from other import x\nimport pkg.more\n",
            "other.py": CODE,
            "pkg/more.py": "",
        },
        {"pkg/__init__.py", "pkg/train.py", "other.py", "pkg/more.py"},
    ),
    "python -m of a package": ("python -um pkg", {"pkg/__main__.py": "from . import a\n", "pkg/a.py": CODE}, {"pkg/a.py"}),
    "a namespace package by -m": (
        "python -m lab.run.train",
        {"lab/run/train.py": "from lab.core import x\n", "lab/core.py": CODE},
        {"lab/core.py", "lab/run/train.py"},
    ),
    "a program with the name of a result": (
        "./run",
        {"run": "#!/bin/sh\nexec python train.py $1\n", "train.py": "import near\n", "near.py": CODE},
        {"run", "train.py", "near.py"},
    ),
    "a configuration in Python, imported by the script": (
        "python train.py configs/gated.py",
        {"train.py": CODE, "configs/gated.py": "from configs.base import *\n", "configs/base.py": CODE},
        {"train.py", "configs/gated.py", "configs/base.py"},
    ),
    "PYTHONPATH in the command": (
        "env PYTHONPATH=src python train.py",
        {"train.py": IMPORT, "src/lib/gate.py": CODE},
        {"src/lib/gate.py"},
    ),
    "a script's other folder": (
        "python scripts/train.py",
        {
            "scripts/train.py": "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'src'))\n"
            + IMPORT,
            "src/lib/gate.py": CODE,
        },
        {"scripts/train.py", "src/lib/gate.py"},
    ),
    "import_module": (
        "python train.py",
        {"train.py": "import importlib\nimportlib.import_module('lib.gate')\n", "lib/gate.py": CODE},
        {"lib/gate.py"},
    ),
    "import_module of any module": (
        "python train.py",
        {"train.py": "import importlib\nm = importlib.import_module(f'lib.{name}')\n", "lib/gate.py": CODE},
        {"lib/gate.py"},
    ),
    "a shell script": (
        "bash run.sh",
        {
            "run.sh": 'export PYTHONPATH="src"\npython "$(dirname "$0")/train.py" \\\n  --config conf.yaml > log.txt\n',
            "train.py": IMPORT,
            "src/lib/gate.py": CODE,
            "conf.yaml": "a: 1\n",
            "log.txt": "",
        },
        {"run.sh", "train.py", "src/lib/gate.py", "conf.yaml"},
    ),
    "a script in another folder": (
        "sh -c 'cd sub && python train.py {how}'",
        {"sub/train.py": "import helper\n", "sub/helper.py": CODE},
        {"sub/train.py", "sub/helper.py"},
    ),
    "python -c": ("python -c 'import lib.gate; print(1)'", {"lib/gate.py": CODE}, {"lib/gate.py"}),
    "torchrun": (
        "sh torchrun --nproc-per-node 2 train.py",
        {"torchrun": "", "train.py": IMPORT, "lib/gate.py": CODE},
        {"lib/gate.py"},
    ),
    "torchrun of a module": ("env torchrun --nproc-per-node 2 -m lib.gate", {"lib/gate.py": CODE}, {"lib/gate.py"}),
    "accelerate launch": ("env accelerate launch --num_processes 1 train.py", {"train.py": CODE}, {"train.py"}),
    "uv run": ("env uv run --with numpy python train.py", {"train.py": IMPORT, "lib/gate.py": CODE}, {"lib/gate.py"}),
    "conda run": ("env conda run -n lab python train.py", {"train.py": CODE}, {"train.py"}),
    "configurations": (
        "python train.py --config=conf/a.yaml data/x.txt @more.args",
        {
            "train.py": "from pathlib import Path\nsizes = load(Path(__file__).parent / 'beside' / 'sizes.json')\n",
            "conf/a.yaml": "a: 1\n",
            "data/x.txt": "x",
            "more.args": "--x 1\n",
            "beside/sizes.json": "{}",
        },
        {"train.py", "conf/a.yaml", "data/x.txt", "more.args", "beside/sizes.json"},
    ),
    "a folder of configurations": (
        "python train.py --config-dir conf",
        {"train.py": CODE, "conf/model/a.yaml": "a: 1\n"},
        {"conf/model/a.yaml"},
    ),
    "a script that another starts": (
        "python train.py",
        {"train.py": "import subprocess\nsubprocess.run(['python', 'inner.py'])\n", "inner.py": IMPORT, "lib/gate.py": CODE},
        {"inner.py", "lib/gate.py"},
    ),
    "bases of a configuration": (
        "python train.py conf/a.yaml",
        {
            "train.py": CODE,
            "conf/a.yaml": "extends: b\nx: !special [1]\n",
            "conf/b.yml": "_base_: ['../c.json']\n",
            "c.json": '{"base_config": "d.toml"}',
            "d.toml": 'include = ["e.toml"]\n',
            "e.toml": "",
            "conf/f.yaml": "x: 1\n",
        },
        {"conf/a.yaml", "conf/b.yml", "c.json", "d.toml", "e.toml"},
    ),
    "bases of a configuration that the code names": (
        "python train.py",
        {
            "train.py": "cfg = load('conf/a.yaml')\n",
            "conf/a.yaml": "parent: base.yaml\n",
            "conf/base.yaml": "x: 1\n",
        },
        {"conf/a.yaml", "conf/base.yaml"},
    ),
    "Hydra": (
        "python train.py model=gated +data@x=[text,more] optim.lr=1",
        {
            "train.py": "import hydra\n@hydra.main(version_base=None, config_path='conf', config_name='config')\n"
            "def main(cfg): ...\n",
            "conf/config.yaml": "defaults:\n- model: dense\n- optional override /optim@o: adam\n- base\n- _self_\n",
            "conf/base.yaml": "seed: 1\n",
            "conf/model/dense.yaml": "x: 1\n",
            "conf/model/gated.yaml": "defaults: [common, /optim: sgd]\n",
            "conf/model/common.yaml": "x: 1\n",
            "conf/model/unused.yaml": "x: 1\n",
            "conf/optim/adam.yaml": "x: 1\n",
            "conf/optim/sgd.yaml": "x: 1\n",
            "conf/data/text.yaml": "x: 1\n",
            "conf/data/more.yaml": "x: 1\n",
        },
        {"train.py", "conf/config.yaml", "conf/base.yaml", "conf/model/dense.yaml", "conf/model/gated.yaml"}
        | {
            "conf/model/common.yaml",
            "conf/optim/adam.yaml",
            "conf/optim/sgd.yaml",
            "conf/data/text.yaml",
            "conf/data/more.yaml",
        },
    ),
    "Hydra by name, in a module": (
        "python train.py --config-name other",
        {
            "train.py": "from lib.app import main\n",
            "lib/app.py": "hydra.main(config_path='../conf', config_name='config')(main)\n",
            "conf/config.yaml": "x: 1\n",
            "conf/other.yaml": "defaults: [more/deep]\n",
            "conf/more/deep.yaml": "x: 1\n",
        },
        {"conf/other.yaml", "conf/more/deep.yaml", "lib/app.py"},
    ),
    "C++ and CUDA": (
        "python train.py",
        {
            "train.py": "import os\nfrom torch.utils.cpp_extension import load\nhere = os.path.dirname(__file__)\n"
            "k = load(name='k', sources=['csrc/k.cpp', os.path.join(here, 'csrc', 'k.cu')])\n",
            "csrc/k.cpp": '#include <torch/extension.h>\n#include "k.h"\n',
            "csrc/k.h": "",
            "csrc/k.cu": '#include "sub/tile.cuh"\n',
            "csrc/sub/tile.cuh": "",
            "csrc/unused.cu": "",
        },
        {"csrc/k.cpp", "csrc/k.h", "csrc/k.cu", "csrc/sub/tile.cuh"},
    ),
    "computed names in folders": (
        "python train.py",
        {
            "train.py": "import json, sys\nfrom pathlib import Path\nhow = sys.argv[1]\njson.load(open(f'conf/{how}.json'))\n"
            "(Path('more') / f'{how}.yaml').read_text()\nopen('size_%s.toml' % how)\nopen('out/' + how + '.json', 'w')\n"
            "load_yaml('set/{}.yaml'.format(how))\n",
            "conf/a.json": "{}",
            "conf/unused.json": "{}",
            "more/a.yaml": "x: 1\n",
            "size_a.toml": "",
            "set/a.yaml": "x: 1\n",
            "out/a.json": "{}",
        },
        {"train.py", "conf/a.json", "more/a.yaml", "size_a.toml", "set/a.yaml"},
    ),
    "text that is run": (
        "python train.py",
        {
            "train.py": "from pathlib import Path\ncode = Path('layers.txt').read_text()\nexec(code)\nopen('data.txt')\n",
            "layers.txt": CODE,
            "data.txt": "words\n",
        },
        {"train.py", "layers.txt"},
    ),
    "text that is data": ("python train.py", {"train.py": "open('notes.txt')\nmodel.eval()\n", "notes.txt": "x"}, {"train.py"}),
    "a pattern in the code": (
        "python train.py",
        {
            "train.py": "import glob\nglob.glob('confs/*.yaml'), glob.glob('out/*.json')\n",
            "confs/a.yaml": "x: 1\n",
            "out/a.json": "{}",
        },
        {"train.py", "confs/a.yaml"},
    ),
    "import_module of a module beside it": (
        "python -m lib.train",
        {"lib/train.py": "import importlib\nimportlib.import_module(f'.{name}', __package__)\n", "lib/gate.py": CODE},
        {"lib/train.py", "lib/gate.py"},
    ),
}
UNUSED = {"out/a.json", "conf/unused.json", "conf/f.yaml", "conf/model/unused.yaml", "csrc/unused.cu"}


@pytest.mark.parametrize(("command", "files", "expected"), FOUND.values(), ids=FOUND)
def test_each_file_that_runs_counts(
    command: str, files: dict[str, str], expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(tmp_path, files))
    command = command if "{how}" in command else f"{command} {{how}}"
    before = keys(tmp_path, f"{command} {{seed}}")
    counted = set(counted_files(tmp_path, plan_files(tmp_path, f"{command} {{seed}}")))
    assert expected <= counted <= set(files) - {"log.txt", *UNUSED}
    for name in sorted(files):
        (tmp_path / name).write_text(f"{files[name]}y = 2\n")
        assert (keys(tmp_path, f"{command} {{seed}}") != before) == (name in counted), name
        (tmp_path / name).write_text(files[name])
    assert keys(tmp_path, f"{command} {{seed}}") == before


def test_a_file_that_a_value_names_counts_for_its_runs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import json, sys\njson.load(open(f'conf/{sys.argv[1]}.json'))\n"
    monkeypatch.chdir(write(tmp_path, {"train.py": code, "conf/a.json": "{}", "conf/b.json": "{}"}))
    before = keys(tmp_path, "python train.py {how} {seed}")
    (tmp_path / "conf/b.json").write_text("[]")
    (tmp_path / "conf/c.json").write_text("[]")
    after = keys(tmp_path, "python train.py {how} {seed}")
    assert after[0] == before[0] and after[1] != before[1]


def test_a_variable_of_the_study_may_name_a_file(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": CODE, "c.yaml": "x: 1\n", "log.yaml": "x: 1\n"})
    env = {"CONFIG": "c.yaml", "LOG_FILE": "log.yaml", "PLAIN": "one"}
    assert set(command_files(tmp_path, ["python", "train.py"], env)) == {"train.py", "c.yaml"}


def plan_files(folder: Path, command: str) -> list[str]:
    study = {"study": "s", "command": command, "grid": {"how": ["a", "b"]}, "seeds": [0]}
    cell = plan({**study, "metric": {"name": "score", "direction": "max"}}).cells[0]
    assert isinstance(cell.settings, CommandConfig)
    return list(cell.settings.files)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("importlib.import_module(sys.argv[1])", ["lib/a.py:2"]),
        ("import_module(name, package='lib')", ["lib/a.py:2"]),
        ("__import__(MODELS[how])", ["lib/a.py:2"]),
        ("import_module('lib.b'); import_module(f'lib.{how}'); __import__('json')", []),
    ],
)
def test_the_plan_notes_imports_that_cannot_be_followed(
    code: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(write(tmp_path, {"train.py": "import lib.a\n", "lib/a.py": f"import x\n{code}\n", "lib/b.py": CODE}))
    assert unfollowed_imports(tmp_path, ["train.py"]) == lines
    text = "study: s\ncommand: python train.py {how} {seed}\ngrid: {how: [a, b]}\nseeds: [0]\n"
    write(tmp_path, {"study.yaml": f"{text}metric: {{name: score, direction: max}}\n"})
    main(["plan", "study.yaml"])
    assert ("note: imports" in capsys.readouterr().out) is bool(lines)


def test_aliases_of_aliases_cost_nothing(tmp_path: Path) -> None:
    """Written out, the last of these lists has 9 to the power of 30 entries, and the mapping contains itself."""
    nested = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 31))
    text = f"a0: &a0 [x]\n{nested}bases: &b [base.yaml]\nextends: *b\nself: &s {{again: *s}}\n"
    write(tmp_path, {"c.yaml": text, "base.yaml": "x: 1\n"})
    assert base_files([tmp_path / "c.yaml"]) == {tmp_path / "base.yaml"}


@pytest.mark.parametrize(
    "text", ["extends: a.yaml\n", "defaults: {x: 1, 2: [3]}\n? [a]\n: b\n", "a: [\n", "base: &a [*a]\n", "\tx", "include: '\0'"]
)
def test_odd_configurations_name_no_file(text: str, tmp_path: Path) -> None:
    write(tmp_path, {"train.py": CODE, "a.yaml": text, "a.toml": text, "b.json": text})
    found = command_files(tmp_path, ["python", "train.py", "a.yaml", "a.toml", "b.json", "=", "=a", "+=,"], {})
    assert set(found) == {"train.py", "a.yaml", "a.toml", "b.json"}


def test_the_case_of_a_package_without_init_is_another_run_after_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": "from models.gate import score\n", "models/gate.py": "def score(seed):\n    return seed\n"}
    monkeypatch.chdir(write(tmp_path, files))
    before = keys(tmp_path, "python train.py {how} {seed}")
    write(tmp_path, {"models/__pycache__/gate.pyc": "1", "models/notes.txt": "2", "models/other.py": CODE})
    write(tmp_path, {"models/gate.py": f"# a comment\n{files['models/gate.py']}"})
    assert keys(tmp_path, "python train.py {how} {seed}") == before
    write(tmp_path, {"models/gate.py": "def score(seed):\n    return -seed\n"})
    assert not set(keys(tmp_path, "python train.py {how} {seed}")) & set(before)


@pytest.mark.parametrize("where", ["study", "environment"])
def test_modules_on_the_path_count(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "study", {"train.py": IMPORT})
    write(tmp_path / "lab", {"lib/gate.py": "import lib.near\n", "lib/near.py": CODE, "lib/far.py": CODE})
    monkeypatch.chdir(folder)
    env = {"PYTHONPATH": "../lab"} if where == "study" else {}
    if where == "environment":
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lab"))
    before = keys(folder, "python train.py {how} {seed}", env=env)
    for name, counts in (("gate", True), ("near", True), ("far", False)):
        path = tmp_path / "lab" / "lib" / f"{name}.py"
        text = path.read_text()
        path.write_text(f"{text}y = 2\n")
        assert (keys(folder, "python train.py {how} {seed}", env=env) != before) == counts, name
        path.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    for name in ("study", "lab"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    monkeypatch.chdir(tmp_path / "elsewhere" / "study")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "elsewhere" / "lab") if where == "environment" else "")
    assert keys(folder, "python train.py {how} {seed}", env=env) == before, "both were moved"


def test_packages_that_are_installed_as_editable_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "study", {"train.py": "import mine.net\nimport theirs, table\n"})
    write(
        tmp_path, {"src/mine/__init__.py": "", "src/mine/net.py": CODE, "flat/table/__init__.py": CODE, "flat/unused.py": CODE}
    )
    site = ".venv/lib/python3.12/site-packages"
    finder = f"from x import y\nMAPPING: dict[str, str] = {{'table': {str(tmp_path / 'flat/table')!r}}}\n"
    write(folder, {f"{site}/mine.pth": f"{tmp_path / 'src'}\n", f"{site}/theirs/__init__.py": CODE})
    write(folder, {f"{site}/__editable___table_finder.py": finder})
    script = folder / ".venv/bin/mytool"
    write(folder, {".venv/bin/mytool": f"#!{folder}/.venv/bin/python\nfrom mine.cli import main\n"})
    write(tmp_path, {"src/mine/cli.py": "from mine import net\n"})
    script.chmod(0o755)
    names = set(command_files(folder, ["uv", "run", "python", "train.py"], {}))
    assert names == {"train.py", "../src/mine/__init__.py", "../src/mine/net.py", "../flat/table/__init__.py"}
    assert {"../src/mine/cli.py", "../src/mine/net.py"} <= set(command_files(folder, [".venv/bin/mytool"], {}))


def test_links_and_files_outside_of_the_folder_count(tmp_path: Path) -> None:
    folder = write(tmp_path / "study", {"conf.yaml": "a: 1\n"})
    write(tmp_path, {"code/train.py": "import helper\n", "code/helper.py": CODE, "data/text.txt": "x"})
    (folder / "linked.py").symlink_to(tmp_path / "code/train.py")
    (folder / "data").symlink_to(tmp_path / "data")
    files = command_files(folder, ["python", "linked.py", "data/text.txt", "../code/train.py", "/bin/sh"], {})
    assert set(files) == {"linked.py", "data/text.txt", "../code/train.py"}
    assert set(counted_files(folder, ["linked.py"])) == {"linked.py", "../code/helper.py"}


@pytest.mark.parametrize(
    "words",
    [
        "--out result.json",
        "--output-dir=results/a.json",
        "--log_file run.txt",
        "--save-path weights.bin",
        "-o x.bin",
        "--trainer.log-dir logs",
        "results.json",
        "--work-dir runs",
        "2> errors.txt",
    ],
)
def test_what_a_run_writes_does_not_count(words: str, tmp_path: Path) -> None:
    code = "import json\njson.dump({}, open('state.yaml', 'w'))\nPath('cache.toml').write_text('x')\nlog = 'results.json'\n"
    write(tmp_path, {"train.py": code})
    before = command_files(tmp_path, ["python", "train.py", *words.split()], {})
    for name in ("result.json", "results/a.json", "run.txt", "weights.bin", "x.bin", "logs/a.yaml", "results.json"):
        write(tmp_path, {name: "1"})
    write(
        tmp_path,
        {"runs/a/config.yaml": "a", "state.yaml": "a", "cache.toml": "", "errors.txt": "", "__pycache__/train.pyc": ""},
    )
    assert set(command_files(tmp_path, ["python", "train.py", *words.split()], {})) == set(before) == {"train.py"}
    assert counted_files(tmp_path, before) == ["train.py"]


@pytest.mark.parametrize("text", ["python 'a", "$(", "\0", "import (", "# nothing", "python -m ..", "cd", "x" * 5_000])
def test_text_that_is_no_command_names_no_file(text: str, tmp_path: Path) -> None:
    write(tmp_path, {"run.sh": text})
    assert set(command_files(tmp_path, ["bash", "run.sh"], {"PYTHONPATH": f"nowhere{os.pathsep}"})) == {"run.sh"}
    assert command_files(tmp_path, ["sh", "-c", text], {}) == {}


def test_the_examples_count_their_own_files_alone() -> None:
    for name in ("command_nanogpt", "command_sklearn"):
        planned = plan(next((ROOT / "examples" / name).glob("*.yaml")))
        files = {file for cell in planned.cells for file in cell.settings.files}  # type: ignore[union-attr]
        assert files and all((ROOT / "examples" / name / file).is_file() for file in files)


def test_the_plan_lists_the_files_that_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = {f"lib/m{i:02d}.py": CODE for i in range(12)}
    imports = "".join(f"import lib.m{i:02d}\n" for i in range(12))
    monkeypatch.chdir(write(tmp_path, {"train.py": imports, **modules}))
    text = "study: s\ncommand: python train.py {how} {seed}\ngrid: {how: [a, b]}\nseeds: [0]\n"
    write(tmp_path, {"study.yaml": f"{text}metric: {{name: score, direction: max}}\n"})
    main(["plan", "study.yaml"])
    short = capsys.readouterr().out
    assert "(13)" in short and "lib/m00.py" in short and "lib/m11.py" not in short and "--all" in short
    main(["plan", "study.yaml", "--all"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in modules) and "note" not in printed
    write(tmp_path, {"study.yaml": f"{text}metric: {{name: score, direction: max}}\nfiles: [lib/m00.py]\n"})
    main(["plan", "study.yaml"])
    (note,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("note: not listed")]
    assert "lib/m01.py" in note and "lib/m00.py" not in note

"""What attnlab needs from other packages is declared, what it takes from inside PyTorch exists, and its metadata agree."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from ruamel.yaml import YAML

import attnlab
from attnlab._util.packages import OPTIONAL
from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DISTRIBUTIONS = {"PIL": "pillow", "mlflow": "mlflow-skinny", "ruamel": "ruamel-yaml"}  # where they are not named as the module
USED_BY_OTHERS = {"psutil", "tqdm"}  # MLflow and pooch import them if they are installed
PRIVATE = {  # of PyTorch: a new version may change them without notice
    "torch._dynamo",
    "torch._dynamo.config",
    "torch._dynamo.exc.FailOnRecompileLimitHit",
    "torch._dynamo.utils.counters",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch.autograd.graph._engine_run_backward",
    "torch.cpu._is_avx512_bf16_supported",
    "torch.distributed._tools.mem_tracker.MemTracker",
    "torch.ops.aten._cudnn_rnn",
    "torch.ops.aten._scaled_dot_product_efficient_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "torch.ops.aten._softmax_backward_data",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._pytree.tree_leaves",
    "torch.utils._pytree.tree_map_only",
}


def trees() -> Iterator[ast.Module]:
    for path in sorted((ROOT / "attnlab").rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a file imports anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def normalized(requirement: str) -> str:
    """Return the name in a requirement as package indexes compare names."""
    (name,) = re.findall(r"^[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_imported_package_is_a_dependency_and_every_dependency_is_used() -> None:
    modules = {name.partition(".")[0] for tree in trees() for name in imported(tree)}
    modules -= {"attnlab", *sys.stdlib_module_names, *OPTIONAL}
    needed = {DISTRIBUTIONS.get(module, normalized(module)) for module in modules}
    assert "torch" in needed
    assert needed | USED_BY_OTHERS == {normalized(requirement) for requirement in PROJECT["dependencies"]}


def test_every_optional_package_is_one_of_its_extra() -> None:
    extras = {name: {normalized(requirement) for requirement in requirements} for name, requirements in EXTRAS.items()}
    assert all(package in extras[extra] for package, extra, _ in OPTIONAL.values())
    others = {"docs", "dev", "oracles"}  # which attnlab itself does not import
    assert {extra for _, extra, _ in OPTIONAL.values()} == extras.keys() - others
    (development,) = (line for line in EXTRAS["dev"] if normalized(line) == "attnlab")
    assert set(re.findall(r"\w+", development)) == {"attnlab", *extras} - {"dev"}


def test_xformers_is_installed_only_where_it_has_wheels() -> None:
    (requirement,) = EXTRAS["xformers"]
    marker = requirement.partition(";")[2]
    assert marker.split(" and ") == [" sys_platform == 'linux'", "platform_machine == 'x86_64'"]


def private(tree: ast.AST) -> Iterator[str]:
    """Yield the names of PyTorch with a part that begins with an underscore, from imports and from attributes of ``torch``."""
    for node in ast.walk(tree):
        names = [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        for name in names if names else imported(node) if isinstance(node, ast.Import | ast.ImportFrom) else []:
            if re.fullmatch(r"torch\.(\w+\.)*_(?!_)\w+(\.\w+)*", name):
                yield name


def test_all_private_names_of_pytorch_are_listed() -> None:
    assert {name for tree in trees() for name in private(tree)} == PRIVATE


@pytest.mark.parametrize("name", sorted(PRIVATE))
def test_the_private_names_of_pytorch_exist(name: str) -> None:
    if name.startswith("torch.ops."):
        operator = reduce(getattr, name.split(".")[1:], torch)
        assert operator.overloads(), name  # type: ignore[attr-defined]
    elif name in ("torch._dynamo", "torch._dynamo.config"):
        import_module(name)
    else:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute)


def workflows() -> dict[str, Any]:
    folder = ROOT / ".github" / "workflows"
    return {path.stem: YAML(typ="safe").load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yml"))}


def test_the_versions_agree() -> None:
    citation = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    found = re.search(r"^## (\S+), (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found is not None
    assert PROJECT["version"] == citation["version"] == found[1] == attnlab.__version__
    # A version that is not released has no date.
    assert str(citation.get("date-released", "unreleased")) == found[2]
    assert citation["keywords"] == PROJECT["keywords"] and citation["license"] == PROJECT["license"]
    assert citation.get("repository-code") == PROJECT.get("urls", {}).get("Repository")


def test_the_versions_of_python_agree() -> None:
    classified = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert workflows()["ci"]["jobs"]["ci"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["requires-python"] == f">={classified[0]}"


def test_workflows_run_the_commands_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    steps = [step for flow in workflows().values() for job in flow["jobs"].values() for step in job["steps"]]
    commands = [step["run"].split() for step in steps if "run" in step]
    assert {words[0] for words in commands} == {"bash", "gh", "make"}
    assert {words[1] for words in commands if words[0] == "make"} <= targets
    assert all((ROOT / words[1]).is_file() for words in commands if words[0] == "bash")


def release(folder: Path, tag: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a release in a small checkout of version 1.2.0, where ``make`` writes its arguments."""
    for name, text in {
        "CHANGELOG.md": "# Changelog\n\n## 1.2.0, 2030-01-02\n\n- New.\n\n## 1.1.0, 2029-01-02\n\n- Old.\n",
        "attnlab/_version.py": '__version__ = "1.2.0"\n',
        "pyproject.toml": '[project.urls]\nRepository = "https://example.org"\n',
        "bin/make": '#!/bin/sh\necho "$@"\n',
        ".ci/release": (ROOT / ".ci" / "release").read_text(encoding="utf-8"),
    }.items():
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    (folder / "bin" / "make").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    script = ["bash", folder / ".ci" / "release", tag, "dist"]
    return subprocess.run(script, env=environment, capture_output=True, text=True)


def test_a_release_has_its_distributions_and_its_notes(tmp_path: Path) -> None:
    assert release(tmp_path, "v1.2.0").stdout == "package DIST=dist\n"
    assert (tmp_path / "notes.md").read_text().strip() == "- New."


@pytest.mark.parametrize(
    ("tag", "file", "text", "named"),
    [
        ("v1.3.0", "pyproject.toml", "[project.urls]\n", "v1.2.0"),
        ("v1.2.0", "CHANGELOG.md", "## 1.2.0, unreleased\n", "CHANGELOG.md"),
        ("v1.2.0", "pyproject.toml", "[project]\n", "urls"),
    ],
)
def test_a_release_is_refused(tag: str, file: str, text: str, named: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text)
    done = release(tmp_path, tag)
    assert done.returncode == 1 and named in done.stderr and not done.stdout

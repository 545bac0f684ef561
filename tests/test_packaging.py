"""What attnlab needs from other packages is declared, and what it takes from inside PyTorch exists."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import reduce
from importlib import import_module

import pytest
import torch

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DISTRIBUTIONS = {"PIL": "pillow", "ruamel": "ruamel-yaml", "sklearn": "scikit-learn"}  # where they are not named as the module
USED_BY_OTHERS = {"psutil", "pyarrow", "tqdm"}  # MLflow, pandas and pooch import them if they are installed
OPTIONAL = {"optuna_dashboard": "dashboard", "submitit": "slurm", "wandb": "export"}  # module -> extra
PRIVATE = {  # of PyTorch: a new version may change them without notice
    "torch._dynamo",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode",
    "torch.autograd.graph._engine_run_backward",
    "torch.distributed._tools.mem_tracker.MemTracker",
    "torch.ops.aten._cudnn_rnn",
    "torch.ops.aten._scaled_dot_product_efficient_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention",
    "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",
    "torch.ops.aten._softmax_backward_data",
    "torch.utils._python_dispatch.TorchDispatchMode",
    "torch.utils._pytree.tree_leaves",
    "torch.utils._pytree.tree_map",
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


@pytest.mark.parametrize(("module", "extra"), OPTIONAL.items())
def test_optional_packages_are_those_of_an_extra(module: str, extra: str) -> None:
    assert normalized(module) in {normalized(requirement) for requirement in PROJECT["optional-dependencies"][extra]}


def test_xformers_is_required_only_where_it_has_wheels() -> None:
    (requirement,) = (line for line in PROJECT["dependencies"] if normalized(line) == "xformers")
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
    elif name == "torch._dynamo":
        import_module(name)
    else:
        module, _, attribute = name.rpartition(".")
        assert callable(getattr(import_module(module), attribute))

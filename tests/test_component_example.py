"""The component of `examples/my_component`: its formula, and its registration in each of the three ways."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import attnlab
from attnlab._util.user_code import load_file
from attnlab.components import ComponentConfig
from attnlab.planning.plan import Plan
from attnlab.registry import COMPONENTS
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense
from tests.support.installed import install_example
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "my_component"
SMALL = {
    "task.length": 17,
    "model.dim": 12,
    "model.depth": 1,
    "model.heads": 2,
    "train.steps": 2,
    "train.batch_size": 3,
    "train.warmup": 0,
    "evaluate.valid_limit": 500,
    "evaluate.test_limit": 500,
    "machine.threads": 1,
    "machine.device": "cpu",
}


def planned(component: Any) -> Plan:
    base = {"task": "pydocs", "variant": {"name": "dense", "with": component}, "train": {"steps": 2}}
    return attnlab.plan({"study": "s", "base": base}, sets=SMALL)


def test_the_scale_multiplies_each_head_before_the_output_projection() -> None:
    settings = ComponentConfig(dim=12, heads=3, head_dim=4, role="causal", length=7)
    component = load_file(EXAMPLE / "head_scale.py").HeadScale(settings)
    variant = Dense(AttentionConfig(dim=12, heads=3, role="causal", components={"head_scale": component}))
    x = torch.randn(2, 7, 12)
    before = variant(x)
    with torch.no_grad():
        weight: torch.Tensor = variant.out.weight  # type: ignore[assignment]
        component.gain[1] = 0.0
        changed = variant(x)
        weight[:, 4:8] = 0.0  # of the features of the head that is switched off
    torch.testing.assert_close(variant(x), changed)
    assert not torch.allclose(before, changed)


def test_first_door_imports_names_the_file(tmp_path: Path) -> None:
    display = ProgressDisplay(quiet=True)
    result = attnlab.run(EXAMPLE / "my_study.yaml", sets={**SMALL, "seeds": [0]}, root=tmp_path, display=display)
    assert result.ok and len(result.rows) == 8
    runs = attnlab.load_runs("my-component", tmp_path)
    assert set(runs["head_scale"]) == {"on", "off"} and set(runs["state"]) == {"completed"}
    assert set(runs[runs["gate"] == "off"]["variant"]) == {
        "dense",
        "dense with head_scale",
        "dense with qk_norm",
        "dense with head_scale, qk_norm",
    }


def test_second_door_a_path_replaces_the_name() -> None:
    (cell,) = planned([{"name": f"{EXAMPLE / 'head_scale.py'}:HeadScale", "start": 0.5}]).cells
    assert cell.refusal is None and cell.config.variant_label == "dense with HeadScale start=0.5"
    assert list(cell.config.sources) == [str(EXAMPLE / "head_scale.py")]


def test_third_door_an_installed_package_offers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_example(EXAMPLE, tmp_path, monkeypatch, group="attnlab.components")
    monkeypatch.delitem(COMPONENTS._registered, "head_scale", raising=False)
    (cell,) = planned("head_scale").cells
    assert cell.refusal is None and "head_scale" in cell.config.packages


def test_the_component_of_the_page_is_that_of_the_example() -> None:
    """The example adds the paper's equations, a docstring and types."""
    page = (ROOT / "docs" / "how-to" / "component.md").read_text(encoding="utf-8")
    (text,) = re.findall(r'```python title="head_scale.py"\n(.*?)```', page, flags=re.DOTALL)
    example = (EXAMPLE / "head_scale.py").read_text(encoding="utf-8")
    shown, complete = (
        {node.name: node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)} for code in (text, example)
    )
    assert shown.keys() == complete.keys() == {"__init__", "head_outputs"}
    for name, function in shown.items():
        assert [ast.dump(line) for line in function.body] == [ast.dump(line) for line in complete[name].body]

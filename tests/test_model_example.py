"""The models of `examples/my_model`: their formulas, the contract, and their registration in each of the three ways."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab._util.user_code import load_file
from attnlab.config.run import ModelConfig
from attnlab.models import Block, DecoderBlock, EncoderDecoder, MaskedLanguageModel, Model
from attnlab.planning.plan import Plan
from attnlab.registry import MODELS
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.testing import check_model
from attnlab.testing.model_checks import ModelTarget
from attnlab.variants import AttentionConfig
from attnlab.variants.dense import Dense
from tests.support.installed import install_example
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "my_model"
NAMES = ["parallel", "geglu", "scale_norm"]
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


def block(name: str) -> Any:
    torch.manual_seed(0)
    attention = Dense(AttentionConfig(dim=12, heads=3, role="causal"))
    return getattr(load_file(EXAMPLE / "blocks.py"), name)(attention, config=ModelConfig(dim=12, heads=3))


def planned(model: str, **settings: Any) -> Plan:
    base = {"task": "pydocs", "variant": "dense", "model": {"name": model, **settings}, "train": {"steps": 2}}
    return attnlab.plan({"study": "s", "base": base}, sets=SMALL)


def test_a_parallel_block_adds_attention_and_feed_forward_of_one_input() -> None:
    tested, x = block("ParallelBlock"), torch.randn(2, 7, 12)
    expected = x + tested.attention(tested.norm_attention(x)) + tested.feed_forward(tested.norm_feed_forward(x))
    torch.testing.assert_close(tested(x, None, None), expected)


def test_geglu_gates_with_a_gelu_and_has_the_size_of_the_default() -> None:
    tested, x = block("GEGLUBlock").feed_forward, torch.randn(2, 7, 12)
    gate, widen, narrow = (layer.weight for layer in (tested.gate, tested.widen, tested.narrow))
    assert gate.numel() + widen.numel() + narrow.numel() == 2 * 4 * 12 * 12
    torch.testing.assert_close(tested(x), (F.gelu(x @ gate.T) * (x @ widen.T)) @ narrow.T)


def test_scale_norm_gives_all_vectors_one_length() -> None:
    x = 3 * torch.randn(2, 7, 12)
    normed = block("ScaleNormBlock").norm_attention(x)
    torch.testing.assert_close(normed.norm(dim=-1), torch.full((2, 7), 12**0.5))
    torch.testing.assert_close(F.cosine_similarity(normed, x, dim=-1), torch.ones(2, 7))


@pytest.mark.parametrize("name", ["Parallel", "GEGLUModel", "ScaleNormModel"])
def test_they_pass_the_contract_of_models(name: str) -> None:
    results = check_model(getattr(load_file(EXAMPLE / "blocks.py"), name))
    assert not [result for result in results if result.status == "failed"]
    assert "passed" in {result.status for result in results if result.check == "causality"}


def test_norms_and_feed_forwards_of_every_part_are_those_of_the_block() -> None:
    own = load_file(EXAMPLE / "blocks.py")

    class OwnDecoderBlock(own.ScaleNormBlock, DecoderBlock):
        make_feed_forward = staticmethod(own.GEGLUBlock.make_feed_forward)

    class OwnBlock(own.ScaleNormBlock):
        make_feed_forward = staticmethod(own.GEGLUBlock.make_feed_forward)

    class OwnEncoderDecoder(EncoderDecoder):
        block, decoder_block = OwnBlock, OwnDecoderBlock

    class OwnMasked(MaskedLanguageModel):
        block = OwnBlock

    classes: list[type[Model]] = [OwnEncoderDecoder, OwnMasked]
    for model in classes:
        assert not [result for result in check_model(model) if result.status == "failed"]
        kinds = {type(module).__name__ for module in ModelTarget(model, {}).construct().modules()}
        assert {"ScaleNorm", "GEGLU"} <= kinds and not kinds & {"LayerNorm", "FeedForward"}


def test_first_door_imports_names_the_file(tmp_path: Path) -> None:
    display = ProgressDisplay(quiet=True)
    result = attnlab.run(EXAMPLE / "my_study.yaml", sets={**SMALL, "seeds": [0]}, root=tmp_path, display=display)
    assert result.ok and [row.name for row in result.rows] == [f"{name} s0" for name in ("language_model", *NAMES)]
    bits = {row.summary["bits_per_byte"] for row in result.rows}
    assert len(bits) == 4, "two of the models are the same"
    trained = attnlab.load_model("my-model/parallel/0", root=tmp_path)
    assert trained("abc").shape == (1, 3, 256)


def test_second_door_a_path_replaces_the_name() -> None:
    path = f"{EXAMPLE / 'blocks.py'}:Parallel"
    (cell,) = planned(path).cells
    assert cell.refusal is None and cell.config.model.name == path and list(cell.config.sources) == [str(EXAMPLE / "blocks.py")]


def test_third_door_an_installed_package_offers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_example(EXAMPLE, tmp_path, monkeypatch, group="attnlab.models")
    for name in NAMES:
        monkeypatch.delitem(MODELS._registered, name, raising=False)
        (cell,) = planned(name).cells
        assert cell.refusal is None and cell.config.model.name == name and "blocks" in cell.config.packages


def test_a_block_that_does_not_support_a_setting_is_refused_with_its_reason() -> None:
    (cell,) = planned(f"{EXAMPLE / 'blocks.py'}:Parallel", norm="post").cells
    assert cell.refusal is not None and "expected norm: pre, got norm: post" in cell.refusal and "blocks.py" in cell.refusal


@pytest.mark.parametrize("setting", [{"norm": "sandwich"}, {"residual": "none"}, {"ff_mult": 0}], ids=str)
def test_the_plan_refuses_what_another_forward_does_not_read(setting: dict[str, Any]) -> None:
    (cell,) = planned(f"{EXAMPLE / 'blocks.py'}:Parallel", **setting).cells
    assert cell.refusal is not None and f"model.{next(iter(setting))}" in cell.refusal and "has_sublayers" in cell.refusal


def test_the_default_block_is_that_of_all_models() -> None:
    assert {MODELS.get(name).block for name in ("language_model", "classifier", "masked_language_model")} == {Block}

"""Tests of `train.optimizer` and `train.decay`: construction, groups, plan, memory, and resumption of every optimizer."""

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from attnlab import plan
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.planning.costs import _shape
from attnlab.planning.plan import Plan
from attnlab.registry import OPTIMIZERS
from attnlab.training.cuda_memory import trace
from attnlab.training.optim import build_optimizer, layer_numbers, set_learning_rate
from attnlab.training.train import train
from tests.models.test_initialization import Bytes
from tests.support.small_runs import tiny

BUILT_IN = [name for name in OPTIMIZERS.names() if OPTIMIZERS.get(name).__module__.startswith(("torch.", "attnlab."))]


def model_of(config: RunConfig) -> nn.Module:
    return build(config, Bytes())


def groups_of(**changes: Any) -> tuple[dict[str, dict[str, Any]], nn.Module]:
    """Return the group of each parameter by its name, and the model."""
    config = tiny(position="learned", **changes)
    model = model_of(config)
    names = {id(p): name for name, p in model.named_parameters()}
    groups = build_optimizer(model, config.train).param_groups
    return {names[id(p)]: group for group in groups for p in group["params"]}, model


def planned(**train_fields: Any) -> Plan:
    base = {"task": {"name": "pydocs", "length": 16}, "model": {"dim": 16, "heads": 2}, "train": {"steps": 3, **train_fields}}
    return plan({"study": "optimizers", "base": base, "grid": {"variant": ["dense"]}})


def refusal(**train_fields: Any) -> str:
    (cell,) = planned(**train_fields).cells
    assert cell.refusal is not None and "\n" not in cell.refusal
    return cell.refusal


# ---------------------------------------------------------------- construction


def test_adamw_is_the_default_and_is_constructed_as_before() -> None:
    """Fused AdamW over a group with decay and one without, in the order of the parameters."""
    config = tiny(position="learned", train__weight_decay=0.1)
    model = model_of(config)
    optimizer = build_optimizer(model, config.train)
    matrices, vectors = ([p for p in model.parameters() if (p.dim() >= 2) == kind] for kind in (True, False))
    groups = [{"params": matrices, "lr_scale": 1.0}, {"params": vectors, "lr_scale": 1.0, "weight_decay": 0.0}]
    expected = torch.optim.AdamW(groups, lr=config.train.lr, betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    assert type(optimizer) is torch.optim.AdamW and optimizer.defaults == expected.defaults
    assert optimizer.state_dict()["param_groups"] == expected.state_dict()["param_groups"]
    for own, other in zip(optimizer.param_groups, expected.param_groups, strict=True):
        assert [id(p) for p in own["params"]] == [id(p) for p in other["params"]]


def test_fields_of_train_and_options_reach_the_constructor() -> None:
    config = tiny(
        train__optimizer={"name": "sgd", "momentum": 0.5, "nesterov": True}, train__weight_decay=0.25, train__lr=0.125
    )
    optimizer = build_optimizer(model_of(config), config.train)
    assert isinstance(optimizer, torch.optim.SGD)
    expected = {"lr": 0.125, "weight_decay": 0.25, "momentum": 0.5, "nesterov": True}
    assert expected.items() <= optimizer.defaults.items()
    config = tiny(train__optimizer={"name": "radam", "decoupled_weight_decay": True}, train__betas=[0.5, 0.75])
    assert build_optimizer(model_of(config), config.train).defaults["betas"] == (0.5, 0.75)
    config = tiny(train__optimizer={"name": "adafactor", "eps": [None, 1e-2]})
    assert build_optimizer(model_of(config), config.train).defaults["eps"] == (None, 1e-2)


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_optimizer_trains_every_parameter(name: str) -> None:
    config = tiny(position="learned", train__optimizer=name, train__lr=0.01)
    model = model_of(config)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    optimizer = build_optimizer(model, config.train)
    set_learning_rate(optimizer, 0.01)
    x = torch.randint(0, 31, (2, 11), generator=torch.Generator().manual_seed(0))
    nn.functional.cross_entropy(model(x)[0].flatten(0, 1), x.flatten()).backward()
    for _ in range(2):  # the first step of SOAP only computes a basis
        optimizer.step()
    for key, value in model.state_dict().items():
        assert value.isfinite().all() and not torch.equal(value, before[key]), key


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("adamw", {}),
        ("sgd", {}),
        ("adafactor", {}),
        ("muon", {}),
        ("normuon", {"cautious_decay": True}),
        ({"name": "soap", "precondition_frequency": 2}, {}),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_bits(name: Any, fields: dict[str, Any], tmp_path: Path) -> None:
    changes = {f"train__{field}": value for field, value in fields.items()}
    config = tiny(train__optimizer=name, train__checkpoint_every=3, train__steps=7, train__weight_decay=0.1, **changes)
    whole = train(config, folder=tmp_path / "whole")

    def interrupt(step: int, metrics: dict[str, float]) -> bool:
        if step >= 4:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        train(config, folder=tmp_path / "parts", report=interrupt)
    assert list((tmp_path / "parts").glob("*.pt")), "expected a checkpoint"
    parts = train(config, folder=tmp_path / "parts")
    assert parts.summary["bits_per_byte"] == whole.summary["bits_per_byte"]
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------- groups


def test_weight_decay_acts_on_the_chosen_parameters() -> None:
    def decayed(decay: str) -> set[str]:
        groups, _ = groups_of(train__decay=decay, train__weight_decay=0.5)
        return {name for name, group in groups.items() if group["weight_decay"] == 0.5}

    groups, model = groups_of()
    matrices = {name for name, p in model.named_parameters() if p.dim() >= 2}
    embeddings = {name for name, number in layer_numbers(model).items() if number == 0}
    assert decayed("matrices") == matrices and embeddings <= matrices
    assert decayed("no_embeddings") == matrices - embeddings
    assert decayed("all") == set(groups)


@pytest.mark.parametrize(("name", "option"), [("muon", "ns_steps"), ("normuon", "beta2"), ("soap", "soap_betas")])
def test_matrices_of_blocks_have_their_own_optimizer_and_adamw_updates_the_rest(name: str, option: str) -> None:
    groups, model = groups_of(train__optimizer={"name": name, "adamw_lr_scale": 0.5}, train__layer_lr_decay=0.5)
    numbers = layer_numbers(model)
    last = max(numbers.values())
    for name, p in model.named_parameters():
        hidden = p.dim() == 2 and 0 < numbers[name] < last
        assert groups[name]["hidden"] == hidden and (option in groups[name]) == hidden, name
        assert ("betas" in groups[name]) == (not hidden)
        assert groups[name]["lr_scale"] == 0.5 ** (last - numbers[name]) * (1.0 if hidden else 0.5)


# ---------------------------------------------------------------- plan


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"optimizer": "sgd", "betas": [0.5, 0.9]}, ["train.betas", "sgd takes no betas"]),
        ({"optimizer": {"name": "sgd", "nesterov": True}}, ["train.optimizer: sgd", "momentum"]),
        ({"optimizer": {"name": "muon", "adjust_lr_fn": "other"}}, ["train.optimizer: muon", "other"]),
        ({"optimizer": {"name": "muon", "adamw_lr_scale": 0.0}}, ["adamw_lr_scale"]),
        ({"optimizer": "muon", "frozen": "all"}, ["train.frozen: all"]),
        ({"optimizer": {"name": "soap", "precondition_frequency": 0}}, ["train.optimizer: soap", "precondition_frequency"]),
        ({"optimizer": {"name": "soap", "soap_betas": [0.9, 1.0]}}, ["train.optimizer: soap", "soap_betas"]),
        ({"optimizer": {"name": "normuon", "beta2": 1.5}}, ["train.optimizer: normuon", "beta2"]),
        ({"optimizer": {"name": "sgd", "momentum": 0.9}, "cautious_decay": True}, ["train.cautious_decay", "sgd"]),
        ({"optimizer": "adam", "cautious_decay": True}, ["train.cautious_decay", "adam"]),
        ({"optimizer": "torch.optim:Rprop", "cautious_decay": True, "weight_decay": 0.01}, ["train.cautious_decay"]),
        ({"optimizer": "torch.optim:LBFGS"}, ["closure"]),
    ],
)
def test_a_setting_that_the_optimizer_does_not_take_is_refused(fields: dict[str, Any], words: list[str]) -> None:
    message = refusal(**fields)
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        ("adafactr", "did you mean 'adafactor'"),
        ("lion", "unknown optimizer 'lion'"),
        ({"name": "sgd", "momentun": 0.9}, "did you mean 'momentum'"),
        ({"name": "sgd", "momentum": "high"}, "a number"),
        ({"name": "sgd", "lr": 0.1}, "train.lr"),
        ({"name": "adamw", "maximize": True}, "no option 'maximize'"),
        ("attnlab.variants.dense:Dense", "torch.optim.optimizer.Optimizer"),
    ],
)
def test_a_mistake_has_its_place(optimizer: Any, words: str) -> None:
    with pytest.raises(UserError) as caught:
        planned(optimizer=optimizer)
    assert words in caught.value.message and caught.value.where.startswith("base.train.optimizer"), str(caught.value)


def test_the_optimizer_is_an_axis_and_its_options_are() -> None:
    base = {"task": {"name": "pydocs", "length": 16}, "train": {"steps": 3}, "variant": "dense"}
    grid: dict[str, Any] = {"train.optimizer": ["adamw", {"name": "sgd", "momentum": 0.9}, "muon"], "train.lr": [1e-3]}
    names = [cell.name for cell in plan({"study": "s", "base": base, "grid": grid}).cells]
    assert names == ["optimizer=adamw lr=0.001", "optimizer=sgd momentum=0.9 lr=0.001", "optimizer=muon lr=0.001"]
    base = {**base, "train": {"steps": 3, "optimizer": "sgd"}}
    cells = plan({"study": "s", "base": base, "grid": {"train.optimizer.momentum": [0.0, 0.9]}}).cells
    assert [cell.config.train.optimizer.options["momentum"] for cell in cells] == [0.0, 0.9]
    same = plan({"study": "s", "base": base, "grid": {"train.betas": [[0.9, 0.98]]}})
    assert [cell.refusal for cell in same.cells] == [None]


def test_every_learning_rate_of_a_sweep_is_that_of_every_optimizer() -> None:
    base = {"task": {"name": "pydocs", "length": 16}, "train": {"steps": 3}, "variant": "dense"}
    study = {
        "study": "s",
        "base": base,
        "grid": {"train.optimizer": ["adamw", "muon"]},
        "sweep": {"train.lr": [1e-3, 3e-3, 1e-2]},
    }
    runs = plan(study).runs
    assert {(run.cell.name, run.config.train.lr) for run in runs} == {
        (f"optimizer={name}", rate) for name in ("adamw", "muon") for rate in (1e-3, 3e-3, 1e-2)
    }


def test_an_optimizer_of_the_user_comes_through_every_door(tmp_path: Path) -> None:
    code = """\
        import torch
        from attnlab import register_optimizer

        @register_optimizer("signed")
        class Signed(torch.optim.Optimizer):
            def __init__(self, params, lr, *, power: float = 0.0):
                super().__init__(params, {"lr": lr, "power": power})

            @torch.no_grad()
            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p -= group["lr"] * p.grad.sign() * p.grad.abs() ** group["power"]
        """
    (tmp_path / "signed.py").write_text(textwrap.dedent(code))
    base = {
        "task": {"name": "pydocs", "length": 16},
        "model": {"dim": 16, "heads": 2},
        "train": {"steps": 3},
        "variant": "dense",
    }
    names = [f"{tmp_path}/signed.py:Signed", {"name": "signed", "power": 0.5}]
    cells = plan(
        {"study": "s", "imports": [str(tmp_path / "signed.py")], "base": base, "grid": {"train.optimizer": names}}
    ).cells
    assert [cell.refusal for cell in cells] == [None, None]
    assert all(list(cell.config.sources) == [str(tmp_path / "signed.py")] for cell in cells), "workers import it"
    results = [train(cell.config) for cell in cells]
    assert all(result.state == "completed" for result in results)
    assert results[0].summary["bits_per_byte"] != results[1].summary["bits_per_byte"]
    paths = [{"train.optimizer": f"/{folder}/signed.py:Signed", "sources": {}} for folder in ("one", "two")]
    assert len({cells[0].config.replace(path).fingerprint() for path in paths}) == 1, "folders do not count"


def test_memory_counts_the_state_of_the_optimizer() -> None:
    def held(optimizer: Any, **fields: Any) -> int:
        (cell,) = planned(optimizer=optimizer, batch_size=2, **fields).cells
        assert _shape(cell).train.optimizer.name == cell.config.train.optimizer.name
        from attnlab.registry import TASKS

        return trace(cell.config, TASKS.get("pydocs")(length=16))["update"]

    sizes = {name: held(name) for name in ("adamw", "sgd", "muon", "adafactor", "normuon", "soap")}
    parameters = planned().cells[0].parameters
    assert parameters is not None
    assert sizes["adamw"] - sizes["sgd"] == pytest.approx(8 * parameters, rel=0.05), "two moments of four bytes"
    assert sizes["sgd"] < sizes["muon"] < sizes["adamw"] and sizes["adafactor"] < sizes["adamw"]
    assert sizes["muon"] < sizes["normuon"] < sizes["adamw"] < sizes["soap"]
    momentum = held({"name": "sgd", "momentum": 0.9})
    assert momentum - sizes["sgd"] == pytest.approx(4 * parameters, rel=0.05)
    copied = held("adamw", cautious_decay=True, decay="all") - sizes["adamw"]
    assert copied == pytest.approx(4 * parameters, rel=0.05), "the values before the step"

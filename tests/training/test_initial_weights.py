"""Tests of runs that start from the weights of another run: what they take over, and which weights they refuse."""

import json
from pathlib import Path

import pytest
import torch

from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.registry import TASKS
from attnlab.training import costs, weights
from attnlab.training.train import Result, train
from attnlab.training.trainer import Trainer
from attnlab.training.weights import TAKEN_TAG, WEIGHTS_TAG, match_shapes, take_over
from tests.support.small_runs import tiny

FIGURES = {"flops_per_token": 10.0, "parameters": 5}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip counting fixed costs, which takes longer than these runs."""
    monkeypatch.setattr(costs, "fixed_costs", lambda *_: FIGURES)


def run(config: RunConfig, root: Path) -> Result:
    folder = root / config.fingerprint()
    folder.mkdir(exist_ok=True)
    return train(config, folder=folder)


def interrupt(config: RunConfig, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train four steps of a run, and end as Ctrl-C does."""
    step = Trainer.take_step

    def cut(trainer: Trainer) -> None:
        if trainer.step == 4:
            raise KeyboardInterrupt
        step(trainer)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Trainer, "take_step", cut)
        run(config, root)


def starting_from(config: RunConfig, source: RunConfig) -> RunConfig:
    return config.replace({"init": {"from": "pretrain", "fingerprint": source.fingerprint()}})


def model_of(config: RunConfig, root: Path) -> tuple[torch.nn.Module, Path]:
    return build(config, TASKS.get(config.task.name)(**config.task.options)), root / config.fingerprint()


SOURCE = tiny(train__steps=3)
TUNED = tiny(train__steps=2, train__lr=1e-3)


def test_every_tensor_with_the_same_name_and_shape_is_taken_over(tmp_path: Path) -> None:
    run(SOURCE, tmp_path)
    config = starting_from(tiny(train__steps=2, model__ff_mult=2.0), SOURCE)
    model, folder = model_of(config, tmp_path)
    scratch = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert config.init is not None
    start = take_over(model, config.init, folder)
    source = weights.load(tmp_path / SOURCE.fingerprint())[1]
    for name, tensor in model.state_dict().items():
        expected = source[name] if source[name].shape == tensor.shape else scratch[name]
        assert torch.equal(tensor, expected), name
    narrower = [name for name, tensor in source.items() if tensor.shape != scratch[name].shape]
    assert narrower and all(name in start.taken for name in narrower)
    assert f"takes {len(source) - len(narrower)} of {len(source)} tensors" in start.taken


def test_a_run_records_what_it_took_and_the_costs_of_the_chain(tmp_path: Path) -> None:
    first = run(SOURCE, tmp_path)
    middle = starting_from(TUNED, SOURCE)
    second = run(middle, tmp_path)
    third = run(starting_from(tiny(train__steps=1), middle), tmp_path)
    assert not first.tags and "chain_flops" not in first.summary
    assert second.tags[WEIGHTS_TAG] == weights.recorded_digest(tmp_path / SOURCE.fingerprint()) != ""
    assert second.tags[TAKEN_TAG].startswith("takes ")
    tokens = [result.summary["tokens"] for result in (first, second, third)]
    assert second.summary["chain_flops"] == 30 * sum(tokens[:2]) and third.summary["chain_flops"] == 30 * sum(tokens)
    seconds = [result.summary["train_seconds"] for result in (first, second, third)]
    assert third.summary["chain_seconds"] == pytest.approx(sum(seconds))


def test_a_run_that_starts_from_weights_has_another_first_loss(tmp_path: Path) -> None:
    source = tiny(train__steps=12)
    run(source, tmp_path)
    losses: list[float] = []
    for config in (TUNED, starting_from(TUNED, source)):
        trained: list[dict[str, float]] = []
        folder = tmp_path / config.fingerprint()
        folder.mkdir()
        train(config, report=lambda step, metrics, trained=trained: bool(trained.append(metrics)), folder=folder)
        losses.append(next(metrics["train/loss"] for metrics in trained if "train/loss" in metrics))
    assert losses[1] < losses[0]


def test_a_resumed_run_keeps_its_start_without_reading_the_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(SOURCE, tmp_path)
    config = starting_from(tiny(train__steps=6, train__checkpoint_every=2), SOURCE)
    whole = run(config, tmp_path)
    (tmp_path / "again").mkdir()
    run(SOURCE, tmp_path / "again")
    interrupt(config, tmp_path / "again", monkeypatch)
    monkeypatch.setattr("attnlab.training.weights.take_over", lambda *_: pytest.fail("it has a checkpoint"))
    resumed = run(config, tmp_path / "again")
    assert resumed.tags == whole.tags and resumed.summary["chain_flops"] == whole.summary["chain_flops"]
    states = [weights.load(root / config.fingerprint())[1] for root in (tmp_path, tmp_path / "again")]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def replace_weights(config: RunConfig, root: Path) -> None:
    """Give a run the weights of another seed, as if it had been trained again on a GPU, which gives other bits."""
    other = config.replace({"seed": config.seed + 1})
    run(other, root)
    model, folder = model_of(config, root)
    weights.load_into(model, weights.load(root / other.fingerprint())[1])
    weights.save(model, config, folder)


def test_a_result_that_began_with_other_weights_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(SOURCE, tmp_path)
    config = starting_from(TUNED, SOURCE)
    first = run(config, tmp_path)
    assert run(config, tmp_path).summary == first.summary and "other weights" not in caplog.text
    replace_weights(SOURCE, tmp_path)
    again = run(config, tmp_path)
    assert again.tags[WEIGHTS_TAG] != first.tags[WEIGHTS_TAG]
    assert again.summary["bits_per_byte"] != first.summary["bits_per_byte"]
    assert "other weights" in caplog.text


def test_without_weights_there_is_no_start_from_scratch(tmp_path: Path) -> None:
    config = starting_from(TUNED, SOURCE)
    with pytest.raises(UserError, match="no weights of the stage 'pretrain'"):
        run(config, tmp_path)
    with pytest.raises(UserError, match="folder"):
        train(config)
    run(SOURCE, tmp_path)
    (tmp_path / SOURCE.fingerprint() / "result.json").unlink()
    with pytest.raises(UserError, match="the result of the run"):
        run(config, tmp_path)


def test_damaged_weights_and_those_of_another_run_are_refused(tmp_path: Path) -> None:
    run(SOURCE, tmp_path)
    folder = tmp_path / SOURCE.fingerprint()
    config = starting_from(TUNED, SOURCE)
    file = folder / weights.WEIGHTS
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    intact, _ = file.read_bytes(), file.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        run(config, tmp_path)
    file.write_bytes(intact)
    renamed = tiny(train__steps=4)
    folder.rename(tmp_path / renamed.fingerprint())
    with pytest.raises(UserError, match=f"{renamed.fingerprint()}.*{SOURCE.fingerprint()}"):
        run(starting_from(TUNED, renamed), tmp_path)


def test_models_without_a_common_matrix_are_refused(tmp_path: Path) -> None:
    run(SOURCE, tmp_path)
    wider = tiny(train__steps=2, model__dim=18, model__depth=1)
    with pytest.raises(UserError, match="no matrix of the stage 'pretrain'"):
        run(starting_from(wider, SOURCE), tmp_path)


def test_a_description_names_what_is_fresh_and_what_is_unused() -> None:
    source = {"a": (2, 3), "head.weight": (256, 3), "head.bias": (256,), "only.here": (1,)}
    match = match_shapes(source, {"a": (2, 3), "head.weight": (2, 3), "new": (4,), "scale": ()})
    assert (match.taken, match.unused) == (("a",), ("head.bias", "only.here"))
    assert (
        str(match) == "takes 1 of 4 tensors; fresh: head.weight (2 x 3, not 256 x 3), new, scale; unused: head.bias, only.here"
    )
    many = match_shapes({}, {f"t{i}": (1,) for i in range(9)})
    assert str(many) == "takes 0 of 9 tensors; fresh: t0, t1, t2, t3, t4, t5 and 3 more"


def test_a_fingerprint_depends_on_the_run_that_it_starts_from_and_not_on_the_name_of_the_stage() -> None:
    one, other = starting_from(TUNED, SOURCE), starting_from(TUNED, tiny(train__steps=4))
    assert len({TUNED.fingerprint(), one.fingerprint(), other.fingerprint()}) == 3
    assert one.replace({"init.from": "another"}).fingerprint() == one.fingerprint()
    assert RunConfig.from_json(one.to_json()) == one and json.loads(one.to_json())["init"]["from"] == "pretrain"

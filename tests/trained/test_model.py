"""Tests of trained models: finding one, applying it to input, sampling text from it, and errors."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import attnlab
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.language_model import LanguageModel
from attnlab.study import run
from attnlab.study.execution.progress import ProgressDisplay
from attnlab.tasks import Task
from attnlab.tasks.pydocs import PyDocs
from attnlab.tasks.text import Text
from attnlab.trained import generation
from attnlab.trained import model as trained
from attnlab.trained.sampling import sample, validation_prompt
from attnlab.training import weights
from attnlab.training.train import train
from tests.support.small_runs import tiny
from tests.support.studies import STUDY, write


def config(mem_len: int = 0) -> RunConfig:
    return RunConfig.model_validate(
        {
            "task": {"name": "pydocs", "length": 13, "sampling": "contiguous"},
            "variant": "dense",
            "position": "relative" if mem_len else "learned",
            "backend": "reference",
            "model": {"dim": 12, "depth": 2, "heads": 3, "mem_len": mem_len},
            "train": {"steps": 1},
            "machine": {"device": "cpu"},
        }
    )


def save_run(folder: Path, *, mem_len: int = 0) -> Path:
    """Write the files that `train` leaves in a run's folder, without training, and return the folder."""
    run_config = config(mem_len)
    weights.save(build(run_config, PyDocs(length=13, sampling="contiguous")), run_config, folder)
    return folder


def test_a_sample_is_a_function_of_its_seed(tmp_path: Path) -> None:
    folder = str(save_run(tmp_path))
    first, same, different = (generation.generate(folder, length=24, seed=seed) for seed in (1, 1, 2))
    assert first == same and first.text != different.text
    assert "256 bytes of the validation split" in first.origin and len(first.prompt) > 100


def test_a_prompt_is_continued(tmp_path: Path) -> None:
    folder = str(save_run(tmp_path))
    sample = generation.generate(folder, prompt="naïve ", length=9, temperature=0)
    assert sample.prompt == "naïve " and len(sample.text) <= 9
    with pytest.raises(UserError) as raised:
        generation.generate(folder, prompt="")
    assert raised.value.where == "--prompt"


@pytest.mark.parametrize("size", [2, 14, 20, 200, 256, 400])
def test_the_default_prompt_holds_no_padding(size: int, tmp_path: Path) -> None:
    """Rows that extend past a short validation split are padded with zeros."""
    text = bytes(range(1, 251)) * 32
    (tmp_path / "text").write_bytes(text[: size * 20])
    task = Text(path=str(tmp_path / "text"), length=13)
    valid = task.split("valid").tolist()
    assert len(valid) == size
    for seed in range(5):
        ids, origin = validation_prompt(task, seed=seed)
        begin = int(origin.rpartition(" ")[2])
        assert ids == valid[begin : begin + len(ids)] and len(ids) >= min(size, 256) - 13


@pytest.mark.parametrize("mem_len", [0, 7])
def test_at_temperature_0_tokens_are_the_most_likely_ones_in_segments_as_in_training(tmp_path: Path, mem_len: int) -> None:
    folder = save_run(tmp_path, mem_len=mem_len)
    loaded = trained.load_model(folder)
    model, task = loaded.model, loaded.task
    ids = list(range(40, 71))  # 31 tokens: two whole segments of 13, and 5
    assert isinstance(model, LanguageModel)
    drawn = sample(model, ids, task=task, device=loaded.device, temperature=0, length=3, seed=0, has_memory=mem_len > 0)
    with torch.inference_mode():
        for i, token in enumerate(drawn):
            so_far = ids + drawn[:i]
            if mem_len:
                _, memory = model(torch.tensor([so_far[:13]]))
                _, memory = model(torch.tensor([so_far[13:26]]), memory)
                logits, _ = model(torch.tensor([so_far[26:]]), memory)
            else:
                logits, _ = model(torch.tensor([so_far[-13:]]))
            assert int(logits[0, -1].argmax()) == token


class Silent(PyDocs):
    """A task that does not define `encode`."""

    encode = Task.encode


class Wordy(PyDocs):
    """A task whose `encode` knows two words."""

    def encode(self, text: str) -> list[int]:
        return [["no", "yes"].index(text)]


@pytest.mark.parametrize(
    ("name", "words"),
    [("Silent", "encode"), ("Wordy", "ValueError: 'x' is")],
)
def test_a_task_that_cannot_encode_the_prompt_is_an_error(name: str, words: str, tmp_path: Path) -> None:
    folder = save_run(tmp_path)
    run_config = config().replace({"task.name": f"tests.trained.test_model:{name}"})
    weights.save(trained.load_model(folder).model, run_config, folder)
    with pytest.raises(UserError, match=f"task {name} .*{words}"):
        generation.generate(str(folder), prompt="x", length=1)


# ---------------------------------------------------------------- load_model


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of runs of a trained study of two cells and two seeds, on bytes."""
    folder = tmp_path_factory.mktemp("studied")
    text = STUDY.replace(", {name: strided_sparse, stride: 7}", "").replace("steps: 5", "steps: 3")
    study = write(folder, text)
    assert run.run(study, root=folder / "runs", display=ProgressDisplay(quiet=True), reference_scores=False).ok
    return folder / "runs"


def test_a_run_is_found_by_everything_that_a_user_has_of_it(studied: Path) -> None:
    row = attnlab.load_runs("s", studied).set_index("name").loc["no_wo s5"]
    for name in (row["run_id"], row["run_id"][:12], "no_wo s5", "s/no_wo/5", "s/no_wo/s5", row["folder"], Path(row["folder"])):
        loaded = attnlab.load_model(name, root=studied)
        assert (loaded.config.variant.name, loaded.config.seed) == ("no_wo", 5), name  # type: ignore[union-attr]
        assert not loaded.model.training


@pytest.mark.parametrize(
    ("name", "words"), [("s/no_wo/4", "s/no_wo/4"), ("nothing", "nothing"), ("t/no_wo/5", "t/no_wo"), ("", "match|named")]
)
def test_an_unknown_run_is_one_line(name: str, words: str, studied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(studied)
    with pytest.raises(UserError, match=words):
        attnlab.load_model(name, root=studied)


def test_a_loaded_model_repeats_the_recorded_score(studied: Path) -> None:
    row = attnlab.load_runs("s", studied).set_index("name").loc["dense s3"]
    loaded = attnlab.load_model(row["run_id"], root=studied)
    nats = count = 0.0
    for batch in loaded.read_data().eval_batches("test", batch_size=97):
        loss = F.cross_entropy(loaded(batch.inputs).flatten(0, 1), batch.targets.flatten(), ignore_index=-100, reduction="sum")
        nats, count = nats + loss.item(), count + int((batch.targets != -100).sum())
    assert nats / count / math.log(2) == pytest.approx(row["bits_per_byte"], rel=1e-5)


def test_a_call_takes_text_ids_and_rows_and_gives_logits(tmp_path: Path) -> None:
    loaded = trained.load_model(save_run(tmp_path))
    assert loaded.encode("hé").tolist() == [[104, 195, 169]]
    logits = loaded("hé")
    assert logits.shape == (1, 3, 256) and not logits.requires_grad
    assert torch.equal(loaded([104, 195, 169]), logits) and torch.equal(loaded(torch.tensor([[104, 195, 169]])), logits)
    assert loaded(torch.zeros(2, 5, dtype=torch.int32)).shape == (2, 5, 256)
    assert loaded.generate("hé", length=4, temperature=0) == loaded.generate([104, 195, 169], length=4, temperature=0)


@pytest.mark.parametrize("inputs", ["", [], [[[1]]], [256], [-1], [0.5], [True], "fourteen bytes"])
def test_invalid_input_is_one_line(inputs: Any, tmp_path: Path) -> None:
    loaded = trained.load_model(save_run(tmp_path))
    with pytest.raises(UserError, match="expected"):
        loaded(inputs)


def test_a_model_with_memory_reads_a_long_text_segment_by_segment(tmp_path: Path) -> None:
    loaded = trained.load_model(save_run(tmp_path, mem_len=7))
    model, tokens = loaded.model, torch.arange(40, 71)[None]
    assert isinstance(model, LanguageModel)
    first, memory = model(tokens[:, :13])
    second, memory = model(tokens[:, 13:26], memory)
    third, _ = model(tokens[:, 26:], memory)
    assert torch.equal(loaded(tokens), torch.cat([first, second, third], 1))
    with pytest.raises(UserError, match="at most one segment of 13"):
        loaded.attention_weights(tokens)


def test_attention_weights_are_those_of_your_own_input(studied: Path, tmp_path: Path) -> None:
    loaded = attnlab.load_model("s/dense/3", root=studied)
    weights_of = loaded.attention_weights("attention")
    assert weights_of.shape == (1, 1, 2, 9, 9)
    torch.testing.assert_close(weights_of.sum(-1), torch.ones(1, 1, 2, 9))
    assert not weights_of.triu(1).any()
    torch.testing.assert_close(weights_of[..., :4, :4], loaded.attention_weights("atte"))  # causal: the same for a prefix
    assert not torch.equal(weights_of, loaded.attention_weights("other text"[:9]))
    assert loaded.words("hé!") == ["h", "\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}", "!"]


def test_a_classifier_encodes_as_its_task_does(small_reviews: None, tmp_path: Path) -> None:
    imdb = {"name": "imdb", "length": 6}
    train(tiny(task=imdb, position="none", model__pool="class", train__steps=1, evaluate__test_limit=4), folder=tmp_path)
    loaded = trained.load_model(tmp_path)
    text = "a good film, and not a bad one"
    assert loaded.encode(text).shape == (1, 6), "cut at its end, as in training"
    assert loaded(text).shape == (1, 2) and torch.equal(loaded(text), loaded("a good film, and not"))
    assert loaded.attention_weights(text).shape == (2, 1, 3, 7, 7) and loaded.words(text)[0] == "[class]"
    assert set(loaded.words(text)[1:]) & {"good", "bad", "film"}
    rows, mask = torch.tensor([[3, 4, 0], [3, 4, 5]]), torch.tensor([[True, True, False], [True] * 3])
    torch.testing.assert_close(loaded(rows, mask)[:1], loaded([3, 4]))
    with pytest.raises(UserError, match="expected a language model"):
        loaded.generate("x")
    with pytest.raises(UserError, match="mask"):
        loaded(rows, mask[:, :2])


def test_a_variant_without_a_matrix_of_weights_is_one_line(tmp_path: Path) -> None:
    sparse = config().replace({"variant": {"name": "strided_sparse", "stride": 3}, "position": "none"})
    weights.save(build(sparse, PyDocs(length=13, sampling="contiguous")), sparse, tmp_path)
    with pytest.raises(UserError, match="strided_sparse"):
        trained.load_model(tmp_path).attention_weights("abc")


def test_a_backend_that_is_not_here_is_replaced_by_the_reference(tmp_path: Path) -> None:
    run_config = config().replace({"backend": "xformers"})
    weights.save(build(config(), PyDocs(length=13, sampling="contiguous")), run_config, tmp_path)
    loaded = trained.load_model(tmp_path, device="cpu")
    assert loaded.config.backend == "reference" and loaded("abc").isfinite().all()

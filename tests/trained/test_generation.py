"""Translation with the encoder-decoder of a run: `attnlab generate`, `TrainedModel.translate`, and refused options."""

from pathlib import Path
from typing import Any

import pytest
import torch

from attnlab.cli.main import main
from attnlab.config.run import RunConfig
from attnlab.errors import UserError
from attnlab.models.build import build
from attnlab.models.decoding import decode
from attnlab.tasks.parallel import Parallel
from attnlab.tasks.translation import BEGIN, END
from attnlab.trained import generation
from attnlab.trained import model as trained
from attnlab.training import weights
from tests.support.small_translations import pairs, write

SENTENCE = "Ein Hund sieht ein Haus rot."


@pytest.fixture
def folder(tmp_path: Path, folders: Path) -> str:
    """The folder of a run of an encoder-decoder that was not trained."""
    rows = pairs(70)
    options: dict[str, Any] = {"vocabulary": 90, "length": 24, "beam": 2}
    for split, begin, end in (("train", 0, 40), ("valid", 40, 50), ("test", 50, 70)):
        options |= write(tmp_path, split, rows[begin:end])
    part = {"variant": "dense", "position": "learned"}
    model = {"dim": 12, "depth": 1, "heads": 2, "encoder": part, "decoder": part, "cross": {**part, "position": "none"}}
    fields = {"task": {"name": "translation", **options}, **part, "backend": "reference", "model": model}
    config = RunConfig.model_validate({**fields, "train": {"steps": 1}, "machine": {"device": "cpu"}})
    weights.save(build(config, Parallel(**options)), config, tmp_path / "run")
    return str(tmp_path / "run")


def test_a_sentence_is_translated_as_the_task_decodes(folder: str):
    loaded = trained.load_model(folder)
    source = torch.tensor([loaded.task.encode(SENTENCE)])
    expected = {}
    for beam in (1, 2):
        (ids,) = decode(loaded.model, source, begin=BEGIN, end=END, max_length=24, beam=beam)  # type: ignore[arg-type]
        expected[beam] = loaded.task.decode(ids)
    assert expected[1] != expected[2] and expected[1]
    assert loaded.translate(SENTENCE) == expected[2]  # the beam of the task
    assert loaded.translate(SENTENCE, beam=1) == expected[1]
    sample = generation.generate(folder, prompt=SENTENCE, beam=1)
    assert (sample.prompt, sample.text, sample.reference) == (SENTENCE, expected[1], None)
    assert "greedy" in sample.method and "beam 2" in generation.generate(folder, prompt=SENTENCE).method


def test_the_default_prompt_is_a_pair_of_the_validation_split(folder: str):
    valid = pairs(70)[40:50]  # of which the task cuts the longest
    samples = [generation.generate(folder, seed=seed) for seed in range(4)]
    for sample in samples:
        assert sample.reference and any(
            source.startswith(sample.prompt) and target.startswith(sample.reference) for source, target in valid
        )
    assert len({sample.prompt for sample in samples}) > 1


def test_a_translation_is_sampled_at_a_temperature(folder: str) -> None:
    loaded = trained.load_model(folder)
    samples = [loaded.translate(SENTENCE, temperature=1.0, seed=seed) for seed in (0, 1, 0)]
    assert samples[0] == samples[2] != samples[1]
    assert loaded.translate(SENTENCE, temperature=0.0) == loaded.translate(SENTENCE, beam=1)
    assert loaded.translate(SENTENCE, temperature=1e-4) == loaded.translate(SENTENCE, beam=1)
    sample = generation.generate(folder, prompt=SENTENCE, temperature=1.0, seed=1)
    assert sample.text == samples[1] and "temperature 1, seed 1" in sample.method


def test_sampled_tokens_have_the_probabilities_of_the_softmax(folder: str) -> None:
    """The first tokens of 4,000 rows, against softmax(logits / T): the largest expected error of a share is 0.008."""
    loaded, rows, temperature = trained.load_model(folder), 4000, 0.7
    source = torch.tensor([loaded.task.encode(SENTENCE)])
    model: Any = loaded.model
    with torch.no_grad():
        logits = model(source, torch.tensor([[BEGIN]]))[0, -1]
    expected = (logits.double() / temperature).softmax(-1)
    options = {"begin": BEGIN, "end": END, "max_length": 1, "temperature": temperature}
    generator = torch.Generator().manual_seed(1)
    drawn = decode(model, source.expand(rows, -1), generator=generator, **options)
    counts = torch.bincount(torch.tensor([ids[0] if ids else END for ids in drawn]), minlength=len(logits))
    chi_squared = ((counts - rows * expected) ** 2 / (rows * expected)).sum().item()
    assert chi_squared < len(logits) + 5 * (2 * len(logits)) ** 0.5, "mean and five standard deviations"


@pytest.mark.parametrize("option", [["--beam", "2"], ["--length-penalty", "1"]])
def test_a_search_and_a_temperature_exclude_each_other(folder: str, option: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["generate", folder, "--prompt", SENTENCE, "--temperature", "0.7", *option]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert option[0] in error and "temperature" in error


def test_generate_prints_the_translation_and_the_reference(folder: str, capsys: pytest.CaptureFixture[str]):
    assert main(["generate", folder, "--seed", "3"]) == 0
    sample = generation.generate(folder, seed=3)
    lines = capsys.readouterr().out.splitlines()
    assert sample.prompt in lines and sample.text in lines and lines[-1] == sample.reference


@pytest.mark.parametrize("prompt", ["", " \n", "Ein Hund sieht ein Haus rot. " * 9])
def test_an_empty_or_too_long_sentence_is_refused(folder: str, prompt: str):
    with pytest.raises(UserError) as refusal:
        generation.generate(folder, prompt=prompt)
    assert refusal.value.where == "--prompt" and "expected" in refusal.value.message

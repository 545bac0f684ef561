"""Text that the models of runs generate: samples of language models, and translations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._util.rng import derive_seed
from attnlab.errors import UserError
from attnlab.tasks import IGNORED, Task
from attnlab.trained.model import TrainedModel, load_model
from attnlab.trained.sampling import printable, validation_prompt

TEMPERATURE = 0.5
LENGTH = 600  # tokens


@dataclass(frozen=True)
class Sample:
    """A generated text with its prompt and its model; safe to print to a terminal.

    Attributes:
        model: a description of the run.
        origin: the origin of the prompt.
        prompt: the text that was continued or translated.
        text: the generated text.
        method: a description of the sampling or the decoding.
        reference: the reference translation of a sentence of the task's data.
    """

    model: str
    origin: str
    prompt: str
    text: str
    method: str
    reference: str | None = None


def generate(
    run: str,
    *,
    prompt: str | None = None,
    temperature: float | None = None,
    length: int | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    seed: int = 0,
    root: str | Path | None = None,
    imports: Sequence[str | Path] = (),
) -> Sample:
    """Sample from a run's language model, or translate with its encoder-decoder.

    Args:
        run, root, imports: as for `load_model`.
        prompt: text to continue, or sentence to translate; default: 256 tokens, or a sentence, of the task's validation split,
            chosen by `seed`.
        temperature: divisor of the logits; 0 takes the most likely token. Default: 0.5 of a language model; an encoder-decoder
            searches instead of sampling.
        length: of a language model, the number of tokens to sample, bytes or subwords (default 600).
        beam, length_penalty: of an encoder-decoder, as for `TrainedModel.translate`.
        seed: of the samples and the default prompt.

    Raises:
        UserError: the run is unknown, it left no model, its model generates no text, its task has no text, or an option
            is for another kind of model.
    """
    trained = load_model(run, root=root, imports=imports)
    trained.require_generation()
    sampling = {"--length": length}
    decoding = {"--beam": beam, "--length-penalty": length_penalty}
    translates = trained.task.kind == "encoder_decoder"
    for name, value in (sampling if translates else decoding).items():
        if value is not None:
            kinds = ("language models", "an encoder-decoder") if translates else ("encoder-decoders", "a language model")
            raise UserError(f"expected this option only for {kinds[0]}, but the run has {kinds[1]}", name)
    if translates:
        options = {"beam": beam, "length_penalty": length_penalty, "temperature": temperature}
        return _translation(trained, prompt, options, seed=seed)
    return _sample(trained, prompt, temperature=TEMPERATURE if temperature is None else temperature, length=length, seed=seed)


def _sample(trained: TrainedModel, prompt: str | None, *, temperature: float, length: int | None, seed: int) -> Sample:
    """Sample a continuation of ``prompt``, or of tokens of the validation split."""
    task, length = trained.task, length or LENGTH
    if prompt is None:
        ids, origin = validation_prompt(trained.read_data(), seed=seed)
    else:
        try:
            ids, origin = trained.encode(prompt)[0].tolist(), "as given"
        except UserError as error:
            raise UserError(error.message, "--prompt") from error
    text = trained.generate(ids, temperature=temperature, length=length, seed=seed)
    method = f"sample: {length} {task.unit}s at temperature {temperature:g}, seed {seed}"
    return Sample(trained.name, origin, printable(task.decode(ids)), printable(text), method)


def _translation(trained: TrainedModel, prompt: str | None, options: dict[str, Any], *, seed: int) -> Sample:
    """Translate ``prompt``, or a sentence of the validation split, which has a reference.

    Args:
        options: of ``TrainedModel.translate``.
    """
    task = trained.task
    width = options["beam"] or task.decoding_options()["beam"]
    method = "translation: greedy" if width == 1 else f"translation: beam {width}"
    if options["temperature"] is not None:
        method = f"translation: sample at temperature {options['temperature']:g}, seed {seed}"
    if prompt is None:
        ids, reference = validation_pair(trained.read_data(), seed=seed)
        text = trained.translate(ids, seed=seed, **options)
        origin, prompt = "a sentence of the validation split", task.decode(ids)
        return Sample(trained.name, origin, printable(prompt), printable(text), method, printable(reference))
    try:
        text = trained.translate(prompt, seed=seed, **options)
    except UserError as error:
        raise UserError(error.message, error.where or "--prompt") from error
    return Sample(trained.name, "as given", printable(prompt), printable(text), method)


def validation_pair(task: Task, *, seed: int) -> tuple[list[int], str]:
    """Return the tokens of a source sentence of the validation split, chosen by `seed`, and its reference translation."""
    rows = [row for batch in task.eval_batches("valid", batch_size=1) for row in batch.split(len(batch.inputs))]
    row = rows[derive_seed(seed, "prompt") % len(rows)]
    assert row.source is not None
    source = row.source[0] if row.source_mask is None else row.source[0][row.source_mask[0]]
    target = row.targets[0][row.targets[0] != IGNORED]
    return source.tolist(), task.decode(target.tolist())

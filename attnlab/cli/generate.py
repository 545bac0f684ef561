"""`attnlab generate`: sample text from a trained language model, or translate with a trained encoder-decoder."""

from __future__ import annotations

import argparse
from argparse import Namespace

from attnlab.cli._arguments import Parser, add_imports, number, positive_int

HELP = "sample text from a trained language model, or translate"


def add_arguments(parser: Parser) -> None:
    help_run = "an MLflow ID or its beginning, a run's name, STUDY/CELL/SEED, or a run's folder"
    parser.add_argument("run", metavar="RUN", help=help_run)
    parser.add_argument(
        "--prompt",
        help="text to continue, or sentence to translate (default: 256 tokens, or a sentence, from the validation split)",
    )
    parser.add_argument(
        "--temperature",
        type=_at_least_zero,
        metavar="T",
        help="sample with this divisor of the logits; 0 takes the most likely token (default: 0.5; for a translation, search)",
    )
    parser.add_argument(
        "--length", type=positive_int, metavar="N", help="for a language model: number of tokens to sample (default 600)"
    )
    parser.add_argument(
        "--beam", type=positive_int, metavar="K", help="for a translation: number of hypotheses to keep (default: the task's)"
    )
    parser.add_argument(
        "--length-penalty",
        type=_at_least_zero,
        metavar="A",
        help="for a translation: exponent of the length in the score of a hypothesis (default: the task's)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the sampling and of the default prompt (default 0)"
    )
    add_imports(parser)


def main(arguments: Namespace) -> int:
    from attnlab.trained.generation import generate

    sample = generate(
        arguments.run,
        prompt=arguments.prompt,
        temperature=arguments.temperature,
        length=arguments.length,
        beam=arguments.beam,
        length_penalty=arguments.length_penalty,
        seed=arguments.seed,
        imports=arguments.imports,
    )
    print(f"--- {sample.model}")
    print(f"--- prompt: {sample.origin}\n{sample.prompt}")
    print(f"--- {sample.method}\n{sample.text}")
    if sample.reference is not None:
        print(f"--- reference\n{sample.reference}")
    return 0


def _at_least_zero(text: str) -> float:
    if not 0 <= (value := number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value

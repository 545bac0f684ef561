"""`attnlab generate`: sample text from a trained language model."""

from __future__ import annotations

import argparse
from argparse import Namespace

from attnlab.cli._arguments import Parser, add_trust, number, positive_int

HELP = "sample text from a trained language model"


def add_arguments(parser: Parser) -> None:
    help_run = "an MLflow run id or its beginning, a run's name, STUDY/CELL/SEED, or a run's folder"
    parser.add_argument("run", metavar="RUN", help=help_run)
    parser.add_argument("--prompt", help="text to continue (default: 256 tokens of the validation split)")
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=0.5,
        metavar="T",
        help="divisor of the logits; 0 takes the most likely token (default 0.5)",
    )
    parser.add_argument(
        "--length",
        type=positive_int,
        default=600,
        metavar="N",
        help="tokens to sample: bytes, or subwords (default 600)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the sampling (default 0)")
    add_trust(parser)


def main(arguments: Namespace) -> int:
    from attnlab.study.trained import generate

    length, temperature, seed = arguments.length, arguments.temperature, arguments.seed
    sample = generate(
        arguments.run,
        prompt=arguments.prompt,
        temperature=temperature,
        length=length,
        seed=seed,
        trust=arguments.trust,
    )
    print(f"--- {sample.model}")
    print(f"--- prompt: {sample.origin}\n{sample.prompt}")
    print(f"--- sample: {sample.amount} at temperature {temperature:g}, seed {seed}\n{sample.text}")
    return 0


def _temperature(text: str) -> float:
    if not 0 <= (value := number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value

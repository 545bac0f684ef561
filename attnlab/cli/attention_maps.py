"""`attnlab attention-maps`: record the attention maps of a study's trained models."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser, add_imports, positive_int
from attnlab.cli._study import command_name

HELP = "record attention maps of each cell's trained model on one test input, for the report"


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name")
    parser.add_argument("--length", type=positive_int, default=48, metavar="N", help="tokens of the input (default 48)")
    add_imports(parser)


def main(arguments: Namespace) -> int:
    from attnlab.trained.attention_maps import record_attention_maps

    recorded = record_attention_maps(arguments.study, length=arguments.length, imports=arguments.imports)
    for attention_map in recorded:
        print(f"{attention_map.cell}: {'failed: ' if attention_map.failed else ''}{attention_map.outcome}")
    if not all(attention_map.failed for attention_map in recorded):
        print(f"`{command_name()} report {arguments.study}` adds them to the report")
    return int(any(attention_map.failed for attention_map in recorded))

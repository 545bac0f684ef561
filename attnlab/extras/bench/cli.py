"""`attnlab bench`: measure time, memory and scaling of attention layers against `dense`."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlab.cli._arguments import Parser, comma_separated, positive_int
from attnlab.cli._printing import print_table, print_text, relative
from attnlab.cli._study import add_components_argument, parse_sets

if TYPE_CHECKING:
    from attnlab.extras.bench.suite import BenchResult

HELP = "measure time, memory and scaling of an attention layer against dense: attnlab bench my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Measure one layer, forward and backward, or decoding with --decode, with each backend at each length, alternating with "
    "dense."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("variants", nargs="+", metavar="NAME|PATH", help="names, file.py:Class or package.module:Class")
    parser.add_argument(
        "--lengths", type=_lengths, default=[256, 512, 1024, 2048], metavar="N,N", help="default 256,512,1024,2048"
    )
    parser.add_argument("--batch", type=positive_int, default=2, metavar="N", help="sequences per batch (default 2)")
    parser.add_argument("--dim", type=positive_int, default=256, metavar="N", help="model width (default 256)")
    parser.add_argument("--heads", type=positive_int, default=8, metavar="N", help="default 8")
    parser.add_argument(
        "--backend", type=comma_separated, default=[], metavar="NAME,NAME", help="or auto; default: all that a variant supports"
    )
    parser.add_argument("--position", default="none", metavar="NAME", help="position scheme of every layer (default none)")
    parser.add_argument(
        "--role", metavar="ROLE", help="causal, bidirectional or cross; default: the first that all variants support"
    )
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32", help="default fp32")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    parser.add_repeatable(
        "--options", metavar="KEY=VALUE", help="option of the variants (default: recommended for the length; repeatable)"
    )
    add_components_argument(parser)
    parser.add_argument("--rounds", type=positive_int, default=7, metavar="N", help="measurements of each case (default 7)")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="CPU threads of each process (default: all)")
    parser.add_argument(
        "--cpu-time", action="store_true", help="measure CPU time, which other programs affect less than wall-clock time"
    )
    parser.add_argument(
        "--decode", action="store_true", help="measure the time to decode a token instead of forward and backward"
    )
    parser.add_argument("--out", metavar="PATH", help="write PATH.md, PATH.csv and plots (default reports/bench/NAMES)")


def main(arguments: Namespace) -> int:
    """Measure, print, and write `OUT.md`, `OUT.csv` and plots.

    Returns:
        1 if every case of a variant failed with an error, else 0.
    """
    from attnlab.extras.bench.layer import FAST_MACHINE
    from attnlab.extras.bench.page import costs, exponents, omissions, write
    from attnlab.extras.bench.suite import BenchConfig, bench, failed_variants

    named = ("lengths", "batch", "dim", "heads", "position", "precision", "rounds", "cpu_time", "decode", "components", "role")
    config = BenchConfig(
        arguments.variants,
        backends=arguments.backend,
        options=parse_sets(arguments.options),
        machine=FAST_MACHINE.model_copy(update={"device": arguments.device, "threads": arguments.threads}),
        **{name: getattr(arguments, name) for name in named},
    )
    results = bench(config, report=_print_progress)
    for table in (costs(results, decode=config.decode), exponents(results, decode=config.decode)):
        wrap = [column.heading for column in table.columns if column.is_text]
        print_table([column.heading for column in table.columns], [list(line.cells) for line in table.rows], wrap=wrap)
        print()
    for omission in omissions(results):
        print_text(f"not measured: {omission}")
    names = [name.rpartition(":")[2] for name in (*arguments.variants, *map(_name, arguments.components))]
    path = Path(arguments.out or f"reports/bench/{'-'.join([*names, *(['decode'] if config.decode else [])])}")
    suffixes = write(path, results, config=config, command=shlex.join(["attnlab", *arguments.argv]))
    print(f"written: {relative(path)}{', '.join(suffixes)}")
    return 1 if failed_variants(results) else 0


def _name(component: Any) -> str:
    return str(component["name"] if isinstance(component, dict) else component)


def _print_progress(result: BenchResult) -> None:
    if sys.stderr.isatty():
        case, outcome = result.case, result.reason or f"{result.time * 1e3:.3g} ms"
        print(f"{case.label} {case.backend} at {case.length:,}: {outcome}", file=sys.stderr, flush=True)


def _lengths(text: str) -> list[int]:
    return [positive_int(word) for word in text.split(",")]

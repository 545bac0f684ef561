"""`attnlab check`: test an attention variant against the contract and explain each failure."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter

from attnlab.cli._arguments import Parser
from attnlab.cli._printing import print_table
from attnlab.cli._study import parse_sets
from attnlab.errors import UserError

HELP = "test an attention variant against the contract: attnlab check my_lab/cosine.py:Cosine"
DESCRIPTION = (
    "Exit codes: 0: the variant has every property that it declares; 1: a check failed; 2: this configuration is not supported."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("variant", metavar="NAME|PATH", help="a name, file.py:Class or package.module:Class")
    parser.add_argument("--position", metavar="NAME", help="position scheme of all checks (default: none)")
    parser.add_argument("--backend", metavar="NAME", help="backend of all checks (default: the variant's first)")
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda or cuda:N")
    parser.add_repeatable("--options", metavar="KEY=VALUE", help="option of the variant: stride=4 (repeatable)")


def main(arguments: Namespace) -> int:
    """Print a row per check, and for each failure the smallest failing case and the change to make.

    Returns:
        0 if no check failed, else 1.

    Raises:
        UserError: the variant does not support the position scheme, backend or device; the message has the reason.
    """
    from attnlab.registry import VARIANTS
    from attnlab.testing.contract import check
    from attnlab.training.device import resolve_device

    variant, position, backend, device = arguments.variant, arguments.position, arguments.backend, arguments.device
    results = check(variant, options=parse_sets(arguments.options), position=position, backend=backend, device=device)
    if {result.status for result in results} == {"refused"}:
        reasons = dict.fromkeys(result.detail for result in results)
        raise UserError(f"not supported: {'; '.join(reasons)}", variant)
    failed = [result for result in results if result.status == "failed"]
    print_table(
        ["check", "result", "time", "measured"],
        [
            [result.check, result.status, f"{result.seconds:.2f} s", "see below" if result in failed else result.detail]
            for result in results
        ],
    )
    for result in failed:
        print(f"\nFAILED {result.check}\n  smallest case:  {result.detail}\n  what to change: {result.advice}")
        if arguments.debug and result.traceback:
            print(result.traceback)
    if failed and results[-1].check == "shapes":
        print("\nThe other checks depend on this one and were skipped.")
    scheme = f"position {position}" if position else "no position scheme"
    configuration = f"{scheme}, backend {backend or VARIANTS.get(variant).backends[0]}, {resolve_device(device)}"
    counts = ", ".join(f"{count} {status}" for status, count in Counter(result.status for result in results).items())
    print(f"\n{variant} ({configuration}): {counts}, in {sum(result.seconds for result in results):.1f} s")
    return 1 if failed else 0

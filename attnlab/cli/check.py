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
    """Print a row per check, and for each failure the smallest failing case and what to change.

    Returns:
        0 where no check failed, else 1.

    Raises:
        UserError: the variant does not support the position scheme, backend or device; the message has the reason.
    """
    from attnlab.registry import VARIANTS
    from attnlab.testing.contract import check
    from attnlab.training.device import resolve_device

    variant, position, backend, device = arguments.variant, arguments.position, arguments.backend, arguments.device
    outcomes = check(variant, options=parse_sets(arguments.options), position=position, backend=backend, device=device)
    if {outcome.result for outcome in outcomes} == {"refused"}:
        reasons = dict.fromkeys(outcome.measured for outcome in outcomes)
        raise UserError(f"not supported: {'; '.join(reasons)}", variant)
    failed = [outcome for outcome in outcomes if outcome.result == "failed"]
    print_table(
        ["check", "result", "time", "measured"],
        [[o.check, o.result, f"{o.seconds:.2f} s", "see below" if o in failed else o.measured] for o in outcomes],
    )
    for outcome in failed:
        print(f"\nFAILED {outcome.check}\n  smallest case:  {outcome.measured}\n  what to change: {outcome.advice}")
        if arguments.debug and outcome.trace:
            print(outcome.trace)
    if failed and outcomes[-1].check == "shapes":
        print("\nThe other checks depend on this one and were skipped.")
    scheme = f"position {position}" if position else "no position scheme"
    configuration = f"{scheme}, backend {backend or VARIANTS.get(variant).backends[0]}, {resolve_device(device)}"
    counts = ", ".join(f"{count} {result}" for result, count in Counter(outcome.result for outcome in outcomes).items())
    print(f"\n{variant} ({configuration}): {counts}, in {sum(outcome.seconds for outcome in outcomes):.1f} s")
    return 1 if failed else 0

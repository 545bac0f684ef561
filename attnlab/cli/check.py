"""What came of checking a variant, as text: `attnlab check`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from attnlab.cli.printing import show
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.testing.contract import Outcome


def print_outcomes(
    variant: str,
    *,
    options: dict[str, Any],
    position: str | None,
    backend: str | None,
    device: str,
    debug: bool = False,
) -> int:
    """Check a variant and print a line a check, then for each failure the smallest case and what to change.

    Returns:
        0 where nothing failed, else 1.

    Raises:
        UserError: the variant cannot be had with that scheme, backend or device, with the reason.
    """
    from attnlab.registry import VARIANTS
    from attnlab.testing.contract import check
    from attnlab.training.device import resolve_device

    found = check(variant, options=options, position=position, backend=backend, device=device)
    if {each.result for each in found} == {"refused"}:
        reasons = dict.fromkeys(each.measured for each in found)
        raise UserError(f"there is nothing to check, it is refused: {'; '.join(reasons)}", variant)
    lines = [[each.check, each.result, f"{each.seconds:.2f} s", _line(each)] for each in found]
    show(["check", "result", "time", "measured"], lines)
    failed = [each for each in found if each.result == "failed"]
    for each in failed:
        print(f"\nFAILED {each.check}\n  smallest case:  {each.measured}\n  what to change: {each.advice}")
        if debug and each.trace:
            print(each.trace)
    if failed and found[-1].check == "shapes":
        print("\nThe other checks rest on this one and were left out.")
    scheme = f"position {position}" if position else "no position scheme"
    how = f"{scheme}, backend {backend or VARIANTS.get(variant).backends[0]}, {resolve_device(device)}"
    counts = Counter(each.result for each in found)
    total = sum(each.seconds for each in found)
    print(f"\n{variant} ({how}): {', '.join(f'{n} {result}' for result, n in counts.items())}, in {total:.1f} s")
    return 1 if failed else 0


def _line(outcome: Outcome) -> str:
    return "see below" if outcome.result == "failed" else outcome.measured

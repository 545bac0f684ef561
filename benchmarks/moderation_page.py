"""The section on moderated t-tests of ``reports/validity/README.md``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.moderation import BOUND, EFFECT, PROMISED, promised
from benchmarks.simulate import Line
from benchmarks.validity_page import table_of_cases, violations, worst

SECTION = """
## Moderated t-tests

In tables of at least three comparisons, the variance of each is averaged with the mean of all (`attnlab.stats.moderation`).
Here nothing differs, all cells have one baseline, and the standard deviation of a run is 1, except for 2 or 4 in the runs of
the baseline or of the first cell. At most {bound:.0%} of the tables may have a verdict of better or worse if standard
deviations differ by a factor of up to 2: {broken}. The worst of these settings has {worst}.
**Not promised:** with a factor of 4, up to {unpromised}.

{false_table}

With the t-test of each comparison alone (`moderate: false`):

{plain_table}

The price is the coverage of the 95 % interval of a cell that scatters more than the others (here the first cell), at least
{covered} with a factor of up to 2. Intervals of the other cells are too wide then.

{covered_table}

Share of tables in which the last cell, which truly differs by {effect:g} standard deviations of its pairs, has a verdict of
better or worse:

{power_table}

With the t-test of each comparison alone:

{plain_power_table}
"""


def moderation_section(lines: Sequence[Line]) -> str:
    """Return the section as Markdown; "" if moderated t-tests are not simulated."""
    lines = [line for line in lines if line.part == "moderated"]
    if not lines:
        return ""
    of = {name: [line for line in lines if line.quantity == name] for name in ("false", "covered")}
    return SECTION.format(
        bound=BOUND,
        broken=violations(promised(lines), BOUND),
        worst=worst(promised(lines)),
        unpromised=worst([line for line in of["false"] if line.noise not in PROMISED]),
        covered=worst([line for line in of["covered"] if line.noise in PROMISED], least=True),
        effect=EFFECT,
        false_table=table_of_cases(lines, "false", over="spread"),
        plain_table=table_of_cases(lines, "false, plain t", over="spread"),
        covered_table=table_of_cases(lines, "covered", over="spread"),
        power_table=table_of_cases(lines, "power", over="spread"),
        plain_power_table=table_of_cases(lines, "power, plain t", over="spread"),
    )

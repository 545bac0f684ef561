"""The sections of ``reports/validity/README.md`` on intervals, chosen estimates and predicted verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnlab.stats.paired import MIN_SEEDS_FOR_ESTIMATE
from attnlab.stats.power import POWER
from benchmarks.intervals import FAR
from benchmarks.predictions import DECILES, MARGIN
from benchmarks.simulate import MAX_SEEDS, Line
from benchmarks.tables import format_value, markdown, table_of_quantities

SECTIONS = """\
## Intervals of a table together

Share of tables in which all intervals contain their true differences (by far: {far:g} standard deviations of a run, which is
always significant). "Single": 95 % intervals of single comparisons. "Bonferroni": simultaneous intervals. "Simultaneous":
the same, ended at zero where only Holm's method shows a difference, as reports draw them. They agree with all verdicts, and
in exchange cover less: at least {least}.
"Hidden": tables with a single interval that excludes zero beside an inconclusive verdict, where reports name the
simultaneous one, too.

{simultaneous}

## Estimates of differences called better or worse

All cells differ by the same amount, in standard deviations of a run. "Ratio": the mean estimate of the differences that are
called better or worse, divided by the true one; "covered": the share of their 95 % intervals that contain it. Reports mark
such estimates with †.

{chosen}

## Predicted verdicts

Studies of one comparison that are inconclusive, continued with one more seed. In each column the predicted probability of the
verdict lies in this range; the table has the share in which the verdict came about. True differences are normal with a standard
deviation of twice that of the pairs' differences, in half of the studies or in all; the margin is {margin:g} such standard
deviation. If half of the differences are zero, "differs" comes about less often than predicted, "equivalent" more often.
Reports predict no verdict below {few} pairs.

{predictions}

Continued with the number of seeds that is predicted to be conclusive with probability {power} (more than {most} seeds are
not simulated):

{predicted_seeds}
"""


def interval_sections(part: Mapping[str, Sequence[Line]]) -> str:
    """Return the sections; ``part`` maps the name of a part of ``validity.csv`` to its lines."""
    names = ["single", "bonferroni", "simultaneous", "hidden"]
    seeds = ["population", "seeds so far", "median predicted seeds", "conclusive with them"]
    least = min((line for line in part["simultaneous"] if line.quantity == "simultaneous"), key=lambda line: line.value)
    return SECTIONS.format(
        far=FAR,
        least=f"{least.value:.1%} ({least.noise}, {least.case} seeds)",
        simultaneous=table_of_quantities(part["simultaneous"], names, heads=["truth", "seeds", *names]),
        chosen=table_of_quantities(
            part["chosen"], ["chosen", "ratio", "covered"], heads=["noise", "true difference", "called", "ratio", "covered"]
        ),
        margin=MARGIN,
        few=MIN_SEEDS_FOR_ESTIMATE,
        predictions=_prediction_table(part["prediction"]),
        power=f"{100 * POWER:.0f} %",
        most=MAX_SEEDS,
        predicted_seeds=table_of_quantities(part["predicted seeds"], ["seeds", "conclusive"], heads=seeds),
    )


def _prediction_table(lines: Sequence[Line]) -> str:
    """Return a table with a column for each tenth; "" where fewer than 20 predictions lie in it."""
    texts = {(line.noise, line.case, line.quantity): format_value(line) if line.studies >= 20 else "" for line in lines}
    rows = dict.fromkeys((line.noise, line.case) for line in lines)
    body = [[*row, *(texts[(*row, name)] for name in DECILES)] for row in rows]
    return markdown(["true differences", "verdict", *DECILES], body)

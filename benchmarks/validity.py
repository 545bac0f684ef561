"""Simulation of error rates, coverage and power of verdicts: ``python -m benchmarks.validity`` writes ``reports/validity/``.

It takes about 20 minutes on one idle core. Results are written to ``validity.csv`` as they are simulated: run the command
again to continue an interrupted simulation, or to simulate only what is new in `SIMULATIONS`. After a change of the
statistics or of a simulation, ``--only NAME --fresh`` simulates it again.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    estimands,
    factorial,
    fixed_seeds,
    futility,
    intervals,
    items,
    levels,
    looks,
    lost_seeds,
    moderation,
    predictions,
    predictive_validity,
    rules,
    several_studies,
    streams,
    sweeps,
    trends,
)
from benchmarks.results_file import ResultsFile
from benchmarks.simulation import Result, Setting, Simulation, run_setting
from benchmarks.validity_page import write_page

OUT = Path("reports/validity")

# All simulations, in the order of the page.
SIMULATIONS: tuple[Simulation, ...] = (
    moderation.MODERATION,
    several_studies.SEVERAL_STUDIES,
    sweeps.SWEEPS,
    predictive_validity.PREDICTIVE_VALIDITY,
    items.NEW_ITEMS,
    factorial.FACTORIAL,
    lost_seeds.LOST_SEEDS,
    fixed_seeds.FIXED_SEEDS,
    levels.MODERATED_LEVELS,
    looks.UNTIL_CONCLUSIVE,
    moderation.MODERATED_LOOKS,
    looks.BY_HAND,
    futility.FUTILITY_STOPPING,
    levels.MODERATED_SWEEPS,
    trends.TRENDS,
    levels.SWEPT_TRENDS,
    intervals.INTERVALS,
    intervals.CHOSEN_ESTIMATES,
    fixed_seeds.PLANNED_SEEDS,
    predictions.PREDICTIONS,
    predictions.PREDICTED_SEEDS,
    rules.LOOK_RULES,
    streams.STREAMS,
    estimands.EXACT_TESTS,
    estimands.FRAGILE,
)


def read_results(path: Path) -> list[Result]:
    """Return the results in a ``validity.csv``."""
    with path.open(newline="", encoding="utf-8") as file:
        return [_read_row(row) for row in csv.DictReader(file)]


def _read_row(row: Mapping[str, str]) -> Result:
    return Result(
        row["simulation"],
        row["group"],
        row["setting"],
        row["quantity"],
        float(row["value"]),
        float(row["error"]) if row["error"] else None,
        int(row["cases"]),
        int(row["studies"]),
    )


def simulate(
    file: ResultsFile,
    simulations: Sequence[Simulation],
    *,
    studies: int | None = None,
    seed: int = 0,
    only: str = "",
    fresh: bool = False,
) -> list[Result]:
    """Simulate the settings that the file lacks; each is added to the file as soon as it is simulated.

    Args:
        file: Results of earlier calls. Those of settings that no simulation has are removed.
        simulations: All simulations.
        studies: Number of studies of each setting; default: that of its simulation.
        seed: Random seed.
        only: Name of the simulation to run; of others, present results are kept; "": run all of them.
        fresh: Simulate settings again that the file has.

    Returns:
        The results of all simulations, in their order.
    """
    for simulation in simulations:
        for setting in simulation.settings if only in ("", simulation.name) else ():
            rows, number = _rows_of(file, simulation, setting), studies or simulation.studies
            if fresh or not _is_complete(simulation, rows, number):
                file.keep([row for row in file.rows if row not in rows])
                file.append([asdict(result) for result in run_setting(simulation, setting, studies=number, seed=seed)])
    file.keep(
        [row for simulation in simulations for setting in simulation.settings for row in _rows_of(file, simulation, setting)]
    )
    return [_read_row(row) for row in file.rows]


def _rows_of(file: ResultsFile, simulation: Simulation, setting: Setting) -> list[dict[str, str]]:
    key = (simulation.name, setting.group, setting.name)
    return [row for row in file.rows if (row["simulation"], row["group"], row["setting"]) == key]


def _is_complete(simulation: Simulation, rows: Sequence[Mapping[str, str]], studies: int) -> bool:
    """Return True if the rows have each quantity of a simulation with this number of studies."""
    names = [quantity.name for quantity in simulation.quantities]
    return [row["quantity"] for row in rows] == names and {int(row["studies"]) for row in rows} == {studies}


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate what is missing, and write the page."""
    names = [simulation.name for simulation in SIMULATIONS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validity", description="Simulate the validity of verdicts.")
    parser.add_argument("--only", choices=names, default="", metavar="NAME", help=f"run one simulation: {', '.join(names)}")
    parser.add_argument("--studies", type=int, help="studies per setting (default: as each simulation defines)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results (default {OUT})")
    parser.add_argument("--fresh", action="store_true", help="simulate again what was simulated earlier")
    options = parser.parse_args(arguments)
    file = ResultsFile(options.out / "validity.csv", {"seed": options.seed}, fresh=options.fresh and not options.only)
    choice = {"studies": options.studies, "only": options.only, "fresh": options.fresh}
    results = simulate(file, SIMULATIONS, seed=options.seed, **choice)
    print(write_page(options.out, results, SIMULATIONS))


if __name__ == "__main__":
    main()

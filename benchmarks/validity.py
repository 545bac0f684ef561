"""Simulation of error rates, coverage and power of verdicts: ``python -m benchmarks.validity`` writes ``reports/validity/``.

It takes about four minutes on one core with ``--studies 3000``. Results are written to ``validity.csv`` as they are simulated;
run the command again to continue an interrupted simulation, and with ``--fresh`` to start over.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from attnlab.stats.sequential import Looks
from benchmarks import factorial, intervals, moderation, predictions, rules, simulate, sweeps, trends
from benchmarks.moderation_page import moderation_section
from benchmarks.results_file import ResultsFile
from benchmarks.simulate import CELLS, DISTRIBUTIONS, MAX_SEEDS, Line, Share
from benchmarks.validity_page import page

OUT = Path("reports/validity")
SIZES = range(3, 13)
KNOWN = ((1.0, None, 1), (1.5, None, CELLS), (0.0, 1.0, 1), (0.0, 1.0, CELLS), (0.3, 1.0, 1))  # mean, margin, tests
PREDICTED_FROM = (4, 5, 8)  # numbers of seeds
FEW_SIZES = (3, 5, 12)
CHOSEN = (1.0, 2.0, 3.0)  # true differences
# Distribution, first look, true difference and margin of studies with added seeds and moderated t-tests.
MODERATED_LOOKS = (("normal", 2, 0.0, None), ("normal", 3, 0.0, None), ("t3", 3, 0.0, None), ("normal", 3, 2.0, 2.0))


class Simulation(NamedTuple):
    """A simulation whose results are written together.

    Attributes:
        lines: number of lines that ``run`` returns.
        run: simulates.
    """

    lines: int
    run: Callable[[], list[Line]]


def share_line(part: str, noise: str, case: object, quantity: str, share: Share) -> Line:
    return Line(part, noise, str(case), quantity, share.value, share.error, share.of)


def fixed_seeds(noise: str, n: int, studies: int, seed: int) -> list[Line]:
    """Simulate tables of ``n`` seeds: false verdicts, coverage and false equivalence."""
    wrong, covered = simulate.false_verdicts(noise, n, studies=studies, seed=seed + n)
    near = simulate.false_equivalence(noise, n, margin=2.0, studies=studies, seed=seed + 100 + n)
    shares = {"false": wrong, "covered": covered, "false equivalence": near}
    return [share_line("fixed", noise, n, quantity, share) for quantity, share in shares.items()]


def known_power(mean: float, margin: float | None, tests: int, studies: int, seed: int) -> list[Line]:
    """Simulate the power of the computed number of seeds when mean and spread are known."""
    n, kept = simulate.kept_promise(mean, margin=margin, level=0.05 / tests, studies=studies, seed=seed)
    limit = "no margin" if margin is None else f"margin {margin:g}"
    case = f"difference {mean:g}, {limit}, {tests} open in the table: {n} seeds"
    return [share_line("power", "normal", case, "conclusive", kept)]


def predicted_verdicts(population: str, pairs: int, studies: int, seed: int) -> list[Line]:
    """Simulate how often predicted verdicts come about, by tenths of the predicted probability."""
    lines = []
    for verdict, deciles in predictions.calibrate(population, pairs, 1, studies=3 * studies, seed=seed).items():
        case = f"{verdict}, {pairs} seeds"
        for name, decile in zip(predictions.DECILES, deciles, strict=True):
            share = Share(decile.happened * decile.cases, decile.cases)
            error = share.error if decile.cases else None
            lines.append(Line("prediction", population, case, name, decile.happened, error, decile.cases))
    kept, median = predictions.kept_predictions(population, pairs, most=MAX_SEEDS, studies=max(500, studies // 5), seed=seed)
    case = f"{pairs} seeds"
    lines.append(share_line("predicted seeds", population, case, "conclusive", kept))
    return [*lines, Line("predicted seeds", population, case, "seeds", median, None, kept.of)]


def simultaneous(name: str, n: int, studies: int, seed: int) -> list[Line]:
    """Simulate how often all intervals of a table contain the true differences."""
    covered = intervals.covered_together(intervals.EFFECTS[name], n, studies=studies, seed=seed + n)
    return [share_line("simultaneous", name, n, quantity, share) for quantity, share in vars(covered).items()]


def chosen(effect: float, n: int, studies: int, seed: int) -> list[Line]:
    """Simulate the estimates of differences that are called better or worse."""
    estimates = intervals.chosen_estimates(effect, n, studies=studies, seed=seed + n)
    case = f"{effect:g}, {n} seeds"
    return [
        share_line("chosen", "normal", case, "chosen", estimates.chosen),
        Line("chosen", "normal", case, "ratio", estimates.ratio, None, estimates.covered.of),
        share_line("chosen", "normal", case, "covered", estimates.covered),
    ]


def added_seeds(
    noise: str,
    first: int,
    shift: float,
    margin: float | None,
    corrected: bool,
    studies: int,
    seed: int,
    *,
    moderated: bool = False,
) -> list[Line]:
    """Simulate tables whose seeds are added until they are conclusive."""
    options = {"first": first, "last": 12, "shift": shift, "margin": margin, "corrected": corrected, "moderated": moderated}
    outcome = simulate.until_conclusive(noise, **options, studies=studies, seed=seed)
    case = f"{'at the margin' if margin else 'none'}, {first} to 12, {'corrected' if corrected else 'NOT corrected'}"
    case += ", moderated" if moderated else ""
    return [
        share_line("looks", noise, case, "false", outcome.equal if margin else outcome.differ),
        share_line("looks", noise, case, "covered", outcome.covered),
        Line("looks", noise, case, "seeds", outcome.seeds, None, studies),
    ]


def seeds_by_hand(
    noise: str, first: int, shift: float, margin: float | None, corrected: bool, studies: int, seed: int
) -> list[Line]:
    """Simulate tables whose seeds are added by hand, without an announcement, and judged each time."""
    options = {"first": first, "last": 12, "shift": shift, "margin": margin, "corrected": corrected}
    outcome = simulate.added_by_hand(noise, **options, studies=studies, seed=seed)
    case = f"{'at the margin' if margin else 'none'}, {first} to 12, {'corrected' if corrected else 'NOT corrected'}"
    return [
        share_line("by hand", noise, case, "false", outcome.equal if margin else outcome.differ),
        share_line("by hand", noise, case, "covered", outcome.covered),
    ]


def rule_comparison(studies: int, seed: int) -> list[Line]:
    """Compare the candidate rules for repeated looks."""
    lines = []
    for outcome in rules.compare(studies=4 * studies, seed=seed):
        case = f"{outcome.mean:g}{'' if outcome.margin is None else f', margin {outcome.margin:g}'}"
        share = Share(outcome.conclusive * 4 * studies, 4 * studies)
        lines.append(share_line("rules", outcome.rule, case, "conclusive", share))
        lines.append(Line("rules", outcome.rule, case, "seeds", outcome.seeds, None, 4 * studies))
    return lines


def simulations(studies: int, seed: int) -> Iterator[Simulation]:
    """Yield all simulations in the order of ``validity.csv``."""
    for noise in DISTRIBUTIONS:
        for n in SIZES:
            yield Simulation(3, partial(fixed_seeds, noise, n, studies, seed))
    for mean, margin, tests in KNOWN:
        yield Simulation(1, partial(known_power, mean, margin, tests, studies, seed))
    for population, pairs in product(predictions.POPULATIONS, PREDICTED_FROM):
        lines = 2 * len(predictions.DECILES) + 2
        yield Simulation(lines, partial(predicted_verdicts, population, pairs, studies, seed))
    for name, n in product(intervals.EFFECTS, FEW_SIZES):
        yield Simulation(4, partial(simultaneous, name, n, studies, seed))
    for effect, n in product(CHOSEN, FEW_SIZES):
        yield Simulation(3, partial(chosen, effect, n, studies, seed))
    cases: list[tuple[str, int, float, float | None, bool]] = [(noise, 3, 0.0, None, True) for noise in DISTRIBUTIONS]
    cases += [("normal", 5, 0.0, None, True), ("normal", 3, 0.0, None, False)]
    cases += [(noise, 3, 2.0, 2.0, True) for noise in ("normal", "t3")] + [("normal", 3, 2.0, 2.0, False)]
    for case in cases:
        yield Simulation(3, partial(added_seeds, *case, studies, seed))
    yield Simulation(2 * rules.RULES * len(rules.CASES), partial(rule_comparison, studies, seed))
    for setting in factorial.SETTINGS:
        yield Simulation(len(factorial.QUANTITIES), partial(factorial.simulated_lines, setting, max(500, studies // 3), seed))
    for design in sweeps.designs():
        yield Simulation(2, partial(sweeps.simulate_rates, design, max(500, studies // 2), seed))
    for noise in trends.NOISES:
        for n in trends.SIZES:
            yield Simulation(len(trends.CASES), partial(trends.simulated_lines, noise, n, studies, seed))
    cases = [("normal", 5, 0.0, None, True), ("normal", 2, 0.0, None, True), ("t3", 5, 0.0, None, True)]
    cases += [("normal", 5, 2.0, 2.0, True), ("normal", 5, 0.0, None, False)]
    for case in cases:
        yield Simulation(2, partial(seeds_by_hand, *case, studies, seed))
    for noise, first, shift, margin in MODERATED_LOOKS:
        run = partial(added_seeds, noise, first, shift, margin, True, studies, seed, moderated=True)
        yield Simulation(3, run)
    for spreads in moderation.SETTINGS:
        yield Simulation(len(moderation.QUANTITIES), partial(moderation.simulated_lines, spreads, studies, seed))


def simulate_all(results: ResultsFile, studies: int, seed: int) -> list[Line]:
    """Run the simulations whose lines are not in ``results`` yet; return all lines."""
    done = 0
    for simulation in simulations(studies, seed):
        done += simulation.lines
        if done > len(results.rows):
            results.keep(results.rows[: done - simulation.lines])  # drop an incomplete simulation
            results.append([asdict(line) for line in simulation.run()])
    return [read_line(row) for row in results.rows]


def read_line(row: dict[str, str]) -> Line:
    """Return a row of ``validity.csv`` as a ``Line``."""
    error = float(row["error"]) if row["error"] else None
    numbers = float(row["value"]), error, int(row["studies"])
    return Line(row["part"], row["noise"], row["case"], row["quantity"], *numbers)


def report(lines: Sequence[Line], command: str) -> str:
    """Return the text of the page; `command` made the lines."""
    return page(lines, command=command, level=2 * Looks(3, 12).nominal_level(0.025)) + moderation_section(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.validity", description="Simulate the validity of verdicts.")
    parser.add_argument("--studies", type=int, default=10_000, help="tables per setting (default 10000)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the results (default {OUT})")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results and simulate everything again")
    options = parser.parse_args(arguments)
    configuration = {"studies": options.studies, "seed": options.seed}  # the results do not depend on the machine
    results = ResultsFile(options.out / "validity.csv", configuration, fresh=options.fresh)
    lines = simulate_all(results, options.studies, options.seed)
    command = f"python -m benchmarks.validity --studies {options.studies} --seed {options.seed}"
    (options.out / "README.md").write_text(report(lines, command), encoding="utf-8")
    print(options.out / "README.md")


if __name__ == "__main__":
    main()

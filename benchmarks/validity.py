"""Are the verdicts worth what they say? ``python -m benchmarks.validity`` simulates it and writes ``reports/validity/``.

About two minutes of one core. Every number on the page comes from this run.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from attnlab.stats.sequential import Looks
from benchmarks import rules, simulate
from benchmarks.simulate import ABOUT, CELLS, MOST, Share
from benchmarks.validity_page import page

OUT = Path("reports/validity")
SIZES = range(3, 13)
PROMISES = ((1.0, None, 1), (1.5, None, CELLS), (0.0, 1.0, 1), (0.0, 1.0, CELLS), (0.3, 1.0, 1))  # mean, margin, tests
GUESSES = ((1.0, (2, 3, 5, 8)), (0.5, (2, 3, 5)), (0.3, (3, 5)))  # true difference, seeds so far


@dataclass(frozen=True)
class Line:
    """One simulated number; ``error`` is its Monte-Carlo standard error."""

    part: str
    noise: str
    case: str
    quantity: str
    value: float
    error: float | None
    studies: int


def share(part: str, noise: str, case: object, quantity: str, found: Share) -> Line:
    return Line(part, noise, str(case), quantity, found.value, found.error, found.of)


def single_looks(studies: int, seed: int) -> Iterator[Line]:
    """Tables of a fixed number of seeds: false verdicts and coverage."""
    for noise in ABOUT:
        for n in SIZES:
            wrong, covered = simulate.false_verdicts(noise, n, studies=studies, seed=seed + n)
            yield share("fixed", noise, n, "false", wrong)
            yield share("fixed", noise, n, "covered", covered)
            near = simulate.false_equivalence(noise, n, margin=2.0, studies=studies, seed=seed + 100 + n)
            yield share("fixed", noise, n, "false equivalence", near)


def promises(studies: int, seed: int) -> Iterator[Line]:
    """What "about N more seeds" comes to."""
    for mean, margin, tests in PROMISES:
        n, kept = simulate.kept_promise(mean, margin=margin, level=0.05 / tests, studies=studies, seed=seed)
        near = "no margin" if margin is None else f"margin {margin:g}"
        what = f"difference {mean:g}, {near}, {tests} open in the table: {n} seeds"
        yield share("power", "normal", what, "settled", kept)
    for mean, pilot in ((mean, pilot) for mean, pilots in GUESSES for pilot in pilots):
        left, kept, median = simulate.guessed_promise(mean, pilot, most=MOST, studies=max(500, studies // 10), seed=seed)
        case = f"difference {mean:g}, {pilot} seeds"
        yield share("guess", "normal", case, "open", left)
        yield share("guess", "normal", case, "settled", kept)
        yield Line("guess", "normal", case, "seeds named", median, None, kept.of)


def added_seeds(studies: int, seed: int) -> Iterator[Line]:
    """Tables whose seeds are added until they are settled."""
    cases: list[tuple[str, int, float, float | None, bool]] = [(noise, 3, 0.0, None, True) for noise in ABOUT]
    cases += [("normal", 5, 0.0, None, True), ("normal", 3, 0.0, None, False)]
    cases += [(noise, 3, 2.0, 2.0, True) for noise in ("normal", "t3")] + [("normal", 3, 2.0, 2.0, False)]
    for noise, first, shift, margin, corrected in cases:
        how = {"first": first, "last": 12, "shift": shift, "margin": margin, "corrected": corrected}
        found = simulate.until_conclusive(noise, **how, studies=studies, seed=seed)
        case = f"{'at the margin' if margin else 'none'}, {first} to 12, {'corrected' if corrected else 'NOT corrected'}"
        yield share("looks", noise, case, "false", found.equal if margin else found.differ)
        yield share("looks", noise, case, "covered", found.covered)
        yield Line("looks", noise, case, "seeds", found.seeds, None, studies)


def compared(studies: int, seed: int) -> Iterator[Line]:
    """The candidates for the rule."""
    for each in rules.compare(studies=4 * studies, seed=seed):
        case = f"{each.mean:g}{'' if each.margin is None else f', margin {each.margin:g}'}"
        yield share("rules", each.rule, case, "settled", Share(each.settled * 4 * studies, 4 * studies))
        yield Line("rules", each.rule, case, "seeds", each.seeds, None, 4 * studies)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=10_000, help="tables a setting (default 10000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    parts: list[Callable[[int, int], Iterator[Line]]] = [single_looks, promises, added_seeds, compared]
    lines = [line for part in parts for line in part(given.studies, given.seed)]
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "validity.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Line)])
        writer.writeheader()
        writer.writerows(asdict(line) for line in lines)
    command = f"python -m benchmarks.validity --studies {given.studies} --seed {given.seed}"
    (given.out / "README.md").write_text(page(lines, command=command, level=2 * Looks(3, 12).nominal(0.025)))
    print(given.out / "README.md")


if __name__ == "__main__":
    main()

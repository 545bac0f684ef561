"""The history of a study's looks: at which numbers of seeds its comparisons were judged, and when.

A table or page that shows verdicts is a look at the study, at the largest number of seeds of a compared cell. A table with no
more seeds than an earlier one is no new look. All looks at a study count for each of its comparisons, also for those that it
did not have at the time and under another metric, baseline or margin: this can only make a verdict more cautious. Only a
comparison that had fewer pairs than the study had seeds (because a seed diverged, or because seeds were added to other cells)
has separate looks.

A look counts for verdicts on the runs that it has seen: it is forgotten once all runs of the study are newer, because their
configuration was changed. Runs that are trained again do not become newer by that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from attnlab.stats.compare import CellSummary, ComparisonSpec, comparisons
from attnlab.stats.predict import Futility
from attnlab.stats.records import comparison_name
from attnlab.stats.sequential import Looks

TimedLooks = tuple[tuple[int, int], ...]  # number of seeds and time of each look, both increasing


@dataclass(frozen=True)
class LookHistory:
    """The looks at a study. Times are in milliseconds since the epoch.

    Attributes:
        announced: First and last number of seeds of the looks that were announced before the first one, and the time of the
            announcement (0 when it is unknown); None when none were.
        study: The other looks, at increasing numbers of seeds.
        own: Name of a comparison (`comparison_name`) -> its looks, which replace `study`.
        futile: Name of a comparison -> its futility at a look after which it received no more seeds, and the time.
    """

    announced: tuple[int, int, int] | None = None
    study: TimedLooks = ()
    own: Mapping[str, TimedLooks] = field(default_factory=dict)
    futile: Mapping[str, tuple[Futility, int]] = field(default_factory=dict)

    @property
    def latest(self) -> int:
        """The largest number of seeds at which the study was judged or may be judged without a further look; else 0."""
        return max([0, *(self.announced or ())[1:2], *(seeds for seeds, _ in self.study)])

    @property
    def looks(self) -> Looks | None:
        """The looks that the study's verdicts are corrected for; None before the first one."""
        return self._looks(self.study)

    def apply(self, spec: ComparisonSpec) -> ComparisonSpec:
        """Return the specification of the study's comparison with these looks."""
        own = {name: looks for name, timed in self.own.items() if (looks := self._looks(timed))}
        futile = {name: futility for name, (futility, _) in self.futile.items()}
        return replace(spec, looks=self.looks, own_looks=own, futile=futile)

    def since(self, start: int | None) -> LookHistory:
        """Return the looks that have seen a present run, without those at no more seeds than an earlier one of them.

        Args:
            start: Start of the earliest present run; None: there is none.
        """
        if start is None:
            return LookHistory()
        announced = self.announced if self.announced and self.announced[2] > start else None
        own = {name: kept for name, timed in self.own.items() if (kept := _since(timed, start))}
        futile = {name: (futility, time) for name, (futility, time) in self.futile.items() if time > start}
        return LookHistory(announced, _since(self.study, start), own, futile)

    def announce(self, first: int, last: int, *, time: int) -> LookHistory:
        """Return this history with announced looks, unless the study has a look: a later announcement changes nothing."""
        return replace(self, announced=(first, last, time)) if self.looks is None else self

    def add(self, cells: Sequence[CellSummary], *, time: int, effects: bool = False) -> LookHistory:
        """Return this history after a look at a table; unchanged if it shows nothing that was not judged before.

        Args:
            cells: Summaries of the table; those with fewer than two pairs are not judged.
            time: Of the look.
            effects: The table also judges effects that are estimated from all of its cells (of a factorial study).
        """
        last_announced = self.announced[1] if self.announced else 0
        pairs = {
            comparison_name(cell.name, cell.baseline): cell.difference.interval.n
            for cell in comparisons(cells)
            if cell.difference is not None and cell.difference.interval.n > 1
        }
        compared = [cell for cell in comparisons(cells) if cell.difference is not None or effects]
        names = {name for cell in compared for name in (cell.name, cell.baseline)}
        seeds = max([0, *(cell.seeds for cell in cells if cell.name in names)])
        if seeds < max([2, *(number for number, _ in self.study)]) or not (pairs or effects):
            return self
        study = (*self.study, (seeds, time)) if seeds > self.latest else self.study
        own = dict(self.own)
        for name, n in pairs.items():
            if n <= last_announced:
                continue
            if name not in own and n not in [number for number, _ in study]:  # it has fewer pairs than the study has seeds
                own[name] = tuple(look for look in self.study if look[0] < n)
            if name in own and n > max([0, *(number for number, _ in own[name])]):
                own[name] = (*own[name], (n, time))
        return replace(self, study=study, own=own)

    def stop(self, futile: Mapping[str, Futility], *, time: int) -> LookHistory:
        """Return this history with comparisons that receive no more seeds; unchanged if they were recorded as futile before."""
        new = {name: (futility, time) for name, futility in futile.items() if self.futile.get(name, (None,))[0] != futility}
        return replace(self, futile={**self.futile, **new}) if new else self

    def _looks(self, timed: TimedLooks) -> Looks | None:
        numbers = [seeds for seeds, _ in timed]
        if self.announced is not None:
            first, last, _ = self.announced
            return Looks(first, last, tuple(n for n in numbers if n > last))
        return Looks(numbers[0], numbers[0], tuple(numbers[1:])) if numbers else None


def _since(timed: TimedLooks, start: int) -> TimedLooks:
    kept: list[tuple[int, int]] = []
    for seeds, time in timed:
        if time > start and seeds > max([0, *(number for number, _ in kept)]):
            kept.append((seeds, time))
    return tuple(kept)

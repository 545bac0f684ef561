"""Which plots a study gets: differences, every seed, learning curves, what it costs, two axes as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from attnlab._util import cost_metrics
from attnlab._util.colors import BUILT_IN, color_of
from attnlab.report.plots.curves import Dots, dots
from attnlab.report.plots.forest import Effect, forest
from attnlab.report.plots.heat import heat
from attnlab.report.plots.learning import CROWD, learning
from attnlab.report.plots.tradeoff import Spot, tradeoff
from attnlab.stats.compare import Question, Row, gap

if TYPE_CHECKING:
    import pandas

MOST_HEATS = 6
FILLED = 0.5  # of a heat map's squares; below that a table says it better


@dataclass(frozen=True)
class Figure:
    """One plot: its file name, what it shows, the SVG, and the section it belongs to: effects, learning, cost or grid."""

    file: str
    title: str
    svg: str
    section: str


def cell_colors(table: Sequence[Row]) -> dict[str, str]:
    """Cell -> colour: its variant's; where all cells have one variant, a colour each."""
    variants = {row.name: str(row.axes.get("variant", "")) for row in table}
    if len(set(variants.values())) > 1:
        return {name: color_of(variant) for name, variant in variants.items()}
    palette = list(BUILT_IN.values())
    return {row.name: palette[i % len(palette)] for i, row in enumerate(table)}


def draw(
    table: Sequence[Row],
    records: Sequence[Mapping[str, Any]],
    points: pandas.DataFrame,
    *,
    question: Question,
) -> list[Figure]:
    """Draw what there is to draw; a study without a completed run gets curves at most."""
    colors = cell_colors(table)
    found = _effects(table, question, colors) + _seeds(table, question, colors)
    for file, title, svg in learning(table, records, points, question=question, colors=colors):
        found.append(Figure(f"{file}.svg", title, svg, "learning"))
    return found + _costs(table, question, colors) + _heats(table, question)


def better(question: Question) -> str:
    """ "lower is better", or higher."""
    return "lower is better" if question.direction == "min" else "higher is better"


def _effects(table: Sequence[Row], question: Question, colors: Mapping[str, str]) -> list[Figure]:
    by_name = {row.name: row for row in table}
    effects = []
    for row in table:
        if row.difference is not None:
            seen, base = row.difference.interval, by_name[row.baseline].values
            values = [value - base[seed] for seed, value in row.values.items() if seed in base]
            effects.append(Effect(row.name, colors[row.name], values, seen.mean, seen.low, seen.high, gap(row)))
    if not effects:
        return []
    names = {row.baseline for row in table if row.baseline}
    title = f"difference in {question.metric} from {names.pop() if len(names) == 1 else 'the baseline'}"
    note = "mean, 95 % interval; rings: each seed"
    note += "" if question.margin is None else f"; blue: margin ±{question.margin:g}"
    svg = forest(effects, title=title, note=note, direction=question.direction, margin=question.margin)
    return [Figure("forest.svg", title, svg, "effects")]


def _seeds(table: Sequence[Row], question: Question, colors: Mapping[str, str]) -> list[Figure]:
    done = [row for row in table if row.value is not None]
    if not done:
        return []
    rows = [Dots(r.name, colors[r.name], r.values, r.value.mean, r.value.low, r.value.high) for r in done if r.value]
    joined = 1 < len(done) <= CROWD and any(r.difference for r in done) and max(len(r.values) for r in done) > 1
    title = f"{question.metric}, every seed"
    bars = "; bar: 95 % interval" if any(row.low is not None for row in rows) else ""
    note = f"{better(question)}{bars}{'; thin lines join one seed' if joined else ''}"
    return [Figure("seeds.svg", title, dots(rows, title=title, note=note, joined=joined), "effects")]


def _costs(table: Sequence[Row], question: Question, colors: Mapping[str, str]) -> list[Figure]:
    """Draw the metric against each cost that has a trade-off plot and that at least two cells have."""
    done = [row for row in table if row.value is not None]
    found = []
    for cost in _plotted(done):
        spots = []
        for row in done:
            if row.value is not None and cost.name in row.costs:
                v, mean, ends = row.value, row.costs[cost.name].mean, row.ranges.get(cost.name)
                spots.append(Spot(row.name, colors[row.name], mean, v.mean, v.low, v.high, ends))
        if len(spots) < 2:
            continue
        title = f"{question.metric} against {cost.heading}"
        cheap, best = ("min", "left") if cost.better == "lower" else ("max", "right")
        note = f"{'lower' if question.direction == 'min' else 'upper'} {best} is better; ringed: Pareto front"
        names, how = (cost.heading, question.metric), {"direction": question.direction, "cheap": cheap}
        svg = tradeoff(spots, title=title, note=note, names=names, foot=_foot(spots), **how)
        found.append(Figure(f"{cost.name}.svg", title, svg, "cost"))
    return found


def _plotted(done: Sequence[Row]) -> list[cost_metrics.CostMetric]:
    """Return one cost metric per trade-off plot: the first that all cells have, else the first that any has."""
    plots: dict[str, list[cost_metrics.CostMetric]] = {}
    for metric in cost_metrics.COST_METRICS:
        if metric.plot and any(metric.name in row.costs for row in done):
            plots.setdefault(metric.plot, []).append(metric)
    return [
        next((metric for metric in metrics if all(metric.name in row.costs for row in done)), metrics[0])
        for metrics in plots.values()
    ]


def _foot(spots: Sequence[Spot]) -> list[str]:
    """Explain the bars of a trade-off plot, and the rings where the cost is measured."""
    bar = "upright bar: 95 % interval"
    if any(spot.costs for spot in spots):
        return [f"{bar}; level: lowest to highest seed", "ringed unless another is as good and cheaper in every seed"]
    return [bar] if any(spot.low is not None for spot in spots) else []


def _heats(table: Sequence[Row], question: Question) -> list[Figure]:
    """The two axes with most values against each other; one heat map for each setting of the others."""
    seen = {axis: list(dict.fromkeys(row.axes[axis] for row in table)) for axis in question.axes}
    ranked = sorted((axis for axis in seen if len(seen[axis]) > 1), key=lambda axis: -len(seen[axis]))
    means = [row.value.mean for row in table if row.value is not None]
    if len(ranked) < 2 or not means:
        return []
    down, over, *others = ranked
    found = []
    for setting in product(*(seen[axis] for axis in others)):
        panel = [row for row in table if tuple(row.axes[axis] for axis in others) == setting]
        values = {(r.axes[down], r.axes[over]): r.value.mean if r.value else r.outcome for r in panel}
        rows, columns = ([v for v in seen[axis] if any(r.axes[axis] == v for r in panel)] for axis in (down, over))
        if len(rows) < 2 or len(columns) < 2 or len(values) < FILLED * len(rows) * len(columns):
            continue
        where = ", ".join(f"{axis.rpartition('.')[2]} {value}" for axis, value in zip(others, setting, strict=True))
        title = f"{question.metric}{f', {where}' if where else ''}"
        note = f"{down} down, {over} across; darker is better"
        span = (min(means), max(means))
        svg = heat(values, rows=rows, columns=columns, title=title, note=note, direction=question.direction, span=span)
        found.append(Figure(f"heat-{len(found)}.svg", title, svg, "grid"))
    return found[:MOST_HEATS]

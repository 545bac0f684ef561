"""A half-normal plot: the sizes of effects against the sizes that effects of these ranks have if none is real (Daniel 1959)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from attnlab.report.plots import svg

HEIGHT, TOP, LEFT, BOTTOM = 310, 62, 52, 40
MEDIAN_SCORE = 0.6745  # of a half-normal variable


@dataclass(frozen=True)
class EffectPoint:
    """An effect: its size, its half-normal score, and whether it is conclusive, which fills its mark."""

    label: str
    color: str
    size: float
    score: float
    is_conclusive: bool = False


def half_normal_plot(
    points: Sequence[EffectPoint], *, title: str, note: str = "", axis_labels: tuple[str, str] = ("", "")
) -> str:
    """Draw effects with a line through the origin that fits the median effect; real effects lie above it.

    Args:
        points: In ascending order of size.
        title: Text above the plot.
        note: Line below the title.
        axis_labels: Of the horizontal and the vertical axis.
    """
    top_score = 1.08 * max(point.score for point in points)
    top_size = 1.12 * max(point.size for point in points) or 1.0
    x = svg.scale((0, top_score), (LEFT, svg.WIDTH - 8))
    y = svg.scale((0, top_size), (HEIGHT - BOTTOM, TOP))
    parts = svg.header(title, note)
    parts += svg.y_axis(y, (0, top_size), left=LEFT, right=svg.WIDTH)
    parts += svg.x_axis(x, (0, top_score), bands=[(TOP, HEIGHT - BOTTOM)], bottom=HEIGHT - BOTTOM)
    parts.append(svg.text(svg.WIDTH, HEIGHT - 6, axis_labels[0], size=12, anchor="end", fill=svg.FAINT))
    parts.append(svg.text(LEFT + 4, TOP - 6, axis_labels[1], size=12, fill=svg.FAINT))
    slope = median(point.size for point in points) / MEDIAN_SCORE
    end = min(top_score, top_size / slope) if slope else top_score
    parts.append(svg.line((x(0), y(0)), (x(end), y(slope * end)), svg.FAINT, width=1.2, dash="5 4"))
    for point in points:
        place = (x(point.score), y(point.size))
        if not point.is_conclusive:
            parts.append(svg.ring(*place, point.color, radius=4))
            continue
        parts.append(svg.dot(*place, point.color, radius=4.5))
        label = svg.truncate(point.label, size=12, width=place[0] - LEFT - 12)
        parts.append(svg.text(place[0] - 9, place[1] + 4, label, size=12, anchor="end", halo=True))
    return svg.document(HEIGHT, title, parts)

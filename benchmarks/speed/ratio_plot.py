"""A plot of ratios on a logarithmic axis with a line at parity: each row is a comparison, with a strip for each device."""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from attnlab._util.colors import PALETTE
from attnlab.report.plots import svg

COLORS = [PALETTE[i] for i in (2, 3, 5, 8)]  # of the devices
SLOWER = PALETTE[1]  # color of the figures below 1
TOP, LABEL, STRIP, GAP = 44, 19, 16, 7  # heights: of the header, of a row's label, of a strip, and below a row
RIGHT = svg.WIDTH - 58  # the figures are right of the axis
WIDE, NARROW = (1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # ticks in a power of ten, of a wide and of a narrow range


def ratio_plot(rows: Mapping[str, Mapping[str, Sequence[float]]], *, title: str) -> str:
    """Draw ratios, one dot per round and a bar at their median, which stands at the right.

    Args:
        rows: label -> device -> the ratios of the rounds.
    """
    devices = list(dict.fromkeys(device for row in rows.values() for device in row))
    colors = {device: COLORS[i % len(COLORS)] for i, device in enumerate(devices)}
    logs = [math.log(ratio) for row in rows.values() for ratios in row.values() for ratio in ratios]
    limits = svg.padded_limits([0.0, *logs])
    x = svg.scale(limits, (8, RIGHT - 8))
    top, legend = TOP, []
    for device in devices if len(devices) > 1 else []:
        legend += [svg.dot(6, top + 2, colors[device]), svg.text(16, top + 6, svg.truncate(device, size=12.5), size=12.5)]
        top += 20
    # Lay out the rows: a label, and below it a strip for each device.
    strips, bands, labels = [], [], []
    y = top
    for label, row in rows.items():
        labels.append(svg.text(0, y + 14, svg.truncate(label, size=13), size=13))
        strips += [(y + LABEL + STRIP * (i + 0.5), device, ratios) for i, (device, ratios) in enumerate(row.items())]
        bands.append((y + LABEL, y + LABEL + STRIP * len(row)))
        y = bands[-1][1] + GAP
    axis = []
    for tick in _ticks(*limits):
        axis += svg.vertical_lines(x(math.log(tick)), bands, svg.GRID, width=1)
        axis.append(svg.text(x(math.log(tick)), y + 12, svg.tick_label(tick), size=12, anchor="middle", fill=svg.FAINT))
    marks = []
    for height, device, ratios in strips:
        middle = median(ratios)
        place, color = x(math.log(middle)), SLOWER if middle < 1 else svg.INK
        marks.append(svg.line((place, height - 7), (place, height + 7), colors[device], width=2.5))
        marks += [svg.dot(x(math.log(ratio)), height, colors[device], radius=3.2) for ratio in ratios]
        shown = f"{middle:.2f}" + (" slower" if middle < 1 else "")
        marks.append(svg.text(svg.WIDTH, height + 4, shown, size=12, anchor="end", fill=color))
    parity = svg.vertical_lines(x(0.0), bands, svg.INK, width=1.6)
    note = "times as fast; a dot per round, bar: median, line: parity"
    return svg.document(y + 22, title, [*svg.header(title, note), *legend, *axis, *parity, *labels, *marks])


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers whose logarithms are between ``low`` and ``high``."""
    multiples = WIDE if high - low > math.log(4) else NARROW
    return [m * 10.0**p for p in range(-4, 5) for m in multiples if low <= math.log(m * 10.0**p) <= high]

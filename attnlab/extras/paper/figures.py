"""The plots of the page as PDF, each as wide as a column of a paper.

matplotlib places the shapes and embeds the fonts; the drawing is the same as on the page. The files have no dates, so that the
same study gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from attnlab.report.plots.svg import WIDTH, parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMN, GAP = 3.25, 0.25  # inches: the width of a plot, and the distance of two plots
MAX_HEIGHT = 8.5  # inches
POINTS = 72 * COLUMN / WIDTH  # of one unit of a plot
STYLE: Any = {
    "axes.unicode_minus": True,
    "font.family": ["STIXGeneral", "DejaVu Sans"],  # both come with matplotlib
    "lines.scale_dashes": False,
    "lines.solid_capstyle": "butt",
    "pdf.compression": 6,
    "pdf.fonttype": 42,  # TrueType
    "text.parse_math": False,  # a $ in a name is a dollar
}
ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def height_of(svg: str) -> float:
    """Return the height of a plot in inches."""
    return float(parse(svg).get("height", 0)) * POINTS / 72


def pages_of(plots: Sequence[str]) -> list[list[str]]:
    """Return plots that share a figure in groups that fit on a page; an empty group for a plot that is too high."""
    if len(plots) == 1:
        return [[*plots] if height_of(plots[0]) <= MAX_HEIGHT else []]
    most = 2 * max(1, int(MAX_HEIGHT / max(map(height_of, plots))))
    return [[*plots[i : i + most]] for i in range(0, len(plots), most)]


def write_pdf(path: Path, plots: Sequence[str]) -> None:
    """Write plots of the page as one PDF: a single plot one column wide, several ones side by side in two columns."""
    import warnings

    import matplotlib.figure

    rows = [plots[i : i + 2] for i in range(0, len(plots), 2)]
    heights = [max(map(height_of, row)) for row in rows]
    width, height = (COLUMN if len(plots) == 1 else 2 * COLUMN + GAP), sum(heights)
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # boxes stand for names in a script that neither font has
        figure, top = matplotlib.figure.Figure(figsize=(width, height)), height
        for row, tallest in zip(rows, heights, strict=True):
            for i, svg in enumerate(row):
                own = height_of(svg)
                place = (i * (COLUMN + GAP) / width, (top - own) / height, COLUMN / width, own / height)
                _draw(figure.add_axes(place), parse(svg))
            top -= tallest
        figure.savefig(path, format="pdf", metadata={"CreationDate": None, "Creator": "attnlab"})


def _draw(axes: Axes, root: ElementTree.Element) -> None:
    axes.set(xlim=(0, WIDTH), ylim=(float(root.get("height", 0)), 0))
    axes.axis("off")
    clips = {}
    for element in root.iter():
        if _tag(element) == "clipPath":
            clips[f"url(#{element.get('id')})"] = [_number(element[0], name) for name in ("x", "y", "width", "height")]
    for element in root:
        if _tag(element) == "g":
            for child in element:
                _add(axes, child, clip=clips[element.get("clip-path", "")])
        elif element.get("width") != "100%":  # the paper is white
            _add(axes, element)


def _add(axes: Axes, element: ElementTree.Element, *, clip: Sequence[float] | None = None) -> None:
    """Add a shape to the axes, cut at a rectangle (left, top, width, height) if there is one."""
    from matplotlib.patches import Rectangle

    artist = _artist(element)
    if artist is not None:
        artist.set(clip_on=clip is not None, zorder=len(axes.get_children()))  # in the order of the plot
        axes.add_artist(artist)
        if clip is not None:
            left, top, width, height = clip
            artist.set_clip_path(Rectangle((left, top), width, height, transform=axes.transData))


def _artist(element: ElementTree.Element) -> Any:
    """Return a shape of a plot (`attnlab.report.plots.svg`) as an artist; None for an element that draws nothing."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Polygon, Rectangle

    get = element.get
    match _tag(element):
        case "line":
            return Line2D(*([_number(element, f"{axis}{i}") for i in (1, 2)] for axis in "xy"), **_stroke(element))
        case "polyline":
            return Line2D(*zip(*_points(element), strict=True), **_stroke(element))
        case "polygon":
            return Polygon(_points(element), **_fill(element))
        case "rect":
            corner = _number(element, "x"), _number(element, "y")
            return Rectangle(corner, _number(element, "width"), _number(element, "height"), **_fill(element))
        case "circle":
            return Circle((_number(element, "cx"), _number(element, "cy")), float(get("r", 0)), **_fill(element))
        case "text":
            return _text(element)
    return None


def _text(element: ElementTree.Element) -> Any:
    from matplotlib.patheffects import withStroke
    from matplotlib.text import Text

    get = element.get
    halo = [withStroke(linewidth=float(get("stroke-width", 0)) * POINTS, foreground=get("stroke"))] if get("stroke") else None
    return Text(
        _number(element, "x"),
        _number(element, "y"),
        element.text or "",
        fontsize=float(get("font-size", 0)) * POINTS,
        color=get("fill"),
        weight=get("font-weight"),
        ha=ANCHORS[get("text-anchor", "start")],
        va="baseline",
        path_effects=halo,
    )


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, math.nan))


def _points(element: ElementTree.Element) -> list[tuple[float, ...]]:
    return [tuple(map(float, point.split(","))) for point in element.get("points", "").split()]


def _stroke(element: ElementTree.Element) -> dict[str, Any]:
    """Return the style of a line."""
    dashes = [float(length) * POINTS for length in element.get("stroke-dasharray", "").split()]
    style = {"color": element.get("stroke"), "linewidth": _number(element, "stroke-width") * POINTS}
    return {**style, "alpha": float(element.get("stroke-opacity", 1)), "linestyle": (0, dashes) if dashes else "-"}


def _fill(element: ElementTree.Element) -> dict[str, Any]:
    """Return the style of an area, with its outline if it has one."""
    from matplotlib.colors import to_rgba

    fill, stroke = element.get("fill", "none"), element.get("stroke", "none")
    face = "none" if fill == "none" else to_rgba(fill, float(element.get("fill-opacity", 1)))
    return {"facecolor": face, "edgecolor": stroke, "linewidth": float(element.get("stroke-width", 0)) * POINTS}

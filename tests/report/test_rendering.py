"""Tests of what a person sees: labels do not overlap, colors have contrast in both modes, tables can be navigated."""

import random
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

from attnlab._util.colors import DARK_PAPER, PALETTE, WHITE, contrast, on_dark, shades
from attnlab.extras.bench.page import growth_plot
from attnlab.report import write
from attnlab.report.figures import cell_colors
from attnlab.report.plots import svg
from attnlab.report.plots.lines import Curve, LengthCurve, curve_plot, length_plot
from attnlab.report.plots.rows import ForestRow, forest_plot
from attnlab.report.plots.scatter import TradeoffPoint, pareto_front, tradeoff_plot
from attnlab.report.plots.svg import spread
from attnlab.stats.compare import summarize_cells
from tests.support.drawings import parse
from tests.support.synthetic import INFO, SPEC, made_up, made_up_search

SVG = "{http://www.w3.org/2000/svg}"
GRAPHICS, TEXT = 3.0, 4.5  # least contrast, WCAG 2.2


@dataclass(frozen=True)
class Box:
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box", *, slack: float = 1.0) -> bool:
        across = min(self.right, other.right) - max(self.left, other.left)
        down = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > slack and down > slack


def _boxes(drawing: str) -> list[Box]:
    """Return the boxes of a drawing's texts, from their font size and number of letters."""
    boxes = []
    for element in parse(drawing).iter(f"{SVG}text"):
        size, x, y = (float(element.attrib[name]) for name in ("font-size", "x", "y"))
        text = element.text or ""
        width = svg.LETTER * size * len(text)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[element.attrib.get("text-anchor", "start")]
        boxes.append(Box(text, left, y - 0.75 * size, left + width, y + 0.2 * size))
    return boxes


def _zero_lines(drawing: str) -> list[Box]:
    lines = [line.attrib for line in parse(drawing).iter(f"{SVG}line") if line.attrib["stroke"] == svg.INK]
    return [
        Box("", float(a["x1"]) - 2, float(a["y1"]), float(a["x2"]) + 2, float(a["y2"])) for a in lines if a["x1"] == a["x2"]
    ]


def _overlaps(drawing: str) -> list[tuple[str, str]]:
    boxes = _boxes(drawing)
    covered = [(a.text, b.text) for a, b in combinations(boxes, 2) if a.overlaps(b)]
    return covered + [(box.text, "zero line") for box in boxes for line in _zero_lines(drawing) if box.overlaps(line, slack=0)]


@pytest.mark.parametrize("values", [(5e-324, 1e-323), (1e-310, 3e-310), (1e-15, 3e-15), (0.0, 0.0), (0.1, 0.3), (-1e69, 1e69)])
def test_ticks_of_any_range_are_distinct_and_inside(values: tuple[float, float]) -> None:
    low, high = svg.padded_limits(values)
    ticks = svg.ticks(low, high)
    assert 3 <= len(set(ticks)) == len(ticks) and low <= min(ticks) and max(ticks) <= high


def test_the_measure_of_overlaps_sees_one() -> None:
    assert _overlaps(svg.document(50, "t", [svg.text(10, 20, "one"), svg.text(20, 24, "two")])) == [("one", "two")]
    crossed = svg.document(50, "t", [svg.text(10, 20, "crossed"), svg.line((30, 0), (30, 50), svg.INK, width=1)])
    assert _overlaps(crossed) == [("crossed", "zero line")]


def test_control_characters_do_not_break_a_drawing() -> None:
    name = "a\x1b[31m\u202eb"
    drawing = tradeoff_plot(
        [TradeoffPoint(name, "#000000", 1, 1)] * 2, title=name, direction="min", cost_direction="min", axis_labels=("a", "b")
    )
    assert ET.fromstring(drawing).attrib["aria-label"] == r"a\x1b[31m\u202eb" and "\x1b" not in drawing


@pytest.mark.parametrize("seeds", [1, 2, 3])
@pytest.mark.parametrize("search", [False, True])
def test_no_label_of_a_page_is_struck_through_or_covered(seeds: int, search: bool, tmp_path: Path) -> None:
    runs, points = made_up_search() if search else made_up(seeds=seeds)
    write.write(tmp_path, info=INFO, runs=runs, curves=points)
    drawings = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert len(drawings) > 3
    assert {name: _overlaps(drawing) for name, drawing in drawings.items() if _overlaps(drawing)} == {}


@pytest.mark.parametrize("direction", ["min", "max"])
@pytest.mark.parametrize("sign", [-1, 1])
def test_no_figure_of_a_forest_is_struck_through(direction: str, sign: int) -> None:
    rows = [
        ForestRow(
            f"a cell with a long name {i}",
            "#000000",
            [sign * m],
            sign * m,
            sign * m - 0.01,
            sign * m + 0.01,
            "-0.1234 ± 0.0100",
        )
        for i, m in enumerate((0.01, 0.1, 0.2, 0.25))
    ]
    drawing = forest_plot(rows, title="t", direction=direction, margin=0.02)
    assert len(_zero_lines(drawing)) == len(rows) and _overlaps(drawing) == []


@pytest.mark.parametrize("seed", range(20))
def test_labels_of_crowded_plots_do_not_overlap(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"variant_{i} option={draw.randint(1, 10 ** draw.randint(1, 9))} position" for i in range(draw.randint(2, 24))]
    places = [(draw.choice([10.0, draw.random() * 20_000]), draw.choice([2.0, 2 + draw.random()])) for _ in names]
    points = [TradeoffPoint(name, "#000000", *place) for name, place in zip(names, places, strict=True)]
    drawing = tradeoff_plot(points, title="t", direction="min", cost_direction="min", axis_labels=("cost", "metric"))
    assert _overlaps(drawing) == [] and all(box.left >= 0 and box.right <= svg.WIDTH for box in _boxes(drawing))
    curves = [Curve(name, "#000000", [(0, 3.0), (100, value)]) for name, (_, value) in zip(names, places, strict=True)]
    assert _overlaps(curve_plot(curves, title="t")) == []


@pytest.mark.parametrize("trained", [64, 256, 4096])
def test_labels_of_lengths_and_growth_do_not_overlap(trained: int) -> None:
    lengths = [64, 96, 128, 256, 300, 1024, 4096]
    names = [f"strided_sparse stride={n} rotary" for n in range(5)]
    by_length = [LengthCurve(name, "#000000", trained=trained, values={n: [2.0, 2.1] for n in lengths}) for name in names]
    assert _overlaps(length_plot(by_length, title="t", note="n", limits=(1.0, 3.0))) == []
    growth = [Curve(name, "#000000", [(n, n**1.5) for n in lengths]) for name in names]
    assert _overlaps(growth_plot(growth, title="t", note="n")) == []


@pytest.mark.parametrize("seed", range(50))
def test_spread_keeps_order_limits_and_distances(seed: int) -> None:
    draw = random.Random(seed)
    heights = [draw.uniform(5, 30) for _ in range(draw.randint(1, 12))]
    placed = spread(sorted(draw.uniform(-50, 300) for _ in heights), heights, 0, 400)
    assert placed[0] >= -1e-9 and placed[-1] + heights[-1] <= 400 + 1e-9
    assert all(a + h <= b + 1e-9 for a, h, b in zip(placed, heights, placed[1:], strict=False))


@pytest.mark.parametrize("seed", range(30))
def test_the_pareto_front_is_that_of_brute_force(seed: int) -> None:
    draw = random.Random(seed)
    direction, cost_direction = draw.choice(["min", "max"]), draw.choice(["min", "max"])
    points = [
        TradeoffPoint(
            "p", "#000000", draw.randint(0, 5), draw.randint(0, 5), cost_range=(draw.uniform(-5, 0), draw.uniform(5, 9))
        )
        for _ in range(draw.randint(1, 12))
    ]
    front = pareto_front(points, direction=direction, cost_direction=cost_direction)
    signs = (1 if direction == "min" else -1), (1 if cost_direction == "min" else -1)
    losses = [(signs[0] * p.value, signs[1] * p.cost) for p in points]
    expected = {i for i, (v, c) in enumerate(losses) if not any((w, d) != (v, c) and w <= v and d <= c for w, d in losses)}
    assert set(front) == expected
    for i, j in combinations(front, 2):  # no ring around a cell that is worse and more expensive
        assert not (losses[i][0] < losses[j][0] and losses[i][1] < losses[j][1])


@pytest.mark.parametrize("color", PALETTE)
def test_colors_are_visible_on_both_papers(color: str) -> None:
    for shade in (color, *shades(color, 6)):
        assert contrast(shade, WHITE) >= GRAPHICS and contrast(on_dark(shade), DARK_PAPER) >= 5


def test_text_is_legible_on_both_papers() -> None:
    for color in (svg.INK, svg.FAINT):
        assert contrast(color, svg.PAPER) >= TEXT and contrast(svg.DARK[color], svg.DARK[svg.PAPER]) >= TEXT
    style = (Path(write.__file__).parent / "templates" / "style.css.j2").read_text()
    for block in (style.split("@media")[0], style.split("@media")[1]):
        colors = dict(re.findall(r"--(\w+): (#\w+)", block))
        full = {name: "#" + "".join(2 * c for c in value[1:]) if len(value) == 4 else value for name, value in colors.items()}
        for ink in ("ink", "faint", "accent"):
            for paper in ("paper", "shade", "base", "answer"):
                assert contrast(full[ink].upper(), full[paper].upper()) >= TEXT, (ink, paper)
    assert full["paper"].upper() == DARK_PAPER


def test_every_color_of_a_drawing_has_one_for_dark_mode(tmp_path: Path) -> None:
    runs, points = made_up()
    write.write(tmp_path, info=INFO, runs=runs, curves=points)
    for path in tmp_path.glob("*.svg"):
        style, _, body = path.read_text().partition("</style>")
        for element in re.findall(r"<(?!/)[^>]+>", body):
            for attribute, color in re.findall(r'(fill|stroke)="(#\w+)"', element):
                assert f'[{attribute}="{color}"]' in style, (path.name, element)


@pytest.mark.parametrize("n", [1, 2, 5, 10])
def test_every_cell_has_its_own_color(n: int) -> None:
    records = [
        {"variant": variant, "position": str(i), "seed": 0, "state": "completed", "bits_per_byte": 2.0}
        for variant in ("dense", "no_wo")
        for i in range(n)
    ]
    colors = cell_colors(summarize_cells(records, SPEC))
    assert len(colors) == len(set(colors.values())) == 2 * n
    one_variant = cell_colors(summarize_cells(records[:n], SPEC))
    assert len(set(one_variant.values())) == n


def test_curves_of_few_points_have_markers_and_their_number(tmp_path: Path) -> None:
    few = curve_plot([Curve("a", "#000000", [(10, 2.0), (20, 1.0)])], title="t")
    many = curve_plot([Curve("a", "#000000", [(i, 1 / (i + 1)) for i in range(40)])], title="t")
    assert (few.count("<circle"), many.count("<circle")) == (2, 0)
    runs, points = made_up()
    write.write(tmp_path, info=INFO, runs=runs, curves=points.loc[points["step"].isin([40, 200])])
    assert "2 evaluations" in (tmp_path / "valid-bits_per_byte-0.svg").read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    runs, points = made_up()
    write.write(folder, info=INFO, runs=runs, curves=points)
    return (folder / "index.html").read_text()


def test_tables_have_captions_scopes_and_can_be_focused(page: str) -> None:
    tables = re.findall(r'<div class="wide[^>]*>\s*<table.*?</table>', page, re.DOTALL)
    assert len(tables) >= 4
    for table in tables:
        assert 'tabindex="0"' in table and 'role="region"' in table and "<caption>" in table and "<tbody>" in table
        headings, rows = re.findall(r"<th [^>]*scope=\"col\"", table), re.findall(r"<tr[ >]", table)
        assert table.count('scope="row"') == len(rows) - bool(headings)
        assert ("<thead>" in table) == bool(headings)


def test_every_cell_links_to_its_runs(page: str) -> None:
    links = re.findall(r'href="#(runs-\w+)"', page)
    ids = re.findall(r'id="(runs-\w+)"', page)
    assert len(links) == len(set(links)) == 10 and set(links) == set(ids) and len(ids) == len(set(ids))


def test_notes_are_folded_and_the_page_works_without_its_script(page: str) -> None:
    before, _, after = page.partition("<summary>How to read this</summary>")
    assert "Holm's method" not in before.rpartition("Verdicts</h2>")[2] and "Holm&#39;s method" in after
    without = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert page.count("<script>") == 1 and "onclick" not in page and without.count("<table") == page.count("<table")


def test_no_two_labels_are_shortened_to_the_same_text() -> None:
    start = "dense with a component that has a very long name and dim="
    labels = [f"{start}{size}{end}" for size in (16, 160, 64) for end in ("", " depth=2", " depth=3 " + 40 * "x" + "1")]
    labels += [f"{40 * 'a'}{i}" for i in range(12)] + ["short"]
    shown = svg.distinct(labels, lambda label: svg.truncate(label, size=13, width=160))
    assert len(set(shown.values())) == len(labels) and shown["short"] == "short"
    assert all(len(text) <= 160 / (svg.LETTER * 13) for text in shown.values())

"""Attention maps: small images, one per layer, averaged over heads.

The images of an encoder-decoder have the tokens of queries and keys beside them.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from attnlab.report.plots import svg

if TYPE_CHECKING:
    from attnlab.tracking.artifacts import AttentionMap

IMAGES_PER_ROW = 4
MAX_CELLS = 12
PART_NAMES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
GAP = 8
LABELED_PER_ROW = 2
LABEL_WIDTH = 52  # of the tokens beside an image
LABEL_SIZE = 8.0  # largest font size of a token


def draw_maps(maps: Sequence[AttentionMap]) -> list[tuple[str, str, str]]:
    """Return (file name without extension, title, SVG) for each map of the first `MAX_CELLS` cells that have maps."""
    available = [map_ for map_ in maps if not map_.reason]
    cells = list(dict.fromkeys(map_.cell for map_ in available))[:MAX_CELLS]
    drawn = [map_ for map_ in available if map_.cell in cells]
    return [(f"attention-{i}", _title(map_), _draw_map(map_)) for i, map_ in enumerate(drawn)]


def _title(map_: AttentionMap) -> str:
    return f"attention, {map_.cell}{f', {PART_NAMES[map_.part]}' if map_.part else ''}"


def describe_maps(maps: Sequence[AttentionMap]) -> tuple[list[str], list[str]]:
    """Return a paragraph on the images (none without images), and a note for each cell without maps."""
    available = [map_ for map_ in maps if not map_.reason]
    texts = dict.fromkeys("".join(m.words) if _is_bytes(m) else " ".join(m.words) for m in available)
    inputs = "; ".join(f"“{' '.join(text.split())}”" for text in texts)
    paragraph = (
        "Attention weights of trained models for one input of the test split, one image per layer, averaged over heads. Each "
        "row is a query and each column a key, starting in the upper left corner. Darker pixels are larger weights, on a "
        f"square-root scale. Input: {inputs}"
    )
    if any(map_.part for map_ in available):
        paragraph += (
            ". In cross-attention a row is a position of the target, labeled with the token that the decoder reads there (it "
            "predicts the next one), and a column a token of the source"
        )
    notes = [f"{_title(map_).removeprefix('attention, ')}: no maps: {map_.reason}." for map_ in maps if map_.reason]
    return ([paragraph] if texts else []), notes


def _is_bytes(map_: AttentionMap) -> bool:
    """Return True when tokens are bytes rather than words."""
    return all(len(word) <= 1 for word in map_.words)


def _draw_map(map_: AttentionMap) -> str:
    layers, heads = map_.weights.shape[:2]
    title, per_row = _title(map_), LABELED_PER_ROW if map_.part else IMAGES_PER_ROW
    label = LABEL_WIDTH if map_.part else 0
    side = (svg.WIDTH - GAP * (per_row - 1)) / per_row - label
    t, s = map_.weights.shape[2:]
    width, height = side * s / max(t, s), side * t / max(t, s)
    top, parts = 44, svg.header(title, f"{map_.run}; mean of {heads} heads" if heads > 1 else f"{map_.run}; one head")
    row_height = height + label + 22
    for layer in range(layers):
        x = (layer % per_row) * (side + label + GAP) + label
        y = top + (layer // per_row) * row_height
        weights = map_.weights[layer].astype("float32").mean(0)
        place = f'x="{x:.1f}" y="{y + 16 + label:.1f}" width="{width:.1f}" height="{height:.1f}"'
        has_weights = bool((weights == weights).all())  # NaN: a block of a pattern without softmax weights
        heading = f"layer {layer + 1}" if has_weights else f"layer {layer + 1}: no softmax weights"
        parts.append(svg.text(x - label, y + 11, heading, size=11, fill=svg.FAINT))
        if has_weights:
            data = base64.b64encode(_png(weights)).decode()
            parts.append(f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>')
        parts.append(f'<rect {place} fill="none" stroke="{svg.GRID}"/>')
        if map_.part:
            parts += _tokens(map_, x, y + 16 + label, size=side / max(t, s))
    return svg.document(top + -(-layers // per_row) * row_height + 4, title, parts)


def _tokens(map_: AttentionMap, x: float, y: float, *, size: float) -> list[str]:
    """Return the tokens of the queries to the left of an image, and the tokens of the keys above it, from bottom to top.

    Args:
        x, y: the upper left corner of the image.
        size: of one pixel of the image, in units of the drawing.
    """
    font = min(LABEL_SIZE, 0.9 * size)

    def label(word: str, *, anchor: str) -> str:
        short = svg.truncate(word.strip(), size=font, width=LABEL_WIDTH - 4)
        return svg.text(0, font / 3, short, size=font, anchor=anchor, fill=svg.FAINT)

    words = [
        f'<g transform="translate({x - 3:.1f} {y + (i + 0.5) * size:.1f})">{label(word, anchor="end")}</g>'
        for i, word in enumerate(map_.words)
    ]
    return words + [
        f'<g transform="translate({x + (j + 0.5) * size:.1f} {y - 3:.1f}) rotate(-90)">{label(word, anchor="start")}</g>'
        for j, word in enumerate(map_.keys)
    ]


def _png(weights: Any) -> bytes:
    """Encode a matrix as a grayscale PNG with one pixel per entry; the largest entry is black."""
    from PIL import Image

    darkness = (weights / (weights.max() or 1.0)) ** 0.5
    pixels = (255 - 255 * darkness).round().astype("uint8")
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()

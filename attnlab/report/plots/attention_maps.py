"""Attention maps as small images, one per layer, averaged over heads."""

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
GAP = 8


def draw_maps(maps: Sequence[AttentionMap]) -> list[tuple[str, str, str]]:
    """Return (file name without extension, title, SVG) for each of the first `MAX_CELLS` cells that have maps."""
    available = [map_ for map_ in maps if not map_.reason][:MAX_CELLS]
    return [(f"attention-{i}", f"attention, {map_.cell}", _draw_cell(map_)) for i, map_ in enumerate(available)]


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
    notes = [f"{map_.cell}: no maps: {map_.reason}." for map_ in maps if map_.reason]
    return ([paragraph] if texts else []), notes


def _is_bytes(map_: AttentionMap) -> bool:
    """Return True if tokens are bytes rather than words."""
    return all(len(word) <= 1 for word in map_.words)


def _draw_cell(map_: AttentionMap) -> str:
    layers, heads = map_.weights.shape[:2]
    title = f"attention, {map_.cell}"
    side = (svg.WIDTH - GAP * (IMAGES_PER_ROW - 1)) / IMAGES_PER_ROW
    top, parts = 44, svg.header(title, f"{map_.run}; mean of {heads} heads" if heads > 1 else f"{map_.run}; one head")
    for layer in range(layers):
        x = (layer % IMAGES_PER_ROW) * (side + GAP)
        y = top + (layer // IMAGES_PER_ROW) * (side + 22)
        data = base64.b64encode(_png(map_.weights[layer].astype("float32").mean(0))).decode()
        place = f'x="{x:.1f}" y="{y + 16:.1f}" width="{side:.1f}" height="{side:.1f}"'
        parts.append(svg.text(x, y + 11, f"layer {layer + 1}", size=11, fill=svg.FAINT))
        parts.append(f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>')
        parts.append(f'<rect {place} fill="none" stroke="{svg.GRID}"/>')
    return svg.document(top + -(-layers // IMAGES_PER_ROW) * (side + 22) + 4, title, parts)


def _png(weights: Any) -> bytes:
    """Encode a matrix as a grayscale PNG with one pixel per entry; the largest entry is black."""
    from PIL import Image

    darkness = (weights / (weights.max() or 1.0)) ** 0.5
    pixels = (255 - 255 * darkness).round().astype("uint8")
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()

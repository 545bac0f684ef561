"""Attention maps as small pictures: one for each layer of a cell, the mean over its heads."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attnlab.report.plots import svg

if TYPE_CHECKING:
    from attnlab.tracking.artifacts import AttentionMap

A_ROW = 4  # pictures side by side
MOST = 12  # cells
GAP = 8


def drawn(found: Sequence[AttentionMap]) -> list[tuple[str, str, str]]:
    """Each cell's maps as (name of a file, title, SVG)."""
    with_maps = [each for each in found if not each.reason][:MOST]
    return [(f"attention-{i}", f"attention, {each.cell}", _cell(each)) for i, each in enumerate(with_maps)]


def told(found: Sequence[AttentionMap]) -> tuple[list[str], list[str]]:
    """What the pictures show, as a paragraph, and which cells have none and why, as notes."""
    texts = dict.fromkeys("".join(each.words) if _letters(each) else " ".join(each.words) for each in found if not each.reason)
    inputs = "; ".join(f"“{' '.join(text.split())}”" for text in texts)
    paragraph = (
        "What trained models attend to in one input from the test split, a picture a layer, mean over heads: each row is a "
        f"query, each column a key, from the upper left. Darker is more, by the square root of the weight. Input: {inputs}"
    )
    return ([paragraph] if texts else []), [f"{each.cell}: no maps: {each.reason}." for each in found if each.reason]


def _letters(each: AttentionMap) -> bool:
    """Tokens are bytes, not words."""
    return all(len(word) <= 1 for word in each.words)


def _cell(each: AttentionMap) -> str:
    layers, heads = each.weights.shape[:2]
    title = f"attention, {each.cell}"
    side = (svg.WIDTH - GAP * (A_ROW - 1)) / A_ROW
    top, parts = 44, svg.head(title, f"{each.run}; mean of {heads} heads" if heads > 1 else f"{each.run}; one head")
    for layer in range(layers):
        x, y = (layer % A_ROW) * (side + GAP), top + (layer // A_ROW) * (side + 22)
        data = base64.b64encode(_png(each.weights[layer].astype("float32").mean(0))).decode()
        place = f'x="{x:.1f}" y="{y + 16:.1f}" width="{side:.1f}" height="{side:.1f}"'
        parts.append(svg.text(x, y + 11, f"layer {layer + 1}", size=11, fill=svg.FAINT))
        parts.append(f'<image {place} style="image-rendering:pixelated" href="data:image/png;base64,{data}"/>')
        parts.append(f'<rect {place} fill="none" stroke="{svg.GRID}"/>')
    return svg.svg(top + -(-layers // A_ROW) * (side + 22) + 4, title, parts)


def _png(weights: Any) -> bytes:
    """A matrix as a grey picture, a pixel an entry, its largest entry black."""
    dark = (weights / (weights.max() or 1.0)) ** 0.5
    pixels = (255 - 255 * dark).round().astype("uint8")
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each begins with the name of its filter: none
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )

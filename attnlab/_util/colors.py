"""Colors of the cells of a plot, by their rank in it.

The first colors are from Okabe and Ito (2008) and the next from Paul Tol's "muted" scheme, which people with the common kinds
of color blindness can distinguish, then a brown. Light ones are darkened until their contrast with white is at
least 3:1 (WCAG 2.2, 1.4.11).
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from math import ceil

WHITE, DARK_PAPER = "#FFFFFF", "#16181A"  # backgrounds of a page in light and in dark mode
MIN_CONTRAST = 3.1  # of graphics with their background; WCAG requires 3
DARK_CONTRAST = 5.0  # least contrast of graphics on dark paper, where thin lines look thinner
MAX_CONTRAST = 13.0  # of the darkest shade
DARK_SHADE = 7.0  # contrast of the darkest shade of a light color: beyond it, its hue is lost

PALETTE = (
    *("#000000", "#D55E00", "#0072B2", "#009E73", "#C38600", "#CB77A6", "#1D9AE1", "#9F940A"),
    *("#332288", "#AA4499", "#882255", "#117733", "#CC6677", "#8B6B4A"),
)


def colors_of(names: Iterable[str]) -> dict[str, str]:
    """Return the color of each name, "#RRGGBB", by its rank among them; of more names than the palette has, in shades."""
    names = list(dict.fromkeys(names))
    rounds, size = ceil(len(names) / len(PALETTE)), len(PALETTE)
    return {name: shades(PALETTE[i % size], rounds)[i // size] for i, name in enumerate(names)}


def shades(color: str, n: int) -> list[str]:
    """Return n distinct shades of a color, the color itself if n is 1, else from dark to light."""
    if n == 1:
        return [color]
    highest = max(DARK_SHADE, min(MAX_CONTRAST, contrast(color, WHITE)))
    step = (highest / MIN_CONTRAST) ** (1 / (n - 1))
    return [with_contrast(color, highest / step**i) for i in range(n)]


def on_dark(color: str) -> str:
    """Return the color of the same hue that has on dark paper the contrast that ``color`` has on white, at least 5:1."""
    ratio = max(DARK_CONTRAST, min(MAX_CONTRAST, contrast(color, WHITE)))
    return with_contrast(color, ratio, background=DARK_PAPER)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colors, from 1 to 21 (WCAG 2.2, relative luminance)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def with_contrast(color: str, ratio: float, *, background: str = WHITE) -> str:
    """Return the color with another lightness, so that its contrast with a background is at least ``ratio``."""
    hue, _, saturation = colorsys.rgb_to_hls(*_channels(color))
    dark = _luminance(background) < 0.5
    low, high = 0.0, 1.0  # lightness: contrast grows towards 1 on dark paper, towards 0 on white
    for _ in range(20):
        middle = (low + high) / 2
        enough = contrast(_hex(*colorsys.hls_to_rgb(hue, middle, saturation)), background) >= ratio
        low, high = (low, middle) if enough == dark else (middle, high)
    return _hex(*colorsys.hls_to_rgb(hue, high if dark else low, saturation))


def _luminance(color: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(color: str) -> tuple[float, float, float]:
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _hex(*channels: float) -> str:
    return "#" + "".join(f"{round(255 * channel):02X}" for channel in channels)

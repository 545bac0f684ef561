"""Colors of variants, the same in every report and in MLflow (`mlflow.runColor`).

The colors are from Okabe and Ito (2008), which people with the common kinds of color blindness can distinguish,
plus a brown; light ones are darkened until their contrast with white is at least 3:1 (WCAG 2.2,
1.4.11). Variants without attention and the baselines of profiles have colors of Paul Tol's "muted"
scheme, and the control grey; any other variant has one of three muted colors, which depends only on
its name, so that it has the same color in every study.
"""

from __future__ import annotations

import colorsys
import zlib

WHITE, DARK_PAPER = "#FFFFFF", "#16181A"  # backgrounds of a page in light and in dark mode
MIN_CONTRAST = 3.1  # of graphics with their background; WCAG requires 3
DARK_CONTRAST = 5.0  # least contrast of graphics on dark paper, where thin lines look thinner
MAX_CONTRAST = 13.0  # of the darkest shade
DARK_SHADE = 7.0  # contrast of the darkest shade of a light color: beyond it, its hue is lost

BUILT_IN = {
    "dense": "#000000",
    "einsum": "#8B6B4A",
    "no_wo": "#D55E00",
    "transformer_xl": "#0072B2",
    "strided_sparse": "#009E73",
    "fixed_sparse": "#C38600",
    "wide": "#CB77A6",
    "narrow": "#1D9AE1",
    "basic": "#9F940A",
    "gru": "#332288",
    "lstm": "#AA4499",
    "convolution": "#882255",
    "delta": "#117733",
    "linear": "#CC6677",
    "none": "#7A7A7A",
}
OTHERS = ("#41A191", "#969632", "#6296CB")


def color_of(variant: str) -> str:
    """Return "#RRGGBB" for a variant's name or label.

    A label with options (`strided_sparse stride=16`) has a shade of its variant's color, so that two
    configurations of one variant differ but look related. A reference such as `path/cosine.py:Cosine`
    counts as a name.
    """
    name, _, options = variant.strip().partition(" ")
    base = BUILT_IN.get(name) or OTHERS[zlib.crc32(name.encode()) % len(OTHERS)]
    if not options:
        return base
    towards, share = _shade(options, dark=base == BUILT_IN["dense"])
    mixed = _mix(base, towards, share)
    return mixed if contrast(mixed, WHITE) >= MIN_CONTRAST else with_contrast(mixed, MIN_CONTRAST)


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


def _shade(options: str, *, dark: bool) -> tuple[int, float]:
    """Choose the grey level to mix in (0 black, 255 white) and its share, from the text of the options."""
    digest = zlib.crc32(options.encode())
    share = 0.15 + 0.10 * ((digest >> 1) % 4)
    return (255 if dark or digest % 2 else 0), share


def _mix(color: str, towards: int, share: float) -> str:
    return _hex(*(c + (towards / 255 - c) * share for c in _channels(color)))

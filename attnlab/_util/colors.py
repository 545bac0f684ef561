"""Colours of variants, the same in every report and in MLflow (`mlflow.runColor`).

The colours are those of Okabe and Ito (2008), which people with the common kinds of colour blindness can distinguish,
plus a grey. Variants without attention have three of Paul Tol's "muted" colours; a user's variant has one of the remaining
muted colours, which depends only on its name, so that it has the same colour in every study.
"""

from __future__ import annotations

import zlib

BUILT_IN = {
    "dense": "#000000",
    "einsum": "#7F7F7F",
    "no_wo": "#D55E00",
    "transformer_xl": "#0072B2",
    "strided_sparse": "#009E73",
    "fixed_sparse": "#E69F00",
    "wide": "#CC79A7",
    "narrow": "#56B4E9",
    "basic": "#B5A90B",  # Okabe and Ito's yellow, darkened: the original is illegible on white
    "gru": "#332288",
    "lstm": "#AA4499",
    "convolution": "#882255",
}
OTHERS = ("#117733", "#44AA99", "#999933", "#CC6677", "#6699CC")


def color_of(variant: str) -> str:
    """Return "#RRGGBB" for a variant's name or label.

    A label with options (`strided_sparse stride=16`) has a shade of its variant's colour, so that two
    configurations of one variant differ but look related. A reference such as `path/cosine.py:Cosine`
    counts as a name.
    """
    name, _, options = variant.strip().partition(" ")
    base = BUILT_IN.get(name) or OTHERS[zlib.crc32(name.encode()) % len(OTHERS)]
    if not options:
        return base
    towards, share = _shade(options, dark=base == BUILT_IN["dense"])
    return _mix(base, towards, share)


def _shade(options: str, *, dark: bool) -> tuple[int, float]:
    """Choose the grey level to mix in (0 black, 255 white) and its share, from the text of the options."""
    digest = zlib.crc32(options.encode())
    share = 0.15 + 0.10 * ((digest >> 1) % 4)
    return (255 if dark or digest % 2 else 0), share


def _mix(color: str, towards: int, share: float) -> str:
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (towards - c) * share):02X}" for c in channels)

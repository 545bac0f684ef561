"""Text as LaTeX, for pdfLaTeX with the encoding T1."""

from __future__ import annotations

import re

from attnlab._util.printable import escape_controls

CHARACTERS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "²": r"$^2$",
    "³": r"$^3$",
    "→": r"$\rightarrow$",
    "←": r"$\leftarrow$",
    "\u00a0": "~",
}
LIGATURES = re.compile(r"--|''|\?`|!`")  # hyphens and quotes that LaTeX would join
LAST_IN_T1 = "\u017f"  # letters up to here exist in the encoding T1


def escape(text: str) -> str:
    r"""Return text as LaTeX. A character that pdfLaTeX cannot print stands as its code point.

    Example:
        >>> escape("no_wo & 5 % of $x$")
        'no\\_wo \\& 5 \\% of \\$x\\$'
        >>> escape("a\u4e2d")
        'aU+4E2D'
    """
    separated = LIGATURES.sub(lambda match: "\0".join(match[0]), escape_controls(text, keep="\n\t").replace("\0", ""))
    return "".join(map(_character, separated)).replace("\0", "{}")


def _character(character: str) -> str:
    if character in CHARACTERS:
        return CHARACTERS[character]
    return character if character <= LAST_IN_T1 else f"U+{ord(character):04X}"


def breakable(text: str) -> str:
    """Return text as LaTeX that may also be broken after the punctuation inside of names."""
    return re.sub(r"(\\_|[.=/:,+])(?=[A-Za-z])", r"\1\\allowbreak{}", escape(text))


def typeset(text: str) -> str:
    """Return text about statistics as LaTeX: a t in italics, and a thin space before the sign of per cent."""
    return re.sub(r"(\d) \\%", r"\1\\,\\%", re.sub(r"\bt-(?=test|interval)", "$t$-", re.sub(r"\bp:", "$p$:", breakable(text))))


def sentences(*texts: str) -> str:
    """Join sentences that are LaTeX already, without the empty ones."""
    return " ".join(text for text in texts if text)


def label(*parts: str) -> str:
    """Return a label for ``\\ref`` from names of any characters.

    Example:
        >>> label("tab", "my study_1")
        'tab:my-study-1'
    """
    return ":".join(re.sub(r"[^A-Za-z0-9]+", "-", part).strip("-") for part in parts)

"""The rule by which every task cuts a text into lines.

A line ends with ``\\n`` or ``\\r\\n``, and with nothing else. ``str.splitlines`` and files in text mode also cut at a lone
carriage return, and the former at form feeds, U+0085, U+2028 and others: if two sides of a comparison are read by two rules,
all lines after such a character are paired with wrong ones.
"""

import re

OTHER_BREAKS = re.compile("[\r\x0b\x0c\x1c-\x1f\x85\u2028\u2029]")  # line ends of other programs, which end no line here


def split_lines(text: str) -> list[str]:
    """Return the lines of a text without their ends, ``\\n`` or ``\\r\\n``; the last one may have no end.

    Examples:
        >>> split_lines("a\\r\\nb\\rc\\u2028d\\n")
        ['a', 'b\\rc\\u2028d']
    """
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]

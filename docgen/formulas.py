"""Formulas of docstrings, which are plain text there, as MathML, which browsers typeset without scripts.

A line has up to three columns: the left side of its relation, the rest, and a remark after a wide gap. Names of one letter and
Greek names are variables; other words are functions where a parenthesis or a script follows, else text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

GREEK = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi psi omega
"""
LETTERS = {name: chr(0x3B1 + i + (i > 16)) for i, name in enumerate(GREEK.split())}  # U+03C2 is a second form of sigma
LETTERS |= {name.capitalize(): letter.upper() for name, letter in LETTERS.items()}
SIGNS = {
    "*": "⊙",
    ".": "·",
    "-": "−",
    "<=": "≤",
    ">=": "≥",
    "->": "→",
    "<-": "←",
    "...": "…",
    "..": "…",
    "||": "∥",
    "'": "′",
    "in": "∈",
    "sum": "∑",
}
FUNCTIONS = {"cos", "sin", "tan", "tanh", "log", "ln", "exp", "max", "min", "mod", "floor", "ceil"}
CLOSING = {"(": ")", "[": "]", "{": "}"}
TOKEN = re.compile(r"\d+(?:\.\d+)?|[^\W\d_]+|\.{2,3}|<=|>=|->|<-|\|\||\S")
RELATION = re.compile(r"^(.*?)\s+((?:=|<-|->)\s.*)$")
ALIGNMENT = re.compile(r" {2,}(?=(?:=|<-|->)\s)")
GAP = re.compile(r" {5,}")
BASE = "|".join(("[A-Za-z]", *LETTERS, "dim", "head", "sum"))
IN_TEXT = re.compile(rf"(?<![\w/`*:])(?:{BASE})~?'?(?:[_^](?:\([^()\n]*\)|[A-Za-z0-9]+(?:,[A-Za-z0-9]+)*))+(?![\w`])")
QUAD, WORD, THIN = (f'<mspace width="{width}em"/>' for width in (1.5, 0.3, 0.15))


@dataclass(frozen=True)
class Token:
    """A word, number or sign of a formula.

    Attributes:
        text: Its characters.
        spaces: Number of spaces before it.
    """

    text: str
    spaces: int

    @property
    def is_word(self) -> bool:
        return self.text[0].isalpha()


END = Token(" ", 0)  # after the last one


def is_formula(lines: list[str]) -> bool:
    """Return True for a formula, and False for an example of code."""
    return RELATION.match(lines[0]) is not None


def typeset(lines: list[str]) -> str:
    """Return the lines of a formula as an HTML table of MathML."""
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _columns(line))}</tr>" for line in lines)
    return f'<div class="formula"><table>{rows}</table></div>'


def typeset_text(text: str) -> str:
    """Return a text with its symbols, for example W_Q and d^2, as MathML; literals in backquotes stay as they are."""
    parts = text.split("``")
    return "``".join(part if i % 2 else IN_TEXT.sub(lambda match: _math(match[0]), part) for i, part in enumerate(parts))


def _columns(line: str) -> Iterator[str]:
    first, *remarks = GAP.split(ALIGNMENT.sub(" ", line.replace("``", "").strip()))
    relation = RELATION.match(first)
    yield from map(_math, (relation.groups() if relation else ("", first)))
    yield f"<math>{QUAD.join(map(_row, remarks))}</math>" if remarks else ""


def _math(text: str) -> str:
    return f"<math>{_row(text)}</math>" if text.strip() else ""


def _row(text: str) -> str:
    matches = list(TOKEN.finditer(text))
    ends = [0, *(match.end() for match in matches)]
    return _Parser([Token(match[0], match.start() - end) for match, end in zip(matches, ends, strict=False)]).rest()


class _Parser:
    """Converts tokens from left to right; each word and number appears once."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else END

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def rest(self, end: str = END.text) -> str:
        """Convert tokens up to a closing one, or to the end."""
        parts: list[str] = []
        while self.next.text not in (end, END.text):
            spaces, before, part = self.next.spaces, parts[-1] if parts else "", self.scripted()
            if before and spaces:
                is_text = "<mtext>" in (before[:7], part[:7])
                parts.append(QUAD if spaces > 1 else WORD if is_text else THIN)
            parts.append(part)
        return "".join(parts)

    def scripted(self) -> str:
        """Convert an element with its scripts."""
        base, below, above = self.element(), "", ""
        while self.next.spaces == 0 and self.next.text in ("_", "^", "'", "~"):
            mark = self.take().text
            if mark == "_":
                below += self.script()
            elif mark == "^":
                above += self.script()
            elif mark == "'":
                above += _sign(SIGNS[mark])
            else:
                base = f'<mover>{base}<mo stretchy="false">~</mo></mover>'
        below, above = (f"<mrow>{script}</mrow>" if script else "" for script in (below, above))
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        return f"<msub>{base}{below}</msub>" if below else f"<msup>{base}{above}</msup>" if above else base

    def element(self) -> str:
        """Convert a word, a number, a sign or a group without scripts."""
        token = self.take()
        if token.text == "sqrt" and self.next.text == "(":
            self.take()
            return f"<msqrt>{self.group(')')}</msqrt>"
        if token.text in CLOSING:
            end = CLOSING[token.text]
            return f"<mrow>{_sign(token.text)}{self.group(end)}{_sign(end)}</mrow>"
        return self.word(token) if token.is_word else _plain(token)

    def group(self, end: str) -> str:
        """Convert the content of a group and skip its end."""
        content = self.rest(end)
        self.take()
        return content

    def word(self, token: Token) -> str:
        """Convert a word: a variable, a function or text."""
        follows = self.next.text if self.next.spaces == 0 else ""
        is_article = token.text == "a" and self.next.spaces and self.next.is_word and len(self.next.text) > 1
        if (token.text in LETTERS or len(token.text) == 1) and not is_article:
            return f"<mi>{LETTERS.get(token.text, token.text)}</mi>"
        if token.text in SIGNS and (token.text == "sum" or self.is_membership()):
            return _sign(SIGNS[token.text])
        if follows and follows in "(_^'" or token.text in FUNCTIONS or token.text[0].isupper():
            return f'<mi mathvariant="normal">{token.text}</mi>'
        return f"<mtext>{token.text}</mtext>"

    def is_membership(self) -> bool:
        """Return True for the word "in" between a variable of one letter and a set."""
        before = self.tokens[self.at - 2].text if self.at > 1 else ""
        return len(before) == 1 and before.isalpha() and self.next.text[0].isupper()

    def script(self) -> str:
        """Convert a script: a group, or words, numbers and primes without spaces, also behind commas."""
        if self.next.text in ("(", "{"):
            opening, start = self.take().text, self.at
            content = self.group(CLOSING[opening])
            is_index = opening == "(" and self.at == start + 2 and self.tokens[start].is_word  # as in H^(l)
            return f"{_sign('(')}{content}{_sign(')')}" if is_index else content
        parts = [self.in_script()]
        while self.next.spaces == 0 and (self.next.text.isalnum() or self.next.text == "'" or self.is_comma_in_script()):
            parts.append(self.in_script())
        return "".join(parts)

    def is_comma_in_script(self) -> bool:
        """Return True for a comma without a space behind it, as in W_Q,i."""
        return self.next.text == "," and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].spaces == 0

    def in_script(self) -> str:
        token = self.take()
        if token.text in LETTERS:
            return f"<mi>{LETTERS[token.text]}</mi>"
        if token.is_word and len(token.text) <= 3 and token.text.islower() and token.text not in {"up", *FUNCTIONS}:
            return "".join(f"<mi>{letter}</mi>" for letter in token.text)
        return f'<mi mathvariant="normal">{token.text}</mi>' if token.is_word else _plain(token)


def _plain(token: Token) -> str:
    if token.text[0].isdigit():
        return f"<mn>{token.text}</mn>"
    is_product = token.text != "." or token.spaces
    return _sign(SIGNS.get(token.text, token.text) if is_product else token.text)


def _sign(text: str) -> str:
    return f'<mo stretchy="false" movablelimits="false">{escape(text)}</mo>'

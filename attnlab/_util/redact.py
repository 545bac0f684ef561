"""Removal of secrets from text that is stored or shown: passwords in addresses, secret parameters, environment variables.

The time grows with the length of the text: every pattern begins with a fixed word and is bounded, or consumes what it reads.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from attnlab._util.files import replacing

HIDDEN = "***"
SHORTEST = 8  # characters of a secret that is redacted wherever it occurs: a shorter one may be a common word

# Suffixes of a secret's name, and words that are a whole part of it. No repetition precedes them: it would be tried from
# every position.
_ENDS = "password|passwd|passphrase|token|secret|api_?key|webhook(?:_?url)?"
_PARTS = (
    "pwd|(?:pg)?pass|pat|(?:access|secret|private|ssh|deploy|encryption|signing)_?key(?:_?id)?"
    "|sig|signature|credentials?|auth|authorization|cookie|jwt|dsn|connection_?string"
)
_NAME = rf"(?:{_ENDS}|(?<![^\W_])(?:{_PARTS}))".replace("_?", "[_-]?")
_FIELD = re.compile(rf"(?i)({_NAME}=)[^\s&;'\"]+")
# With a colon, as in YAML, JSON and headers. "token: 3", "signature: (x)" and the like are prose: fewer names count.
_STRICT = (
    "password|passwd|passphrase|api_?key|(?:access|secret|private)_?key|[_-]token|[_-]secret|(?<!\\w)(?:pwd|secret)".replace(
        "_?", "[_-]?"
    )
)
_COLON = re.compile(rf"(?i)((?:{_STRICT})[\"']?[ \t]*:[ \t]*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}}'\"]+)")
_HEADER = re.compile(r"(?i)(authorization[\"']?[ \t]*:[ \t]*[\"']?)(?:(?:basic|bearer|token)[ \t]+)?[^\s,;}'\"]+")
_ISSUED = re.compile(  # tokens that their issuers mark by a prefix
    r"\b(?:gh[opsur]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16})"
)
_OPTION = re.compile(rf"(?i)--?[\w-]*{_NAME}")
_VARIABLE = re.compile(rf"(?i).*{_NAME}")
_NOT_SECRET = {"PWD", "OLDPWD"}  # environment variables of working directories, not passwords

_USER = re.compile(r"[^/:@]*")
_PORT = re.compile(r"\d+[/?#]")


def redact(text: str, *, address: str = "") -> str:
    """Return the text without user names and passwords in addresses, secret parameters, and secrets of the environment.

    Args:
        address: an address that the text refers to. The message of a parser that failed may quote a part of its password.
    """
    if "@" in text:
        text = re.sub(r"\S+", lambda word: _replace_logins(word[0], f"//{HIDDEN}@"), text)
    text = _FIELD.sub(rf"\1{HIDDEN}", text)
    if ":" in text:
        text = _HEADER.sub(rf"\1{HIDDEN}", _COLON.sub(_hide_value, text))
    text = _ISSUED.sub(HIDDEN, text)
    names = [name for name in os.environ if _VARIABLE.fullmatch(name) and name not in _NOT_SECRET]
    secrets = {os.environ[name] for name in names if len(os.environ[name]) >= SHORTEST}
    for secret in sorted({*secrets, *_pieces(address)}, key=len, reverse=True):
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def _hide_value(field: re.Match[str]) -> str:
    """Return a field with its value hidden, in the same quotes."""
    value = field[0][len(field[1]) :]
    quote = value[0] if value[0] in "'\"" else ""
    return f"{field[1]}{quote}{HIDDEN}{quote}"


def redact_file(path: Path) -> None:
    """Redact a text file in place, line by line; do nothing if it does not exist or holds no secret.

    Programs that a process starts write past its redacted streams.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
        if all(redact(line) == line for line in lines):
            return
        lines.seek(0)
        with replacing(path) as half, half.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.writelines(redact(line) for line in lines)


def command_line(words: Iterable[str]) -> str:
    """Return a command line as it could be typed again, with its secrets redacted."""
    shown: list[str] = []
    for word in words:
        after_option = bool(shown) and _OPTION.fullmatch(shown[-1])
        name, equals, _ = word.partition("=")
        if after_option or (equals and _OPTION.fullmatch(name)):
            shown.append(HIDDEN if after_option else f"{name}={HIDDEN}")
        else:  # a password may contain spaces
            shown.append(redact(_replace_logins(word, f"//{HIDDEN}@")))
    return shlex.join(shown)


def holds_login(text: str) -> bool:
    """Return True if the text contains an address with a password or with a secret parameter."""
    with_password = any(
        login.password and re.fullmatch(r"\w:", word[max(0, login.start - 2) : login.start])
        for word in text.split()
        for login in _logins(word)
    )
    return with_password or ("://" in text and bool(_FIELD.search(text.partition("?")[2])))


def without_login(address: str) -> str:
    """Return an address without user and password."""
    return _replace_logins(address, "//")


class _Login(NamedTuple):
    """The part ``//user:password@`` of an address, from ``start`` to ``end`` in its word."""

    start: int
    end: int
    password: str


def _logins(word: str) -> Iterator[_Login]:
    """Yield the login of each address in ``word``.

    A password may contain "/" and "@" unencoded: after "user:", the last "@" of the word ends it. "host:80/" is not a user.
    """
    last = word.rfind("@")
    start = word.find("//", 0, max(last, 0))
    while start >= 0:
        begin = start + 2
        colon = _USER.match(word, begin).end()  # type: ignore[union-attr] the pattern matches everywhere
        if word[colon] == ":" and colon < last and not _PORT.match(word, colon + 1):
            yield _Login(start, last + 1, word[colon + 1 : last])
            return
        slash = word.find("/", begin)
        at = word.rfind("@", begin, slash if slash >= 0 else len(word))
        if at >= 0:
            yield _Login(start, at + 1, "")
        start = word.find("//", at if at >= 0 else start + 1, last)


def _replace_logins(word: str, replacement: str) -> str:
    """Return a word with every login replaced."""
    parts, end = [], 0
    for login in _logins(word):
        parts += [word[end : login.start], replacement]
        end = login.end
    return "".join([*parts, word[end:]])


def _pieces(address: str) -> set[str]:
    """Return the parts of an address's password that a message may quote, as written or decoded."""
    password = next((login.password for login in _logins(address)), "")
    return {part for form in (password, unquote(password)) for part in (form, *re.split(r"[/@:?#]", form)) if len(part) > 2}

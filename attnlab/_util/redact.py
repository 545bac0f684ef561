"""Removal of secrets from text that is stored or shown: passwords in addresses, secret parameters, environment variables.

The time grows with the length of the text: every pattern begins with a fixed word and is bounded, or consumes what it reads.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, TextIO
from urllib.parse import unquote

from attnlab._util.files import replacing

HIDDEN = "***"
PART = 1 << 18  # bytes of a file that are redacted at once
SHORTEST = 8  # characters of a secret that is redacted wherever it occurs: a shorter one may be a common word

# Suffixes of a secret's name, and words that are a whole part of it. No repetition precedes them: it would be tried from
# every position.
_ENDS = "password|passwd|passphrase|token|secret|api_?key|webhook(?:_?url)?"
_PARTS = (
    "pwd|(?:pg)?pass|pat|(?:access|secret|private|ssh|deploy|encryption|signing)_?key(?:_?id)?"
    "|sig|signature|credentials?|auth|authorization|cookie|jwt|dsn|connection_?string"
)
_NAME = rf"(?:{_ENDS}|(?<![^\W_])(?:{_PARTS}))".replace("_?", "[_-]?")
# With a colon, as in YAML, JSON and headers. "token: 3", "signature: (x)" and the like are prose: fewer names count.
_STRICT = (
    "password|passwd|passphrase|api_?key|(?:access|secret|private)_?key|[_-]token|[_-]secret|(?<!\\w)(?:pwd|secret)".replace(
        "_?", "[_-]?"
    )
)
# Each word is read once, up to its end; only then is it compared with the names.
_HEAD = re.compile(r"(?<![\w-])([\w-]++)(?:=|[\"']?[ \t]*+:[ \t]*+)")
_NAMES = {"=": re.compile(rf"(?i)(?:{_NAME})\Z"), ":": re.compile(rf"(?i)(?:{_STRICT})\Z")}
_QUOTED = r"\"[^\"]{1,4096}\"|'[^']{1,4096}'"
_VALUES = {"=": re.compile(rf"{_QUOTED}|[^\s&;'\"]+"), ":": re.compile(rf"{_QUOTED}|[^\s,;}}'\"]+")}
_BLOCK = re.compile(r"[|>][+-]?\d?[+-]?[ \t]*\n")  # of YAML: its lines are indented further than its key
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
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
    if "PRIVATE KEY-----" in text:
        text = _KEY.sub(HIDDEN, text)
    if ":" in text:
        text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _ISSUED.sub(HIDDEN, _hide_fields(text))
    names = [name for name in os.environ if _is_secret(name)]
    secrets = {os.environ[name] for name in names if len(os.environ[name]) >= SHORTEST}
    for secret in _forms(frozenset({*secrets, *_pieces(address)})):
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


@cache
def _is_secret(name: str) -> bool:
    """Return True for the name of an environment variable that holds a secret."""
    return name not in _NOT_SECRET and bool(_VARIABLE.fullmatch(name))


@lru_cache(maxsize=8)
def _forms(secrets: frozenset[str]) -> list[str]:
    """Return the secrets as text shows them, the longest first: whole, escaped as in JSON or Python, and line by line."""
    forms = set(secrets)
    for secret in secrets:
        if len(lines := secret.splitlines()) > 1:
            forms |= {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1]}
            forms |= {line.strip() for line in lines if len(line.strip()) >= SHORTEST}
    return sorted(forms, key=lambda form: (-len(form), form))


def _hide_fields(text: str) -> str:
    """Return the text with the values of secret fields hidden: ``password=...``, ``api_key: "..."``, a block of YAML."""
    parts, end = [], 0
    for head in _HEAD.finditer(text):
        kind = "=" if head[0].endswith("=") else ":"
        if head.start() < end or not _NAMES[kind].search(head[1]):
            continue
        if kind == ":" and (block := _BLOCK.match(text, head.end())):
            start = text.rfind("\n", 0, head.start()) + 1
            indent = len(text[start : head.start()]) - len(text[start : head.start()].lstrip(" "))
            lines = re.compile(rf"(?: {{{indent + 1},}}[^\n]*\n?|[ \t]*\n)*").match(text, block.end())
            parts += [text[end : block.end()], f"{' ' * (indent + 2)}{HIDDEN}\n"]
            end = lines.end()  # type: ignore[union-attr] the pattern matches everywhere
        elif value := _VALUES[kind].match(text, head.end()):
            quote = value[0][0] if value[0][0] in "'\"" else ""
            parts += [text[end : value.start()], f"{quote}{HIDDEN}{quote}"]
            end = value.end()
    return "".join([*parts, text[end:]])


def redact_file(path: Path) -> None:
    """Redact a text file in place; do nothing if it does not exist or holds no secret.

    Programs that a process starts write past its redacted streams.
    """
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        if all(redact(part) == part for part in _parts(file)):
            return
        file.seek(0)
        with replacing(path) as half, half.open("w", encoding="utf-8", errors="surrogateescape", newline="") as redacted:
            redacted.writelines(redact(part) for part in _parts(file))


def _parts(file: TextIO) -> Iterator[str]:
    """Yield whole lines of a file together: a secret may have several, and a call for each would take long."""
    while lines := file.readlines(PART):
        yield "".join(lines)


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
    """Return True when the text contains an address with a password or with a secret parameter."""
    with_password = any(
        login.password and re.fullmatch(r"\w:", word[max(0, login.start - 2) : login.start])
        for word in text.split()
        for login in _logins(word)
    )
    return with_password or ("://" in text and _hide_fields(query := text.partition("?")[2]) != query)


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

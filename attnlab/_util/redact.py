"""Removal of secrets from text that is stored or shown: passwords in addresses, secret parameters, environment variables."""

import os
import re
import shlex
from collections.abc import Iterable
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 8  # characters of a secret that is redacted wherever it occurs: a shorter one may be a common word

# Suffixes of a secret's name, and words that are a whole part of it. No repetition precedes them: it would be tried from
# every position.
_ENDS = "password|passwd|token|secret|api_?key"
_PARTS = "pwd|passphrase|(?:access|secret|private)_?key(?:_?id)?|sig|signature|credentials?|auth|authorization"
_NAME = rf"(?:{_ENDS}|(?<![^\W_])(?:{_PARTS}))".replace("_?", "[_-]?")
# A password may contain "/" and "@" unencoded: after "user:", the last "@" of the word ends it. "host:80/" is not a user.
_ADDRESS = re.compile(r"//(?:[^/\s:@]*:(?!\d+[/?#])\S*|[^/\s]*)@")
_LOGIN = re.compile(r"\w://[^/\s:@]*:(?!\d+[/?#])[^\s@]+@")
_FIELD = re.compile(rf"(?i)({_NAME}=)[^\s&;'\"]+")
_OPTION = re.compile(rf"(?i)--?[\w-]*{_NAME}")
_VARIABLE = re.compile(rf"(?i).*{_NAME}")
_FOLDER = "PWD"  # environment variable of the working directory, not a password


def redact(text: str, *, address: str = "") -> str:
    """Return the text without user names and passwords in addresses, secret parameters, and secrets of the environment.

    Args:
        address: an address that the text refers to. The message of a parser that failed may quote a part of its password.
    """
    text = _FIELD.sub(rf"\1{HIDDEN}", _ADDRESS.sub(f"//{HIDDEN}@", text))
    names = [name for name in os.environ if _VARIABLE.fullmatch(name) and name != _FOLDER]
    secrets = {os.environ[name] for name in names if len(os.environ[name]) >= SHORTEST}
    for secret in sorted({*secrets, *_pieces(address)}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def command_line(words: Iterable[str]) -> str:
    """Return a command line as it could be typed again, with its secrets redacted."""
    shown: list[str] = []
    for word in words:
        after_option = bool(shown) and _OPTION.fullmatch(shown[-1])
        name, equals, _ = word.partition("=")
        if after_option or (equals and _OPTION.fullmatch(name)):
            shown.append(HIDDEN if after_option else f"{name}={HIDDEN}")
        else:
            shown.append(re.sub(r"//[^/]*:.*@", f"//{HIDDEN}@", redact(word)))
    return shlex.join(shown)


def holds_login(text: str) -> bool:
    """Return True if the text contains an address with a password or with a secret parameter."""
    return bool(_LOGIN.search(text)) or ("://" in text and bool(_FIELD.search(text.partition("?")[2])))


def without_login(address: str) -> str:
    """Return an address without user and password."""
    return _ADDRESS.sub("//", address)


def _pieces(address: str) -> set[str]:
    """Return the parts of an address's password that a message may quote, as written or decoded."""
    login = _ADDRESS.search(address)
    password = login[0][2:-1].partition(":")[2] if login else ""
    return {part for form in (password, unquote(password)) for part in (form, *re.split(r"[/@:?#]", form)) if len(part) > 2}

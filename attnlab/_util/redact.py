"""Removal of secrets from text that is stored or shown: logins in addresses, and variables named like secrets."""

import os
import re
import shlex
from collections.abc import Iterable
from functools import cache
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 8  # characters of a secret that is hidden wherever it occurs: a shorter one may be a common word
# A password may contain "/" and "@" unencoded: after "user:", the last "@" of the word ends it. "host:80/" is no user.
LOGIN = re.compile(r"//(?:[^/:@\s]{0,200}:(?!\d+[/?#])([^\s]{0,500})|[^/@\s]{0,200})@")
SECRET = re.compile(
    r"(?i).*(?:password|passwd|passphrase|token|secret|credentials?|(?:api|access|private|secret)_?key(?:_id)?)"
)


def redact(text: str, *, address: str = "") -> str:
    """Return the text without user names and passwords in addresses, and without secrets of the environment.

    Args:
        address: an address that the text refers to: the message of a driver may quote its password.
    """
    secrets = {value for name, value in os.environ.items() if len(value) >= SHORTEST and _is_secret(name)}
    if (login := LOGIN.search(address)) and login[1]:
        secrets |= {login[1], unquote(login[1])}
    for secret in sorted(secrets, key=len, reverse=True):
        if secret in text:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return LOGIN.sub(f"//{HIDDEN}@", text) if "@" in text else text


@cache
def _is_secret(name: str) -> bool:
    """Return True for the name of an environment variable that holds a secret."""
    return SECRET.fullmatch(name) is not None


def command_line(words: Iterable[str]) -> str:
    """Return a command line as it could be typed again, without secrets."""
    return shlex.join(map(redact, words))


def holds_login(text: str) -> bool:
    """Return True when the text contains an address with a password."""
    return any(login[1] for login in LOGIN.finditer(text))

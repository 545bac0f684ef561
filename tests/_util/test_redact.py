"""Tests of redaction: secrets are removed from text, and nothing else is."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from attnlab._util.redact import command_line, holds_login, redact

SECRET = "s3cr3t"


@contextmanager
def stopped(*, cpu_seconds: float) -> Iterator[None]:
    """Fail a block that hangs, measured in CPU seconds of this process, so that other load on the machine does not count."""

    def hung(number: int, frame: object) -> None:
        pytest.fail(f"it takes more than {cpu_seconds:g} seconds of processor time")

    before = signal.signal(signal.SIGVTALRM, hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@host/db",
        f"cannot reach postgresql+psycopg://me:{SECRET}@host:5432/db (refused)",
        f"'http://me:{SECRET}@host/', and again 'http://me:x{SECRET}@host/'",
        f"http://me:a/{SECRET}@host/db",
        f"http://me:a@{SECRET}@host/db",
        f"http://me:a@b/c#{SECRET}?@host/db",
        f"http://:{SECRET}@host",
        f"http://{SECRET}@host/db",  # a token in place of a user name
        f"--storage=postgresql://me:{SECRET}@host/db",
    ],
)
def test_a_secret_goes(text: str) -> None:
    assert SECRET not in redact(text) and "host" in redact(text)
    assert SECRET not in command_line(["run", "s.yaml", text])


@pytest.mark.parametrize(
    "text",
    [
        "train/tokens_per_s=12.5, token 3 of 8, tokens=5 passes=3 keys=4",
        "https://host:8080/a/b?x=1#c",
        "https://host/@someone/page",
        "http://host:5000/?at=me@home",
        "sqlite:////home/a/runs/mlflow.db",
        "mail me@host about a // comment",
        "task: {name: text, path: /a/b}",
        "path=/a/b, bypass=1, compass=2, pattern=x, author=me, design=3, cookies=4, keypad=5",
        "unknown token: 'x'; expected signature: (step, *, seed); auth: none; patience: 3",
        "def decode(self, token: int) -> str: pass",
        "//a/b//c@d".replace("@", " at "),
    ],
)
def test_everything_else_stays(text: str) -> None:
    assert redact(text) == text and not holds_login(text)


def test_secrets_of_the_environment_go_by_their_value(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_SERVICE_TOKEN", "PGPASSWORD", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        monkeypatch.setenv(name, f"value-of-{name}")
        assert redact(f"it is value-of-{name}, he said") == "it is ***, he said", name
    monkeypatch.setenv("DB_PASSWORD", "postgres")
    for name in ("MY_PATH", "TOKENIZERS_PARALLELISM", "PWD"):
        monkeypatch.setenv(name, "not-a-secret")
    assert redact("not-a-secret of postgresql") == "not-a-secret of postgresql"


def test_a_password_that_a_driver_quotes() -> None:
    address = "http://me:sec%40nd@host"
    assert redact("cannot parse 'sec%40nd' or sec@nd", address=address) == "cannot parse '***' or ***"


@pytest.mark.parametrize(
    "text",
    ["_", "/", "//", "//a:b", "a://b:c", "//a/", "/@", "//@", "//a@b", "a:1/", "://a:1/@"],
)
def test_the_work_grows_with_the_length_of_a_word_not_with_its_square(text: str) -> None:
    with stopped(cpu_seconds=15):  # linear time takes less than one, quadratic time a minute or more
        long = 100_000 // len(text) * text
        assert SECRET not in redact(f"{long}\npostgresql://me:{SECRET}@host {long}")
        holds_login(long)


def test_a_command_line_can_be_typed_again() -> None:
    words = ["run", "my study.yaml", "--storage", "postgresql://me:a@c/d@host/db"]
    assert command_line(words) == "run 'my study.yaml' --storage 'postgresql://***@host/db'"


def test_logins_are_seen() -> None:
    assert holds_login("postgresql://me:x@host/db") and not holds_login("https://me@host/")

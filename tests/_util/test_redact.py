"""Tests of redaction: secrets are removed from text, and nothing else is."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnlab._util.redact import command_line, holds_login, redact, redact_file, without_login

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
        f"https://host/a?x=1&password={SECRET}&y=2",
        f"https://host/a?access_token={SECRET}",
        f"https://host/a?X-Amz-Credential=1&X-Amz-Signature={SECRET}",
        f"https://host/a?api-key={SECRET}",
        f"host=h password={SECRET} dbname=d sslpassword={SECRET}",
        f"--storage=postgresql://me:{SECRET}@host/db",
        f"host: h\npassword: {SECRET}",
        f"host, password:'{SECRET} and more'",
        f'host {{"db_password": "{SECRET} and, more"}}',
        f"host, api-key: {SECRET}",
        f"host, my_token: {SECRET}, x",
        f"host\nAuthorization: Bearer {SECRET}",
        f"host Proxy-Authorization: Basic {SECRET}",
        f"host GH_PAT={SECRET} PGPASS={SECRET} DB_PASS={SECRET} SLACK_WEBHOOK={SECRET} WEBHOOK_URL={SECRET}",
        f"host COOKIE={SECRET} SENTRY_DSN={SECRET} SSH_KEY={SECRET}",
        "host ghp_s3cr3ts3cr3ts3cr3ts3cr3t",
        f'host {{"password": "first line\n{SECRET}\n"}}',
        f"host: h\npassword: |\n  first\n\n  {SECRET}\n",
        f"  host:\n    db_password: >-\n     {SECRET}\n       {SECRET}",
        f"host -----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----\n",
        f"host password='{SECRET} and more'",
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
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct-horse")
    monkeypatch.setenv("PGPASSWORD", "postgres")
    for name in ("GH_PAT", "PGPASS", "DB_PASS", "DISCORD_WEBHOOK", "SLACK_WEBHOOK_URL", "SSH_KEY", "SENTRY_DSN"):
        monkeypatch.setenv(name, f"value-of-{name}")
        assert "value-of" not in redact(f"it is value-of-{name}, he said"), name
    monkeypatch.setenv("MY_PATH", "not-a-secret")
    monkeypatch.setenv("OLDPWD", "/home/me")
    assert redact("not-a-secret in /home/me") == "not-a-secret in /home/me"
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "whatever")
    text = "failed with {'MY_SERVICE_TOKEN': 'correct-horse'} on postgresql, whatever"
    assert redact(text) == "failed with {'MY_SERVICE_TOKEN': '***'} on postgresql, whatever"


@pytest.mark.parametrize("show", [str, repr, json.dumps, lambda text: "\n".join(f"  | {line}" for line in text.splitlines())])
def test_a_secret_of_several_lines_goes_in_every_form(show: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_KEY", '-----BEGIN KEY-----\nfirst"line/ü\nsecond+line==\n-----END KEY-----\n')
    shown = redact(f"before {show(os.environ['DEPLOY_KEY'])} after")
    assert not any(part in shown for part in ("first", "line", "second")) and shown.startswith("before ")


def test_what_follows_a_block_stays() -> None:
    text = redact("db:\n  password: |\n    a\n    b\n  host: here\nseeds: 3\n")
    assert text == "db:\n  password: |\n    ***\n  host: here\nseeds: 3\n"


def test_the_working_directory_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWD", "/home/me/studies")
    assert redact("attnlab run /home/me/studies/wo.yaml") == "attnlab run /home/me/studies/wo.yaml"


def test_pieces_of_a_password_that_somebody_could_not_read() -> None:
    address = "http://me:first/sec%40nd@host"
    assert redact("port 'first' of host 'sec%40nd' or first/sec@nd?", address=address) == "port '***' of host '***' or ***?"


@pytest.mark.parametrize(
    "text",
    ["_", "-", "a_", "token_", "/", "//", "//a:b", "a://b:c", "//a/", "/@", "//@", "//a@b", "a:1/", "password:", "password: "]
    + ["'password'", "secret:\t ", "authorization: ", "ghp_", "sk-", "pass", "key ", "://a:1/@"],
)
def test_the_work_grows_with_the_length_of_a_word_not_with_its_square(text: str) -> None:
    with stopped(cpu_seconds=15):  # linear time takes less than one, quadratic time a minute or more
        long = 100_000 // len(text) * text
        assert SECRET not in redact(f"{long} password={SECRET}") and SECRET not in command_line([f"{long} password={SECRET}"])
        assert SECRET not in redact(f"{long}\npostgresql://me:{SECRET}@host {long}")
        holds_login(long)
        without_login(long)


def test_a_command_line_hides_whole_words() -> None:
    words = ["run", "s.yaml", "--storage", "postgresql://me:a b@c/d@host/db", "--api-key", "x y", "--my-token=a b"]
    assert command_line(words) == "run s.yaml --storage 'postgresql://***@host/db' --api-key '***' '--my-token=***'"


def test_a_file_is_redacted_in_place_if_it_holds_a_secret(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    redact_file(path)
    path.write_bytes(b"caf\xe9\r\n\xff plain\n")
    before = path.stat().st_ino
    redact_file(path)
    assert path.stat().st_ino == before and path.read_bytes() == b"caf\xe9\r\n\xff plain\n"
    path.write_bytes(f"password={SECRET}\r\n".encode() + b"\xff plain")
    redact_file(path)
    assert path.read_bytes() == b"password=***\r\n\xff plain" and len(list(tmp_path.iterdir())) == 1


def test_logins_are_seen() -> None:
    assert holds_login("postgresql://me:x@host/db") and holds_login("https://host/?token=x")
    assert not holds_login("https://me@host/") and without_login("http://me:a/b@host:1/x") == "http://host:1/x"

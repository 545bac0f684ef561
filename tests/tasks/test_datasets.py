"""Tests of data sets: download from a local server on 127.0.0.1, verification, and preparation, complete or not at all."""

import hashlib
import io
import lzma
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.tasks import datasets
from attnlab.tasks.archives import Source, read_member
from tests.support.paths import ROOT

LANGUAGES = ("de", "en", "fr")
CONTENTS = bytes(range(256)) * 401


def zipped(contents: bytes = CONTENTS, *, member: str = "tiny", method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr(member, contents)
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """A server of ``body``; ``claimed`` is the Content-Length that it sends, to truncate a download."""

    body = zipped()
    claimed: int | None = None
    status = 200
    hits = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.hits += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(self.server.claimed or len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        yield running
        running.shutdown()


def tiny(url: str) -> Source:
    body = zipped()
    return Source(
        name="tiny",
        file="tiny.zip",
        url=url,
        size=len(body),
        md5=hashlib.md5(body).hexdigest(),
        contents=hashlib.md5(CONTENTS).hexdigest(),
        read=read_member,
        others=("tiny.xz", "tiny"),
    )


@pytest.fixture
def source(server: Server, folders: Path) -> Source:
    return tiny(f"http://127.0.0.1:{server.server_address[1]}/tiny.zip")


def files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


# ---------------------------------------------------------------- fetching


def test_fetches_once_and_verifies(source: Source, server: Server, folders: Path, log: pytest.LogCaptureFixture):
    assert datasets.load(source) == CONTENTS
    assert datasets.fetch(source) == folders / "data" / "tiny.zip"
    assert server.hits == 1
    assert files(folders / "data") == ["tiny.zip"]
    assert "downloading" in log.messages[0] and "the original archive" in log.messages[-1]


@pytest.mark.parametrize("fault", ["truncated", "corrupt", "missing"])
def test_a_broken_download_leaves_nothing_and_the_next_one_works(fault: str, source: Source, server: Server, folders: Path):
    good = server.body
    if fault == "truncated":
        server.claimed, server.body = len(good), good[: len(good) // 2]
    elif fault == "corrupt":
        server.body = zipped(CONTENTS[::-1])
    else:
        server.status = 404
    with pytest.raises(UserError) as failure:
        datasets.load(source)
    assert source.url in str(failure.value) and "\n" not in str(failure.value)
    if fault == "corrupt":  # the expected checksum and the received one
        assert source.contents in str(failure.value)
        assert hashlib.md5(CONTENTS[::-1]).hexdigest() in str(failure.value)
    assert files(folders / "data") == []

    server.body, server.claimed, server.status = good, None, 200
    assert datasets.load(source) == CONTENTS


def test_without_a_network_the_message_names_the_folder_for_the_file(folders: Path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        source = tiny(f"http://127.0.0.1:{unused.getsockname()[1]}/tiny.zip")
        with pytest.raises(UserError) as failure:
            datasets.load(source)
    assert "place tiny.zip in" in str(failure.value) and "refused" in str(failure.value)
    assert "\n" not in str(failure.value)


# ---------------------------------------------------------------- placed by hand


def place(folders: Path, contents: bytes, name: str = "tiny.zip") -> Path:
    (folders / "data").mkdir(exist_ok=True)
    path = folders / "data" / name
    path.write_bytes(contents)
    return path


def test_another_archive_of_the_same_contents_is_used(source: Source, server: Server, folders: Path):
    place(folders, zipped(method=zipfile.ZIP_DEFLATED))
    assert datasets.load(source) == CONTENTS
    assert "another file of the same contents" in datasets.verify(source)
    assert server.hits == 0


@pytest.mark.parametrize("contents", [b"", b"not a zip", zipped()[:5000], zipped(member="other"), zipped(CONTENTS[:-1])])
def test_a_wrong_file_is_named_with_both_checksums_and_kept(contents: bytes, source: Source, folders: Path):
    path = place(folders, contents)
    with pytest.raises(UserError) as failure:
        datasets.load(source)
    message = str(failure.value)
    assert str(path) in message and source.contents in message
    assert hashlib.md5(contents).hexdigest() in message
    assert "\n" not in message
    assert path.read_bytes() == contents


FORMS = {"tiny.xz": lzma.compress, "tiny": bytes}  # name of a file -> function that makes it from the contents


@pytest.mark.parametrize("name", FORMS)
def test_the_contents_are_used_without_the_archive(name: str, source: Source, server: Server, folders: Path):
    path = place(folders, FORMS[name](CONTENTS), name)
    assert datasets.load(source) == CONTENTS
    assert str(path) in datasets.verify(source) and datasets.fetch(source) == path
    assert server.hits == 0


def test_verify_names_a_missing_file_and_find_suggests_a_name(folders: Path):
    with pytest.raises(UserError, match="attnlab data fetch enwik8"):
        datasets.verify(datasets.find("enwik8"))
    with pytest.raises(UserError, match="did you mean 'enwik8'"):
        datasets.find("enwik")


def test_status_fetches_nothing(folders: Path):
    assert [(row.source.name, row.size, row.prepared) for row in datasets.status()] == [
        ("enwik8", None, ()),
        ("imdb", None, ()),
        *(
            (f"multi30k/{split}.{language}", None, ())
            for split in ("train", "val", "test_2016_flickr")
            for language in LANGUAGES
        ),
    ]
    place(folders, b"12345", "enwik8.zip")
    assert datasets.status()[0].size == 5
    (folders / "data" / "enwik8.zip").unlink()
    place(folders, b"1234", "enwik8")
    assert (datasets.status()[0].path.name, datasets.status()[0].size) == ("enwik8", 4)


# ---------------------------------------------------------------- preparing


def test_prepares_once_for_each_key(folders: Path):
    built = []

    def build(place: Path) -> None:
        built.append(place)
        (place / "numbers").write_bytes(b"123")

    first = datasets.prepared("thing", {"option": 1}, build)
    assert datasets.prepared("thing", {"option": 1}, build) == first
    assert datasets.prepared("thing", {"option": 2}, build) != first
    assert len(built) == 2 and (first / "numbers").read_bytes() == b"123"


DAMAGE: dict[str, tuple[str, bytes | None]] = {
    "cut short": ("numbers", b"12"),
    "a flipped bit": ("numbers", b"122"),
    "empty": ("numbers", b""),
    "gone": ("numbers", None),
    "no manifest": ("manifest.json", None),
    "a manifest that is no JSON": ("manifest.json", b"{"),
    "a manifest of another shape": ("manifest.json", b"[1]"),
    "a manifest without checksums": ("manifest.json", b'{"key": {}, "sizes": {"numbers": 3}}'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_prepared_data_is_prepared_again(damage: str, folders: Path, log: pytest.LogCaptureFixture):
    def build(place: Path) -> None:
        (place / "numbers").write_bytes(b"123")

    place, (name, contents) = datasets.prepared("thing", {}, build), DAMAGE[damage]
    (place / name).unlink() if contents is None else (place / name).write_bytes(contents)
    assert datasets.prepared("thing", {}, build) == place and (place / "numbers").read_bytes() == b"123"
    (record,) = log.records
    assert record.levelname == "WARNING" and str(place) in record.getMessage()
    assert datasets.prepared("thing", {}, build) == place and len(log.records) == 1


def test_a_preparation_that_fails_leaves_nothing(folders: Path):
    def build(place: Path) -> None:
        (place / "numbers").write_bytes(b"1")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        datasets.prepared("thing", {}, build)
    assert files(folders / "prepared") == []


CHILD = """
import logging, sys
from pathlib import Path
from attnlab.tasks import datasets

logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)

def build(place):
    (place / "numbers").write_bytes(b"1" * int(sys.argv[1]))
    print("building", flush=True)
    sys.stdin.readline()

print(datasets.prepared("thing", {}, build), flush=True)
"""


def child(size: int) -> subprocess.Popen[str]:
    """Start a process that prepares ``size`` bytes; it builds until it reads a line."""
    arguments = [sys.executable, "-c", CHILD, str(size)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_preparation_that_is_killed_leaves_nothing_half_made(folders: Path):
    with child(3) as killed:
        assert line(killed) == "building"
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    left = files(folders / "prepared")
    assert len(left) == 1 and left[0].endswith(".half")  # a name that no code reads

    place = datasets.prepared("thing", {}, lambda place: (place / "whole").touch())
    assert sorted(p.name for p in place.iterdir()) == ["manifest.json", "whole"]
    assert files(folders / "prepared") == [place.name]


def test_two_at_once_prepare_once(folders: Path):
    with child(3) as first:
        assert line(first) == "building"
        with child(5) as second:
            assert "being prepared by process" in line(second)
            assert first.stdin is not None
            print("go on", file=first.stdin, flush=True)
            assert line(second) == line(first)
    assert next((folders / "prepared").glob("thing-*/numbers")).read_bytes() == b"111"


def test_importing_it_loads_nothing_heavy():
    code = "import sys, attnlab.tasks.datasets; print({'torch', 'numpy', 'pooch', 'requests'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert process.stdout.strip() == "set()"

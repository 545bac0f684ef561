"""Where data sets come from, and where what is prepared from them is kept.

An archive is fetched once from its original address, verified, and never fetched again; one placed in the
folder by hand is verified and used. Nothing that was cut short, by a bad line or a kill, is ever taken for a
whole.
"""

import hashlib
import io
import json
import logging
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._util import files
from attnlab._util.lock import file_lock
from attnlab.errors import UserError, nearest
from attnlab.tasks.archives import SOURCES, Source

logger = logging.getLogger(__name__)


# ---------------------------------------------------------------- folders


def folder() -> Path:
    """The folder of archives: ``ATTNLAB_DATA``, else the platform's user cache."""
    return _folder("ATTNLAB_DATA", "data")


def prepared_folder() -> Path:
    """The folder of prepared data: ``ATTNLAB_CACHE``, else the platform's user cache."""
    return _folder("ATTNLAB_CACHE", "prepared")


def _folder(variable: str, name: str) -> Path:
    import platformdirs

    given = os.environ.get(variable)
    return Path(given).expanduser() if given else Path(platformdirs.user_cache_dir("attnlab")) / name


def _make_folder(path: Path, variable: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"no permission to write in {path}")
    except OSError as error:
        raise UserError(f"cannot use the folder {path} ({error}); set {variable} to another") from error


# ---------------------------------------------------------------- prepared data


def prepared(name: str, key: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """The folder of data prepared under ``key``, built now if it is not there or not as it was written.

    Args:
        name: begins the folder's name.
        key: everything that decides the content: options, data digest, library versions, a format version.
        build: writes its files into the empty folder that it is given. A build that is killed leaves nothing
            that could be taken for its result.
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    place = prepared_folder() / f"{name}-{digest}"
    if _whole(place):
        return place
    if place.exists():
        logger.warning("%s: %s is damaged, preparing it again", name, place)
    _make_folder(place.parent, "ATTNLAB_CACHE")
    lock = place.parent / f".{place.name}.lock"
    with file_lock(lock, activity=f"{name} is being prepared", timeout=math.inf, on_wait=logger.info):
        if _whole(place):
            return place
        for left_over in place.parent.glob(f".{place.name}.*.half"):  # of a killed one: we hold the lock
            shutil.rmtree(left_over)
        half = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".half"))
        try:
            half.chmod(0o755)  # as any folder; mkdtemp makes it private
            build(half)
            digests = {file.name: files.sha256(file) for file in half.iterdir()}
            (half / "manifest.json").write_text(json.dumps({"key": key, "sha256": digests}, indent=1))
            for file in half.iterdir():
                files.sync(file)
            if place.exists():  # not whole: damaged from outside
                shutil.rmtree(place)
            os.rename(half, place)
            files.sync(place.parent)
        except UserError:
            raise
        except Exception as error:
            why = files.describe_disk_error(error) or (files.describe_error(error) if isinstance(error, OSError) else None)
            if why is None:
                raise
            raise UserError(f"{name}: could not write prepared data in {place.parent}: {why}") from error
        finally:
            shutil.rmtree(half, ignore_errors=True)  # gone already when all went well
    return place


def _whole(place: Path) -> bool:
    """Whether every file is there as it was written: the rename made it so, but disks and people damage files.

    Asked of each process that opens them, not remembered: a run takes longer than the 0.06 s that 100 MB take.
    """
    try:
        digests = json.loads((place / "manifest.json").read_text())["sha256"].items()
        return all(files.sha256(place / file) == digest for file, digest in digests)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # missing, or no manifest of ours
        return False


# ---------------------------------------------------------------- fetching and verifying


def find(name: str) -> Source:
    """The source called ``name``; an unknown one raises ``UserError``."""
    if name not in SOURCES:
        raise UserError(f"unknown data set {name!r}{nearest(name, SOURCES)}; known: {', '.join(SOURCES)}")
    return SOURCES[name]


def load(source: Source) -> Any:
    """The verified contents, from the copy in the folder or else from the original address.

    Raises:
        UserError: no network, or a file that is incomplete, corrupt or something else.
    """
    path = folder() / source.file
    if not path.exists():
        return _download(source, path)
    try:
        contents, note = source.read(source, path)
    except UserError as error:
        raise UserError(f"{error}; delete it to have it fetched again") from error
    logger.info("%s: %s verified: %s", source.name, path, note)
    return contents


def fetch(source: Source) -> Path:
    """Make sure that the archive is there and good; returns its path. Raises as ``load`` does."""
    load(source)
    return folder() / source.file


def verify(source: Source) -> str:
    """One line on the archive in the folder; raises ``UserError`` where it is missing or wrong."""
    path = folder() / source.file
    if not path.exists():
        raise UserError(f"{path} is not there; `attnlab data fetch {source.name}` gets it from {source.url}")
    return f"{path}: {source.read(source, path)[1]}"


@dataclass(frozen=True)
class Status:
    """What the folders hold of one; ``found`` is the size of its archive in bytes, None if there is none."""

    source: Source
    path: Path
    found: int | None
    prepared: tuple[Path, ...]


def status() -> list[Status]:
    """What is there, by a look at the folders only: nothing is read, fetched or verified."""
    rows = []
    for source in SOURCES.values():
        path = folder() / source.file
        done = tuple(sorted(p for p in prepared_folder().glob(f"{source.name}-*") if p.is_dir()))
        rows.append(Status(source, path, path.stat().st_size if path.exists() else None, done))
    return rows


def _download(source: Source, path: Path) -> Any:
    """Fetch into a folder of its own, verify, then move: a broken file never bears the archive's name."""
    import pooch

    _make_folder(path.parent, "ATTNLAB_DATA")
    pooch.get_logger().setLevel("WARNING")
    lock = path.parent / f".{source.file}.lock"
    with file_lock(lock, activity=f"{source.name} is being downloaded", timeout=math.inf, on_wait=logger.info):
        if path.exists():  # the other process has
            return source.read(source, path)[0]
        part = path.parent / f".{source.file}.partial"
        shutil.rmtree(part, ignore_errors=True)  # what a killed fetch left: start again
        try:
            logger.info("%s: fetching %s (%.0f MB) into %s", source.name, source.url, source.size / 1e6, path.parent)
            get = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
            bounded = _bounded(get, most=2 * source.size)  # another archive of the same contents may be larger
            got = Path(pooch.retrieve(source.url, None, fname=source.file, path=part, downloader=bounded))
            contents, note = source.read(source, got)
            files.sync(got)
            os.replace(got, path)
        except UserError as error:
            raise UserError(f"fetched {source.url}, but {error}; nothing was kept, so try again") from error
        except OSError as error:
            if (why := files.describe_disk_error(error)) is not None:
                raise UserError(f"could not keep {source.url} in {path.parent}: {why}") from error
            hint = f"with no network, place {source.file} in {path.parent}"
            raise UserError(f"could not fetch {source.url} ({_brief(error)}); {hint}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
    logger.info("%s: %s verified: %s", source.name, path, note)
    return contents


def _bounded(get: Any, *, most: int) -> Any:
    """pooch's downloader, cut off after ``most`` bytes: what a server sends has no end of itself."""

    class Bounded(io.FileIO):
        def write(self, chunk: Any, /) -> int:
            if self.tell() + len(chunk) > most:
                raise UserError(f"it sent more than {most:,} bytes")
            return super().write(chunk)

    def download(url: str, output: str, caller: Any) -> None:
        with Bounded(output, "wb") as file:
            get(url, file, caller)

    return download


def _brief(error: BaseException) -> str:
    """The innermost cause in a few words: libraries wrap a refused connection four deep."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return f"{type(error).__name__}: {error}"

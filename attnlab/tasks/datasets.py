"""Download of data sets, and the folder of data prepared from them.

An archive is downloaded once from its original address and verified; a copy placed in the folder by hand is verified and
used. Incomplete files, after a network error or a kill, are never used.
"""

import hashlib
import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnlab._util import files
from attnlab._util.files import file_lock
from attnlab.errors import UserError, nearest
from attnlab.tasks.archives import SOURCES, Source

logger = logging.getLogger(__name__)


# ---------------------------------------------------------------- folders


def folder() -> Path:
    """Return the folder of archives: ``ATTNLAB_DATA``, or else a folder in the platform's user cache."""
    return _folder("ATTNLAB_DATA", "data")


def prepared_folder() -> Path:
    """Return the folder of prepared data: ``ATTNLAB_CACHE``, or else a folder in the platform's user cache."""
    return _folder("ATTNLAB_CACHE", "prepared")


def _folder(variable: str, name: str) -> Path:
    import platformdirs

    path = os.environ.get(variable)
    return Path(path).expanduser() if path else Path(platformdirs.user_cache_dir("attnlab")) / name


def _make_folder(path: Path, variable: str) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"no permission to write in {path}")
    except OSError as error:
        raise UserError(f"cannot use the folder {path} ({error}); set {variable} to another") from error


# ---------------------------------------------------------------- prepared data


def prepared(name: str, key: dict[str, Any], build: Callable[[Path], None]) -> Path:
    """Return the folder of data prepared under ``key``, and build it if it is missing or damaged.

    Args:
        name: prefix of the folder's name.
        key: everything that determines the content: options, checksum of the data, library versions, a format version.
        build: writes its files into the empty folder that it receives. A build that is killed leaves nothing that could be
            mistaken for its result.
    """
    place = _place(name, key)
    if _is_intact(place):
        return place
    if place.exists():
        logger.warning("%s: %s is damaged, preparing it again", name, place)
    _make_folder(place.parent, "ATTNLAB_CACHE")
    lock = place.parent / f".{place.name}.lock"
    with file_lock(lock, activity=f"{name} is being prepared", timeout=math.inf, on_wait=logger.info):
        if _is_intact(place):
            return place
        for left_over in place.parent.glob(f".{place.name}.*.half"):  # of a killed process: this one holds the lock
            shutil.rmtree(left_over)
        half = place.with_name(f".{place.name}.{os.urandom(8).hex()}.half")
        try:
            half.mkdir()  # with the permissions that the umask allows
            build(half)
            digests = {file.name: files.sha256(file) for file in half.iterdir()}
            (half / "manifest.json").write_text(json.dumps({"key": key, "sha256": digests}, indent=1), encoding="utf-8")
            for file in half.iterdir():
                files.sync(file)
            if place.exists():  # damaged from outside
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
            shutil.rmtree(half, ignore_errors=True)  # gone already after success
    return place


def is_prepared(name: str, key: dict[str, Any]) -> bool:
    """Return True when ``prepared`` has nothing to build."""
    return _is_intact(_place(name, key))


def _place(name: str, key: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return prepared_folder() / f"{name}-{digest}"


def _is_intact(place: Path) -> bool:
    """Return True when every file has the checksum of its manifest.

    The rename makes a folder complete, but disks and users may damage files. Every process that opens the data checks them:
    100 MB take 0.06 s.
    """
    try:
        digests = json.loads((place / "manifest.json").read_text(encoding="utf-8"))["sha256"].items()
        return all(files.sha256(place / file) == digest for file, digest in digests)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):  # missing, or not a valid manifest
        return False


# ---------------------------------------------------------------- fetching and verifying


def find(name: str) -> Source:
    """Return the source named ``name``; raise ``UserError`` if there is none."""
    if name not in SOURCES:
        data_sets = dict.fromkeys(source.data_set for source in SOURCES.values())
        raise UserError(f"unknown data set {name!r}{nearest(name, [*SOURCES, *data_sets])}; known: {', '.join(data_sets)}")
    return SOURCES[name]


def find_all(name: str) -> list[Source]:
    """Return the sources of a data set: those in the folder ``name``, such as ``multi30k``, or else the one named ``name``."""
    return [source for source in SOURCES.values() if source.data_set == name] or [find(name)]


def load(source: Source) -> Any:
    """Return the verified contents of an archive, from the copy in the folder or else from its original address.

    Raises:
        UserError: the download failed, or the file is incomplete, corrupt or another one.
    """
    path = source.place(folder())
    if not path.exists():
        return _download(source, path)
    try:
        contents, note = source.read(source, path)
    except UserError as error:
        raise UserError(f"{error}; delete it to download it again") from error
    logger.info("%s: %s verified: %s", source.name, path, note)
    return contents


def fetch(source: Source) -> Path:
    """Download an archive if it is missing, verify it, and return its path. Errors are as in ``load``."""
    load(source)
    return source.place(folder())


def verify(source: Source) -> str:
    """Return one line that describes the archive in the folder; raise ``UserError`` if it is missing or wrong."""
    path = source.place(folder())
    if not path.exists():
        raise UserError(f"{path} does not exist; `attnlab data fetch {source.name}` downloads it from {source.url}")
    return f"{path}: {source.read(source, path)[1]}"


@dataclass(frozen=True)
class Status:
    """The files of one data set; ``size`` is the size of its archive in bytes, or None when it is missing."""

    source: Source
    path: Path
    size: int | None
    prepared: tuple[Path, ...]


def status() -> list[Status]:
    """List the files of all data sets, without reading, downloading or verifying any."""
    rows = []
    for source in SOURCES.values():
        path = source.place(folder())
        done = tuple(sorted(p for p in prepared_folder().glob(f"{source.data_set}-*") if p.is_dir()))
        rows.append(Status(source, path, path.stat().st_size if path.exists() else None, done))
    return rows


def _download(source: Source, path: Path) -> Any:
    """Download into a separate folder, verify, then move: a broken file never has the archive's name."""
    import pooch

    _make_folder(path.parent, "ATTNLAB_DATA")
    pooch.get_logger().setLevel("WARNING")
    lock = path.parent / f".{path.name}.lock"
    with file_lock(lock, activity=f"{source.name} is being downloaded", timeout=math.inf, on_wait=logger.info):
        if path.exists():  # another process has downloaded it
            return source.read(source, path)[0]
        part = path.parent / f".{path.name}.partial"
        shutil.rmtree(part, ignore_errors=True)  # left by a killed download
        try:
            logger.info("%s: downloading %s (%.0f MB) into %s", source.name, source.url, source.size / 1e6, path.parent)
            get: Any = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=30)
            download = Path(pooch.retrieve(source.url, None, fname=path.name, path=part, downloader=get))
            contents, note = source.read(source, download)
            files.sync(download)
            os.replace(download, path)
        except UserError as error:
            raise UserError(f"downloaded {source.url}, but {error}; the file was removed, try again") from error
        except OSError as error:
            if (why := files.describe_disk_error(error)) is not None:
                raise UserError(f"could not write {source.url} to {path.parent}: {why}") from error
            hint = f"without a network, place {path.name} in {path.parent}"
            raise UserError(f"could not download {source.url} ({_innermost_cause(error)}); {hint}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
    logger.info("%s: %s verified: %s", source.name, path, note)
    return contents


def _innermost_cause(error: BaseException) -> str:
    """Describe the innermost cause of an error: libraries wrap a refused connection four times."""
    while error.__cause__ or error.__context__:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return f"{type(error).__name__}: {error}"

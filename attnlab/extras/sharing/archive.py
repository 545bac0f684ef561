"""A zip archive; its first member lists the SHA-256 digest of every other one, so that any change of it is noticed."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from attnlab._util.files import describe_error, replacing, require_no_pipe
from attnlab.errors import UserError, one_line

MANIFEST = "bundle.json"
FORMAT = 1
MAX_FILES = 100_000
MAX_UNPACKED = 4 << 30  # bytes
MAX_RATIO = 100  # of the unpacked size to the size of the archive: text compresses to a tenth
SMALL = 64 << 20  # bytes, allowed at any ratio


@dataclass(frozen=True)
class Archive:
    """An archive that was read and checked.

    Attributes:
        digest: SHA-256 of the manifest, which determines all of the content.
        manifest: what the writer put beside the digests.
        files: path -> content.
    """

    digest: str
    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]


def write_archive(path: Path, manifest: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """Write an archive, replacing an earlier file, and return its digest."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    listing = json.dumps({"format": FORMAT, **manifest, "files": digests}, indent=1).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: listing, **files}.items():
            archive.writestr(name, content)
    return hashlib.sha256(listing).hexdigest()


def read_archive(path: Path) -> Archive:
    """Read an archive, and compare every file with its digest. The manifest is read first, and decides what else is.

    Raises:
        UserError: the file cannot be read, is no bundle or one of another format, would unpack to too much, or was changed
            since it was written.
    """
    where = str(path)
    require_no_pipe(path)
    try:
        with ZipFile(path) as archive:
            entries = archive.infolist()
            _require_size(entries, path.stat().st_size, where)
            listing = archive.read(MANIFEST)
            manifest = json.loads(listing)
            recorded = _recorded(manifest, [entry.filename for entry in entries], where)
            files = {name: archive.read(name) for name in recorded}
    except UserError:
        raise
    # KeyError: no manifest. RuntimeError: an encrypted entry, or JSON that is nested too deeply. The others: damaged entries.
    except (BadZipFile, KeyError, ValueError, RuntimeError, EOFError, zlib.error, struct.error, OverflowError) as error:
        raise UserError(f"expected a bundle of `attnlab bundle`, which is complete: {one_line(str(error))}", where) from None
    except OSError as error:
        raise UserError(f"expected a bundle of `attnlab bundle`: {describe_error(error)}", where) from None
    changed = [name for name, content in files.items() if recorded[name] != hashlib.sha256(content).hexdigest()]
    if changed:
        raise _changed(changed, where)
    return Archive(hashlib.sha256(listing).hexdigest(), manifest, files)


def _require_size(entries: Sequence[ZipInfo], size: int, where: str) -> None:
    """Raise `UserError` if an archive would unpack to much more than a bundle of its size does."""
    unpacked, most = sum(entry.file_size for entry in entries), min(MAX_UNPACKED, SMALL + MAX_RATIO * size)
    if unpacked > most or len(entries) > MAX_FILES:
        got = f"got one of {len(entries):,} files that unpacks to {unpacked / 1e6:,.0f} MB"
        raise UserError(f"expected a bundle of at most {MAX_FILES:,} files and {most / 1e6:,.0f} MB, {got}", where)


def _recorded(manifest: Any, names: Sequence[str], where: str) -> dict[str, str]:
    """Return the digest of each file of an archive according to its manifest."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise UserError(f"expected a bundle of format {FORMAT}, got {found!r}: another version of attnlab wrote it", where)
    for name in names:
        if PurePosixPath(name).is_absolute() or {"..", ""} & set(name.split("/")) or "\0" in name or "\\" in name:
            raise UserError(f"expected relative paths of files, got {name!r}", where)
    recorded = manifest.get("files")
    if not isinstance(recorded, dict) or not all(isinstance(digest, str) for digest in recorded.values()):
        raise UserError(f"expected the digest of each file in {MANIFEST}", where)
    if changed := sorted({MANIFEST, *recorded} ^ set(names)) or _twice(names):
        raise _changed(changed, where)
    return recorded


def _twice(names: Sequence[str]) -> list[str]:
    return [name for name, number in Counter(names).items() if number > 1]


def _changed(names: Sequence[str], where: str) -> UserError:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return UserError(f"was changed after it was written: {names[0]}{more}", where)

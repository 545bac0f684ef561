"""A zip archive whose first member lists the SHA-256 digest of every other one, so that any change of it is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from attnlab._util.files import describe_error, replacing
from attnlab.errors import UserError

MANIFEST = "bundle.json"
FORMAT = 1


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
    """Write an archive in place of an earlier file, and return its digest."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    listing = json.dumps({"format": FORMAT, **manifest, "files": digests}, indent=1).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
        for name, content in {MANIFEST: listing, **files}.items():
            archive.writestr(name, content)
    return hashlib.sha256(listing).hexdigest()


def read_archive(path: Path) -> Archive:
    """Read an archive, and compare every file with its digest.

    Raises:
        UserError: the file cannot be read, is no bundle or one of another format, or was changed since it was written.
    """
    where = str(path)
    try:
        with ZipFile(path) as archive:
            names = archive.namelist()
            listing = archive.read(MANIFEST)
            manifest = json.loads(listing)
            files = {name: archive.read(name) for name in names if name != MANIFEST}
    except (BadZipFile, KeyError, ValueError) as error:  # KeyError: no manifest
        raise UserError(f"expected a bundle of `attnlab bundle`, which is complete: {error}", where) from None
    except OSError as error:
        raise UserError(f"expected a bundle of `attnlab bundle`: {describe_error(error)}", where) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise UserError(f"expected a bundle of format {FORMAT}, got {found}: another version of attnlab wrote it", where)
    for name in names:
        if PurePosixPath(name).is_absolute() or {"..", ""} & set(name.split("/")):
            raise UserError(f"expected relative paths of files, got {name!r}", where)
    recorded = manifest.get("files", {})
    changed = [name for name, content in files.items() if recorded.get(name) != hashlib.sha256(content).hexdigest()]
    changed += [name for name in recorded if name not in files]
    if changed or len(names) != len(set(names)):
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise UserError(f"was changed after it was written: {changed[0] if changed else MANIFEST}{more}", where)
    return Archive(hashlib.sha256(listing).hexdigest(), manifest, files)

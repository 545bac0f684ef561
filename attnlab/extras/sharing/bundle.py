"""Writing the record of a study to a bundle, and reading it.

A bundle has these files besides the manifest:

- `study.json`: the tags of the study's experiment, among them the calls that ran it, its plan and its looks;
- `study.yaml`: the study file of the last call, to read;
- `runs/ID/run.json`, `runs/ID/files/`: name, state, tags, params and metrics of each run, and its artifacts;
- `models/FOLDER/`: with `weights`, the trained model of each run, in the folder that the runs folder has for it;
- `code/`: the files of users' classes with those that they import, and the source code of a program;
- `data/`: the other files of a program, if asked.

It is a zip archive; its first member, the manifest, lists the SHA-256 digest of every other one, so that any change of it is
noticed. Nothing in it is imported or run.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile, ZipInfo

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from attnlab._util.code_digest import code_files
from attnlab._util.files import describe_error, real_path, replacing, why_no_file
from attnlab._util.user_code import require_unchanged
from attnlab._version import __version__
from attnlab.config.command import CommandConfig
from attnlab.config.comparability import CODE
from attnlab.config.study import STUDY_NAME
from attnlab.errors import UserError, one_line
from attnlab.planning.plan import plan
from attnlab.study.looks import looks_in
from attnlab.tracking.client import runs_folder
from attnlab.tracking.experiment import read_calls
from attnlab.tracking.transfer import StoredRun, StoredStudy, Text, read_study_record, require_storable
from attnlab.training import weights

MANIFEST, MODELS = "bundle.json", "models"
FORMAT = 1
MAX_FILES = 100_000
MAX_UNPACKED = 4 << 30  # bytes
MAX_RATIO = 100  # of the unpacked size to the size of the archive: text compresses to a tenth
SMALL = 64 << 20  # bytes, allowed at any ratio
DIGITS = 12  # of a code's digest, in the name of its folder
SOURCE_CODE = (*CODE, ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp")
RUN, TAGS = TypeAdapter(StoredRun), TypeAdapter(Mapping[Text, Text])


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written or read.

    Attributes:
        digest: of its content; a bundle with another content has another one.
        record: of the study.
        models: the files of trained models, by their paths in the runs folder.
    """

    path: Path
    digest: str
    record: StoredStudy
    models: Mapping[str, bytes] = field(default_factory=dict)


def write_bundle(
    study: str,
    path: str | Path | None = None,
    *,
    data: bool = False,
    with_weights: bool = False,
    root: str | Path | None = None,
    announce: Callable[[Sequence[str]], object] = lambda names: None,
) -> Bundle:
    """Write the record of a study to one file.

    Args:
        study: the study's name.
        path: of the bundle; default `STUDY.zip` in the working directory. An earlier file is replaced.
        data: pack all files that a program depends on, not only its source code. Data of attnlab's tasks are never packed.
        root: the runs folder; default `ATTNLAB_RUNS`, else `runs`.
        with_weights: pack the trained models, too.
        announce: called with the names of the files before the bundle is written.

    Raises:
        UserError: the study does not exist or has no run that has ended; a file that its runs depend on is gone, or was
            changed since. The files of a program (`command`) are looked up in the working directory.
    """
    record = read_study_record(study, root)
    if not any(run.is_current for run in record.runs):
        raise UserError(f"expected a study with runs that have ended, got {study!r}, which has none")
    files = {"study.json": TAGS.dump_json(record.tags, indent=1)}
    if calls := read_calls(record.tags):
        files["study.yaml"] = calls[-1].text.encode()
    files |= dict(_class_files(record)) | dict(_program_files(record, data=data))
    for number, run in enumerate(record.runs):
        folder = f"runs/{number:04d}"
        files[f"{folder}/run.json"] = RUN.dump_json(run, exclude={"files"}, indent=1)
        files |= {f"{folder}/files/{name}": content for name, content in run.files.items()}
    models = dict(_models(record, runs_folder(root))) if with_weights else {}
    files |= {f"{MODELS}/{name}": content for name, content in models.items()}
    announce([*files])
    path = Path(path or f"{study}.zip")
    return Bundle(path, write_archive(path, {"attnlab": __version__, "study": study}, files), record, models)


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle, and check as a whole that it was not changed and that a store can hold it.

    Raises:
        UserError: as `attnlab.extras.sharing.bundle.read_archive`; or its content does not fit the schema.
    """
    archive = read_archive(Path(path))
    study = archive.manifest.get("study")
    if not isinstance(study, str) or re.fullmatch(STUDY_NAME, study) is None:  # the name of files and folders
        raise UserError(f"expected the name of a study, got {study!r}", str(path))
    try:
        folders = sorted({name.rpartition("/")[0] for name in archive.files if re.fullmatch(r"runs/\d+/run\.json", name)})
        runs = [RUN.validate_json(archive.files[f"{folder}/run.json"]) for folder in folders]
        runs = [replace(run, files=_under(f"{folder}/files", archive.files)) for run, folder in zip(runs, folders, strict=True)]
        record = StoredStudy(study, TAGS.validate_json(archive.files["study.json"]), runs)
        require_storable(record)
        looks_in(record.tags)
    except ValidationError as error:
        first = error.errors()[0]
        reason = one_line(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        raise UserError(f"expected the record of a study: {reason}", str(path)) from None
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"expected the record of a study: {one_line(describe_error(error))[:300]}", str(path)) from None
    models = {name: content for name, content in _under(MODELS, archive.files).items() if Path(name).name in weights.FILES}
    return Bundle(Path(path), archive.digest, record, models)


def _under(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files of a folder, by their paths within it."""
    return {name.removeprefix(f"{folder}/"): content for name, content in files.items() if name.startswith(f"{folder}/")}


def _configs(record: StoredStudy) -> list[dict[str, Any]]:
    return [run.record.config for run in record.runs if run.is_current]


def _class_files(record: StoredStudy) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the bundle and the content of each file with classes of the user, and of those that they import."""
    for name, digest in sorted({item for config in _configs(record) for item in config.get("sources", {}).items()}):
        path = Path(name)
        if not path.is_file():
            raise UserError(f"expected the file {name}, which the runs of {record.name} used: {why_no_file(path)}")
        require_unchanged(path, digest)
        used = code_files(real_path(path))
        top = os.path.commonpath([file.parent for file in used])
        yield from ((f"code/{digest[:DIGITS]}/{file.relative_to(top).as_posix()}", file.read_bytes()) for file in sorted(used))


def _program_files(record: StoredStudy, *, data: bool) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the bundle and the content of each file of a program: its source code, and if asked, the others."""
    recorded = [config["files"] for config in _configs(record) if "command" in config]
    calls = read_calls(record.tags)
    if not recorded or not calls:
        return
    settings = plan(YAML(typ="safe", pure=True).load(calls[-1].text)).cells[0].settings
    assert isinstance(settings, CommandConfig)
    for files in recorded:
        if changed := sorted(name for name, _ in set(files.items()) ^ set(settings.files.items())):
            message = f"expected {changed[0]} as the runs of {record.name} used it, in the working directory"
            raise UserError(f"{message}: call this in the folder of the study")
    for name in sorted(settings.listing):
        is_code = PurePosixPath(name).suffix in SOURCE_CODE
        if is_code or data:
            place = "/".join(part if part != ".." else "up" for part in name.split("/"))
            yield f"{'code' if is_code else 'data'}/{place}", Path(name).read_bytes()


def _models(record: StoredStudy, root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the runs folder and the content of each file of the trained models of a study."""
    for folder in dict.fromkeys(run.record.folder for run in record.runs if run.is_current):
        if weights.exist(root / folder):
            yield from ((f"{folder}/{name}", (root / folder / name).read_bytes()) for name in weights.FILES)


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
    """Raise `UserError` when an archive would unpack to much more than a bundle of its size does."""
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

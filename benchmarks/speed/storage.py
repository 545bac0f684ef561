"""Storage of results: a CSV file for each section, written as it is measured, and ``about.csv`` with commands and machines.

Each machine has a folder of its own. Both files hold the rows of its devices, so that a GPU adds to the results of the CPU.
"""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from attnlab import __version__
from benchmarks import processor
from benchmarks.speed.case import Case
from benchmarks.speed.ratios import ALIKE, groups, on

ABOUT = "about.csv"
ABOUT_COLUMNS = ["section", "device", "name", "value"]
CONFIGURATION = "configuration"  # name in about.csv of the digest that decides whether rows are reused
CASE_COLUMNS = ["round", "name", *ALIKE]


def read(path: Path) -> pd.DataFrame:
    """Return a section's CSV file; empty fields are empty strings."""
    frame = pd.read_csv(path, keep_default_na=False, dtype={"item": str, "part": str, "settings": str})
    return frame.astype({"value": float})


def read_about(out: Path) -> pd.DataFrame:
    """Return ``about.csv``, or an empty table if there is none."""
    path = out / ABOUT
    return pd.read_csv(path, dtype=str, keep_default_na=False) if path.is_file() else pd.DataFrame(columns=ABOUT_COLUMNS)


@dataclass(frozen=True)
class Stored:
    """The results of all machines.

    Attributes:
        frames: section -> the rows of its CSV files; the column ``device`` names the processor or the GPU.
        about: the rows of ``about.csv``, with the same names, and the columns ``kind`` (``cpu`` or ``cuda``) and ``folder``.
    """

    frames: dict[str, pd.DataFrame]
    about: pd.DataFrame


def read_all(out: Path, sections: Iterable[str]) -> Stored:
    """Return the results in the folders of ``out``, in the order of their names."""
    tables: dict[str, list[pd.DataFrame]] = {}
    abouts = [pd.DataFrame(columns=[*ABOUT_COLUMNS, "kind", "folder"])]
    for folder in sorted(path.parent for path in out.glob(f"*/{ABOUT}")):
        about = read_about(folder)
        names = {keys: _device_name(rows) for keys, rows in groups(about, "section", "device")}
        for section in sections:
            if (folder / f"{section}.csv").is_file():
                rows = read(folder / f"{section}.csv")
                devices = [names.get((section, device), device) for device in rows["device"]]
                tables.setdefault(section, []).append(rows.assign(device=devices))
        devices = [names[keys] for keys in zip(about["section"], about["device"], strict=True)]
        abouts.append(about.assign(kind=about["device"], folder=folder.name, device=devices))
    frames = {section: pd.concat(tables[section], ignore_index=True) for section in sections if section in tables}
    return Stored(frames, pd.concat(abouts, ignore_index=True))


def _device_name(about: pd.DataFrame) -> str:
    """Return the name of the GPU or of the processor that these rows of ``about.csv`` describe, else that of the device."""
    notes = dict(zip(about["name"], about["value"], strict=True))
    return notes["GPU"].partition(", CUDA")[0] if "GPU" in notes else notes.get("processor", about["device"].iloc[0])


def configuration(cases: Sequence[Case], *, requirements: str) -> str:
    """Return a digest of what timings depend on: cases, machine and versions, but not the number of rounds.

    Args:
        cases: of one device.
        requirements: identifies the environment that the cases run in.
    """
    gpu = torch.cuda.get_device_name() if any(case.device == "cuda" for case in cases) and torch.cuda.is_available() else ""
    machine = [processor.machine(), processor.instruction_sets(), platform.platform(), gpu, platform.python_version()]
    identity = [[asdict(case) for case in cases], machine, torch.__version__, __version__, requirements]
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


class SectionStore:
    """The results of a section.

    Rows of the given devices that were measured with another configuration are discarded, and so are the rows of
    incomplete comparisons, whose cases must be measured one right after the other.

    Args:
        out: the folder of the results.
        section: name of the section.
        cases: cases of one round.
        configurations: device -> its digest (see ``configuration``).
        fresh: discard all earlier rows of these devices.
    """

    def __init__(
        self, out: Path, section: str, cases: Sequence[Case], configurations: Mapping[str, str], *, fresh: bool = False
    ) -> None:
        self._out, self._section, self._path = out, section, out / f"{section}.csv"
        rows: Any = read(self._path) if self._path.is_file() else pd.DataFrame(columns=[*CASE_COLUMNS, "value"])
        for device, digest in configurations.items():
            if fresh or self.about(device).get(CONFIGURATION) != digest:
                rows = rows[rows["device"] != device]
                self._write_about(device, {CONFIGURATION: digest})
        needed: dict[tuple[str, ...], set[str]] = {}
        for case in cases:
            needed.setdefault(_comparison(asdict(case)), set()).add(case.name)
        measured: dict[tuple[int, tuple[str, ...]], set[str]] = {}
        for row in rows[CASE_COLUMNS].drop_duplicates().to_dict("records"):
            measured.setdefault((int(row["round"]), _comparison(row)), set()).add(row["name"])
        complete = {key for key, names in measured.items() if names >= needed.get(key[1], set())}
        keep = [
            device not in configurations or (int(number), (device, part, precision, settings)) in complete
            for number, device, part, precision, settings in rows[["round", *ALIKE]].itertuples(index=False)
        ]
        self._complete = complete
        self._save(rows[keep])

    def has(self, number: int, case: Case) -> bool:
        """Return whether the comparison that a case belongs to was measured in round ``number``."""
        return (number, _comparison(asdict(case))) in self._complete

    def append(self, rows: Sequence[Mapping[str, object]], device: str, about: Mapping[str, str]) -> None:
        """Write the rows of one case to disk, and the notes on its machine.

        Args:
            rows: one mapping for each row, with the columns of the CSV file.
            device: the case's device.
            about: name -> value, as the page shows it.
        """
        text = pd.DataFrame(rows).to_csv(index=False, header=not self._path.is_file(), float_format="%.9g")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)
        self.note(device, about)

    def note(self, device: str, about: Mapping[str, str]) -> None:
        """Add notes on a device's measurements to ``about.csv``."""
        known = self.about(device)
        if known != known | dict(about):
            self._write_about(device, known | dict(about))

    def about(self, device: str) -> dict[str, str]:
        """Return the notes on a device's measurements."""
        notes = on(read_about(self._out), section=self._section, device=device)
        return dict(zip(notes["name"], notes["value"], strict=True))

    def sort(self) -> None:
        """Order the rows by device."""
        if self._path.is_file():
            self._save(read(self._path))

    def _save(self, rows: pd.DataFrame) -> None:
        self._path.unlink(missing_ok=True)
        if len(rows):
            rows.sort_values("device", kind="stable").to_csv(self._path, index=False, float_format="%.9g")

    def _write_about(self, device: str, about: Mapping[str, str]) -> None:
        old = read_about(self._out)
        new = pd.DataFrame([(self._section, device, *pair) for pair in about.items()], columns=ABOUT_COLUMNS)
        others = old.drop(index=on(old, section=self._section, device=device).index)
        pd.concat([others, new]).to_csv(self._out / ABOUT, index=False)


def _comparison(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ALIKE)

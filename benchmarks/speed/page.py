"""``reports/benchmarks/README.md``, from the CSV files beside it: no number on it is typed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import loop
from benchmarks.speed import tables
from benchmarks.speed.figures import DRAWN
from benchmarks.speed.ratios import groups, on
from benchmarks.speed.targets import verdicts

ABOUT = "about.csv"
COLUMNS = ["section", "device", "name", "value"]
HEAD = """\
# attnlab beside its peers

Written by `python -m benchmarks.speed`, each section by the command beneath its title. attnlab and each peer take turns
(A B A B), each case in a fresh process, warmed up; every second round runs backwards. A ratio is that of two cases
measured one right after the other, of the medians of their steps. Figures are medians over the rounds, with (smallest to
largest); every timing is in the CSV file of its section. Where something is trained its loss was finite and fell: else
the command ends.

## Targets

On a CPU, the median over the rounds against what issue 6 asks for.

{targets}
"""
LOOP = """
## The loop

`python -m benchmarks.loop`: a run of the default model (dense) on each byte task, twice, the second time with the data that the
first prepared. Seconds of its wall time, without Python's own start. Timings: [loop.csv](loop.csv).

{table}
Evaluation reads all of `valid` and `test`, however long a run is. The last column says from how many steps on evaluation,
logging and checkpoints are at most 5 % of a run; of a study `attnlab plan` says beforehand what evaluation adds to training.
"""


def keep_rows(out: Path, section: str, rows: pd.DataFrame) -> None:
    """Write a section's rows, in place of those of the same devices: a machine with a GPU adds to what others measured."""
    path = out / f"{section}.csv"
    if path.is_file():
        old: Any = read(path)
        rows = pd.concat([old[~old["device"].isin(rows["device"])], rows])
    rows.sort_values("device", kind="stable").to_csv(path, index=False, float_format="%.9g")


def keep_about(out: Path, section: str, device: str, about: Mapping[str, str]) -> None:
    """Note on what machine and by what command a section was measured on a device, in place of what stood there of it."""
    path = out / ABOUT
    old = pd.read_csv(path, dtype=str) if path.is_file() else pd.DataFrame(columns=COLUMNS)
    new = pd.DataFrame([(section, device, *pair) for pair in about.items()], columns=COLUMNS)
    pd.concat([old.drop(index=on(old, section=section, device=device).index), new]).to_csv(path, index=False)


def write(out: Path) -> None:
    """The page and its plots, from whatever sections have a CSV file there."""
    frames = {name: read(out / f"{name}.csv") for name in tables.SECTIONS if (out / f"{name}.csv").is_file()}
    about = pd.read_csv(out / ABOUT, dtype=str, keep_default_na=False)
    text = HEAD.format(targets=tables.markdown(["", "wanted", "found", ""], verdicts(frames)))
    for name in frames:
        text += _section(out, name, frames, about=on(about, section=name))
    if (out / "loop.csv").is_file():
        text += LOOP.format(table=loop.table(pd.read_csv(out / "loop.csv")))
    (out / "README.md").write_text(text, encoding="utf8")


def read(path: Path) -> pd.DataFrame:
    """A section's CSV; what is empty stays an empty text."""
    frame = pd.read_csv(path, keep_default_na=False, dtype={"item": str, "part": str, "settings": str})
    return frame.astype({"value": float})


def _section(out: Path, name: str, frames: Mapping[str, pd.DataFrame], *, about: pd.DataFrame) -> str:
    frame = frames[name]
    parts = [f"\n## {tables.SECTIONS[name].title}\n"]
    for (device,), one in groups(about, "device"):
        notes = dict(zip(one["name"], one["value"], strict=True))
        command = notes.pop("command", "")
        told = ", ".join(value if key in ("machine", "GPU") else f"{key} {value}" for key, value in notes.items())
        each = on(frame, device=device)["load"]
        load = f"load average {each.min():.1f} to {each.max():.1f}"
        parts.append(f"`{command}`: {told}; {load}. Timings: [{name}.csv]({name}.csv).\n")
    parts.append(tables.SECTIONS[name].text(frames))
    for file, svg in DRAWN[name](frame) if name in DRAWN else ():
        (out / file).write_text(svg, encoding="utf8")
        parts.append(f"\n![{file.removesuffix('.svg')}]({file})\n")
    return "\n".join(parts)

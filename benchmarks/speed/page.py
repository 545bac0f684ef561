"""``reports/benchmarks/README.md``, generated from the CSV files next to it."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from benchmarks.speed import tables
from benchmarks.speed.figures import DRAWN
from benchmarks.speed.ratios import groups, on
from benchmarks.speed.storage import CONFIGURATION, read, read_about
from benchmarks.speed.targets import verdicts

HEAD = """\
# attnlab compared with its peers

Written by `python -m benchmarks.speed`, each section by the command below its title. attnlab and each peer take turns
(A B A B), each case in a fresh process after a warm-up; every second round runs in reverse order. A ratio compares two cases
measured one right after the other, by the medians of their steps. Figures are medians over the rounds, with (smallest to
largest); every timing is in the CSV file of its section. Training cases must have a finite, falling loss; otherwise the
command fails.

## Targets

The median over the rounds on a CPU against the target.

{targets}
"""
LOOP = """
## The loop

`python -m benchmarks.loop`: two runs of the default model (dense) on each byte task, the second with the data that the first
prepared. Seconds of wall time, without Python's start. Timings: [loop.csv](loop.csv).

{table}
Evaluation reads all of `valid` and `test`, regardless of the length of a run. The last column is the number of steps from
which evaluation, logging and checkpoints take at most 5 % of a run. `attnlab plan` estimates the evaluation time of a study.
"""


def write(out: Path) -> None:
    """Write the page and its plots from the sections that have a CSV file in ``out``."""
    frames = {name: read(out / f"{name}.csv") for name in tables.SECTIONS if (out / f"{name}.csv").is_file()}
    about = read_about(out)
    text = HEAD.format(targets=tables.markdown(["", "wanted", "found", ""], verdicts(frames)))
    for name in frames:
        text += _section(out, name, frames, about=on(about, section=name))
    if (out / "loop.csv").is_file():
        text += LOOP.format(table=tables.loop_table(pd.read_csv(out / "loop.csv")))
    (out / "README.md").write_text(text, encoding="utf8")


def _section(out: Path, name: str, frames: Mapping[str, pd.DataFrame], *, about: pd.DataFrame) -> str:
    frame = frames[name]
    parts = [f"\n## {tables.SECTIONS[name].title}\n"]
    for (device,), described in groups(about, "device"):
        notes = dict(zip(described["name"], described["value"], strict=True))
        command, _ = notes.pop("command", ""), notes.pop(CONFIGURATION, "")
        machine = ", ".join(value if key in ("machine", "GPU") else f"{key} {value}" for key, value in notes.items())
        loads = on(frame, device=device)["load"]
        load = f"load average {loads.min():.1f} to {loads.max():.1f}"
        parts.append(f"`{command}`: {machine}; {load}. Timings: [{name}.csv]({name}.csv).\n")
    parts.append(tables.SECTIONS[name].text(frames))
    for file, svg in DRAWN[name](frame) if name in DRAWN else ():
        (out / file).write_text(svg, encoding="utf8")
        parts.append(f"\n![{file.removesuffix('.svg')}]({file})\n")
    return "\n".join(parts)

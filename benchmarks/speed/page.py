"""``reports/benchmarks/README.md``, generated from the CSV files in the folders next to it, one for each machine."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from benchmarks.processor import AVX2_ONLY
from benchmarks.speed import figures, gpu, tables
from benchmarks.speed.comparisons import measured, overview, speeds, verdicts
from benchmarks.speed.figures import DRAWN
from benchmarks.speed.ratios import groups, on
from benchmarks.speed.storage import CONFIGURATION, Stored, read_all
from benchmarks.verdict import tables as verdict
from benchmarks.verdict.ways import IN_FP32

MACHINE = ("processor", "instruction sets", "machine", "GPU")  # notes whose value describes itself
HEAD = """\
# attnlab compared with its peers

attnlab against the fastest peer of each comparison, by processor:

{overview}

![overview](overview.svg)

How many times as fast attnlab is, the median over the rounds with (smallest to largest), and the fastest peer:

{speeds}
## How it is measured

`python -m benchmarks.speed` and `python -m benchmarks.verdict` write this page, each section by the command below its title.
attnlab and each peer take turns (A B A B), each case in a fresh process; steps are timed after a warm-up, and every second
round runs in reverse order. A ratio compares two cases measured one right after the other, by the medians of their steps.
Figures are medians over the rounds; every timing is in the CSV file of its section. Training cases must have a finite, falling
loss; otherwise the command fails. The [targets](#targets) are at the end.

A machine "limited to AVX2" stands in for a processor without AVX-512; its libraries are limited by the environment variables
`{limited}`.
Where bf16 products are slower than fp32 products, no case is measured in bf16.
"""
PRECISIONS = """
To a verdict, attnlab as shipped trains in bf16 where its plan measures that steps are faster in it; the peers train in fp32
([why](#time-to-a-verdict)).
"""
IN_FAVOUR = """
The times to a verdict are to be measured again: their ratios are [too favourable to attnlab](#time-to-a-verdict).
"""
LOOP = """
## The loop

`python -m benchmarks.loop`: two runs of the default model (dense) on each byte task, the second with the data that the first
prepared. Seconds of wall time, without Python's start.
{tables}
Evaluation reads all of `valid` and `test`, regardless of the length of a run. The last column is the number of steps from
which evaluation, logging and checkpoints take at most 5 % of a run. `attnlab plan` estimates the evaluation time of a study.
"""
TARGETS = """
## Targets

The median over the rounds on a CPU against the target.

{table}"""


def write(out: Path) -> None:
    """Write the page and its plots from the results in the folders of ``out``."""
    stored = read_all(out, tables.SECTIONS)
    times = {path.parent.name: verdict.read(path) for path in sorted(out.glob(f"*/{verdict.FILE}"))}
    frames = {**stored.frames, **({"verdict": pd.concat(times.values())} if times else {})}
    sets = _instruction_sets(stored, times)
    cpus = list(sets)
    devices = [*cpus, *(name for name in dict.fromkeys(stored.about["device"]) if name not in sets)]
    ratios = measured(frames, devices)
    lines = [f"- **{name}**{f' ({sets[name]})' if sets.get(name) else ''}: {overview(ratios, name)}" for name in devices]
    (out / "overview.svg").write_text(figures.overview(ratios, devices), encoding="utf-8")
    limited = " ".join(f"{variable}={value}" for variable, value in AVX2_ONLY.items())
    rows = tables.markdown(["", *devices], speeds(ratios, devices))
    if any(IN_FP32 in set(results["way"]) for results in times.values()):
        rows += PRECISIONS
    if any(verdict.favours_attnlab(out / folder / verdict.FILE) for folder in times):
        rows += IN_FAVOUR
    text = HEAD.format(overview="\n".join(lines), speeds=rows, limited=limited)
    text += _verdict(out, times)
    for name in stored.frames:
        text += _section(out, name, stored)
    text += gpu.section(out.parent / "gpu")
    text += _loop(out, stored)
    text += TARGETS.format(table=tables.markdown(["", "wanted", *cpus], verdicts(ratios, cpus)))
    (out / "README.md").write_text(text, encoding="utf-8")


def _instruction_sets(stored: Stored, times: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return the processors, with their instruction sets, "" where they are unknown."""
    cpus = on(stored.about, kind="cpu")
    sets = dict.fromkeys(cpus["device"], "")
    for frame in times.values():
        sets |= dict(zip(frame["device"], frame["instruction_sets"], strict=True))
    noted = on(cpus, name="instruction sets")
    return sets | dict(zip(noted["device"], noted["value"], strict=True))


def _verdict(out: Path, times: Mapping[str, pd.DataFrame]) -> str:
    """Return the section on the time to a verdict, with a table for each machine."""
    if not times:
        return ""
    parts = [f"\n## {verdict.TITLE}\n\n{verdict.TEXT}"]
    for folder, results in times.items():
        path = out / folder / verdict.FILE
        about = f"{verdict.describe(path, results)} Timings: [{verdict.FILE}]({folder}/{verdict.FILE})."
        parts.append(f"### {results['device'].iloc[0]}\n\n{about}\n\n{verdict.table(results)}")
        if (steps := out / folder / verdict.AUTOCAST).is_file():
            parts.append(verdict.autocast(steps))
    return "\n".join([*parts, verdict.NOTES])


def _section(out: Path, name: str, stored: Stored) -> str:
    frame = stored.frames[name]
    parts = [f"\n## {tables.SECTIONS[name].title}\n"]
    for (folder, device), described in groups(on(stored.about, section=name), "folder", "device"):
        notes = dict(zip(described["name"], described["value"], strict=True))
        command, _ = notes.pop("command", ""), notes.pop(CONFIGURATION, "")
        machine = ", ".join(value if key in MACHINE else f"{key} {value}" for key, value in notes.items() if value)
        loads = on(frame, device=device)["load"]
        load = f"load average {loads.min():.1f} to {loads.max():.1f}"
        parts.append(f"`{command}`: {machine}; {load}. Timings: [{name}.csv]({folder}/{name}.csv).\n")
    parts.append(tables.SECTIONS[name].text(stored.frames))
    for file, svg in DRAWN[name](frame) if name in DRAWN else ():
        (out / file).write_text(svg, encoding="utf-8")
        parts.append(f"\n![{file.removesuffix('.svg')}]({file})\n")
    return "\n".join(parts)


def _loop(out: Path, stored: Stored) -> str:
    """Return the section on the loop, with a table for each machine that measured it."""
    machines = dict(zip(*(on(stored.about, kind="cpu")[name] for name in ("folder", "device")), strict=True))
    parts = []
    for path in sorted(out.glob("*/loop.csv")):
        folder = path.parent.name
        link = f"Timings: [loop.csv]({folder}/loop.csv)."
        parts.append(f"\n### {machines.get(folder, folder)}\n\n{link}\n\n{tables.loop_table(pd.read_csv(path))}")
    return LOOP.format(tables="".join(parts)) if parts else ""

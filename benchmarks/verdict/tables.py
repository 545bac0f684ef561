"""The results of ``benchmarks.verdict`` as text."""

import json
from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from attnlab._util.text import count
from benchmarks.speed.case import OURS
from benchmarks.speed.ratios import groups, on, spread, times_as_fast
from benchmarks.speed.tables import markdown
from benchmarks.verdict.ways import IN_FP32

FILE, AUTOCAST = "verdict.csv", "autocast.csv"
TITLE = "Time to a verdict"
TEXT = """\
The seven cells of `ablations/quickstart.yaml` with five seeds each: 35 trainings and their evaluation, from the start of the
first process to the last result. attnlab runs the study with its defaults, in an empty folder of runs, from the plan to the
report with its verdicts. Its plan chooses the precision; where that is bf16, the study is also measured in fp32. A peer trains
the same cells for the same steps on the same batches, in fp32 (below each table: what bf16 would change), in a script that a
shell loop starts once for each run; it writes the scores, and no report. One after another, its processes have PyTorch's
default number of threads; two at a time, half of the processors each. Before its first measurement, each library trains two
cells for a few steps, so that Python has compiled its modules. The ways take turns (A B C, A B C); a ratio compares two
measurements of the same round. Bits per byte: of `dense` on `test`, mean over the seeds.
"""
NOTES = """
`plain PyTorch` is a script in the manner of nanoGPT ([plain.py](../../benchmarks/verdict/plain.py)) with attnlab's model of
each cell, parameter by parameter; its sparse cells pass their mask to `scaled_dot_product_attention`, which computes all pairs.
x-transformers has `dense` and `wide`, and takes the masks of the sparse cells. It has no counterpart of `no_wo`, `narrow` and
`basic`; there it trains its standard attention with as many heads, and with the head width that brings the number of parameters
nearest to the cell's: 12, 5 and 1 features instead of 16, 16 and 64. Both peers use fused AdamW.
"""
# Results of the versions before the variable was cleared.
UNCOMPILED = """\
**With `PYTHONDONTWRITEBYTECODE=1`**: each process compiled its modules again. On the Zen 3 that took about 2 seconds of every
training of a peer and 20 of attnlab's study, so without this variable the ratios are smaller. To be measured again.\
"""


def read(path: Path) -> pd.DataFrame:
    """Return ``verdict.csv``, as ``frame`` does."""
    return frame(pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records"))


def frame(rows: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """Return rows of ``verdict.csv`` with numbers and a ``device``.

    They also have the ``ratio`` of the seconds to attnlab's in the round, and ``fp32_ratio``, to attnlab's in fp32.
    """
    types = {"round": int, "at_a_time": int, "runs": int, "seconds": float, "bits_per_byte": float, "load": float}
    numbers = pd.DataFrame(rows).astype(types)
    shipped, fp32 = (_seconds(on(numbers, way=way)) for way in (OURS, IN_FP32))
    own = {"ratio": shipped, "fp32_ratio": shipped | fp32}  # IN_FP32 is not measured where attnlab chooses fp32
    ratios = {name: numbers["seconds"] / [of.get(number, nan) for number in numbers["round"]] for name, of in own.items()}
    return numbers.assign(device=numbers["processor"], **ratios)


def _seconds(rows: pd.DataFrame) -> dict[int, float]:
    return dict(zip(rows["round"], rows["seconds"], strict=True))


def label(way: str, at_a_time: int) -> str:
    """Return the name of a way, such as ``"x-transformers, two at a time"``."""
    return way + {0: "", 1: ", one after another", 2: ", two at a time"}[at_a_time]


def table(results: pd.DataFrame) -> str:
    """Return the table of one machine."""
    rows = []
    for (way, number), some in groups(results, "way", "at_a_time"):
        ratios = ["" if way in (OURS, IN_FP32) else times_as_fast(some[name].dropna()) for name in ("ratio", "fp32_ratio")]
        rows.append([label(way, int(number)), spread(some["seconds"], 0), *ratios, f"{some['bits_per_byte'].mean():.3f}"])
    return markdown(["", "seconds", "attnlab, times as fast", f"{IN_FP32}, times as fast", "bits per byte"], rows)


def autocast(path: Path) -> str:
    """Return a sentence on the peers in bf16, of the steps in ``path``, the sum over the cells."""
    steps: Any = pd.read_csv(path).groupby(["threads", "peer"])[["fp32_ms", "bf16_ms"]].sum()
    ratios = [
        f"{row.bf16_ms / row.fp32_ms:.2f} ({peer}, {count(threads, 'thread')})" for (threads, peer), row in steps.iterrows()
    ]
    return (
        f"Under bf16 autocast, the steps of all cells together take the peers {', '.join(ratios)} times as long as in fp32: "
        f"`python -m benchmarks.verdict.autocast`, [{AUTOCAST}]({path.parent.name}/{AUTOCAST}).\n"
    )


def describe(path: Path, results: pd.DataFrame) -> str:
    """Return the machine, the versions and the command that the results in ``path`` were measured with."""
    about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    versions = [f"{name} {about[name]}" for name in ("Python", "torch", "attnlab")]
    peers = about["peers"] if isinstance(about["peers"], list) else []
    machine = f"{about['processor']} ({about['instruction_sets']}), {about['platform']}"
    load = f"load average {results['load'].min():.1f} to {results['load'].max():.1f}"
    measured = results["round"].value_counts()  # round -> number of ways
    command = f"python -m benchmarks.verdict --rounds {len(measured)}"
    interrupted = ", interrupted in the last round" if measured.nunique() > 1 else ""
    caveat = f" {UNCOMPILED}" if favours_attnlab(path) else ""
    return f"`{command}`{interrupted}: {', '.join([machine, *versions, *peers])}; {load}.{caveat}"


def favours_attnlab(path: Path) -> bool:
    """Return whether each process of the results in ``path`` may have compiled its modules, which slows peers more."""
    return "cleared variables" not in json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))

"""Measure sections and write their part of ``reports/benchmarks``: ``python -m benchmarks.speed [SECTION ...]``."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import pandas as pd
import torch

from benchmarks.speed import imdb, page
from benchmarks.speed.case import Case
from benchmarks.speed.environment import PEERS, PEERS_XL, ROOT, Environment, split

DEVICES = ["cpu", "cuda"]
SECTIONS: dict[str, Environment] = {
    "step": PEERS,
    "floor": PEERS,
    "profile": PEERS,
    "xl": PEERS_XL,
    "imdb": PEERS,
    "sparse": PEERS,
}


def measured(
    section: str, devices: Sequence[str], *, rounds: int, here: bool = False
) -> tuple[pd.DataFrame, dict[str, dict[str, str]]]:
    """Every figure of a section's rounds, and device -> what they were measured on. Every second round runs backwards.

    Args:
        here: in this interpreter, without the peers that it cannot import.
    """
    python = Path(sys.executable) if here else SECTIONS[section].python()
    cases = [case for device in devices for case in import_module(f"benchmarks.speed.{section}").cases(device)]
    cases, absent = split(cases) if here else (cases, {})
    for peer, reason in absent.items():
        print(f"{section}: {peer} is left out: {reason}", flush=True)
    rows: list[dict[str, object]] = []
    about: dict[str, dict[str, str]] = {device: {} for device in devices}
    for number in range(rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            load = os.getloadavg()[0]
            found = in_fresh_process(case, python)
            rows += [{"round": number, **asdict(case), **row, "load": load} for row in found["rows"]]
            about[case.device] |= found["about"]
            print(f"round {number + 1} of {rounds}: {case}", flush=True)
    for known in about.values() if absent else ():
        known["left out"] = "; ".join(absent)
    return pd.DataFrame(rows).drop(columns="section"), about


def in_fresh_process(case: Case, python: Path) -> dict:
    """What ``worker`` writes; ends this process with the case's own words where it fails."""
    with tempfile.TemporaryDirectory() as name:
        given, out = Path(name) / "case.json", Path(name) / "out.json"
        given.write_text(json.dumps(asdict(case)))
        words = [python, "-m", "benchmarks.speed.worker", given, out]
        done = subprocess.run(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"{case} failed:\n{done.stderr}" if "Traceback" in done.stderr else done.stderr.strip())
        return json.loads(out.read_text())


def main(words: Sequence[str] | None = None) -> None:
    """Measure, write each section's CSV as it comes, and the page; what other devices are known by stays."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="attnlab beside its peers.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="how often the cases take turns")
    parser.add_argument("--out", type=Path, default=Path("reports/benchmarks"))
    parser.add_argument("--device", choices=DEVICES, help="default: the CPU, and CUDA where there is one")
    parser.add_argument("--here", action="store_true", help="set no environment up; without peers that are not in this one")
    given = parser.parse_args(words)
    unknown = [name for name in given.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"expected sections of {', '.join(SECTIONS)}, got {unknown[0]!r}")
    devices = [given.device] if given.device else DEVICES[: 1 + torch.cuda.is_available()]
    options = [*(["--device", given.device] if given.device else []), *(["--here"] if given.here else [])]
    given.out.mkdir(parents=True, exist_ok=True)
    for section in given.sections or SECTIONS:
        reason = imdb.absent() if section == "imdb" else None
        if reason:
            print(reason)
            continue
        rows, about = measured(section, devices, rounds=given.rounds, here=given.here)
        page.keep_rows(given.out, section, rows)
        command = " ".join(["python -m benchmarks.speed", section, "--rounds", str(given.rounds), *options])
        for device in devices:
            page.keep_about(given.out, section, device, {"command": command, **about[device]})
        page.write(given.out)  # after each: a later section that fails takes nothing away
    print(given.out / "README.md")


if __name__ == "__main__":
    main()

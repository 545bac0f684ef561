"""Measure sections and write their part of ``reports/benchmarks``: ``python -m benchmarks.speed [SECTION ...]``.

Each case is written to its section's CSV file, in the folder of this machine, as soon as it is measured. Run the command
again to continue an interrupted benchmark; results of the same configuration are not measured again, except with ``--fresh``.
"""

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

import torch

from attnlab.nn.processor import has_bf16
from benchmarks import processor
from benchmarks.speed import imdb, page
from benchmarks.speed.case import Case
from benchmarks.speed.environment import PEERS, PEERS_XL, ROOT, Environment, split
from benchmarks.speed.storage import SectionStore, configuration

DEVICES = ["cpu", "cuda"]
SECTIONS: dict[str, Environment] = {
    "step": PEERS,
    "floor": PEERS,
    "profile": PEERS,
    "xl": PEERS_XL,
    "imdb": PEERS,
    "sparse": PEERS,
}


def measure(
    section: str, devices: Sequence[str], out: Path, *, rounds: int, here: bool = False, fresh: bool = False
) -> SectionStore:
    """Measure the cases of a section that its CSV file lacks. Every second round runs in reverse order.

    Args:
        devices: devices to measure on.
        out: the folder of this machine's results.
        rounds: how many times every case is measured.
        here: use this interpreter, without the peers that it cannot import.
        fresh: discard earlier results.
    """
    python = Path(sys.executable) if here else SECTIONS[section].python()
    cases = [case for device in devices for case in import_module(f"benchmarks.speed.{section}").cases(device)]
    cases, absent = split(cases) if here else (cases, {})
    for peer, reason in absent.items():
        print(f"{section}: {peer} is left out: {reason}", flush=True)
    if any(map(_slow, cases)):
        print(f"{section}: bf16 is left out: this processor has no instructions for it", flush=True)
        cases = [case for case in cases if not _slow(case)]
    requirements = "this interpreter" if here else (ROOT / SECTIONS[section].requirements).read_text(encoding="utf-8")
    by_device = {device: [case for case in cases if case.device == device] for device in devices}
    digests = {device: configuration(some, requirements=requirements) for device, some in by_device.items()}
    store = SectionStore(out, section, cases, digests, fresh=fresh)
    for number in range(rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            if store.has(number, case):
                continue
            load = os.getloadavg()[0]
            result = in_fresh_process(case, python)
            columns = {name: value for name, value in asdict(case).items() if name != "section"}
            rows = [{"round": number, **columns, **row, "load": load} for row in result["rows"]]
            left_out = {"left out": "; ".join(absent)} if absent else {}
            store.append(rows, case.device, result["about"] | left_out)
            print(f"round {number + 1} of {rounds}: {case}", flush=True)
    store.sort()
    return store


def _slow(case: Case) -> bool:
    """Return True for bf16 on a CPU that computes it in software, where attnlab advises against it and a step takes minutes."""
    return (case.device, case.precision) == ("cpu", "bf16") and not has_bf16()


def in_fresh_process(case: Case, python: Path) -> dict:
    """Measure a case in a ``worker`` process and return its output; exit with the worker's error if it fails."""
    with tempfile.TemporaryDirectory() as name:
        source, out = Path(name) / "case.json", Path(name) / "out.json"
        source.write_text(json.dumps(asdict(case)), encoding="utf-8")
        command = [python, "-m", "benchmarks.speed.worker", source, out]
        process = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        if process.returncode:
            sys.exit(f"{case} failed:\n{process.stderr}" if "Traceback" in process.stderr else process.stderr.strip())
        return json.loads(out.read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure sections and write the page after each; results of other devices are kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="Compare attnlab's speed with its peers'.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each case (default 5)")
    parser.add_argument(
        "--out", type=Path, default=Path("reports/benchmarks"), help="folder of the page and the machines' results"
    )
    parser.add_argument("--device", choices=DEVICES, help="default: the CPU, and CUDA if available")
    parser.add_argument("--here", action="store_true", help="use this environment, without peers that are not installed in it")
    parser.add_argument("--fresh", action="store_true", help="discard earlier results and measure everything again")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"expected sections of {', '.join(SECTIONS)}, got {unknown[0]!r}")
    devices = [options.device] if options.device else DEVICES[: 1 + torch.cuda.is_available()]
    folder = processor.folder(options.out)
    flags = [*(["--device", options.device] if options.device else []), *(["--here"] if options.here else [])]
    folder.mkdir(parents=True, exist_ok=True)
    for section in options.sections or SECTIONS:
        reason = imdb.absent() if section == "imdb" else None
        if reason:
            print(reason)
            continue
        store = measure(section, devices, folder, rounds=options.rounds, here=options.here, fresh=options.fresh)
        command = " ".join(["python -m benchmarks.speed", section, "--rounds", str(options.rounds), *flags])
        for device in devices:
            store.note(device, {"command": command})
        page.write(options.out)  # after each section, in case a later one fails
    print(options.out / "README.md")


if __name__ == "__main__":
    main()

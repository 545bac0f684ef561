"""Claims of the court with other seeds: ``python -m benchmarks.court [ID ...]`` runs them again and compares.

Each claim's study is trained as a study of another name with seeds from 200 on, which the court has not used, and judged in the
same way. ``reports/claims/again.csv`` has one row for each result of a claim that is settled, and is added to.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from attnlab.cli.main import main as attnlab
from attnlab.config.question import OF_SOLVE_RATES
from attnlab.extras.claims.court import REPORTS, STUDIES, Case, judge, read_claims
from attnlab.extras.claims.ruling import MOST_SEEDS

FIRST_SEED, MOST = 200, 8
RESULTS = REPORTS / "again.csv"
AGAIN = Path("runs/court-again")  # study files and reports of the second time


def write_copies(ids: Sequence[str], folder: Path) -> None:
    """Write the study files of claims with another name and other seeds, as many as their files have, and at most `MOST`."""
    folder.mkdir(parents=True, exist_ok=True)
    for claim in read_claims(STUDIES, ids):
        study: dict[str, Any] = {"include": str(claim.path.resolve()), "study": f"again-{claim.study.study}"}
        study["seeds"] = f"{FIRST_SEED}-{FIRST_SEED + min(len(claim.study.seeds), MOST) - 1}"
        if claim.study.imports:
            study["imports"] = [str((claim.path.parent / module).resolve()) for module in claim.study.imports]
        (folder / claim.path.name).write_text(yaml.safe_dump(study), encoding="utf-8")


def compare(case: Case, again: Case) -> list[dict[str, Any]]:
    """Return a row for each result of a claim: its estimate and its verdict, both times."""
    seconds = {one.name: one for one in again.ruling.evidence} if again.ruling else {}
    null = MOST_SEEDS if case.claim.config.direction in OF_SOLVE_RATES else 0.0
    rows = []
    for one in case.ruling.evidence if case.ruling else ():
        other = seconds.get(one.name)
        if one.mean is None or other is None or other.mean is None:
            continue
        signs = [(mean > null) - (mean < null) for mean in (one.mean, other.mean)]
        row = {"claim": case.claim.id, "result": one.name, "verdict": case.verdict, "estimate": one.mean, "seeds": one.seeds}
        row |= {"verdict_again": again.verdict, "estimate_again": other.mean, "seeds_again": other.seeds}
        rows.append(row | {"same_sign": signs[0] == signs[1]})
    return rows


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.court", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims (default those of the table)")
    parser.add_argument("--workers", default="auto")
    arguments = parser.parse_args(words)
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    rows: list[dict[str, Any]] = list(csv.DictReader(lines))
    ids = arguments.ids or list(dict.fromkeys(row["claim"] for row in rows))
    studies, reports = AGAIN / "studies", AGAIN / "reports"
    write_copies(ids, studies)
    code = attnlab(
        ["claims", "run", *ids, "--studies", str(studies), "--reports", str(reports), "--workers", arguments.workers]
    )
    firsts = [case for claim in read_claims(STUDIES, ids) if (case := judge(claim)).is_settled]
    found = {case.claim.id: compare(case, judge(read_claims(studies, [case.claim.id])[0], reports)) for case in firsts}
    rows = [row for row in rows if row["claim"] not in found] + [row for part in found.values() for row in part]
    if not rows:
        print("no claim is settled: nothing to compare")
        return code
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: row["claim"]))
    return code


if __name__ == "__main__":
    raise SystemExit(main())

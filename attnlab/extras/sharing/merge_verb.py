"""`attnlab merge`: join the runs of bundles of one study, and judge it again."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from attnlab._util.text import count
from attnlab.cli._arguments import Parser, comma_separated
from attnlab.cli._printing import relative

HELP = "join the seeds of bundles of one study"
DESCRIPTION = (
    "Join the runs of bundles that `attnlab bundle` wrote, after checking that no bundle was changed and that all have the "
    "same question, configuration, data and code. The study is written to the folder of runs (ATTNLAB_RUNS), which must have "
    "no study of this name, and its verdicts use all seeds. With one bundle, the study is unpacked."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("bundles", metavar="BUNDLE.zip", nargs="+", type=Path, help="bundles of one study")
    parser.add_argument(
        "--sha256",
        type=comma_separated,
        metavar="DIGEST[,DIGEST]",
        default=[],
        help="the digests that the authors of the bundles published, or at least their first 16 digits, in the same order",
    )
    parser.add_argument(
        "--mixed-machines",
        action="store_true",
        help="join bundles of machines that chose different threads or precisions, each with all cells of its seeds",
    )
    parser.add_argument("--no-report", action="store_true", help="skip writing runs/reports/STUDY/")


def main(arguments: Namespace) -> int:
    from attnlab.extras.sharing.merge import merge

    merged = merge(arguments.bundles, sha256=arguments.sha256, mixed_machines=arguments.mixed_machines)
    for bundle in merged.bundles:
        print(f"{bundle.path}: {count(len(bundle.record.runs), 'run')}, SHA-256 {bundle.digest}")
    if merged.repeated:
        names = ", ".join(merged.repeated[:3]) + (", ..." if len(merged.repeated) > 3 else "")
        print(f"{count(len(merged.repeated), 'run')} in several bundles, taken from the first that has it: {names}")
    print(f"{merged.study}: {count(merged.runs, 'run')}, seeds {', '.join(map(str, merged.seeds))}")
    if not arguments.no_report:
        from attnlab.report.write import write_report

        print(f"report: {relative(write_report(merged.study) / 'index.html')}")
    return 0

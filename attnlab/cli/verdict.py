"""`attnlab verdict`: print the conclusion of a study."""

from __future__ import annotations

from argparse import Namespace

from attnlab.cli._arguments import Parser
from attnlab.cli._json import add_verdict_arguments, exit_code, require_comparisons, study_answer

HELP = "print the conclusion of a study, as attnlab run does at its end"
DESCRIPTION = (
    "Print the conclusion of a study from its finished runs: the sentences at the top of its report. Like a report, this "
    "counts as a look at the study, for which later verdicts are corrected."
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument("study", metavar="STUDY", help="a study's name, or its YAML file")
    add_verdict_arguments(parser)


def main(arguments: Namespace) -> int:
    from attnlab.cli._printing import print_text
    from attnlab.cli._results import print_verdict
    from attnlab.report.conclusion import conclusions, describe_choice
    from attnlab.report.result import load_compared

    compared = load_compared(arguments.study)
    require_comparisons(arguments, compared.spec)
    print_verdict(texts := conclusions(compared))
    for line in describe_choice(compared):
        print_text(f"note: {line}")
    arguments.answer = study_answer(compared, texts)
    return exit_code(arguments, compared)

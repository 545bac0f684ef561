"""`attnlab submit`: run a study on several machines, as Slurm jobs."""

from __future__ import annotations

import argparse
from argparse import Namespace

from attnlab._util.files import real_path
from attnlab.cli._arguments import Parser, positive_int
from attnlab.cli._printing import relative
from attnlab.cli._study import (
    adaptive_options,
    add_queue_arguments,
    add_seed_arguments,
    add_study_arguments,
    parse_only,
    study_sets,
)

HELP = "run a study on several machines, as Slurm jobs"


def add_arguments(parser: Parser) -> None:
    add_study_arguments(parser)
    parser.add_argument("--machines", type=positive_int, default=1, metavar="N", help="jobs, one per machine (default 1)")
    add_seed_arguments(parser)
    add_queue_arguments(parser)
    parser.add_argument("--local", action="store_true", help="start the jobs on this machine, without Slurm")
    parser.add_argument(
        "--timeout",
        type=_minutes,
        default=24 * 60,
        metavar="TIME",
        help="time limit of a job: 90m, 8h or 2d (default 1d); when a job reaches it, it is queued again",
    )
    parser.add_argument("--cpus", type=positive_int, metavar="N", help="CPUs per machine")
    parser.add_argument("--gpus", type=positive_int, metavar="N", help="GPUs per machine")
    parser.add_argument("--partition", metavar="NAME", help="Slurm partition")
    parser.add_repeatable(
        "--slurm", type=_pair, metavar="KEY=VALUE", help="sbatch option, for example account=lab (repeatable)"
    )


def main(arguments: Namespace) -> int:
    from attnlab.extras.slurm.jobs import Resources, StudyRequest, submit

    request = StudyRequest(
        study=real_path(arguments.study),
        sets=study_sets(arguments),
        only=parse_only(arguments.only),
        workers=arguments.workers,
        retry=tuple(arguments.retry),
        check=not arguments.no_check,
        adaptive=adaptive_options(arguments),
    )
    resources = Resources(
        machines=arguments.machines,
        timeout_min=arguments.timeout,
        cpus=arguments.cpus,
        gpus=arguments.gpus,
        partition=arguments.partition,
        slurm=dict(arguments.slurm),
        local=arguments.local,
    )
    submitted = submit(request, resources, storage=arguments.storage)
    print(f"{submitted.plan.total} runs; submitted jobs: {' '.join(submitted.ids)}")
    print(f"logs:   tail -f {relative(submitted.folder)}/*_log.err")
    if not arguments.local:
        print(f"queue:  squeue --jobs {','.join(sorted({job.partition('_')[0] for job in submitted.ids}))}")
    print(f"runs:   attnlab runs {submitted.plan.study.study}")
    return 0


def _minutes(text: str) -> int:
    number, unit = text[:-1], {"m": 1, "h": 60, "d": 24 * 60}.get(text[-1:])
    if unit is None or not number.isdigit() or int(number) < 1:
        raise argparse.ArgumentTypeError(f"expected a time such as 90m, 8h or 2d, got {text!r}")
    return int(number) * unit


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not (key and value):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, value

"""`attnlab plan`: print the cells of a study with their costs, and the refused ones with their reasons."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attnlab._util.text import count
from attnlab.cli._arguments import Parser, number
from attnlab.cli._json import add_json_argument, plan_answer
from attnlab.cli._printing import constant_columns, format_duration, print_table, print_text, show_progress
from attnlab.cli._study import add_study_arguments, look_notes, plan_study
from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.tracking.record import RunRecord

HELP = "print the cells of a study, refusals with reasons, and estimated costs"
DECODING = ("cache_bytes", "state_bytes")  # attributes of a cell


def add_arguments(parser: Parser) -> None:
    add_study_arguments(parser)
    parser.add_argument(
        "--tflops",
        type=_rate,
        metavar="X",
        help="a rate of training in TFLOP/s, with which the plan states the time of a run",
    )
    parser.add_argument("--memory", action="store_true", help="estimate the peak memory on CUDA (default: only for CUDA cells)")
    parser.add_argument(
        "--all",
        action="store_true",
        help="list every refused or skipped cell, not only the reasons, and every file that counts",
    )
    add_json_argument(parser)


def main(arguments: Namespace) -> int:
    from attnlab.study.plan import code_change_notes, seed_notes
    from attnlab.tracking.client import snapshot

    with snapshot():
        plan = plan_study(arguments)
        if plan.study.sweep is not None:
            plan = _with_recorded_extensions(plan)
        print_plan(plan, tflops=arguments.tflops, memory=arguments.memory, each=arguments.all)
        for note in (*code_change_notes(plan), *look_notes(plan), *seed_notes(plan)):
            print_text(f"note: {note}")
    plan.require_runs()
    arguments.answer = plan_answer(plan)
    return 0


def _with_recorded_extensions(plan: Plan) -> Plan:
    """Return the plan with the values that recorded results add to its sweep; a plan needs no record."""
    from attnlab.study.sweep import with_recorded_extensions

    try:
        return with_recorded_extensions(plan)
    except UserError:  # `_print_finished` reports the same problem with the store
        return plan


def _rate(text: str) -> float:
    if not 0 < (value := number(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def print_plan(plan: Plan, *, tflops: float | None = None, memory: bool = False, each: bool = False) -> None:
    """Print a row per cell, the totals, and the cells that are left out.

    Args:
        tflops: the rate that converts FLOPs to time, in TFLOP/s; None: no time.
        memory: estimate the memory of every cell on CUDA, not only of those for a CUDA device.
        each: print a line for each refused or skipped cell instead of one for each reason, and all files that count.
    """
    from attnlab.cli._plan_parts import print_class_files, print_commands
    from attnlab.cli._study import print_omissions
    from attnlab.planning.costs import cuda_peaks, memory_notes, requests_cuda

    if plan.study.command is not None:
        print_commands(plan, each=each)
        _print_finished(plan)
        _print_estimand(plan)
        print_omissions(plan, each=each)
        return
    with show_progress() as progress:
        cells = [cell for cell in (*plan.stages, *plan.cells) if memory or requests_cuda(cell)]
        peaks = cuda_peaks(cells, progress=progress)
    _print_cells(plan, rate=tflops, peaks=peaks)
    print_text(f"{count(plan.total, 'run')} ({_runs_per_cell(plan)}): {_cost(plan, tflops)} in total.")
    _print_most_seeds(plan, tflops)
    _print_finished(plan)
    for sizes in dict.fromkeys(cell.data_sizes for cell in plan.cells if cell.data_sizes):
        print_text(f"Data: {sizes}.")
    _print_uses(plan)
    _print_evaluation(plan)
    if tasks := dict.fromkeys(cell.config.task.label for cell in (*plan.stages, *plan.cells) if cell.has_unknown_lengths):
        print_text(
            f"Rows of {', '.join(tasks)} count at full length, because the data are not prepared: FLOPs are upper bounds."
        )
    if any(cell.config.train.may_end_early for cell in (*plan.stages, *plan.cells)):
        print_text("Runs count with all steps, although train.patience or train.stop_at may end them earlier.")
    if peaks:
        about = "the tensors of one training step, traced without a device; the CUDA context takes about 1 GiB more"
        print_text(f"CUDA peak: {about}.")
    if any(cell.config.sources for cell in (*plan.stages, *plan.cells)):
        print_class_files(plan, each=each)
    _print_stages(plan)
    _print_search(plan)
    if plan.study.factors:
        _print_design(plan)
    _print_sweep(plan)
    _print_estimand(plan)
    print_omissions(plan, each=each)
    for note in memory_notes(plan.cells, peaks):
        print_text(f"note: {note}")


def _cost(plan: Plan, tflops: float | None) -> str:
    """Return the FLOPs of all runs, and the time that they take one after the other at a rate."""
    time = f", {format_duration(plan.train_flops / tflops / 1e12)} of training" if tflops else ""
    return f"{plan.train_flops / 1e15:.4g} PFLOP{time}"


def _print_most_seeds(plan: Plan, tflops: float | None) -> None:
    """Print the cost of a study that adds seeds until its verdicts are conclusive."""
    most = plan.study.max_seeds
    if most is None:
        return
    from attnlab.study.adaptive import with_seeds

    whole = with_seeds(plan, list(range(most)))
    added_to = "all cells while a comparison is inconclusive" if plan.study.sweep else "inconclusive comparisons"
    print_text(
        f"Seeds are added to {added_to}, up to {most} per cell: at most {count(whole.total, 'run')}, {_cost(whole, tflops)}."
    )


def _print_cells(plan: Plan, *, rate: float | None, peaks: Mapping[str, float | str]) -> None:
    """Print a row for each cell that is not refused or has an estimate of its memory; shared values once, below the table."""
    headings = ["cell", "parameters", "attention", "PFLOP/run", "time/run", "CUDA peak", "cache", "state", "backend"]
    shown = [cell for cell in (*plan.stages, *plan.cells) if cell.refusal is None or cell.name in peaks]
    sizes = zip(*(_format_sizes([getattr(cell, name) for cell in shown]) for name in DECODING), strict=True)
    rows = [
        [
            cell.name,
            f"{cell.parameters:,}" if cell.parameters is not None else "",
            f"{cell.attention_parameters:,}" if cell.attention_parameters is not None else "",
            f"{cell.train_flops / 1e15:.4g}" if cell.train_flops is not None else "",
            format_duration(cell.train_flops / rate / 1e12) if rate and cell.train_flops is not None else "",
            _format_peak(peaks.get(cell.name)),
            *decoding,
            cell.config.backend if cell.refusal is None else "",
        ]
        for cell, decoding in zip(shown, sizes, strict=True)
    ]
    common = constant_columns(headings, rows, among=headings[1:]) if rows else {}
    kept = [i for i, heading in enumerate(headings) if heading not in common]
    if rows:
        print_table([headings[i] for i in kept], [[row[i] for i in kept] for row in rows], wrap=("cell",))
        print()
    if common:
        print_text(f"All cells: {'; '.join(f'{heading} {value}' for heading, value in common.items())}.")
    if any(row[headings.index("cache")] or row[headings.index("state")] for row in rows):
        print_text("Cache and state: bytes that decoding keeps of one sequence of full length, of all layers.")


def _format_sizes(sizes: Sequence[int | None]) -> list[str]:
    """Return sizes in bytes as text, "-" where there is none; all "" if no size is more than 0."""
    from attnlab.training.device import format_bytes

    return [("-" if size is None else format_bytes(size)) if any(sizes) else "" for size in sizes]


def _print_finished(plan: Plan) -> None:
    """Print how many of the plan's runs are finished, if the study has a record."""
    from attnlab.study.plan import count_stored_results, finished_records

    try:
        finished = finished_records(plan)
    except UserError as error:  # a plan needs no record
        print_text(f"Finished runs: unknown: {error}")
        return
    if finished:
        print_text(f"Finished runs: {len(finished)} of {plan.total}; they are not trained again.")
        _print_time_left(plan, finished)
    elif stored := count_stored_results(plan):
        print_text(f"Finished under another study's name: {stored} of {plan.total} runs; they are not trained again.")


def _print_time_left(plan: Plan, finished: Mapping[str, RunRecord]) -> None:
    """Print the time of the runs that are left, from the mean time of the finished ones."""
    seconds = [((record.end or 0) - record.start) / 1000 for record in finished.values()]
    left = plan.total - len(finished)
    if seconds and left > 0:
        mean = sum(seconds) / len(seconds)
        print_text(
            f"Time: {format_duration(left * mean)} for the {count(left, 'run')} left, one at a time, at "
            f"{format_duration(mean)} a run, the mean of the finished ones."
        )


def _print_uses(plan: Plan) -> None:
    """Print the number of parameters by their use, which decides weight decay and the update by optimizers of matrices."""
    cells = [cell for cell in plan.cells if cell.parameters is not None]
    counts = {
        "matrices of blocks": [cell.hidden_parameters or 0 for cell in cells],
        "other matrices": [cell.matrix_parameters or 0 for cell in cells],
        "embeddings": [cell.embedding_parameters or 0 for cell in cells],
    }
    named = [sum(numbers) for numbers in zip(*counts.values(), strict=True)]
    counts["gains, biases and others"] = [(cell.parameters or 0) - known for cell, known in zip(cells, named, strict=True)]
    shown = [f"{_range(numbers)} in {words}" for words, numbers in counts.items() if any(numbers)]
    if shown:
        print_text(f"Parameters: {', '.join(shown)}.")


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _print_evaluation(plan: Plan) -> None:
    """Print the cost of evaluation relative to training, for tasks that declare it."""
    shares = [100 * c.eval_flops / c.train_flops for c in plan.cells if c.eval_flops is not None and c.train_flops]
    if shares:
        # Two digits, without an exponent such as 3e+02.
        least, most = (f"{float(f'{share:.2g}'):,g}" for share in (min(shares), max(shares)))
        print_text(f"Evaluation adds {least if least == most else f'{least} to {most}'} % to the FLOPs of training.")


def _print_stages(plan: Plan) -> None:
    """Print the share of the stages in the training of the study, and which cells start from each."""
    if not plan.stage_runs:
        return
    flops = sum(run.cell.train_flops or 0 for run in plan.stage_runs)
    share = f"{100 * flops / plan.train_flops:.2g} % of the training FLOPs" if plan.train_flops else ""
    print_text(
        f"stages: {count(len(plan.stage_runs), 'run')}, {share}, trained first and shared by the cells that start from them"
    )
    for stage in plan.stages:
        names = [cell.name for cell in (*plan.stages, *plan.cells) if cell.stage and cell.stage.name == stage.name]
        print_text(f"  {stage.name}: {count(len(names), 'cell')} {'starts' if len(names) == 1 else 'start'} from it")


def _print_search(plan: Plan) -> None:
    """Print the search space, the sampler, the pruner, and the seeds that confirm the best trial."""
    search = plan.study.search
    if search is None:
        return
    for path, dimension in search.space.items():
        print_text(f"space: {path}: {dimension.label}")
    print_text(f"sampler: {search.sampler.label}")
    print_text(f"pruner: {search.pruner.label}")
    seeds = ", ".join(map(str, plan.seeds))
    print_text(f"confirm: the best trial of each cell by {_valid(plan)}, retrained with seed {seeds}, never pruned")


def _print_design(plan: Plan) -> None:
    """Print the design of a factorial study, the effects that it cannot tell apart, and the runs behind each main effect."""
    from attnlab.config.factors import factorial_design
    from attnlab.planning.factorial import describe_aliasing, describe_design, describe_ratio

    design = factorial_design(plan.study)
    assert design is not None
    print_text(f"design: {describe_design(design)}.")
    if aliasing := describe_aliasing(design):
        print_text(f"aliasing: {aliasing}")
    print_text(f"effects: {describe_ratio(design, len(plan.seeds))}.")


def _print_sweep(plan: Plan) -> None:
    """Print the values of a sweep, and the number of runs that each further value adds."""
    from attnlab.config.types import text
    from attnlab.stats.sweep import spacing

    sweep = plan.study.sweep
    if sweep is None:
        return
    runs = count(len(plan.runs) // len(plan.sweep_values), "run")
    added = len(plan.sweep_values) - len(sweep.values)
    extended = f", of which the results added {added}" if added else ""
    values = f"{', '.join(map(text, plan.sweep_values))} in every cell{extended}"
    print_text(f"sweep: {sweep.path}: {values}; compared at the best of these, {spacing(plan.sweep_values)} apart")
    low, high = (sweep.extensions - count for count in plan.sweep_extensions)
    if low or high:
        print_text(
            f"When the best value of a cell by {_valid(plan)} is the smallest or largest, the sweep adds one on that "
            f"side: {runs} each, at most {low} below and {high} above."
        )


def _print_estimand(plan: Plan) -> None:
    """Print the estimand of a study that does not compare means."""
    if described := plan.estimator.words.compared_by:
        print_text(f"estimand: {described}")


def _runs_per_cell(plan: Plan) -> str:
    """Return "3 seeds per cell", "24 trials + 5 confirm seeds per cell" or "3 values of train.lr x 5 seeds per cell"."""
    search, seeds = plan.study.search, len(plan.seeds)
    stages = f", {len(plan.stage_runs)} of stages" if plan.stage_runs else ""
    if plan.study.sweep is not None:
        return f"{len(plan.sweep_values)} values of {plan.study.sweep.path} x {count(seeds, 'seed')} per cell{stages}"
    trials = "" if search is None else f"{count(search.trials, 'trial')} + "
    return f"{trials}{count(seeds, 'confirm seed' if search else 'seed')} per cell{stages}"


def _valid(plan: Plan) -> str:
    """Return the validation metrics of the study's tasks."""
    return " or ".join(f"valid_{metric}" for metric in plan.metrics)


def _format_peak(mib: float | str | None) -> str:
    from attnlab.training.device import format_bytes

    return format_bytes(mib * 2**20) if isinstance(mib, float) else ""

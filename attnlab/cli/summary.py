"""What `attnlab plan` and `attnlab run` print: cells and their cost before, cells and their results after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnlab.cli.printing import duration, near, show
from attnlab.training.out_of_memory import size

if TYPE_CHECKING:
    from attnlab.planning.plan import Plan
    from attnlab.stats.sequential import Looks
    from attnlab.study.run import StudyResult

MEASURED_SECONDS = 0.5


def print_plan(found: Plan, *, tflops: float | None = None) -> None:
    """Print a line a cell, the whole of it, and what is left out.

    Args:
        tflops: the rate that turns FLOPs into time, in TFLOP/s; default: measured on the study's device.
    """
    from attnlab.planning.memory_fit import about_fit, cuda_peaks

    rate, how = (tflops, "as given") if tflops else measured_rate(found)
    peaks = cuda_peaks(found.cells)
    lines = [
        [
            cell.name,
            f"{cell.parameters:,}" if cell.parameters is not None else "",
            f"{cell.attention_parameters:,}" if cell.attention_parameters is not None else "",
            f"{cell.train_flops / 1e15:.4g}" if cell.train_flops is not None else "",
            duration(cell.train_flops / rate / 1e12) if cell.train_flops is not None else "",
            _size(peaks.get(cell.name)),
            cell.config.backend if cell.refusal is None else "refused",
        ]
        for cell in found.cells
    ]
    show(["cell", "parameters", "of attention", "PFLOP a run", "time a run", "CUDA peak, est.", "backend"], lines)
    total = f"{found.train_flops / 1e15:.4g} PFLOP, {duration(found.train_flops / rate / 1e12)}"
    print(f"\n{found.total} run{'' if found.total == 1 else 's'} ({_a_cell(found)}): {total} in all.")
    print(f"Time: training alone, at {rate:.3g} TFLOP/s, {how}. A small model reaches a part of such a rate.")
    _print_evaluation(found)
    print("CUDA peak: the tensors of one training step, traced without a device; the context takes about 1 GiB more.")
    _print_search(found)
    print_left_out(found)
    for note in about_fit(found.cells, peaks):
        print(f"note: {note}")


def _print_evaluation(found: Plan) -> None:
    """Say what evaluation costs beside training, where the tasks tell."""
    shares = [100 * c.eval_flops / c.train_flops for c in found.cells if c.eval_flops is not None and c.train_flops]
    if shares:
        least, most = (f"{float(f'{share:.2g}'):,g}" for share in (min(shares), max(shares)))  # two digits, and never 3e+02
        print(f"Evaluation comes on top: {least if least == most else f'{least} to {most}'} % of the training's arithmetic.")


def _size(mib: float | str | None) -> str:
    return size(mib * 2**20) if isinstance(mib, float) else ""


def _a_cell(found: Plan) -> str:
    """ "3 seeds a cell", "24 trials + 5 confirm seeds a cell"."""
    search, seeds = found.study.search, len(found.seeds)
    trials = "" if search is None else f"{search.trials} trial{'' if search.trials == 1 else 's'} + "
    return f"{trials}{seeds} {'confirm ' if search else ''}seed{'' if seeds == 1 else 's'} a cell"


def _print_search(found: Plan) -> None:
    """Say how each cell will be searched."""
    search = found.study.search
    if search is None:
        return
    for path, dimension in search.space.items():
        print(f"space: {path}: {dimension.label}")
    print(f"sampler: {search.sampler.label}")
    print(f"pruner: {search.pruner.label}")
    seeds = ", ".join(map(str, found.seeds))
    print(f"confirm: the best trial by valid_{found.metric} in each cell, trained anew with seed {seeds}, never pruned")


def print_left_out(found: Plan) -> None:
    """Say what the study does not run, and why."""
    for cell, _ in found.refused:
        print(f"refused: {cell.name}: {cell.refusal}")
    for skipped in found.skipped:
        print(f"skipped: {skipped.name}: {skipped.because}")
    for note in found.notes:
        print(f"note: {note}")


def print_reasons(result: StudyResult) -> None:
    """Say why a run has not completed, and where to read more. Refused cells and pruned trials are told elsewhere."""
    for row in result.rows:
        if row.state not in ("completed", "pruned", "refused"):
            print(f"{row.state}: {row.name}: {row.reason}")
        if row in result.failed and row.log and row.log.is_file() and row.log.stat().st_size:
            print(f"  its output: {near(row.log)}")


def measured_rate(found: Plan) -> tuple[float, str]:
    """The rate of square matrix products on the study's device in TFLOP/s, and how it was found."""
    import time

    import torch

    from attnlab.training import device as machine

    config = found.cells[0].config
    device = torch.device(config.machine.device)
    if device.type == "cuda" and not torch.cuda.is_available():  # every cell is refused: any rate will do
        device = torch.device("cpu")
    torch.set_float32_matmul_precision(config.machine.matmul_precision)
    size = 4096 if device.type == "cuda" else 1024
    a = torch.ones(size, size, device=device)
    done = 0
    with torch.inference_mode(), machine.autocast(device, config.train.precision):
        torch.mm(a, a)
        machine.synchronise(device)
        begin = time.perf_counter()
        while time.perf_counter() - begin < MEASURED_SECONDS:
            torch.mm(a, a)
            machine.synchronise(device)
            done += 1
        seconds = time.perf_counter() - begin
    products = f"{config.train.precision} products of {size} x {size} on {device.type}"
    return 2 * size**3 * done / seconds / 1e12, f"measured just now with {products} (--tflops X sets it)"


def print_results(result: StudyResult, *, looks: Looks | None = None) -> None:
    """Print a line a cell: the metric over its seeds, its difference from the baseline, what it cost.

    Of a searched study the table is of the confirmed runs alone; a line a cell below it tells of its search.

    Args:
        looks: of a study whose seeds were added until its verdicts were settled.
    """
    from attnlab._util.cost_metrics import shown_in
    from attnlab.report.reference_scores import labels
    from attnlab.report.search import sentence
    from attnlab.stats.compare import fixed, gap, plus_minus, rows
    from attnlab.stats.search import reported, searched, unconfirmed

    found, question, records = result.plan, result.question(looks=looks), result.records()
    order = {cell.name: i for i, cell in enumerate(found.cells)}
    search = found.study.search
    trials = sorted(searched(records, question, search), key=lambda each: order[each.cell]) if search else []
    compared = rows([*reported(records), *unconfirmed(records, question, trials)], question)
    table = sorted(compared, key=lambda row: order[row.name])
    better = "lower is better" if found.direction == "min" else "higher is better"
    costs = shown_in("terminal")
    headings = [
        "cell",
        found.metric,
        "seeds",
        "difference",
        "verdict",
        *(metric.heading for metric in costs),
        "state",
    ]
    lines = [
        [
            row.name,
            plus_minus(row.value),
            str(len(row.values) or ""),
            gap(row),
            row.verdict,
            *(metric.format(row.costs[metric.name].mean) if metric.name in row.costs else "" for metric in costs),
            row.outcome,
        ]
        for row in table
    ]
    for score, label in zip(result.reference_scores, labels(result.reference_scores), strict=True):
        lines.append([label, fixed(score.value), *[""] * (len(headings) - 2)])
    about = f"{found.metric} on the test split, {better}; mean ± half of a 95 % interval over seeds"
    about += f", corrected for {looks.count} looks" if looks else ""
    print(f"\n{found.study.study}: {about}")
    show(headings, lines)
    for each in trials:
        print(f"search: {sentence(each, question)}")
    for each in trials:
        for edge in each.edges:
            print(f"note: {each.cell}: {edge}")

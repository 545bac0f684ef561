"""The section of the page on GPUs: a column for each card that `benchmarks.gpu_check` has measured."""

from pathlib import Path

from benchmarks.gpu_check.runner import FILE, Results, Values
from benchmarks.speed.tables import markdown

TEXT = """
## On a GPU

`python -m benchmarks.gpu_check` writes a page for each card: {pages}. How many times as fast a step is as one of a plain loop
of PyTorch with the same model and scaled dot-product attention, and forward and backward of sparse attention in bf16 as that of
dense SDPA.

{table}"""


def section(folder: Path) -> str:
    """Return the section; empty if no card has been measured.

    Args:
        folder: has a folder with results for each card.
    """
    cards = {path.parent.name: Results.load(path.parent) for path in sorted(folder.glob(f"*/{FILE}"))}
    columns = {_card(results): _column(results) for results in cards.values()}
    if not columns:
        return ""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [[name, *(column.get(name, "") for column in columns.values())] for name in names]
    pages = ", ".join(f"[{card}](../gpu/{name}/README.md)" for name, card in zip(cards, columns, strict=True))
    return TEXT.format(pages=pages, table=markdown(["", *columns], rows))


def _card(results: Results) -> str:
    return str(next(row["card"] for row in results.of("card") if "card" in row))


def _column(results: Results) -> dict[str, str]:
    """Return measurement -> value."""
    column = {}
    for row in _done(results, "step"):
        column[f"training step, {row['case']}"] = f"{row['times_as_fast']:.2f} ({row['ms']:.3g} ms)"
    for row in _done(results, "sparse"):
        name, _, length = row["case"].rpartition(", ")
        column[f"{name}, length {int(length):,}"] = f"{row['times_as_fast']:.2f} ({row['ms']:.3g} ms)"
    for row in _done(results, "several"):
        factors = {name.removeprefix("times_"): value for name, value in row.items() if name.startswith("times_")}
        for number, factor in factors.items():
            if number.isdecimal():
                column[f"{number} {row['case']}: steps per second"] = f"{factor:.2f}"
    ratios = [row["ratio"] for row in _done(results, "memory")]
    if ratios:
        column["estimated / measured memory of a step"] = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return column


def _done(results: Results, step: str) -> list[Values]:
    return [row for row in results.of(step) if row["state"] == "done"]

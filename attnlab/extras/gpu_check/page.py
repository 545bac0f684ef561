"""The page of a check: a table of at most 40 lines, then every result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from attnlab._util.files import replacing
from attnlab._util.text_table import format_table
from attnlab.extras.gpu_check.runner import Results
from attnlab.extras.gpu_check.step import Step, Values

PAGE = "README.md"
WIDTH = 80
Summary = tuple[str, str]  # what, measured


def write(results: Results, steps: Sequence[Step]) -> Path:
    """Write the page beside the results, and return its path."""
    path = results.path.parent / PAGE
    with replacing(path) as temporary:
        temporary.write_text(text(results, steps), encoding="utf-8")
    return path


def text(results: Results, steps: Sequence[Step]) -> str:
    """Return the page as Markdown."""
    card = next((row["card"] for row in results.of("card") if "card" in row), "this machine")
    intro = (
        "Written by `attnlab gpu-check`; `results.jsonl` has every figure. The times as fast (x) are ratios of medians over "
        "rounds in which both take turns."
    )
    parts = [f"# attnlab on {card}", intro, f"```\n{table(results, steps)}\n```"]
    parts += [_section(step, results.of(step.name)) for step in steps if results.of(step.name)]
    return "\n\n".join(parts) + "\n"


def table(results: Results, steps: Sequence[Step]) -> str:
    """Return the summary as a table of at most 40 lines."""
    return format_table(["measured", "result"], summary(results, steps), width=WIDTH, wrap=["measured", "result"])


def summary(results: Results, steps: Sequence[Step]) -> list[Summary]:
    """Return the rows of the table: what every step found, and how many of its cases failed."""
    rows: list[Summary] = []
    for step in steps:
        cases = results.of(step.name)
        done = {row["case"]: row for row in cases if row["state"] == "done"}
        states = Counter(row["state"] for row in cases)
        found = SUMMARIES[step.name](done) if done else []
        counts = ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in sorted(states.items())) or "not reached"
        rows += [(step.title, counts), *((f"  {what}", value) for what, value in found)]
    return rows


def _section(step: Step, cases: Sequence[Values]) -> str:
    lines = [f"## {step.title}", "| case | result | s | measured |\n|---|---|---:|---|"]
    for row in cases:
        values = {k: v for k, v in row.items() if k not in ("step", "case", "state", "seconds", "traceback")}
        shown = ", ".join(f"{name} {_number(value)}" for name, value in values.items()).replace("|", "\\|")
        lines[-1] += f"\n| {row['case']} | {row['state'].replace('_', ' ')} | {row['seconds']:.1f} | {shown} |"
    return "\n\n".join(lines)


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


Rows = dict[str, Values]  # case -> its values


def _card(rows: Rows) -> list[Summary]:
    seen = rows.get("versions", {})
    versions = [f"{name} {seen[name]}".removeprefix("card ") for name in ("card", "driver", "torch") if name in seen]
    rates = [f"{name.removeprefix('product ')} {row['tflops']:.3g}" for name, row in rows.items() if "tflops" in row]
    found = [("card", ", ".join(versions))] if versions else []
    found += [("products, TFLOP/s", ", ".join(rates))] if rates else []
    return found + [("copies, TB/s", f"{row['tb_per_s']:.3g}") for row in rows.values() if "tb_per_s" in row]


def _agreement(rows: Rows) -> list[Summary]:
    found = []
    for dtype in ("float64", "float32", "bfloat16"):
        if errors := [row[dtype] for row in rows.values() if dtype in row]:
            found.append((f"largest relative error in {dtype}", f"{max(errors):.2g}"))
    return found


def _memory(rows: Rows) -> list[Summary]:
    ratios = sorted((row["ratio"], case) for case, row in rows.items())
    (low, lowest), (high, highest) = ratios[0], ratios[-1]
    return [("estimate / measured", f"{low:.3f} ({lowest}) to {high:.3f} ({highest})")]


def _steps(rows: Rows) -> list[Summary]:
    of_peak = {case: f"{row['share_of_peak']:.0%} of peak" for case, row in rows.items()}
    return [(case, f"{row['ms']:.3g} ms, {row['times_as_fast']:.2f} x plain, {of_peak[case]}") for case, row in rows.items()]


def _sparse(rows: Rows) -> list[Summary]:
    """Return each variant at its longest length."""
    longest: dict[str, Summary] = {}
    for case, row in rows.items():
        name, _, length = case.rpartition(", ")
        memory = row["peak_mib"] / max(row["dense_peak_mib"], 1e-9)
        longest[name] = (f"{name}, {int(length):,}", f"{row['times_as_fast']:.2f} x dense, {memory:.2f} of its memory")
    return list(longest.values())


def _several(rows: Rows) -> list[Summary]:
    found = []
    for case, row in rows.items():
        factors = [f"{value:.2f}" for name, value in row.items() if name.startswith("times")]
        found.append((case, f"{' / '.join(factors)} x one after another"))
    return found


def _resume(rows: Rows) -> list[Summary]:
    return [
        (case, "the same bits" if row["same_bits"] else f"bits per byte differ by {row['difference']:.2g}")
        for case, row in rows.items()
    ]


def _headline(rows: Rows) -> list[Summary]:
    return [
        (f"{row['task']}, {row['steps']:,} of {row['of_steps']:,} steps", f"{row['bits_per_byte']:.4f} bits per byte")
        for row in rows.values()
        if "bits_per_byte" in row
    ]


SUMMARIES: dict[str, Callable[[Rows], list[Summary]]] = {
    "card": _card,
    "agreement": _agreement,
    "memory": _memory,
    "step": _steps,
    "sparse": _sparse,
    "several": _several,
    "resume": _resume,
    "headline": _headline,
}

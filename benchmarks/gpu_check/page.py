"""The page of a check: a table of at most 40 lines, then every result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attnlab._util.files import replacing
from attnlab._util.text import format_table
from benchmarks.gpu_check import agreement, speed
from benchmarks.gpu_check.runner import Results, Step, Summary, Values

STEPS = (
    Step("card", "The card", 60, speed.card_cases, speed.summarize_card),
    Step("agreement", "Agreement with float64 on the CPU", 240, agreement.cases, agreement.summarize, processes=12),
    Step("memory", "Peak memory of a training step", 60, speed.memory_cases, speed.summarize_memory),
    Step("step", "Time of a training step", 100, speed.step_cases, speed.summarize_steps),
    Step("sparse", "Sparse attention", 60, speed.sparse_cases, speed.summarize_sparse),
    Step("several", "Several runs on one card", 120, speed.several_cases, speed.summarize_several),
    Step("resume", "A killed and resumed run", 90, agreement.resume_cases, agreement.summarize_resumed),
)
PAGE = "README.md"
WIDTH = 80


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
        "Written by `python -m benchmarks.gpu_check`; `results.jsonl` has every figure. The times as fast (x) are ratios of "
        "medians over rounds in which both take turns."
    )
    parts = [f"# attnlab on {card}", intro, f"```\n{table(results, steps)}\n```"]
    parts += [_section(step, results.of(step.name)) for step in steps if results.of(step.name)]
    return "\n\n".join(parts) + "\n"


def table(results: Results, steps: Sequence[Step]) -> str:
    """Return the summary as a table of at most 40 lines."""
    return format_table(["measured", "result"], summary(results, steps), width=WIDTH, wrap=["measured", "result"])


def summary(results: Results, steps: Sequence[Step]) -> Summary:
    """Return the rows of the table: what every step found, and how many of its cases failed."""
    rows: Summary = []
    for step in steps:
        cases = results.of(step.name)
        done = {row["case"]: row for row in cases if row["state"] == "done"}
        states = Counter(row["state"] for row in cases)
        found = step.summarize(done) if done else []
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

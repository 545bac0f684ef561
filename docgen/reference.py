"""Reference pages that are read from the code: the keys of a study and the commands."""

import argparse
import re
from collections.abc import Iterator

from attnlab.cli._config_keys import config_keys
from attnlab.cli.main import EPILOG, build_parser

SECTIONS = {
    "": "The study",
    "base": "A run: `base`",
    "base.model": "The model: `base.model`",
    "base.train": "Training: `base.train`",
    "base.evaluate": "Evaluation: `base.evaluate`",
    "base.machine": "The machine: `base.machine`",
}
EXIT_CODES = """
| exit code | meaning |
|---|---|
| 0 | success |
| 1 | a run or a check failed, or `bench` could measure nothing of a variant |
| 2 | invalid input, or nothing can run |
| 10 | with `--exit-verdict`: a compared cell is not better than its baseline |
| 130 | interrupted |
"""


def configuration() -> str:
    """Return the Markdown of the keys of a study, with defaults and descriptions."""
    rows: dict[str, list[str]] = {}
    for path, default, description in config_keys():
        section = path.rpartition(".")[0].removesuffix("[]").removesuffix(".PATH")
        value = default if default == "required" else f"`{default}`"
        rows.setdefault(section, []).append(f"| `{path.rpartition('.')[2]}` | {value} | {_cell(description)} |\n")
    head = (
        "# Configuration\n\nEvery key of a study file, with its default. `attnlab list config` prints this page, "
        "`attnlab schema` the JSON schema with which an editor completes and checks keys, names and options. "
        "In a `grid`, a dotted path such as `train.lr` names a key of `base`.\n"
    )
    order = sorted(rows, key=lambda section: list(SECTIONS).index(section) if section in SECTIONS else len(SECTIONS))
    table = "| key | default | description |\n|---|---|---|\n"
    return head + "".join(
        f"\n## {SECTIONS.get(section, f'`{section}`')}\n\n{table}{''.join(rows[section])}" for section in order
    )


def commands() -> str:
    """Return the Markdown of the commands, with their arguments."""
    parser = build_parser()
    (verbs,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {action.dest: action.help or "" for action in verbs._choices_actions}
    head = (
        "# Commands\n\n`attnlab VERB --help` prints the arguments of a command. An option that takes several values is "
        f"repeated: `--set train.steps=50 --set train.lr=1e-3`. {EPILOG}\n{EXIT_CODES}\n| command | |\n|---|---|\n"
    )
    index = "".join(f"| [{name}](#{name}) | {_cell(helps[name])} |\n" for name in verbs.choices)
    index += "".join(f"| {flag} | {text} |\n" for flag, text in _arguments(parser) if flag.startswith("`-"))
    return head + index + "".join(_verb(name, helps[name], verb) for name, verb in verbs.choices.items())


def _verb(name: str, help_: str, parser: argparse.ArgumentParser) -> str:
    usage = re.sub(r"\s+(?=\])|(?<=\s)\s+", "", parser.format_usage().removeprefix("usage: ").replace("\n", " "))
    about = parser.description or f"{help_[0].upper()}{help_[1:]}."
    rows = "".join(f"| {names} | {text} |\n" for names, text in _arguments(parser))
    table = f"\n| argument | |\n|---|---|\n{rows}" if rows else ""
    return f"\n## {name}\n\n{about}\n\n```text\n{_wrapped(usage)}\n```\n{table}"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or action.dest in ("help", "debug"):
            continue
        value = "" if action.nargs == 0 else action.metavar or action.dest.upper()
        flags = [f"`{flag} {value}`" if value else f"`{flag}`" for flag in action.option_strings]
        text = (action.help or "") % vars(action)
        if action.choices and not action.metavar:
            text += f"; one of {', '.join(map(str, action.choices))}"
        yield (", ".join(flags) or f"`{value}`").replace("|", r"\|"), _cell(text)


def _wrapped(usage: str, width: int = 90) -> str:
    """Return a usage line broken before its optional arguments."""
    lines = [""]
    for part in re.findall(r"\[[^\[\]]*(?:\[[^\]]*\][^\[\]]*)*\]|\S+", usage):
        if len(lines[-1]) + len(part) + 1 > width:
            lines.append("   ")
        lines[-1] += f"{' ' if lines[-1] else ''}{part}"
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table."""
    return re.sub(r"\s+", " ", re.sub(r"[|*<]", r"\\\g<0>", text))

"""The reference pages have every key of a study and every argument of the commands."""

import argparse

from attnlab.cli._config_keys import config_keys
from attnlab.cli.main import VERBS, build_parser
from docgen import reference


def test_every_key_has_a_row_in_the_table_of_its_section() -> None:
    sections = {text.partition("\n")[0]: text for text in reference.configuration().split("\n## ")[1:]}
    assert "| `lr` |" in sections["Training: `base.train`"] and "| `margin` |" in sections["The study"]
    rows = [line for text in sections.values() for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(list(config_keys()))


def test_every_command_has_a_section_with_its_options() -> None:
    sections = {text.partition("\n")[0]: text for text in reference.commands().split("\n## ")[1:]}
    assert list(sections) == VERBS.names()
    (verbs,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    for verb, parser in verbs.choices.items():
        flags = {flag for action in parser._actions for flag in action.option_strings} - {"-h", "--help", "--debug"}
        assert not [flag for flag in flags if f"`{flag}" not in sections[verb]], verb


def test_bars_in_cells_of_tables_are_escaped() -> None:
    rows = [line for line in reference.configuration().splitlines() if line.startswith("| `")]
    rows += [line for line in reference.commands().splitlines() if line.startswith("| `")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {3, 4}
    assert [line for line in rows if r"\|" in line]

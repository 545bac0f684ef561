"""The identity of a run's test: only cells with equal tests are compared."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlab.config.command import CommandConfig
from attnlab.registry import TASKS

if TYPE_CHECKING:
    from attnlab.config.run import RunConfig

TRAINING_OPTIONS = ("sampling", "role")  # options of tasks that change the training or the model, not what is tested
PROGRAM = json.dumps({"scores": "of a program"})  # the test of a program, which alone knows its data
CODE = (".py", ".sh", ".r", ".jl", ".lua", ".js", ".ts", ".pl", ".rb", ".so")  # endings of files of code
SUBWORDS = " byte_bpe:"  # begins the part of ``data`` that identifies a vocabulary of subwords instead of the text
TOKEN_OPTIONS = ("tokens", "vocabulary")  # of tasks whose text is encoded as bytes or subwords


def test_identity(config: dict[str, Any], length: int | str | None) -> str:
    """Return what a run is tested on, as JSON: task, data, length, protocol and limit.

    Scores of two runs can be compared only if these are equal. Options of the task that only change how training rows are
    drawn, or what a position may attend to, are left out, and so are the folders of files, as in a run's fingerprint, and the
    tokens of a text that is scored in bits per byte: bytes, or a vocabulary of subwords.

    Args:
        config: the configuration, as read from its JSON (also one that another version of attnlab wrote).
        length: of the task's sequences, in tokens.
    """
    task, evaluate = config["task"], config.get("evaluate", {})
    text = text_identity(config.get("data"))
    left_out = ["name", "length", *TRAINING_OPTIONS]
    if text != config.get("data") or task.get("tokens") == "bytes":
        left_out += TOKEN_OPTIONS
    options = {name: value for name, value in task.items() if name not in left_out}
    identity = {"task": _file_name(task["name"]), **{f"task.{name}": _file_name(value) for name, value in options.items()}}
    identity |= {"data": text, "length": length if isinstance(length, int) else None}
    identity |= {"protocol": evaluate.get("protocol"), "stride": evaluate.get("stride"), "limit": evaluate.get("test_limit")}
    return json.dumps({name: value for name, value in identity.items() if value is not None})


def identity_of_test(settings: RunConfig | CommandConfig) -> str:
    """Return ``test_identity`` of a run of attnlab's training, or ``PROGRAM``."""
    if isinstance(settings, CommandConfig):
        return PROGRAM
    return test_identity(json.loads(settings.to_json()), task_length(settings))


def is_program_test(test: Any) -> bool:
    """Return True for the test of a run of a program."""
    return test == PROGRAM


def text_identity(data: Any) -> str | None:
    """Return the identity of a task's data without its vocabulary of subwords; None when there is none."""
    return data.partition(SUBWORDS)[0] if isinstance(data, str) else None


def _file_name(value: Any) -> Any:
    """Return a path without its folder; other values are returned as they are."""
    return value.rpartition("/")[2] if isinstance(value, str) else value


def task_length(config: RunConfig) -> int | str:
    """Return the task's sequence length: its option, else its constructor's default, else ``"-"``."""
    if "length" in config.task.options:
        return config.task.options["length"]
    parameter = inspect.signature(TASKS.get(config.task.name)).parameters.get("length")
    return parameter.default if parameter and parameter.default is not parameter.empty else "-"


def describe_changes(fields: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the fields that differ, as in "length 32 instead of 16, other data"."""
    names = [name for name in dict.fromkeys([*fields, *other]) if fields.get(name) != other.get(name)]
    return ", ".join(
        "other data" if name == "data" else f"{name} {fields.get(name, 'none')} instead of {other.get(name, 'none')}"
        for name in names
    )

"""What decides whether two runs can be compared: the identity of their tests, and the fields of their configurations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attnlab.config.command import CommandConfig
from attnlab.config.types import LAYERS, layers_text, recorded_position, recorded_variant, text
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


def flatten_config(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration, as read from its JSON, with dotted names: ``{"train.lr": 3e-4, "variant": "dense"}``.

    It takes a dictionary rather than a ``RunConfig`` so that records of other versions of attnlab can be read.
    """
    flat: dict[str, Any] = {}
    for key, value in fields.items():
        if key in ("task", "variant", "position"):
            flat[key] = text(value) if value else "none"
        elif key == "init":  # the name of the stage; None: from scratch
            flat |= {key: value["from"], "init.run": value["fingerprint"]} if value else {key: None}
        elif isinstance(value, dict) and key != "sources":
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    if optimizer := flat.get("train.optimizer"):  # a program of the user has none
        flat["train.optimizer"] = text(optimizer)
    if layers := flat.get(LAYERS):
        flat |= {"variant": recorded_variant(layers), "position": recorded_position(layers), LAYERS: layers_text(layers)}
    return flat


def comparable_fields(config: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return what must be equal in the runs of one cell: all but seeds and folders, and the digests of code, not its files.

    Args:
        config: The configuration, as read from its JSON.
        version: Of attnlab.
    """
    fields = {name: _file_name(value) for name, value in flatten_config(dict(config)).items()}
    fields |= {"code": ", ".join(sorted(digest[:12] for digest in config.get("sources", {}).values()))}
    return {name: value for name, value in fields.items() if name not in ("seed", "sources", "init.run")} | {"attnlab": version}

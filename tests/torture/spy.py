"""Two variants for a torture study to import: their runs record which files they read, and wait for permission to end."""

import os
import sys
import time
from pathlib import Path
from typing import Any

from attnlab import register_variant
from attnlab._util.files import HALF
from attnlab.variants.dense import Dense
from attnlab.variants.transformer_xl import TransformerXL


@register_variant("spied")
class Spied(Dense):
    """Dense attention; only the import matters."""


@register_variant("spied_xl")
class SpiedXL(TransformerXL):
    """Attention with a memory; only the import matters."""


def _hook(event: str, details: tuple[Any, ...]) -> None:
    if event not in ("open", "os.rename") or not isinstance(details[0], str | os.PathLike) or details[1] is None:
        return
    path, second = os.fspath(details[0]), os.fspath(details[1])
    if event == "open":
        _note(path, mode=second)
    elif second.endswith("model.safetensors"):
        _wait_for_leave(Path(second))


def _note(path: str, *, mode: str) -> None:
    if ("r" in mode or "+" in mode) and path.endswith((HALF, "checkpoint.pt")):
        handle = os.open(os.environ["ATTNLAB_SPY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{path}\n".encode())
        os.close(handle)


def _wait_for_leave(model: Path) -> None:
    """Wait until the number in the gate's file allows one more run to write its model.

    The gate is open if the process that writes the file has exited.
    """
    gate, keeper = Path(os.environ["ATTNLAB_GATE"]), Path("/proc", os.environ["ATTNLAB_KEEPER"])

    def others() -> int:
        return sum(path != model for path in model.parent.parent.glob("*/model.safetensors"))

    while keeper.exists() and others() >= int(gate.read_text(encoding="utf-8") or 0):
        time.sleep(0.02)


if "ATTNLAB_SPY" in os.environ:
    sys.addaudithook(_hook)

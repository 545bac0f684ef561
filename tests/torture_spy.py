"""Two variants that write down which files their runs read: a torture study imports them, to see through what it went on."""

import os
import sys
from typing import Any

from attnlab import register_variant
from attnlab.variants.dense import Dense
from attnlab.variants.transformer_xl import TransformerXL


@register_variant("spied")
class Spied(Dense):
    """Dense attention; importing it is what counts."""


@register_variant("spied_xl")
class SpiedXL(TransformerXL):
    """Attention with a memory; importing it is what counts."""


def _note(event: str, details: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(details[0], str | os.PathLike) and details[1] is not None:
        path, mode = os.fspath(details[0]), str(details[1])
        if ("r" in mode or "+" in mode) and str(path).endswith((".partial", "checkpoint.pt")):
            handle = os.open(os.environ["ATTNLAB_SPY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(handle, f"{path}\n".encode())
            os.close(handle)


if "ATTNLAB_SPY" in os.environ:
    sys.addaudithook(_note)

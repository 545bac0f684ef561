"""The processor of this machine, as pages name it."""

import os
import platform
import re
from pathlib import Path

from attnlab._util.machine import processors

CPU_INFO = Path("/proc/cpuinfo")
INSTRUCTION_SETS = {  # flag of Linux -> the name that readers know
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 bf16",
    "amx_bf16": "AMX bf16",
    "asimd": "Neon",
    "sve": "SVE",
    "bf16": "bf16",
}
AVX2_ONLY = {  # variables that make torch's libraries use no newer instructions: ATen, oneDNN, MKL
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def machine() -> str:
    """Return the processor and the number of its cores that may be used, such as ``"AMD EPYC, Zen 5, 2 cores"``.

    A processor that the variables of ``AVX2_ONLY`` limit counts as a machine of its own.
    """
    return f"{processor()}, {processors()} cores{', limited to AVX2' if limited_to_avx2() else ''}"


def limited_to_avx2() -> bool:
    """Return True if all variables of ``AVX2_ONLY`` are set."""
    return all(os.environ.get(name, "").lower() == value.lower() for name, value in AVX2_ONLY.items())


def folder(out: Path) -> Path:
    """Return the folder of this machine's results in ``out``."""
    return out / re.sub(r"[^a-z0-9]+", "-", machine().lower()).strip("-")


def processor() -> str:
    """Return the processor's name, or the architecture if the system does not provide it.

    Virtual machines often hide the model, so AMD's generation is added.
    """
    info = _cpu_info()
    name = info.get("model name") or platform.processor() or platform.machine()
    generation = _amd_generation(info)
    return f"{name}, {generation}" if generation else name


def instruction_sets() -> str:
    """Return the instruction sets that decide the speed of matrix products, such as ``"AVX2, AVX-512"``; "" if unknown."""
    info = _cpu_info()
    flags = {*info.get("flags", "").split(), *info.get("Features", "").split()}
    known = [name for flag, name in INSTRUCTION_SETS.items() if flag in flags]
    return ", ".join(name for name in known if name == "AVX2" or not limited_to_avx2())


def _amd_generation(info: dict[str, str]) -> str:
    """Return the generation of a processor of AMD; "" if unknown, and for other makers."""
    family = info.get("cpu family", "") if info.get("vendor_id") == "AuthenticAMD" else ""
    if family == "23":
        return "Zen 1" if int(info.get("model", 0)) < 0x30 else "Zen 2"
    if family == "25":
        return "Zen 4" if "avx512f" in info.get("flags", "").split() else "Zen 3"
    return "Zen 5" if family == "26" else ""


def _cpu_info() -> dict[str, str]:
    """Return what Linux states of the first processor; nothing on another system."""
    try:
        lines = CPU_INFO.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
